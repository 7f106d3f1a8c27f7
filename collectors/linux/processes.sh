# Linux: the processes of the host, their control groups, and the time of CPUs as the kernel counts
# it (interface: head of ../capture).
# shellcheck shell=sh disable=SC2034,SC2154

# Rows of processes.tsv, each with $1 in column `seen`.  Command lines are cut after 4000 bytes and
# at their first newline; `created` is in ticks since boot.  To read a command line the kernel
# waits for a process that is changing its memory map: one that is stuck must not hold us up.
host_processes() {
    host_limit=
    ! have timeout || host_limit='timeout -s KILL 10'
    # A session shares CPU time as one only where that is switched on.
    host_sessions=
    host_read /proc/sys/kernel/sched_autogroup_enabled
    [ "$host_word" != 1 ] || host_sessions='; p; s/cgroup$/autogroup/'
    {
        printf '%s\n' /proc/[0-9]*/stat | sed "p; s/stat\$/cgroup/$host_sessions" | host_heads 40
        # shellcheck disable=SC2086
        [ -n "$anonymous" ] ||
            printf '%s\n' /proc/[0-9]*/cmdline | $host_limit xargs head -n 1 /dev/null 2>/dev/null |
                tr '\000' ' '
    } | awk -v seen="$1" '
        # Not gsub for backslashes: awks disagree on what they mean in its replacement.
        function escaped(text,    n, part, i, out) {
            n = split(text, part, /\\/)
            out = part[1]
            for (i = 2; i <= n; i++) out = out "\\\\" part[i]
            gsub(/\t/, "\\t", out)
            return out
        }
        function ended(    shut, n, field) {
            if (kind != "stat") return
            shut = length(stat)
            while (shut > 0 && substr(stat, shut, 1) != ")") shut--
            n = split(substr(stat, shut + 2), field, " ")
            if (!shut || n < 20) return
            pids[++count] = pid
            parent[pid] = field[2]
            created[pid] = field[20]
        }
        BEGIN { OFS = "\t" }
        # The line after a header is never one, whatever a command line looks like.
        !content && /^==> \/proc\/[0-9]+\/(stat|cgroup|autogroup|cmdline) <==$/ {
            ended()
            split($2, path, "/")
            pid = path[3]
            kind = path[4]
            stat = ""
            content = kind == "cmdline"
            next
        }
        /^==> \/dev\/null <==$/ && !content { ended(); kind = ""; next }
        kind == "stat" { stat = stat (stat == "" ? "" : "\n") $0 }
        kind == "cgroup" {
            rest = $0
            sub(/^[0-9]+:/, "", rest)
            at = index(rest, ":")
            if (!at) next
            names = substr(rest, 1, at - 1)
            # The one of the controller that weighs CPU time; cgroup 2 has one for all.
            if (("," names ",") ~ /,cpu,/) group[pid] = substr(rest, at + 1)
            else if (names == "" && !(pid in group)) group[pid] = substr(rest, at + 1)
        }
        # /autogroup-37 nice 0
        kind == "autogroup" && $2 == "nice" {
            number = $1
            sub(/^.*-/, "", number)
            session[pid] = number ":" $3
        }
        kind == "cmdline" && content { content = 0; sub(/ +$/, ""); line[pid] = substr($0, 1, 4000) }
        END {
            ended()
            for (i = 1; i <= count; i++) {
                pid = pids[i]
                print seen, pid, parent[pid], created[pid], escaped(group[pid]), session[pid], escaped(line[pid])
            }
        }'
}

# The control groups of processes: of those in processes.tsv, or, before that is made, of those that
# there are.
host_group_paths() {
    if [ -f processes.tsv ]; then
        cut -f 5 processes.tsv | sed 1d
        return
    fi
    # 3:cpu,cpuacct:/path, or 0::/path of cgroup 2, which counts where the first is nowhere.
    printf '%s\n' /proc/[0-9]*/cgroup | xargs cat 2>/dev/null | awk '
        {
            rest = $0
            sub(/^[0-9]+:/, "", rest)
            at = index(rest, ":")
            names = substr(rest, 1, at - 1)
            path = substr(rest, at + 1)
            if (("," names ",") ~ /,cpu,/) { print path; one = 1 }
            else if (names == "") two[path]
        }
        END { if (!one) for (path in two) print path }'
}

# Rows of groups.tsv for these groups and those that they lie in, whose quotas
# and weights hold for them, too (cgroup 2 has no process there); $1 is column `seen`.  With $2 also
# for others, of which COMMAND may enter one and have left it at the end.  Times
# are in us: `usage` CPU time, `throttled` time in which threads were held back by the quota,
# `pressure` time in which some thread of the group waited for a CPU.
host_groups() {
    host_group_root=$(awk '
        { for (i = 7; i < NF; i++) if ($i == "-") break; type = $(i + 1); options = "," $NF "," }
        type == "cgroup" && options ~ /,cpu,/ { one = $5 }
        type == "cgroup2" { two = $5 }
        END { print (one != "" ? one : two) }' /proc/self/mountinfo 2>/dev/null)
    [ -n "$host_group_root" ] || return 0
    {
        host_group_paths | awk '
            /^\// {
                path = $0
                while (path != "" && !(path in told)) {
                    told[path]
                    print path
                    sub("/[^/]*$", "", path)
                }
            }'
        [ -z "${2:-}" ] || find "$host_group_root" -type d 2>/dev/null | head -n 1000 |
            awk -v root="$host_group_root" '{ path = substr($0, length(root) + 1); print (path == "" ? "/" : path) }'
    } | sort -u | grep '^/' | while read -r host_group; do
        # A name that was escaped is left out rather than guessed.
        case $host_group in *\\*) continue ;; esac
        for host_file in cpu.weight cpu.max cpu.shares cpu.cfs_quota_us cpu.cfs_period_us cpu.stat cpu.pressure; do
            host_file=$host_group_root${host_group%/}/$host_file
            [ ! -f "$host_file" ] || printf '%s\n' "$host_file"
        done
    done | sed "s/['\"\\\\ ]/\\\\&/g" | host_heads 20 | awk -v seen="$1" -v root="$host_group_root" '
        function put() {
            if (group == "") return
            print seen, group, weight, quota, period, usage, periods, held, throttled, pressure
            weight = quota = period = usage = periods = held = throttled = pressure = ""
        }
        BEGIN { OFS = "\t" }
        /^==> \/dev\/null <==$/ { file = ""; next }
        /^==> .* <==$/ {
            path = substr($0, 5, length($0) - 8)
            path = substr(path, length(root) + 1)
            match(path, /\/[^\/]*$/)
            name = RSTART > 1 ? substr(path, 1, RSTART - 1) : "/"
            if (name != group) { put(); group = name }
            file = substr(path, RSTART + 1)
            next
        }
        file == "cpu.weight" || file == "cpu.shares" { if ($1 != "") weight = $1 }
        file == "cpu.max" && NF == 2 { quota = $1 == "max" ? "" : $1; period = $2 }
        file == "cpu.cfs_quota_us" && $1 != "" { quota = $1 < 0 ? "" : $1 }
        file == "cpu.cfs_period_us" && $1 != "" { period = $1 }
        file == "cpu.stat" && $1 == "usage_usec" { usage = $2 }
        file == "cpu.stat" && $1 == "nr_periods" { periods = $2 }
        file == "cpu.stat" && $1 == "nr_throttled" { held = $2 }
        file == "cpu.stat" && $1 == "throttled_usec" { throttled = $2 }
        file == "cpu.stat" && $1 == "throttled_time" { throttled = sprintf("%.0f", $2 / 1000) }
        file == "cpu.pressure" && $1 == "some" { sub(/.*total=/, ""); pressure = $0 }
        END { put() }'
}

# The kernel's own account of each CPU's time since boot, in ms: it counts in ticks of USER_HZ.
# `at` is the recorder's clock at that moment, in ns.
host_cpu_time() {
    host_user_hz=$(getconf CLK_TCK 2>/dev/null)
    host_clock
    awk -v seen="$1" -v hz="${host_user_hz:-100}" -v at="$clock_ns" '
        function ms(ticks) { return sprintf("%.0f", ticks * 1000 / hz) }
        BEGIN { OFS = "\t" }
        $1 ~ /^cpu[0-9]+$/ {
            print seen, substr($1, 4), ms($2 + $3), ms($4), ms($5 + $6), ms($7), ms($8), ms($9), at
        }' /proc/stat 2>/dev/null
}
