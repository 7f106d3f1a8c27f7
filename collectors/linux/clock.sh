# CLOCK_MONOTONIC in ns: the clock of a trace instance, which the kernel prints, in microseconds,
# with the counts of each buffer.  clock_file is such a file; it takes a process to read one,
# since the kernel writes it again for each byte that a shell reads.  Where no instance can be
# made the time since boot is taken, in hundredths of a second; on a host that has slept that
# is another clock, and the time is not known.  What is read has the same length on every host.
# clock_step is by how much the clock may be ahead of clock_ns.
# shellcheck shell=sh disable=SC2034,SC2154
clock_file=
host_clock() {
    clock_ns='' clock_step=1000
    [ -n "$clock_file" ] || read -r clock_file 2>/dev/null <.scratch/clock || clock_file=
    if [ -n "$clock_file" ]; then
        clock_ns=$(sed -n 's/^now ts: *0*\([0-9]*\)\.\([0-9]\{6\}\)$/\1\2000/p' "$clock_file" 2>/dev/null)
        [ -z "$clock_ns" ] || return 0
    fi
    for clock_slept in /sys/power/suspend_stats/success /sys/kernel/debug/suspend_stats; do
        read -r clock_slept 2>/dev/null <"$clock_slept" || continue
        case $clock_slept in 0 | *:*[!0-9]0) ;; *) return 0 ;; esac
    done
    read -r clock_up clock_slept 2>/dev/null </proc/uptime || return 0
    case $clock_up in *.[0-9][0-9]) clock_ns=${clock_up%.*}${clock_up#*.}0000000 clock_step=10000000 ;; esac
}

# In the watchdog of the capture $1, of a recorder without an instance of its own: makes one for the
# clock alone.  It can be removed as soon as no process holds it open, like those of
# ftrace-reader.sh.
host_clock_open() {
    for clock_path in /sys/kernel/tracing/instances /sys/kernel/debug/tracing/instances; do
        clock_dir=$clock_path/schedscope-$1-clock
        mkdir "$clock_dir" 2>/dev/null || continue
        if command exec 9>>"$clock_dir/free_buffer"; then
            printf '0\n' >"$clock_dir/tracing_on"
            printf '4\n' >"$clock_dir/buffer_size_kb"
            printf 'mono\n' >"$clock_dir/trace_clock" && clock_file=$clock_dir/per_cpu/cpu0/stats
        fi 2>/dev/null
        [ -z "$clock_file" ] || printf '%s\n' "$clock_file" >.scratch/clock
        return 0
    done 2>/dev/null
}

host_clock_close() {
    exec 9>&-
    [ -n "${clock_dir:-}" ] || return 0
    # The kernel refuses as long as any process has the file open.
    clock_tries=0
    until rmdir "$clock_dir" 2>/dev/null || [ ! -d "$clock_dir" ] || [ "$clock_tries" -ge 50 ]; do
        clock_tries=$((clock_tries + 1))
        sleep "$watch_nap"
    done
}
