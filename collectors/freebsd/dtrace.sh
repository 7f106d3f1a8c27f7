# FreeBSD's recorder: the sched provider of DTrace (session: ../dtrace-session.sh).
# shellcheck shell=sh disable=SC2034,SC2154

dtrace_extras='prio irq callout'

dtrace_probe() {
    if ! have dtrace; then
        probe_text="there is no dtrace here; it belongs to the base system (pkgbase: FreeBSD-dtrace)"
        return 1
    fi
    if [ "$(sysctl -n security.jail.jailed 2>/dev/null)" = 1 ]; then
        probe_text="this is a jail, where the kernel cannot be traced; run capture on the host"
        return 1
    fi
    if ! dtrace_loaded; then
        if [ ! -e "${dtrace_module:-/boot/kernel/dtraceall.ko}" ]; then
            probe_text="there is no module /boot/kernel/dtraceall.ko; install the kernel's modules"
            return 1
        fi
        if [ "$(sysctl -n kern.securelevel 2>/dev/null || echo -1)" -gt 0 ]; then
            probe_text="kern.securelevel forbids loading dtraceall; load it at boot: dtraceall_load=YES in loader.conf"
            return 1
        fi
    fi
    probe_version=$(dtrace -V 2>/dev/null | sed 's/^dtrace: *//')
    probe_text="DTrace's sched provider: switches, wakeups, queue loads, lock and sleep reasons"
}

# The module dtrace alone has no probes of the scheduler: those are the module sdt's.
dtrace_loaded() { kldstat -q -n dtraceall.ko 2>/dev/null || kldstat -q -m sdt 2>/dev/null; }

dtrace_ready() {
    if ! dtrace_loaded; then
        if ! kldload dtraceall 2>"$scratch/kldload"; then
            fail_text="kldload dtraceall failed: $(tail -n 1 "$scratch/kldload")"
            return 1
        fi
        # Unloading is not free of risk on a busy host, so it is left to the administrator.
        say "the kernel module dtraceall was loaded; kldunload dtraceall removes it"
    fi
    if ! dtrace -l -P sched 2>"$scratch/dtrace.list" | grep -q 'off-cpu'; then
        fail_text="the kernel has no probes of the provider sched; it needs options KDTRACE_HOOKS, which GENERIC has (dtrace -l -P sched says: $(tail -n 1 "$scratch/dtrace.list"))"
        return 1
    fi
    dtrace_buffers
}

# bufresize=manual: refuse rather than quietly take smaller buffers than asked for. sched.d
# comes last so that its last line is the last of all.
dtrace_words() {
    set -- "$@" dtrace -x "bufsize=$dtrace_bufsize" -x bufresize=manual \
        -x "switchrate=$dtrace_switchrate"
    for dtrace_extra in $recorder_extras; do
        set -- "$@" -s "$(asset "$dtrace_extra.d")"
    done
    # CPU numbers may have gaps: hyperthreads switched off at boot keep theirs.
    dtrace_maxid=$(sysctl -n kern.smp.maxid 2>/dev/null) || dtrace_maxid=$((host_ncpu - 1))
    "$@" -s "$(asset sched.d)" "$(sysctl -n kern.osreldate)" "$((dtrace_maxid + 1))" 0
}

# Buffers are per CPU and double, and must hold what a CPU writes between two switches. A
# switch costs about 400 bytes with everything around it. The load to come is not known: allow
# for 20 times the present rate, and no less than 16 MB where memory allows.
dtrace_buffers() {
    dtrace_switchrate=20hz
    if [ -n "$buffer_kb" ]; then
        dtrace_bufsize=${buffer_kb}k
        return
    fi
    dtrace_before=$(sysctl -n vm.stats.sys.v_swtch 2>/dev/null || echo 0)
    pause
    dtrace_after=$(sysctl -n vm.stats.sys.v_swtch 2>/dev/null || echo 0)
    dtrace_physmem=$(sysctl -n hw.physmem 2>/dev/null || echo 0)
    dtrace_bufsize=$(awk -v switches="$((dtrace_after - dtrace_before))" -v seconds="$pause_seconds" \
        -v ncpu="$host_ncpu" -v physmem="$dtrace_physmem" 'BEGIN {
            mb = 1048576
            want = switches / seconds / ncpu * 20 * 400 / 20
            if (want < 16 * mb) want = 16 * mb
            # Two buffers per CPU in an eighth of the memory at most.
            most = physmem / 8 / 2 / ncpu
            if (physmem > 0 && want > most) want = most
            if (want < mb) want = mb
            if (want > 256 * mb) want = 256 * mb
            printf "%dm", int(want / mb)
        }')
}
