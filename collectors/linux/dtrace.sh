# Linux's DTrace recorder (session: ../dtrace-session.sh). Its purpose is to see both systems
# through one tool; ftrace costs far less. DTRACE names another program, with options, for a dtrace
# that is not in PATH.
# shellcheck shell=sh disable=SC2034,SC2154

dtrace_starts_late='' dtrace_signal=TERM dtrace_limits=''

dtrace_probe() {
    dtrace_program=${DTRACE:-dtrace}
    if ! have "${dtrace_program%% *}"; then
        probe_text="there is no dtrace here; on Debian and Oracle Linux the package is called dtrace"
        return 1
    fi
    # shellcheck disable=SC2086
    probe_version=$($dtrace_program -V 2>/dev/null | sed 's/^dtrace: *//')
    case $probe_version in
    *" 2."*) ;;
    *)
        probe_text="$dtrace_program is not DTrace 2 for Linux (SystemTap has a program of that name)"
        return 1
        ;;
    esac
    if [ ! -r /sys/kernel/btf/vmlinux ]; then
        probe_text="the kernel has no BTF (/sys/kernel/btf/vmlinux), from which DTrace reads the types"
        return 1
    fi
    # A program of the user's own may live in another root, with other mounts.
    if [ -z "${DTRACE:-}" ] && [ ! -e /sys/kernel/debug/tracing/uprobe_events ]; then
        probe_text="DTrace needs debugfs; mount it: mount -t debugfs nodev /sys/kernel/debug"
        return 1
    fi
    probe_text="DTrace with raw tracepoints: the same lines as on FreeBSD, at several times ftrace's cost"
}

dtrace_ready() {
    dtrace_switchrate=20hz
    dtrace_bufsize=16m
    [ -z "$buffer_kb" ] || dtrace_bufsize=${buffer_kb}k
}

# Only a whole path works for a dtrace that lives in another root.
dtrace_script() {
    dtrace_path=$(asset "$1")
    case $dtrace_path in /*) ;; *) [ -z "${DTRACE:-}" ] || dtrace_path=$folder_path/$dtrace_path ;; esac
    printf '%s\n' "$dtrace_path"
}

# yield.d, where the kernel has its tracepoint. sched.d comes last so that its last line is the last
# of all. The marker's pid is known only where dtrace runs.
dtrace_words() {
    # shellcheck disable=SC2016
    [ "$1" != guard_start ] || set -- "$@" sh -c 'exec "$@" "$SCHEDSCOPE_MARKER"' dtrace
    # shellcheck disable=SC2086
    set -- "$@" $dtrace_program -x "bufsize=$dtrace_bufsize" -x "switchrate=$dtrace_switchrate"
    dtrace_yields=0
    for dtrace_root in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        [ ! -d "$dtrace_root/events/syscalls/sys_enter_sched_yield" ] || dtrace_yields=1
    done
    [ "$dtrace_yields" = 0 ] || set -- "$@" -s "$(dtrace_script yield.d)"
    "$@" -s "$(dtrace_script sched.d)" \
        "$(uname -r | awk -F '[.-]' '{ print $1 * 10000 + $2 * 100 + ($3 < 99 ? $3 : 99) }')" "$host_ncpu" \
        "$dtrace_yields"
}
