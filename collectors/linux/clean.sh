# What captures may have left on a Linux host when they were killed together with their watchdog.
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
                removed "the trace instance ${clean_path##*/}, which no capture uses any more"
        done
        clean_probes "$clean_root"
    done
}

# Probes of --with scx whose instance, which they are named after, is gone.
clean_probes() {
    [ -r "$1/kprobe_events" ] || return 0
    sed -n 's/^p:\(schedscope_[0-9]*_[0-9a-f]*\/[a-z_]*\) .*/\1/p' "$1/kprobe_events" | while read -r clean_probe; do
        clean_name=$(echo "${clean_probe%/*}" | tr _ -)
        [ ! -d "$1/instances/$clean_name" ] || continue
        ! printf -- '-:%s\n' "$clean_probe" 2>/dev/null >>"$1/kprobe_events" ||
            removed "the probe $clean_probe of a capture that was killed"
    done
}

# Everything that records is root's, carries SCHEDSCOPE_RECORDER in its environment and is in the
# session of its watchdog. A session outlives its leader, whose pid is not reused as long: a process
# whose session has no leader any more is unsupervised.
clean_tools() {
    for clean_pid in $(clean_orphans); do
        clean_marked "$clean_pid" || continue
        clean_session "$clean_pid" || continue
        clean_name=$clean_comm
        if clean_session "$clean_leader" && [ "$clean_state" != Z ]; then continue; fi
        ! kill -s KILL "$clean_pid" 2>/dev/null ||
            removed "the process $clean_name (pid $clean_pid) of a capture that was killed"
    done
}

# The pids of root's processes whose session has lost its leader.  Only their environments are
# looked at: that of another user's process may be of any length.
clean_orphans() {
    host_process_rows stat | awk -F '\t' '
        $5 != "Z" { lives[$1] }
        $4 > 0 && $4 != $1 { leader[$1] = $4 }
        END { for (pid in leader) if (!(leader[pid] in lives)) print "/proc/" pid "/status" }' |
        host_heads 4000 | awk '
        /^==> \/proc\/[0-9]+\/status <==$/ { split($2, path, "/"); pid = path[3]; next }
        $1 == "Uid:" && $2 == 0 && $3 == 0 && $4 == 0 { print pid }'
}

# 0 if the process carries the mark of what records; an environment is only longer on purpose.
clean_marked() {
    # shellcheck disable=SC2086
    ${host_limit:+$host_limit 5} head -c 8388608 "/proc/$1/environ" 2>/dev/null | tr '\000' '\n' |
        grep -q '^SCHEDSCOPE_RECORDER=[0-9]'
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
