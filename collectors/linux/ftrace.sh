# ftrace: records through tracefs alone; no tool is needed (interface: head of ../capture).
#
# A private instance holds its own buffers, clock and events, so other users of tracing
# are neither seen nor disturbed.  The kernel's sub-buffer pages go to raw/cpuN unread.
#
# OVERHEAD  docs/recorder-cost.md.  What keeps it small:
#   * nobody waits on the buffers.  A blocked reader is woken by the very events it is to
#     read, thousands of times a second; here a loop looks four times a second how many
#     events each buffer holds, and starts one dd when a CPU's is an eighth full.
#   * whole sub-buffers are copied: no parsing, no text, one read and one write for about
#     300 events.
#   * the kernel's own book-keeping of thread names is off where nobody else needs it.
# REQUIREMENTS  root, tracefs, Linux 4.1 or newer (clock "mono").
# shellcheck shell=sh disable=SC2034,SC2154

ftrace_events="sched/sched_switch sched/sched_waking sched/sched_wakeup sched/sched_wakeup_new
sched/sched_migrate_task sched/sched_process_fork sched/sched_process_exec
sched/sched_process_exit sched/sched_pi_setprio task/task_newtask task/task_rename"

ftrace_find() {
    # Not `for ftrace_root`: yash keeps a loop's variable to the function.
    for ftrace_path in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        ftrace_root=$ftrace_path
        [ ! -d "$ftrace_root/events/sched/sched_switch" ] || return 0
    done
    ftrace_root=
    return 1
}

ftrace_probe() {
    probe_version=$(uname -r)
    if ! ftrace_find; then
        if [ "$(id -u)" != 0 ]; then
            probe_text="tracefs cannot be seen without root; run it with sudo"
        elif grep -q tracefs /proc/filesystems; then
            probe_text="tracefs is not mounted; do: mount -t tracefs nodev /sys/kernel/tracing"
        else
            probe_text="this kernel has no tracefs (CONFIG_EVENT_TRACING)"
        fi
        return 1
    fi
    if [ ! -d "$ftrace_root/instances" ]; then
        probe_text="$ftrace_root/instances is missing: the kernel is too old for private buffers"
        return 1
    fi
    case $(cat "$ftrace_root/trace_clock" 2>/dev/null) in
    *mono*) ;;
    *) probe_text="the kernel offers no trace clock mono (Linux 4.1 has it)" && return 1 ;;
    esac
    probe_text="tracefs alone, no tool needed, and the cheapest recorder"
}

# The owner's start time is part of the name: a pid may be used again.
ftrace_name_of() {
    host_read "/proc/$1/stat"
    # shellcheck disable=SC2086
    set -- "$1" ${host_word##*\) }
    shift 20
    ftrace_name="schedscope-$ftrace_owner-$1"
}

# An instance of ours whose owner was killed with no chance to clean up (SIGKILL).
ftrace_sweep() {
    for ftrace_stale in "$ftrace_root"/instances/schedscope-*-*; do
        [ -d "$ftrace_stale" ] || continue
        ftrace_owner=${ftrace_stale##*/schedscope-}
        ftrace_owner=${ftrace_owner%-*}
        ftrace_name=
        [ ! -r "/proc/$ftrace_owner/stat" ] || ftrace_name_of "$ftrace_owner"
        [ "$ftrace_root/instances/$ftrace_name" != "$ftrace_stale" ] || continue
        # The kernel refuses while anyone holds a file of it open, so a live one of
        # another pid name space is safe.
        if rmdir "$ftrace_stale" 2>/dev/null; then
            say "removed the trace instance ${ftrace_stale##*/} of a capture that was killed"
        fi
    done
}

ftrace_set() { printf '%s\n' "$2" 2>/dev/null >"$ftrace_dir/$1"; }

# The kernel notes the name of every thread switched to, for readers that need names; the
# events and the thread table have them, and without it a third of the cost of an event is
# gone.  The switch reaches all users of tracing, so it is left alone where there are any
# (where one has it on, nothing would be gained either).
ftrace_skip_names() {
    for ftrace_path in "$ftrace_root" "$ftrace_root"/instances/*; do
        [ -z "$(head -n 1 "$ftrace_path/set_event" 2>/dev/null)" ] || return 0
    done
    ftrace_set trace_options norecord-cmd || :
}

# A storm of switches makes 40 MB/s on a CPU; 32 MiB carry it for as long as the reader may
# have to wait for a CPU itself.  A small host gives at most an eighth of its free memory.
ftrace_pick_buffer() {
    [ -z "$buffer_kb" ] || return 0
    buffer_kb=32768
    ftrace_free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    ftrace_most=$((${ftrace_free:-1048576} / 8 / host_ncpu))
    [ "$buffer_kb" -le "$ftrace_most" ] || buffer_kb=$ftrace_most
    [ "$buffer_kb" -ge 256 ] || buffer_kb=256
}

ftrace_prepare() {
    ftrace_find
    ftrace_sweep
    ftrace_owner=$capture_pid
    ftrace_name_of "$capture_pid"
    ftrace_dir=$ftrace_root/instances/$ftrace_name
    fail_text="cannot make the trace instance $ftrace_dir"
    mkdir "$ftrace_dir" 2>/dev/null || return 1
    ftrace_made=1
    fail_text="cannot set up $ftrace_dir"
    ftrace_set tracing_on 0 || return 1
    ftrace_set trace_clock mono || return 1
    ftrace_skip_names
    ftrace_pick_buffer
    # Linux 6.8 and later can copy more than a page at a time: half the cost of reading.
    if [ -e "$ftrace_dir/buffer_subbuf_size_kb" ]; then
        ftrace_set buffer_subbuf_size_kb "${SCHEDSCOPE_SUBBUF_KB:-16}"
    fi
    fail_text="the kernel refuses a buffer of $buffer_kb KiB per CPU; give a smaller one with -b"
    ftrace_set buffer_size_kb "$buffer_kb" || return 1
    fail_text="cannot write into $capture_dir"
    mkdir "$capture_dir/raw" "$capture_dir/stats" "$capture_dir/events" || return 1
    cat "$ftrace_root/events/header_page" >"$capture_dir/events/header_page" || return 1
    cat "$ftrace_root/events/header_event" >"$capture_dir/events/header_event" || return 1
    for ftrace_event in $ftrace_events; do
        [ -d "$ftrace_dir/events/$ftrace_event" ] || continue
        mkdir -p "$capture_dir/events/$ftrace_event" || return 1
        cat "$ftrace_root/events/$ftrace_event/format" >"$capture_dir/events/$ftrace_event/format" || return 1
        ftrace_set "events/$ftrace_event/enable" 1 || {
            fail_text="the event $ftrace_event cannot be switched on"
            return 1
        }
    done
    # A sub-buffer is a header and the data; header_page gives the offset and the size of the data.
    ftrace_page=$(awk -F '[:;]' '/ data;/ { print $4 + $6 }' "$capture_dir/events/header_page")
    if [ -r "$ftrace_dir/buffer_subbuf_size_kb" ]; then
        host_read "$ftrace_dir/buffer_subbuf_size_kb"
        ftrace_page=$((host_word * 1024))
    fi
    # A second guard against waiting, where dd has it.
    ftrace_nonblock=
    if dd if=/dev/null of=/dev/null iflag=nonblock count=0 2>/dev/null; then
        ftrace_nonblock=iflag=nonblock
    fi
    ftrace_cpus=
    for ftrace_path in "$ftrace_dir"/per_cpu/cpu[0-9]*; do
        ftrace_cpu=${ftrace_path##*cpu}
        [ ! -d "/sys/devices/system/cpu/cpu$ftrace_cpu" ] || ftrace_cpus="$ftrace_cpus $ftrace_cpu"
    done
    # An event takes 40 to 70 bytes here.
    ftrace_threshold=$((buffer_kb * 1024 / 8 / 50))
    fail_text=
}

# Sets ftrace_entries to the number of unread events of a CPU, without a process.
ftrace_count() {
    ftrace_entries=0 ftrace_error=
    while read -r ftrace_key ftrace_value; do
        [ "$ftrace_key" = entries: ] || continue
        ftrace_entries=$ftrace_value
        return
    done <"$ftrace_dir/per_cpu/cpu$1/stats"
}

# Copies whole pages of a CPU's buffer until at most $2 events are left; 1 if they cannot be
# written.  Asking for no more than the events of 36 bytes (the shortest that come in numbers)
# must fill, dd never waits, and never takes a page that is still being filled: reading on
# while events come would write a page for every handful of them.
ftrace_copy() {
    while [ "$ftrace_entries" -gt "$2" ]; do
        ftrace_pages=$((ftrace_entries * 36 / ftrace_page))
        [ "$ftrace_pages" -gt 0 ] || ftrace_pages=1
        # shellcheck disable=SC2086
        ftrace_error=$(dd if="$ftrace_dir/per_cpu/cpu$1/trace_pipe_raw" bs="$ftrace_page" \
            count="$ftrace_pages" $ftrace_nonblock 2>&1 >>"$capture_dir/raw/cpu$1") || break
        ftrace_count "$1"
    done
    case $ftrace_error in
    *"o space left"* | *"uota"* | *"ile too large"* | *"nput/output error"*) return 1 ;;
    esac
    return 0
}

# The reader of some CPUs.  It also is the janitor: should the main program vanish without
# a word (SIGKILL), it removes the instance and itself.
ftrace_read_loop() {
    trap - EXIT
    trap '' INT TERM HUP QUIT PIPE USR1 ALRM
    ftrace_nap=$pause_seconds
    while [ ! -e "$scratch/stop" ]; do
        sleep "$ftrace_nap"
        ftrace_nap=$pause_seconds
        for ftrace_cpu in "$@"; do
            ftrace_count "$ftrace_cpu"
            [ "$ftrace_entries" -gt "$ftrace_threshold" ] || continue
            [ "$pause_seconds" = 1 ] || ftrace_nap=0.05
            ftrace_copy "$ftrace_cpu" "$ftrace_threshold" && continue
            # The file alone says it: nothing can be written into it.
            : >"$scratch/failed"
            kill -s USR1 "$capture_pid"
            return
        done
        if ! kill -0 "$capture_pid" 2>/dev/null; then
            ftrace_set tracing_on 0
            rmdir "$ftrace_dir"
            rm -rf "$capture_dir"
            return
        fi
    done
}

ftrace_start() {
    recorder_command="tracefs instance, events $(echo "$ftrace_events" | tr '\n' ' ' | sed 's/ $//')"
    fail_text="cannot switch on recording"
    ftrace_set tracing_on 1 || return 1
    host_clock
    window_begin=$clock_ns
    # One loop for eight CPUs: copying goes on in parallel on a large host.
    # shellcheck disable=SC2086
    set -- $ftrace_cpus
    while [ $# -gt 0 ]; do
        ftrace_group=
        while [ $# -gt 0 ]; do
            ftrace_group="$ftrace_group $1"
            shift
            [ $(($# % 8)) != 0 ] || break
        done
        # shellcheck disable=SC2086
        ftrace_read_loop $ftrace_group &
        recorder_pids="$recorder_pids $!"
    done
    # A reader needs little time, but not after twenty others have had their turn.
    # shellcheck disable=SC2086
    renice -n -20 -p $recorder_pids >/dev/null 2>&1
    fail_text=
}

ftrace_stop() {
    host_clock
    window_end=$clock_ns
    ftrace_set tracing_on 0
    ftrace_end_loops
    for ftrace_cpu in $ftrace_cpus; do
        [ ! -e "$scratch/failed" ] || break
        ftrace_count "$ftrace_cpu"
        ftrace_copy "$ftrace_cpu" 0 || : >"$scratch/failed"
    done
    [ ! -e "$scratch/failed" ] || fail_text="no space left for $capture_dir"
    # On a full disk what follows needs the space set aside.
    free_reserve
    ftrace_kept=0
    for ftrace_cpu in $ftrace_cpus; do
        cat "$ftrace_dir/per_cpu/cpu$ftrace_cpu/stats" >"$capture_dir/stats/cpu$ftrace_cpu"
        ftrace_report "$ftrace_cpu"
        ftrace_trim "$capture_dir/raw/cpu$ftrace_cpu"
    done
    recorder_events=$ftrace_kept
    [ -z "$fail_text" ]
}

# What the kernel says became of a CPU's events.
ftrace_report() {
    while read -r ftrace_key ftrace_2 ftrace_3; do
        case "$ftrace_key $ftrace_2" in
        "overrun: 0" | "commit overrun:" | "dropped events:" | "read events:") ;;
        "overrun: "*) lost "$1" "$ftrace_2" overrun ;;
        "entries: 0") ;;
        "entries: "*) lost "$1" "$ftrace_2" unread ;;
        esac
        case "$ftrace_key $ftrace_2 $ftrace_3" in
        "commit overrun: 0" | "dropped events: 0") ;;
        "commit overrun: "*) lost "$1" "$ftrace_3" commit_overrun ;;
        "dropped events: "*) lost "$1" "$ftrace_3" dropped ;;
        "read events: "*) ftrace_kept=$((ftrace_kept + ftrace_3)) ;;
        esac
    done <"$capture_dir/stats/cpu$1"
}

# A full disk can tear the last sub-buffer: only whole ones stay.
ftrace_trim() {
    [ -e "$1" ] || : >"$1"
    ftrace_size=$(wc -c <"$1")
    [ $((ftrace_size % ftrace_page)) = 0 ] ||
        dd if=/dev/null of="$1" bs="$ftrace_page" seek=$((ftrace_size / ftrace_page)) 2>/dev/null
}

ftrace_end_loops() {
    : >"$scratch/stop"
    for ftrace_pid in $recorder_pids; do
        while kill -0 "$ftrace_pid" 2>/dev/null; do wait "$ftrace_pid"; done
    done
}

ftrace_cleanup() {
    [ -n "${ftrace_made:-}" ] || return 0
    ftrace_set tracing_on 0
    ftrace_end_loops
    rmdir "$ftrace_dir" || say "cannot remove $ftrace_dir; do: rmdir $ftrace_dir"
    ftrace_made=
}

ftrace_json() {
    cat <<END_JSON
  "ftrace": {
    "sub_buffer_bytes": $ftrace_page,
    "clock": "mono",
    "instance": "$ftrace_name"
  },
END_JSON
}
