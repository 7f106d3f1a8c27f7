# FreeBSD: what `capture` writes down about the host (interface: head of ../capture).
# Base system only: sh, awk, sysctl, ps, procstat, cpuset.
# shellcheck shell=sh disable=SC2034

host_prefers() { echo dtrace; }

# Only DTrace can read DTrace's clock (clock.sh).
host_clock_pair() { clock_ns='' wall_ns='' clock_half=0; }

# dtrace ends with the process that watches it, and leaves nothing in the kernel.
host_clean() { :; }

# Not written down here yet: jails and resource limits.
host_processes() { :; }
host_groups() { :; }
host_cpu_time() { :; }

# Sets host_word to a sysctl's value, or to nothing.
host_sysctl() { host_word=$(sysctl -n "$1" 2>/dev/null) || host_word=; }

host_facts() {
    host_sysctl hw.ncpu
    host_ncpu=$host_word
    host_sysctl hw.pagesize
    host_page_size=$host_word
    host_sysctl hw.byteorder
    case $host_word in 1234) host_endian=little ;; 4321) host_endian=big ;; *) host_endian='' ;; esac
    case $(uname -m) in
    amd64 | arm64 | powerpc | riscv) host_machine=$(uname -p) ;;
    *) host_machine=$(uname -m) ;;
    esac
    case $host_machine in *64*) host_long_bits=64 ;; *) host_long_bits=32 ;; esac
    # { hz = 1000, tick = 1000, profhz = 8128, stathz = 127 }
    host_sysctl kern.clockrate
    host_hz=$(host_clockrate "$host_word" hz)
    host_stathz=$(host_clockrate "$host_word" stathz)
    host_sysctl kern.sched.name
    host_scheduler=$host_word
    host_sysctl kern.sched.preemption
    case $host_word in
    1)
        host_sysctl kern.sched.preempt_thresh
        host_preempt="on${host_word:+, threshold $host_word}"
        ;;
    0) host_preempt=off ;;
    *) host_preempt='' ;;
    esac
    # amd64 and i386: TSC less a skew per CPU, scaled to ns. Elsewhere: nanouptime.
    host_sysctl machdep.tsc_freq
    if [ -n "$host_word" ]; then host_clock_name=tsc; else host_clock_name=uptime; fi
    host_clock_resolution=1
}

# The number behind NAME in the text of kern.clockrate.
host_clockrate() {
    printf '%s\n' "$1" | tr '{},' '   ' |
        awk -v name="$2" '{ for (i = 1; i < NF; i++) if ($i == name && $(i + 1) == "=") print $(i + 2) }'
}

host_sched_ext() { :; }

# All of kern.sched, which differs between schedulers and releases, and what is needed to
# make sense of it.
host_tunables() {
    for host_name in $(sysctl -N kern.sched 2>/dev/null) kern.osreldate kern.osrelease \
        kern.ccpu kern.hz kern.clockrate kern.boottime kern.vm_guest kern.smp.cpus \
        kern.smp.cores kern.smp.threads_per_core kern.timecounter.hardware \
        machdep.tsc_freq machdep.hyperthreading_allowed hw.machine_arch hw.model \
        hw.physmem vm.ndomains; do
        host_text=$(sysctl -n "$host_name" 2>/dev/null) || continue
        printf '%s\0%s\0' "$host_name" "$host_text"
    done
    host_text=$(cpuset -g 2>/dev/null) && printf '%s\0%s\0' 'cpuset -g' "$host_text"
}

# ps knows parents, nice and the class; procstat the kernel's own priority (that of ps is
# shifted by a constant of the release it was built for) and thread names. procstat pads
# names to 19 columns and prints "-" for a thread named like its process.
host_threads() {
    {
        ps -axH -o lwp= -o pid= -o ppid= -o nice= -o flags= -o rtprio= 2>/dev/null |
            sed 's/^/ps /'
        host_affinities
        procstat -h -t -a 2>/dev/null || procstat -a -h threads 2>/dev/null
    } | awk '
        BEGIN {
            OFS = "\t"
            print "tid", "pid", "ppid", "policy", "prio", "nice", "affinity", "kernel", "comm"
            class["real"] = "realtime"
            class["normal"] = class["kernel"] = "timeshare"
            class["idle"] = "idle"
            class["intr"] = "interrupt"
        }
        # The flag P_KPROC, 0x4, is in the last hexadecimal digit.
        $1 == "ps" {
            ppid[$2] = $4
            nice[$2] = $5
            kernel[$2] = substr($6, length($6)) ~ /[4-7c-fC-F]/ ? 1 : 0
            split($7, part, ":")
            policy[$2] = part[1] in class ? class[part[1]] : ""
            next
        }
        $1 == "mask" { affinity[$2] = $3; next }
        $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ {
            pid = $1
            tid = $2
            rest = $0
            sub(/^ *[0-9]+ +[0-9]+ /, "", rest)
            comm = substr(rest, 1, 19)
            name = substr(rest, 21, 19)
            # A name longer than its column would push the rest to the right: kernel names stop at
            # 19, but do not guess if it happens.
            if (substr(rest, 20, 1) != " " || substr(rest, 40, 1) != " ") next
            sub(/ +$/, "", comm)
            sub(/ +$/, "", name)
            if (name == "-" || name == "") name = comm
            if (name == "-") name = ""
            split(substr(rest, 41), field, " ")
            gsub(/\\/, "&&", name)
            gsub(/\t/, "\\t", name)
            print tid, pid, ppid[tid], policy[tid], field[2], nice[tid], affinity[tid], kernel[tid], name
        }'
}

# "mask TID LIST" for threads that may not run everywhere. One process per thread, so user
# threads only, and not on a host with thousands of them.
host_affinities() {
    host_everywhere=$(cpuset -g 2>/dev/null | sed -n '1s/.*mask: *//p')
    [ -n "$host_everywhere" ] || return 0
    # shellcheck disable=SC2046
    set -- $(ps -axH -o lwp= -o flags= 2>/dev/null | awk '$2 !~ /[4-7c-fC-F]$/ { print $1 }')
    [ $# -le 500 ] || return 0
    for host_tid; do
        host_mask=$(cpuset -g -t "$host_tid" 2>/dev/null | sed -n '1s/.*mask: *//p')
        [ -n "$host_mask" ] || continue
        echo "mask $host_tid $(printf '%s' "$host_mask" | tr -d ' ')"
    done
}

# The scheduler's own view of the machine, kern.sched.topology_spec: nested <group>s with the
# cache level their CPUs share. 4BSD of 13 and 14, and kernels without SMP, have none. CPU
# numbers may have gaps, where hyperthreads are switched off: those are not online.
host_cpus() {
    host_sysctl kern.smp.threads_per_core
    host_threads_per_core=$host_word
    host_sysctl vm.ndomains
    host_domains=$host_word
    host_sysctl kern.smp.maxid
    host_maxid=${host_word:-$((host_ncpu - 1))}
    host_packages=$(sed -n 's/^FreeBSD\/SMP: \([0-9]*\) package(s).*/\1/p' \
        "${SCHEDSCOPE_DMESG:-/var/run/dmesg.boot}" 2>/dev/null | tail -n 1)
    sysctl -n kern.sched.topology_spec 2>/dev/null |
        awk -v ncpu="$host_ncpu" -v maxid="$host_maxid" -v threads="$host_threads_per_core" -v domains="$host_domains" \
            -v packages="$host_packages" '
        # "0, 1, 2, 5" -> "0-2,5"
        function ranges(text,    n, cpu, i, from, out) {
            n = split(text, cpu, /[, ]+/)
            out = from = ""
            for (i = 1; i <= n; i++) {
                if (cpu[i] == "") continue
                if (from == "") from = cpu[i]
                if (i < n && cpu[i + 1] == cpu[i] + 1) continue
                out = out (out == "" ? "" : ",") (from == cpu[i] ? from : from "-" cpu[i])
                from = ""
            }
            return out
        }
        function attribute(name,    at, rest) {
            at = index($0, name "=\"")
            if (!at) return ""
            rest = substr($0, at + length(name) + 2)
            return substr(rest, 1, index(rest, "\"") - 1)
        }
        # Inner groups end first, so an outer group replaces what inner ones said: the last level is
        # the widest group that shares any.
        function close_group(    n, cpu, i, first) {
            n = split(members[depth], cpu, /[, ]+/)
            first = ""
            for (i = 1; i <= n; i++) if (cpu[i] != "" && first == "") first = cpu[i]
            for (i = 1; i <= n; i++) {
                if (cpu[i] == "") continue
                seen[cpu[i]] = 1
                if (smt[depth]) { core[cpu[i]] = first; siblings[cpu[i]] = ranges(members[depth]) }
                if (cache[depth] > 0) llc[cpu[i]] = first
                if (node[depth] != "") domain[cpu[i]] = node[depth]
            }
            depth--
        }
        BEGIN { RS = "<"; OFS = "\t"; depth = 0; nodes = 0 }
        /^group / { depth++; cache[depth] = attribute("cache-level") + 0; smt[depth] = 0; node[depth] = ""; members[depth] = "" }
        /^cpu / { members[depth] = substr($0, index($0, ">") + 1); gsub(/[ \t\n]+/, " ", members[depth]) }
        /^flag / {
            name = attribute("name")
            if (name == "THREAD" || name == "SMT" || name == "HTT") smt[depth] = 1
            if (name == "NODE") node[depth] = nodes++
        }
        /^\/group>/ { if (depth > 0) close_group() }
        END {
            print "cpu", "online", "core", "llc", "package", "numa_node", "smt_siblings", "capacity"
            for (known = i = 0; i <= maxid; i++) known += i in seen
            for (i = 0; i <= maxid; i++) {
                online = known ? i in seen : ncpu == maxid + 1 ? 1 : ""
                if (online == 0 && known) { print i, 0, "", "", "", "", "", ""; continue }
                if (!(i in core) && threads == 1 && (i in seen)) { core[i] = i; siblings[i] = i }
                if (!(i in domain) && domains == 1) domain[i] = 0
                print i, online, core[i], llc[i], (packages == 1 ? 0 : ""), domain[i], siblings[i], ""
            }
        }'
}
