# Linux: what `capture` writes down about the host (interface: head of ../capture).
# shellcheck shell=sh disable=SC2034

host_prefers() { echo ftrace perf bpftrace dtrace; }

# CLOCK_MONOTONIC in ns, without a process: the kernel's timer list says what it is now.
host_clock() {
    clock_ns=
    [ -r /proc/timer_list ] || return 0
    while read -r host_1 host_2 host_3 _; do
        case "$host_1 $host_2" in "now at") clock_ns=$host_3 && return 0 ;; esac
        case $host_1 in cpu:) return 0 ;; esac
    done </proc/timer_list
}

# Sets host_word to the first line of a file, or to nothing.  Not with `read`: a shell reads
# byte by byte, and sysctl files answer only the first of such reads.
host_read() {
    host_word=$(head -n 1 "$1" 2>/dev/null) || host_word=
}

host_facts() {
    host_ncpu=$(getconf _NPROCESSORS_ONLN 2>/dev/null) || host_ncpu=$(grep -c '^processor' /proc/cpuinfo)
    host_page_size=$(getconf PAGE_SIZE 2>/dev/null) || host_page_size=4096
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

# HZ and the preemption model: from the running kernel where it tells, else its configuration.
host_kernel_config() {
    host_hz='' host_preempt='' host_dynamic='' host_model=''
    for host_config in /proc/config.gz "/boot/config-$(uname -r)" "/lib/modules/$(uname -r)/config"; do
        [ -r "$host_config" ] || continue
        case $host_config in *.gz) host_cat="gzip -dc" ;; *) host_cat="cat" ;; esac
        # shellcheck disable=SC2046
        set -- $($host_cat "$host_config" 2>/dev/null | awk -F= '
            /^CONFIG_HZ=/ { hz = $2 }
            /^CONFIG_PREEMPT_DYNAMIC=y/ { dynamic = 1 }
            /^CONFIG_PREEMPT_(NONE|VOLUNTARY|LAZY|RT)=y/ { model = tolower(substr($1, 16)) }
            /^CONFIG_PREEMPT=y/ { model = "full" }
            END { print hz ? hz : "-", model ? model : "-", dynamic ? "dynamic" : "-" }')
        [ "${1:--}" = - ] || host_hz=$1
        [ "${2:--}" = - ] || host_model=$2
        [ "${3:--}" = - ] || host_dynamic=1
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

host_tunables() {
    for host_file in /proc/sys/kernel/sched_* /proc/sys/kernel/numa_balancing \
        /proc/sys/kernel/timer_migration /sys/kernel/debug/sched/*_ns \
        /sys/kernel/debug/sched/features /sys/kernel/debug/sched/nr_migrate \
        /sys/kernel/debug/sched/tunable_scaling /sys/kernel/sched_ext/state \
        /sys/kernel/sched_ext/root/ops /sys/devices/system/cpu/isolated \
        /sys/devices/system/cpu/nohz_full /sys/devices/system/cpu/smt/active \
        /sys/devices/system/cpu/cpufreq/policy*/scaling_governor \
        /sys/devices/system/clocksource/clocksource0/current_clocksource; do
        [ ! -f "$host_file" ] || printf '%s\n' "$host_file"
    done | awk '{
        text = ""
        if ((getline text < $0) < 0) next
        close($0)
        print $0
        print text
    }' | tr '\n' '\0'
}

# One awk for all threads, a file at a time, so that neither the length of a command line nor
# a comm with spaces, brackets, tabs or newlines in it matters.  `priority` in stat is the
# kernel's own number less 100.
host_threads() {
    printf '%s\n' /proc/[0-9]*/task/[0-9]*/stat | awk '
        function whole(file,    line, text, n) {
            n = 0
            text = ""
            while ((getline line < file) > 0) text = (n++ ? text "\n" : "") line
            close(file)
            return text
        }
        BEGIN { OFS = "\t"; print "tid", "pid", "ppid", "policy", "prio", "nice", "affinity", "kernel", "comm" }
        {
            stat = whole($0)
            open = index(stat, "(")
            if (!open) next
            shut = length(stat)
            while (substr(stat, shut, 1) != ")") shut--
            comm = substr(stat, open + 1, shut - open - 1)
            n = split(substr(stat, shut + 2), field, " ")
            if (n < 39) next
            # Not gsub: awks disagree on what backslashes in its replacement mean.
            parts = split(comm, part, /\\/)
            comm = part[1]
            for (i = 2; i <= parts; i++) comm = comm "\\\\" part[i]
            gsub(/\t/, "\\t", comm)
            gsub(/\n/, "\\n", comm)
            affinity = ""
            file = $0
            sub(/stat$/, "status", file)
            while ((getline line < file) > 0)
                if (line ~ /^Cpus_allowed_list:/) { affinity = substr(line, 20); break }
            close(file)
            split($0, path, "/")
            policy = field[39] + 0
            name = policy == 0 ? "other" : policy == 1 ? "fifo" : policy == 2 ? "rr" : policy == 3 ? "batch" : \
                policy == 5 ? "idle" : policy == 6 ? "deadline" : policy == 7 ? "ext" : policy
            kernel = int(field[7] / 2097152) % 2
            print path[5], path[3], field[2], name, field[16] + 100, field[17], affinity, kernel, comm
        }'
}

# core and llc are the lowest CPU number that shares them: unlike the kernel's core_id that
# is unique on the host.
host_cpus() {
    printf 'cpu\tonline\tcore\tllc\tpackage\tnuma_node\tsmt_siblings\tcapacity\n'
    printf '%s\n' /sys/devices/system/cpu/cpu[0-9]*/node[0-9]* /sys/devices/system/cpu/cpu[0-9]* | awk '
        function first(file,    line) {
            line = ""
            if ((getline line < file) < 0) line = ""
            close(file)
            return line
        }
        function lowest(list) { sub(/[,-].*/, "", list); return list }
        BEGIN { OFS = "\t" }
        {
            split($0, path, "/")
            cpu = substr(path[6], 4)
            if (path[7] != "") { node[cpu] = substr(path[7], 5); next }
            if (cpu ~ /[^0-9]/) next
            online = first($0 "/online")
            siblings = first($0 "/topology/core_cpus_list")
            if (siblings == "") siblings = first($0 "/topology/thread_siblings_list")
            llc = ""
            deepest = 0
            for (i = 0; (level = first($0 "/cache/index" i "/level")) != ""; i++)
                if (level + 0 > deepest) {
                    deepest = level + 0
                    llc = lowest(first($0 "/cache/index" i "/shared_cpu_list"))
                }
            print cpu, (online == "" ? 1 : online), lowest(siblings), llc, \
                first($0 "/topology/physical_package_id"), node[cpu], siblings, first($0 "/cpu_capacity")
        }' | sort -n
}
