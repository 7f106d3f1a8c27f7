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
# The instance, its readers and its removal are in ftrace-reader.sh, which the watchdog runs.
# REQUIREMENTS  root, tracefs, Linux 4.1 or newer (clock "mono").
# shellcheck shell=sh disable=SC2034,SC2154

ftrace_events="sched/sched_switch sched/sched_waking sched/sched_wakeup sched/sched_wakeup_new
sched/sched_migrate_task sched/sched_process_fork sched/sched_process_exec
sched/sched_process_exit sched/sched_pi_setprio task/task_newtask task/task_rename"

ftrace_extras='irq yield syscalls locks'
ftrace_irq="irq/irq_handler_entry irq/irq_handler_exit irq/softirq_entry irq/softirq_exit"
ftrace_yield=syscalls/sys_enter_sched_yield
# Of the whole host: a filter for the command's processes would have to follow their forks, which the
# kernel offers only for all events of an instance together (set_event_pid).
ftrace_syscalls="raw_syscalls/sys_enter raw_syscalls/sys_exit"
# Locks of the kernel; those of programs are futexes, whose calls ftrace_locks_wanted adds.
ftrace_locks="lock/contention_begin lock/contention_end"

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
    ftrace_pick_buffer
    host_clock
    ftrace_name=schedscope-$capture_pid-${clock_ns:-$(date +%s)}
    ftrace_dir=$ftrace_root/instances/$ftrace_name
    ftrace_buffer_kb=$buffer_kb
    ftrace_subbuf_kb=${SCHEDSCOPE_SUBBUF_KB:-16}
    ftrace_calls_only=
    # A ring is seldom read: a snapshot's beginning is as exact as its sub-buffers are small.
    [ -z "$ring" ] || ftrace_subbuf_kb=${SCHEDSCOPE_SUBBUF_KB:-4}
    for ftrace_extra in $recorder_extras; do
        [ "$ftrace_extra" != locks ] || { ftrace_locks_wanted || return 1; }
        eval "ftrace_event=\$ftrace_$ftrace_extra"
        [ -n "$ftrace_event" ] || continue
        if [ ! -d "$ftrace_root/events/${ftrace_event%% *}" ]; then
            fail_text="this kernel has no event ${ftrace_event%% *}, which --with $ftrace_extra records"
            return 1
        fi
        ftrace_events="$ftrace_events $ftrace_event"
    done
    ftrace_events=$(echo "$ftrace_events" | tr '\n' ' ')
    guard_settings='ftrace_root ftrace_name ftrace_events ftrace_buffer_kb ftrace_subbuf_kb ftrace_calls_only'
    # shellcheck disable=SC2086
    guard_start linux/ftrace-reader.sh ${ring:+linux/ring-watch.sh} -- || return 1
    {
        read -r ftrace_page
        read -r ftrace_cpus
    } <"$scratch/ftrace"
}

# A program's lock is a futex: a thread that has to wait for it, or that has to wake another,
# makes a system call.  Of all calls only these are recorded, unless all are wanted.
ftrace_locks_wanted() {
    if [ ! -d "$ftrace_root/events/lock/contention_begin" ]; then
        note "this kernel has no event lock/contention_begin (Linux 5.19 and later have it): locks of the kernel are not recorded"
        ftrace_locks=
    fi
    case " $recorder_extras " in *" syscalls "*) return 0 ;; esac
    case $(uname -m) in
    x86_64) ftrace_futex=202 ;;
    aarch64 | riscv64 | loongarch64) ftrace_futex=98 ;;
    *) ftrace_futex= ;;
    esac
    if [ -z "$ftrace_futex" ]; then
        fail_text="--with locks does not know the number of the futex call on $(uname -m); add syscalls, which records every call"
        return 1
    fi
    if [ ! -d "$ftrace_root/events/raw_syscalls/sys_enter" ]; then
        fail_text="this kernel has no event raw_syscalls/sys_enter, which --with locks records"
        return 1
    fi
    # futex, futex_waitv, futex_wake, futex_wait, futex_requeue
    ftrace_calls_only="id == $ftrace_futex || id == 449 || (id >= 454 && id <= 456)"
    ftrace_events="$ftrace_events $ftrace_syscalls"
}

ftrace_start() {
    recorder_command="tracefs instance, events ${ftrace_events% }"
    fail_text="cannot switch on recording"
    printf '1\n' 2>/dev/null >"$ftrace_dir/tracing_on" || return 1
    host_clock
    window_begin=$clock_ns
    fail_text=
}

# 0 if recording is still on; nobody but us should have touched it.
ftrace_recording() {
    host_read "$ftrace_dir/tracing_on"
    if [ "$host_word" = 1 ]; then
        host_read "$ftrace_dir/events/sched/sched_switch/enable"
        case $host_word in 1*) return 0 ;; esac
    fi
    fail_text="recording was switched off by somebody else while it ran ($ftrace_dir)"
    [ -d "$ftrace_dir" ] || fail_text="the trace instance $ftrace_dir was removed while it recorded"
    return 1
}

ftrace_stop() {
    guard_window_end
    # At a limit the watchdog may have been first.
    ftrace_recording || [ -z "$limit_text" ] || fail_text=
    guard_end || fail_text="${fail_text:-the process that records was killed}"
    ! guard_failed || fail_text=${fail_text:-$guard_said}
    ftrace_kept=0
    for ftrace_cpu in $ftrace_cpus; do ftrace_report "$ftrace_cpu"; done
    recorder_events=$ftrace_kept
    [ -z "$fail_text" ] && return 0
    for ftrace_cpu in $ftrace_cpus; do ftrace_end_unknown "$ftrace_cpu"; done
    return 1
}

# What the kernel says became of a CPU's events.  Without its account nothing is known.
ftrace_report() {
    if [ ! -s "stats/cpu$1" ]; then
        fail_text=${fail_text:-the kernel gave no account of what CPU $1 recorded}
        return
    fi
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
    done <"stats/cpu$1"
}

# After a failure a CPU is known up to its last sub-buffer, whose first 8 bytes are its time.
ftrace_end_unknown() {
    ftrace_known=
    if [ -s "raw/cpu$1" ]; then
        ftrace_size=$(wc -c <"raw/cpu$1")
        ftrace_known=$(dd if="raw/cpu$1" bs="$ftrace_page" skip=$((ftrace_size / ftrace_page - 1)) count=1 2>/dev/null |
            dd bs=8 count=1 2>/dev/null | od -An -v -tu8 | tr -d ' ')
    fi
    lost "$1" null early_end "${ftrace_known:-$window_begin}" "$window_end"
}

# The watchdog was killed.  Its readers end by themselves or with us; whoever holds the instance
# last, it can be removed then.
ftrace_orphaned() {
    printf '0\n' 2>/dev/null >"$ftrace_dir/tracing_on"
    rm -f "$scratch/reading"
    guard_kill_tools
    if [ -n "$ring" ]; then
        ring_kill_tools
        ftrace_cpus=
    fi
    for ftrace_cpu in $ftrace_cpus; do
        cat "$ftrace_dir/per_cpu/cpu$ftrace_cpu/stats" >"stats/cpu$ftrace_cpu" 2>/dev/null
    done
    ftrace_turn=0
    until rmdir "$ftrace_dir" 2>/dev/null || [ ! -d "$ftrace_dir" ] || [ "$ftrace_turn" -ge 40 ]; do
        ftrace_turn=$((ftrace_turn + 1))
        pause
    done
}

# Which calls were recorded: all, those of locks, or none.
ftrace_calls_told() {
    case " $recorder_extras " in
    *" syscalls "*) echo all ;;
    *" locks "*) echo locks ;;
    *) echo none ;;
    esac
}

ftrace_json() {
    cat <<END_JSON
  "ftrace": {
    "sub_buffer_bytes": $ftrace_page,
    "clock": "mono",
    "system_calls": "$(ftrace_calls_told)",
    "instance": "$ftrace_name"
  },
END_JSON
    [ -z "$ring" ] || ring_json
}
