# Linux: what `capture` writes down about the host (interface: head of ../capture).
# shellcheck shell=sh disable=SC2034

host_prefers() { echo ftrace perf bpftrace dtrace; }

# Sets host_word to the first line of a file, or to nothing.  Not with `read`: a shell reads
# byte by byte, and sysctl files answer only the first of such reads.
host_read() {
    host_word=$(head -n 1 "$1" 2>/dev/null) || host_word=
}

host_facts() {
    host_ncpu=$(getconf _NPROCESSORS_ONLN 2>/dev/null) || host_ncpu=$(grep -c '^processor' /proc/cpuinfo)
    host_page_size=$(getconf PAGE_SIZE 2>/dev/null) || host_auxv_page_size
    # Byte 5 and 6 of any program say what the kernel's user land is; the kernel's own word size
    # follows the machine's name.
    host_endian=little
    [ "$(printf '\001\000' | od -An -tu2 | tr -d ' ')" = 1 ] || host_endian=big
    case $(uname -m) in
    *64* | s390x | alpha) host_long_bits=64 ;;
    *) host_long_bits=32 ;;
    esac
    host_clock_name=mono
    host_clock_resolution=1
    host_stathz=
    host_kernel_config
    host_pick_scheduler
}

# A host without getconf: the kernel gives every program its page size, in the value that follows
# the word 6 (AT_PAGESZ); words are as long as a pointer of that program.
host_auxv_page_size() {
    host_page_size=$(awk '/^KernelPageSize:/ { print $2 * 1024; exit }' /proc/self/smaps 2>/dev/null)
    [ -z "$host_page_size" ] || return 0
    for host_word in 8 4; do
        host_page_size=$(od -An -v -tu"$host_word" /proc/self/auxv 2>/dev/null | tr -s ' ' '\n' | awk '
            $1 == "" { next }
            n++ % 2 == 0 { key = $1; next }
            key == 6 && $1 >= 4096 && $1 <= 1048576 { print $1; exit }')
        [ -z "$host_page_size" ] || return 0
    done
}

# HZ and the preemption model: from the running kernel where it shows them, else its configuration.
host_kernel_config() {
    host_hz='' host_preempt='' host_dynamic='' host_model='' host_rt_groups=''
    for host_config in /proc/config.gz "/boot/config-$(uname -r)" "/lib/modules/$(uname -r)/config"; do
        [ -r "$host_config" ] || continue
        case $host_config in *.gz) host_cat="gzip -dc" ;; *) host_cat="cat" ;; esac
        # shellcheck disable=SC2046
        set -- $($host_cat "$host_config" 2>/dev/null | awk -F= '
            /^CONFIG_HZ=/ { hz = $2 }
            /^CONFIG_PREEMPT_DYNAMIC=y/ { dynamic = 1 }
            /^CONFIG_PREEMPT_(NONE|VOLUNTARY|LAZY|RT)=y/ { model = tolower(substr($1, 16)) }
            /^CONFIG_PREEMPT=y/ { model = "full" }
            /^CONFIG_RT_GROUP_SCHED=y/ { groups = 1 }
            END { print (hz ? hz : "-"), (model ? model : "-"), (dynamic ? "dynamic" : "-"), (groups ? "y" : "n") }')
        [ "${1:--}" = - ] || host_hz=$1
        [ "${2:--}" = - ] || host_model=$2
        [ "${3:--}" = - ] || host_dynamic=1
        host_rt_groups=${4:-}
        break
    done
    host_read /sys/kernel/debug/sched/preempt
    case $host_word in
    *\(*\)*)
        host_preempt=${host_word#*\(}
        host_preempt=${host_preempt%%\)*}
        ;;
    *)
        host_read /proc/cmdline
        case " $host_word " in
        *" preempt="*)
            host_preempt=${host_word##*preempt=}
            host_preempt=${host_preempt%% *}
            ;;
        *) host_preempt=$host_model ;;
        esac
        ;;
    esac
    if [ -n "$host_dynamic" ] && [ -n "$host_preempt" ]; then
        host_preempt="$host_preempt (dynamic)"
    elif [ -z "$host_preempt" ]; then
        case $(uname -v) in
        *PREEMPT_RT*) host_preempt=rt ;;
        *PREEMPT_DYNAMIC*) host_preempt=dynamic ;;
        *PREEMPT*) host_preempt=full ;;
        esac
    fi
    case $host_preempt in
    rt*) ;;
    *) case $(uname -v) in *PREEMPT_RT*) host_preempt="rt, $host_preempt" ;; esac ;;
    esac
}

# sched_ext's own name where one is loaded; EEVDF replaced CFS in 6.6.
host_pick_scheduler() {
    host_read /sys/kernel/sched_ext/state
    if [ "$host_word" = enabled ]; then
        host_read /sys/kernel/sched_ext/root/ops
        host_scheduler=sched_ext:$host_word
        return
    fi
    host_release=$(uname -r)
    host_major=${host_release%%.*}
    host_minor=${host_release#*.}
    host_minor=${host_minor%%[!0-9]*}
    host_scheduler=cfs
    if [ "$host_major" -gt 6 ] || { [ "$host_major" = 6 ] && [ "${host_minor:-0}" -ge 6 ]; }; then
        host_scheduler=eevdf
    fi
}

# Sets quota_timer to the address, without 0x, of the function that makes a group's CPU quota whole
# again.  No tracepoint shows when a quota holds a group back; timer:hrtimer_expire_entry, of all
# kernel timers, is filtered for that function: ten events a second for each group with a quota.
# Nothing where the kernel hides its addresses or has no such function.
host_quota_timer() {
    quota_timer=$(awk '$3 == "sched_cfs_period_timer" { if ($1 !~ /^0*$/) print $1; exit }' \
        /proc/kallsyms 2>/dev/null)
}

host_tunables() {
    for host_file in /proc/sys/kernel/sched_* /proc/sys/kernel/numa_balancing \
        /proc/sys/kernel/timer_migration /sys/kernel/debug/sched/*_ns \
        /sys/kernel/debug/sched/features /sys/kernel/debug/sched/fair_server/cpu0/runtime \
        /sys/kernel/debug/sched/fair_server/cpu0/period /sys/kernel/debug/sched/nr_migrate \
        /sys/kernel/debug/sched/tunable_scaling /sys/kernel/sched_ext/state \
        /sys/kernel/sched_ext/root/ops /sys/devices/system/cpu/isolated \
        /sys/devices/system/cpu/nohz_full /sys/devices/system/cpu/smt/active \
        /sys/devices/system/cpu/cpufreq/policy*/scaling_governor \
        /sys/devices/system/clocksource/clocksource0/current_clocksource; do
        [ ! -f "$host_file" ] || printf '%s\n' "$host_file"
    done | host_heads 4000 | awk '
        function flush() { if (file != "" && file != "/dev/null") { print file; print text } }
        /^==> .* <==$/ { flush(); file = substr($0, 5, length($0) - 8); text = ""; lines = 0; next }
        lines++ == 0 { text = $0 }
        END { flush() }' | tr '\n' '\0'
    # Whether real-time threads have a limit where the deadline server is (6.12 and later).
    [ -z "${host_rt_groups:-}" ] || printf 'CONFIG_RT_GROUP_SCHED\0%s\0' "$host_rt_groups"
}

# sched_ext's own state: each file and each counter of its schedulers, with the value. Nothing where
# the kernel has no sched_ext.
host_sched_ext() {
    for host_file in /sys/kernel/sched_ext/* /sys/kernel/sched_ext/*/* /sys/kernel/sched_ext/*/*/*/*; do
        [ ! -f "$host_file" ] || printf '%s\n' "$host_file"
    done | host_heads 4000 | awk '
        /^==> .* <==$/ { file = substr($2, 23); if ($2 !~ "^/sys/kernel/sched_ext/") file = ""; next }
        file == "" || $0 == "" { next }
        file ~ /\/events$/ && NF == 2 { print file "/" $1; print $2; next }
        { print file; print }' | tr '\n' '\0'
}

# The prefix, with seconds, that limits the time of a tool which reads files of other users.
host_limit=
! command -v timeout >/dev/null 2>&1 || host_limit='timeout -s KILL'

# The names given, a line each.  Not printf: where that is a program, a host with thousands of
# threads has more of them than a program takes.
host_names() { for host_name; do echo "$host_name"; done; }

# The first $1 bytes of the files named on stdin, a name a line, each under a line "==> FILE <==".
# Others choose some of the names, so no tool takes them apart at blanks or quotes.  Not read by
# awk: in /proc and /sys a file may vanish between being named, opened and read, and some awks
# end for that.  The files are so short, or names so long, that no text in them can look
# like such a line.
host_heads() {
    # shellcheck disable=SC2086
    tr '\n' '\000' | ${host_limit:+$host_limit 60} xargs -0 head -c "$1" /dev/null 2>/dev/null
}

# Sets host_slice to the slice that threads have which never asked for one, ns: that of kthreadd.
# Nothing where threads cannot ask (before 6.12) or the kernel does not show it. Other kernel
# threads may show the unscaled slice of an early boot.
host_default_slice() {
    host_slice=
    host_release=$(uname -r)
    host_major=${host_release%%.*}
    host_minor=${host_release#*.}
    host_minor=${host_minor%%[!0-9]*}
    [ "$host_major" -gt 6 ] || { [ "$host_major" = 6 ] && [ "${host_minor:-0}" -ge 12 ]; } || return 0
    host_read /proc/2/comm
    [ "$host_word" = kthreadd ] || return 0
    host_slice=$(awk '$1 == "se.slice" { print $3; exit }' /proc/2/sched 2>/dev/null) || host_slice=
}

# One awk for all threads, a file after the other, so that neither the length of a command line nor
# a comm with spaces, brackets, tabs or newlines in it matters.  `priority` in stat is the
# kernel's own number less 100.
host_threads() {
    host_default_slice
    # Of each: stat, status and, where it shows slices, sched.
    host_files='p; s/stat$/status/'
    [ -z "$host_slice" ] || host_files='p; s/stat$/status/p; s/status$/sched/'
    host_names /proc/[0-9]*/task/[0-9]*/stat | sed "$host_files" | host_heads 65536 | awk -v usual="$host_slice" '
        function flush(    open, shut, comm, n, field, parts, part, i, policy, name, kernel, path) {
            # Between two files there is an empty line.
            sub(/\n+$/, "", stat)
            open = index(stat, "(")
            if (!open) return
            shut = length(stat)
            while (substr(stat, shut, 1) != ")") if (--shut < open) return
            comm = substr(stat, open + 1, shut - open - 1)
            n = split(substr(stat, shut + 2), field, " ")
            if (n < 39) return
            # Not gsub: awks disagree on what backslashes in its replacement mean.
            parts = split(comm, part, /\\/)
            comm = part[1]
            for (i = 2; i <= parts; i++) comm = comm "\\\\" part[i]
            gsub(/\t/, "\\t", comm)
            gsub(/\n/, "\\n", comm)
            split(from, path, "/")
            policy = field[39] + 0
            name = policy == 0 ? "other" : policy == 1 ? "fifo" : policy == 2 ? "rr" : policy == 3 ? "batch" : \
                policy == 5 ? "idle" : policy == 6 ? "deadline" : policy == 7 ? "ext" : policy
            kernel = int(field[7] / 2097152) % 2
            print path[5], path[3], field[2], name, field[16] + 100, field[17], affinity, kernel, \
                (policy == 6 ? reservation(path[5]) : ""), \
                (!kernel && slice != usual && (policy == 0 || policy == 3 || policy == 5) ? slice : ""), comm
        }
        # The settings of SCHED_DEADLINE: runtime, deadline and period in ns, as chrt of util-linux
        # prints them.
        function reservation(tid,    command, line, found) {
            command = "chrt -p " tid " 2>/dev/null"
            while ((command | getline line) > 0)
                if (line ~ /runtime\/deadline\/period/) { sub(/^.*: */, "", line); found = line }
            close(command)
            return found
        }
        BEGIN {
            OFS = "\t"
            print "tid", "pid", "ppid", "policy", "prio", "nice", "affinity", "kernel", "reservation", "slice", "comm"
        }
        /^==> \/proc\/[0-9]+\/task\/[0-9]+\/stat <==$/ { flush(); stat = affinity = slice = ""; kind = 1; from = $2; next }
        /^==> \/proc\/[0-9]+\/task\/[0-9]+\/status <==$/ { kind = 2; next }
        /^==> \/proc\/[0-9]+\/task\/[0-9]+\/sched <==$/ { kind = 3; next }
        /^==> \/dev\/null <==$/ { kind = 0; next }
        kind == 1 { stat = stat (stat == "" ? "" : "\n") $0 }
        kind == 2 && /^Cpus_allowed_list:/ { affinity = substr($0, 20) }
        kind == 3 && $1 == "se.slice" { slice = $3 }
        END { flush() }'
}

# core and llc are the lowest CPU number that shares them: unlike the kernel's core_id that
# is unique on the host.
host_cpus() {
    printf 'cpu\tonline\tcore\tllc\tpackage\tnuma_node\tsmt_siblings\tcapacity\n'
    {
        printf '%s\n' /sys/devices/system/cpu/cpu[0-9]*/node[0-9]* /sys/devices/system/cpu/cpu[0-9]* | sed 's/^/dir /'
        for host_file in online cpu_capacity topology/core_cpus_list topology/thread_siblings_list \
            topology/physical_package_id 'cache/index[0-9]*/level' 'cache/index[0-9]*/shared_cpu_list'; do
            eval "printf '%s\\n' /sys/devices/system/cpu/cpu[0-9]*/$host_file"
        done | host_heads 4000
    } | awk '
        function lowest(list) { sub(/[,-].*/, "", list); return list }
        function first(name) { return ((directory "/" name) in text) ? text[directory "/" name] : "" }
        BEGIN { OFS = "\t" }
        $1 == "dir" {
            split($2, path, "/")
            cpu = substr(path[6], 4)
            if (path[7] != "") node[cpu] = substr(path[7], 5)
            else if (cpu !~ /[^0-9]/) cpus[++n] = cpu
            next
        }
        /^==> .* <==$/ { file = $2; next }
        file != "" && !(file in text) { text[file] = $0 }
        END {
            for (k = 1; k <= n; k++) {
                cpu = cpus[k]
                directory = "/sys/devices/system/cpu/cpu" cpu
                online = first("online")
                siblings = first("topology/core_cpus_list")
                if (siblings == "") siblings = first("topology/thread_siblings_list")
                llc = ""
                deepest = 0
                for (i = 0; (level = first("cache/index" i "/level")) != ""; i++)
                    if (level + 0 > deepest) {
                        deepest = level + 0
                        llc = lowest(first("cache/index" i "/shared_cpu_list"))
                    }
                print cpu, (online == "" ? 1 : online), lowest(siblings), llc, \
                    first("topology/physical_package_id"), node[cpu], siblings, first("cpu_capacity")
            }
        }' | sort -n
}
