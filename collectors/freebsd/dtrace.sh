# FreeBSD's recorder: the sched provider of DTrace (session: ../dtrace-session.sh).
# shellcheck shell=sh disable=SC2034,SC2154

dtrace_extras='prio irq callout inter'
# dtrace is started last, and it ends when all is printed: a signal to others (Ctrl-C, TERM to a
# process group) must not reach it, since at a second one it drops what it holds.
dtrace_starts_late=yes dtrace_signal=USR1 dtrace_limits=''

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
        if [ ! -e "${SCHEDSCOPE_DTRACE_MODULE:-/boot/kernel/dtraceall.ko}" ]; then
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
    # Only a tried yes counts.
    if [ "$(id -u)" != 0 ]; then
        probe_text="$probe_text (as root, and if kldload dtraceall works: not tried)"
        return 0
    fi
    if ! dtrace_loaded; then
        if ! probe_text=$(kldload dtraceall 2>&1); then
            probe_text="kldload dtraceall failed: $(printf '%s\n' "$probe_text" | tail -n 1)"
            return 1
        fi
        # Unloading is not free of risk on a busy host, so it is left to the administrator.
        say "the kernel module dtraceall was loaded; kldunload dtraceall removes it"
    fi
    dtrace_said=$(dtrace -l -P sched 2>&1)
    case $dtrace_said in
    *off-cpu*) probe_text="DTrace's sched provider: switches, wakeups, queue loads, lock and sleep reasons" ;;
    *)
        probe_text="the kernel has no probes of the provider sched; it needs options KDTRACE_HOOKS, which GENERIC has (dtrace -l -P sched says: $(printf '%s\n' "$dtrace_said" | tail -n 1))"
        return 1
        ;;
    esac
}

# The module dtrace alone has no scheduler probes: they come with the module sdt.
dtrace_loaded() { kldstat -q -n dtraceall.ko 2>/dev/null || kldstat -q -m sdt 2>/dev/null; }

dtrace_ready() {
    case " $recorder_extras " in *' inter '*)
        [ "$host_scheduler" = ULE ] || {
            fail_text="--with inter records values that ULE keeps, and this kernel runs ${host_scheduler:-another scheduler}"
            return 1
        }
        ;;
    esac
    # The kernel ends a recording on time, however busy the host is.
    dtrace_limits=
    [ -z "$seconds" ] || ! dtrace -l -n profile:::tick-10ms >/dev/null 2>&1 || dtrace_limits=duration
    dtrace_buffers
}

# bufresize=manual: refuse rather than quietly take smaller buffers than asked for; of aggregations,
# which count lines, little is kept. A dtrace that gets no CPU time for 30 seconds is taken for dead.
# sched.d comes last so that its last line is the last of all.
dtrace_words() {
    set -- "$@" nice -n -20 dtrace -x "bufsize=$dtrace_bufsize" -x bufresize=manual \
        ${dtrace_ring:+-x bufpolicy=ring} -x "dynvarsize=${dtrace_variables_kb}k" -x aggsize=64k -x statusrate=10hz -x "switchrate=$dtrace_switchrate"
    for dtrace_extra in $recorder_extras $dtrace_limits; do
        set -- "$@" -s "$(asset "$dtrace_extra.d")"
    done
    # CPU numbers may have gaps: hyperthreads switched off at boot keep theirs.
    dtrace_maxid=$(sysctl -n kern.smp.maxid 2>/dev/null) || dtrace_maxid=$((host_ncpu - 1))
    "$@" -s "$(asset sched.d)" "$(sysctl -n kern.osreldate)" "$((dtrace_maxid + 1))" 0 "${dtrace_ring:-0}" \
        ${dtrace_limits:+"$(awk -v seconds="$seconds" 'BEGIN { printf "%.0f", seconds * 1e9 }')"}
}

# Buffers are per CPU and double, and must hold what a CPU writes between two switches. A switch
# costs about 400 bytes with everything around it. The load to come is not known: allow for 20
# times the present rate, and no less than 16 MB, but
# * no more than the kernel gives: memory / kern.dtrace.bufsize_max / CPUs for a buffer, and it
#   is dtrace that fails then, with "Cannot allocate memory";
# * no more in all than dtrace prints in some 10 seconds: all buffers are printed one after the
#   other, and a dtrace that has not asked for its status for 30 seconds is taken for dead
#   (DTrace's deadman), which ends the recording.
dtrace_buffers() {
    dtrace_switchrate=20hz
    dtrace_fraction=$(sysctl -n kern.dtrace.bufsize_max 2>/dev/null) || dtrace_fraction=128
    [ "${dtrace_fraction:-0}" -gt 0 ] || dtrace_fraction=128
    dtrace_most=$(awk -v physmem="$(sysctl -n hw.physmem 2>/dev/null)" -v fraction="$dtrace_fraction" \
        -v ncpu="$host_ncpu" 'BEGIN { printf "%d", physmem / fraction / ncpu / 1024 }')
    [ -z "$dtrace_ring" ] || buffer_kb=$(((ring_kb + host_ncpu - 1) / host_ncpu))
    if [ -n "$buffer_kb" ]; then
        [ "$dtrace_most" -eq 0 ] || [ "$buffer_kb" -le "$dtrace_most" ] || {
            fail_text="-b $buffer_kb is more than this kernel allows, $dtrace_most KiB per CPU (memory / kern.dtrace.bufsize_max / CPUs); use a smaller -b"
            dtrace_fraction=$((dtrace_fraction * dtrace_most / buffer_kb))
            [ "$dtrace_fraction" -lt 16 ] || fail_text="$fail_text, or allow more with: sysctl kern.dtrace.bufsize_max=$dtrace_fraction"
            return 1
        }
        guard_buffer "$buffer_kb"
    else
        dtrace_before=$(sysctl -n vm.stats.sys.v_swtch 2>/dev/null || echo 0)
        pause
        dtrace_after=$(sysctl -n vm.stats.sys.v_swtch 2>/dev/null || echo 0)
        dtrace_pace
        dtrace_kb=$(awk -v switches="$((dtrace_after - dtrace_before))" -v seconds="$pause_seconds" \
            -v ncpu="$host_ncpu" -v most="$dtrace_most" -v pace="$dtrace_lines_per_second" 'BEGIN {
                kb = switches / seconds / ncpu * 20 * 400 / 20 / 1024
                if (kb < 16384) kb = 16384
                if (kb > 262144) kb = 262144
                printed = pace * 10 * 200 / 1024 / ncpu
                if (kb > printed) kb = printed
                if (kb < 512) kb = 512
                if (most > 0 && kb > most) kb = most
                printf "%d", kb
            }')
        guard_buffer "$dtrace_kb" 128
        say "each CPU gets two buffers of $buffer_kb KiB; -b changes that, up to $dtrace_most here (memory / kern.dtrace.bufsize_max / CPUs)"
    fi
    dtrace_bufsize=${buffer_kb}k
    dtrace_variables
}

# Sets dtrace_variables_kb, the memory of the scripts' arrays. DTrace divides it among as many CPUs
# as the kernel is built for (256, and 1024 from 14 on) and uses the shares of those that are there:
# of the 1 MiB that is the default two CPUs have 8 KiB. An element takes 96 bytes and 64 in the hash
# table; sched.d has 512 and some of each CPU, and those of callout.d, which are freed, wait to be
# used again.
dtrace_variables() {
    dtrace_most_cpus=$(sysctl -n kern.smp.maxcpus 2>/dev/null) || dtrace_most_cpus=1024
    case " $recorder_extras " in *' callout '*) dtrace_elements=2048 ;; *) dtrace_elements=640 ;; esac
    dtrace_variables_kb=$(awk -v elements="$dtrace_elements" -v ncpu="$host_ncpu" -v cpus="$dtrace_most_cpus" \
        -v physmem="$(sysctl -n hw.physmem 2>/dev/null)" 'BEGIN {
            kb = (elements + 8 * ncpu) * 160 * cpus / ncpu / 1024
            if (physmem > 0 && kb > physmem / 1024 / 16) kb = physmem / 1024 / 16
            if (kb < 1024) kb = 1024
            printf "%d", kb
        }')
}

# Sets dtrace_lines_per_second, an estimate: an eighth of what awk prints in a second of CPU time.
dtrace_pace() {
    dtrace_lines_per_second=${SCHEDSCOPE_DTRACE_LINES_PER_SECOND:-}
    [ -z "$dtrace_lines_per_second" ] || return 0
    times >"$scratch/times.before"
    awk 'BEGIN {
        for (i = 100000; i < 110000; i++)
            printf "S\t%d\t%d\t-1\t%d\t%d\t%d\t%x\t%x\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n",
                i, 1, i, i, 120, 3, 0, 0, i, i, i, i, 120, 3, 0, 1, 4, 4, "-", "name"
    }' >/dev/null
    times >"$scratch/times"
    # The second line is of the children: 0m1.234s 0m0.010s.
    dtrace_lines_per_second=$(awk '
        function seconds(text,    part) {
            gsub(/s/, "", text)
            split(text, part, "m")
            return part[1] * 60 + part[2]
        }
        FNR == 2 { spent = seconds($1) + seconds($2) - spent }
        END { printf "%d", 10000 / 8 / (spent < 0.01 ? 0.01 : spent) }' "$scratch/times.before" "$scratch/times")
}
