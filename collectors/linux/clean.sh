# What captures that were killed, watchdog and all, may have left on a Linux host.
# shellcheck shell=sh disable=SC2034,SC2154

host_clean() {
    clean_instances
    clean_tools
}

# An instance of a capture that lives is held open: the kernel refuses to remove it (EBUSY),
# from any pid name space.  One that is not held and still
# records is not of this release, and may live.
clean_instances() {
    for clean_root in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        for clean_path in "$clean_root"/instances/schedscope-*; do
            [ -d "$clean_path" ] || continue
            case $(head -n 1 "$clean_path/tracing_on" 2>/dev/null) in
            0) ;;
            *) [ -z "$(head -n 1 "$clean_path/set_event" 2>/dev/null)" ] || continue ;;
            esac
            ! rmdir "$clean_path" 2>/dev/null ||
                removed "the trace instance ${clean_path##*/} of a capture that was killed"
        done
    done
}

# Everything that records carries SCHEDSCOPE_RECORDER in its environment and is in the session
# of its watchdog.  A session outlives its leader, whose number is not given to anybody else as
# long: a process whose session has no leader any more is in nobody's care.
clean_tools() {
    # shellcheck disable=SC2013
    for clean_path in $(grep -ls 'SCHEDSCOPE_RECORDER=[0-9]' /proc/[0-9]*/environ 2>/dev/null); do
        clean_pid=${clean_path#/proc/}
        clean_pid=${clean_pid%%/*}
        clean_session "$clean_pid" || continue
        [ "$clean_leader" -gt 0 ] || continue
        [ "$clean_leader" != "$clean_pid" ] || continue
        clean_name=$clean_comm
        if clean_session "$clean_leader" && [ "$clean_state" != Z ]; then continue; fi
        ! kill -s KILL "$clean_pid" 2>/dev/null ||
            removed "the process $clean_name (pid $clean_pid) of a capture that was killed"
    done
}

# Sets clean_comm, clean_state and clean_leader of a process; 1 if there is none.
clean_session() {
    clean_stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    clean_comm=${clean_stat#*\(}
    clean_comm=${clean_comm%\)*}
    # shellcheck disable=SC2086
    set -- ${clean_stat##*\) }
    clean_state=$1 clean_leader=$4
}
