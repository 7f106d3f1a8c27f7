# perf: for hosts where tracefs may be read but no instance be made (interface: head of ../capture).
#
# It records what ftrace.sh does, into perf.data. With perf 5.10 or newer only: older ones cannot be
# started and stopped on command, so the window would be a guess.
#
# OVERHEAD  about that of `perf sched record`: twice the time for a ping-pong of two threads on one
#   CPU, where ftrace.sh takes 1.4 times.  perf wakes up to empty its buffers; the wake-ups are in
#   the trace, under the name perf.
#
# SCHEDSCOPE_PERF names another perf to run; several words are allowed:
# SCHEDSCOPE_PERF="chroot /opt/sid perf".
# shellcheck shell=sh disable=SC2034,SC2154

perf_tool() { echo "${SCHEDSCOPE_PERF:-perf}"; }

# Sets probe_version and perf_number (5.10 is 510).
perf_find_version() {
    # shellcheck disable=SC2046
    probe_version=$($(perf_tool) --version 2>/dev/null | sed -n 's/^perf version //p' | head -n 1)
    perf_major=${probe_version%%.*}
    perf_minor=${probe_version#*.}
    perf_minor=${perf_minor%%[!0-9]*}
    case $perf_major in '' | *[!0-9]*) return 1 ;; esac
    perf_number=$((perf_major * 100 + ${perf_minor:-0}))
}

perf_events() {
    for perf_path in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        perf_root=$perf_path
        [ ! -r "$perf_root/events/sched/sched_switch/id" ] || return 0
    done
    return 1
}

perf_probe() {
    # shellcheck disable=SC2046
    set -- $(perf_tool)
    if ! have "$1"; then
        probe_text="there is no $1; install the package linux-perf"
        return 1
    fi
    if ! perf_find_version; then
        probe_text="'$(perf_tool) --version' prints no version"
        return 1
    fi
    if [ "$perf_number" -lt 510 ]; then
        probe_text="perf $probe_version is too old; 5.10 or newer is needed"
        return 1
    fi
    if [ "$(id -u)" = 0 ] && ! perf_events; then
        probe_text="tracepoints are not visible; run: mount -t tracefs nodev /sys/kernel/tracing"
        return 1
    fi
    probe_text="perf $probe_version; higher overhead than ftrace"
}

# Sets perf_pages, a power of two: perf takes no other number, and rounds a size up to one.
perf_pick_pages() {
    perf_pages=1
    while [ $((perf_pages * 2 * host_page_size)) -le $((buffer_kb * 1024)) ]; do
        perf_pages=$((perf_pages * 2))
    done
}

perf_prepare() {
    perf_find_version
    perf_events
    guard_buffer 8192 64
    perf_pick_pages
    perf_list=
    for perf_event in sched/sched_switch sched/sched_waking sched/sched_wakeup \
        sched/sched_wakeup_new sched/sched_migrate_task sched/sched_process_exec \
        sched/sched_process_exit sched/sched_pi_setprio task/task_newtask; do
        [ -d "$perf_root/events/$perf_event" ] || continue
        perf_list="$perf_list${perf_list:+,}${perf_event%%/*}:${perf_event#*/}"
        # perf stores them last: a perf.data that a full disk cut off can be read all the same.
        fail_text="cannot write to $output.partial"
        mkdir -p "events/$perf_event" || return 1
        cat "$perf_root/events/$perf_event/format" >"events/$perf_event/format" || return 1
    done
    perf_quotas || return 1
    fail_text="cannot make a pipe in $output.partial"
    mkfifo "$scratch/control" || return 1
    # Another perf than the host's may live in another root: then only the whole path leads here.
    perf_data=perf.data
    [ -z "${SCHEDSCOPE_PERF:-}" ] || perf_data=$folder_path/perf.data
    recorder_command="$(perf_tool) record -a -R -B -c 1 -k CLOCK_MONOTONIC -m $perf_pages -e $perf_list$perf_told"
    # perf itself ends before the size is reached, however fast it comes.
    perf_limit=
    if [ "$max_size_kb" -gt 0 ]; then
        perf_limit=--max-size=$((max_size_kb - guard_reserve_kb))K
        guard_full='size limit reached'
    fi
    : >stderr.txt
    # Opened for both directions, so that neither side waits for the other to open it.  The answer
    # is a plain file: no process has to wait for it, which might be left behind.
    command exec 7<>"$scratch/control" || return 1
    command exec 8>"$scratch/answer" || return 1
    # perf ends with the program it runs, and that ends with the pipe it reads.  -B: no build IDs,
    # which are not needed here; perf 6.1 crashes while reading them, now and then, where programs
    # come and go quickly.
    guard_input=pipe guard_growing=perf.data
    # shellcheck disable=SC2046,SC2086
    guard_start -- $(perf_tool) record -a -R -B -c 1 -k CLOCK_MONOTONIC -m "$perf_pages" -e "$perf_list" \
        ${perf_refills:+-e "$perf_refills" --filter "$perf_only"} $perf_limit -D -1 --control fd:7,8 -o "$perf_data" -- cat || return 1
    fail_text=
}

# When the period timers of CPU quotas fire.
perf_quotas() {
    perf_refills='' perf_told='' recorder_refills=false
    host_quota_timer
    perf_event=$perf_root/events/timer/hrtimer_expire_entry
    [ -n "$quota_timer" ] && [ -d "$perf_event" ] || return 0
    # The name says that only those of this function were recorded.
    mkdir -p events/quota/hrtimer_expire_entry || return 1
    cat "$perf_event/format" >events/quota/hrtimer_expire_entry/format || return 1
    perf_refills=timer:hrtimer_expire_entry perf_only="function == 0x$quota_timer"
    perf_told=" -e $perf_refills --filter '$perf_only'"
    recorder_refills=true
}

# Sends a command and waits for perf's answer, at most 20 seconds.
perf_tell() {
    echo "$1" >&7
    perf_turn=0
    until [ -s "$scratch/answer" ]; do
        if guard_failed || [ "$perf_turn" -ge 80 ]; then return 1; fi
        perf_turn=$((perf_turn + 1))
        pause
    done
}

perf_start() {
    if ! perf_tell enable; then
        perf_why=$(head -n 1 stderr.txt)
        fail_text="perf did not start recording"
        [ "$perf_turn" -lt 80 ] || fail_text="$fail_text within 20 seconds"
        ! guard_failed || [ -n "$perf_why" ] || perf_why=$guard_said
        fail_text=$fail_text${perf_why:+: $perf_why}
        return 1
    fi
    guard_window_begin
    # No other process may send commands to perf.
    exec 7>&- 8>&-
    guard_pids
}

perf_stop() {
    guard_window_end
    guard_end || fail_text="the process that watches perf was killed"
    # perf may take seconds to end after that, and the command may have ended meanwhile: the last
    # sample is all that shows when it stopped.
    if [ -n "$perf_limit" ] && grep -q "$guard_full" stderr.txt; then
        limit_text="the recording reached $((max_size_kb / 1024)) MiB (--max-size)"
        window_end=
    fi
    # perf.data shows how much was lost, and where.  perf itself reports lost chunks, and of lost
    # samples ("lost 7.31%!") above 5 % only.
    perf_lost=$(sed -n 's/.*lost \([0-9][0-9.]*\)\( chunks\| samples\|%\).*/\1/p' stderr.txt | head -n 1)
    [ -z "$perf_lost" ] || lost null null output
    none_lost="perf reported no loss"
    recorder_events=
    if [ -z "$fail_text" ] && { [ -e "$scratch/killed" ] || guard_failed || [ ! -s perf.data ] || ! grep -q '^\[ perf record: Captured' stderr.txt; }; then
        fail_text="perf ended early: $(grep -v -e '^\[ perf record: Woken' -e '^Events ' stderr.txt | tail -n 1)"
    fi
    if [ -n "$fail_text" ]; then
        # perf.data is known up to its last sample, which has not been read yet.
        lost null null early_end null "$window_end"
        window_end=
        return 1
    fi
    rm -f stderr.txt
}

perf_orphaned() { guard_kill_tools; }

perf_json() { :; }
