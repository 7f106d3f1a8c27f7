# Linux: the processes of the host, their control groups, and the time of CPUs as the kernel counts
# it (interface: head of ../capture).
# shellcheck shell=sh disable=SC2034,SC2154

# One awk function, for texts that others choose as a column of a table.
# Not gsub for backslashes: awks disagree on what they mean in its replacement.
host_awk_escaped='
    function escaped(text,    n, part, i, out) {
        n = split(text, part, /\\/)
        out = part[1]
        for (i = 2; i <= n; i++) out = out "\\\\" part[i]
        gsub(/\t/, "\\t", out)
        return out
    }'

# A row for each process: pid, parent, ticks since boot when it was made, session, state, 1 for a
# thread of the kernel, control group and autogroup; the last two are empty unless $1 is `groups`.
host_process_rows() {
    # A session shares CPU time as one only where that is switched on.
    host_more='p; s/stat$/cgroup/'
    host_read /proc/sys/kernel/sched_autogroup_enabled
    [ "$host_word" != 1 ] || host_more='p; s/stat$/cgroup/; p; s/cgroup$/autogroup/'
    [ "$1" = groups ] || host_more=
    host_names /proc/[0-9]*/stat | sed "$host_more" | host_heads 65536 | awk "$host_awk_escaped"'
        function ended(    shut, n, field) {
            if (kind != "stat") return
            shut = length(stat)
            while (shut > 0 && substr(stat, shut, 1) != ")") shut--
            n = split(substr(stat, shut + 2), field, " ")
            if (!shut || n < 20) return
            pids[++count] = pid
            first[pid] = pid "\t" field[2] "\t" field[20] "\t" field[4] "\t" field[1] "\t" int(field[7] / 2097152) % 2
        }
        BEGIN { OFS = "\t" }
        /^==> \/proc\/[0-9]+\/(stat|cgroup|autogroup) <==$/ {
            ended()
            split($2, path, "/")
            pid = path[3]
            kind = path[4]
            stat = ""
            next
        }
        /^==> \/dev\/null <==$/ { ended(); kind = ""; next }
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
        END {
            ended()
            for (i = 1; i <= count; i++) print first[pids[i]], escaped(group[pids[i]]), session[pids[i]]
        }'
}

# Rows of processes.tsv, each with $1 in column `seen`.
host_processes() {
    host_rows=$(host_process_rows groups)
    {
        cat <<END_ROWS
$host_rows
END_ROWS
        [ -n "$anonymous" ] || host_command_lines <<END_ROWS
$host_rows
END_ROWS
    } | awk -F '\t' -v seen="$1" "$host_awk_escaped"'
        BEGIN { OFS = "\t" }
        # Marks a command line that is longer than what was read: no command line contains this.
        /^==> \/dev\/null <==$/ && !lines { lines = 1; next }
        length($0) > 4000 && /^==> \/proc\/+[0-9]+\/cmdline <==$/ {
            pid = $0
            sub(/\/cmdline <==$/, "", pid)
            sub(/^.*\//, "", pid)
            content = 1
            next
        }
        # Where one took too long, the next begins on its line.
        content { content = 0; text = $0; sub(/==> \/dev\/null <==$/, "", text); sub(/ +$/, "", text); line[pid] = text; next }
        !lines && NF == 8 { rows[++count] = $0 }
        END {
            for (i = 1; i <= count; i++) {
                split(rows[i], column, "\t")
                print seen, column[1], column[2], column[3], column[7], column[8], escaped(line[column[1]])
            }
        }'
}

# The command lines of the processes whose rows come on stdin, up to their first newline or 4000
# bytes: a process can show terabytes there, which is why no line is read to its end.  To read
# one the kernel waits for a process that is changing its memory map: one that is stuck holds
# up only those that are read with it.  Nothing is read where that cannot be limited.
host_command_lines() {
    [ -n "$host_limit" ] || return 0
    # shellcheck disable=SC2086
    awk -F '\t' '
        BEGIN { path = "/"; while (length(path) < 4050) path = path path; path = "/proc" substr(path, 1, 4050) }
        $6 == 0 { print path $1 "/cmdline" }' | tr '\n' '\000' |
        $host_limit 20 xargs -0 $host_limit 5 head -c 4000 /dev/null 2>/dev/null | tr '\000' ' '
}

# The control groups of processes: of those in processes.tsv, or, before that is made, of those that
# there are.
host_group_paths() {
    if [ -f processes.tsv ]; then
        cut -f 5 processes.tsv | sed 1d | awk '
            # A tab and a backslash are escaped there.
            {
                path = ""
                while (at = index($0, "\\")) {
                    path = path substr($0, 1, at - 1) (substr($0, at + 1, 1) == "t" ? "\t" : substr($0, at + 1, 1))
                    $0 = substr($0, at + 2)
                }
                print path $0
            }'
        return
    fi
    # 3:cpu,cpuacct:/path, or 0::/path of cgroup 2, which counts where the first is nowhere.
    host_names /proc/[0-9]*/cgroup | host_heads 65536 | awk '
        /^==> \// { next }
        {
            rest = $0
            sub(/^[0-9]+:/, "", rest)
            at = index(rest, ":")
            names = substr(rest, 1, at - 1)
            path = substr(rest, at + 1)
            if (("," names ",") ~ /,cpu,/) { print path; one = 1 }
            else if (at && names == "") two[path]
        }
        END { if (!one) for (path in two) print path }'
}

# Where the hierarchy is that shares CPU time out, as no link leads there.
host_group_home() {
    host_group_root=$(awk '
        { for (i = 7; i < NF; i++) if ($i == "-") break; type = $(i + 1); options = "," $NF "," }
        one == "" && type == "cgroup" && options ~ /,cpu,/ { one = $5 }
        two == "" && type == "cgroup2" { two = $5 }
        END { print (one != "" ? one : two) }' /proc/self/mountinfo 2>/dev/null)
    [ -n "$host_group_root" ] && cd -P -- "$host_group_root" 2>/dev/null && pwd -P
}

# The names of the groups in the folder $1, a line each. The owner of a delegated group names those
# below it: a name with a newline is left out, as the kernel allows none.
host_group_folders() {
    (cd -P -- "$1" && find . -xdev -name '*
*' -prune -o -type d -print) 2>/dev/null | head -n 1000 | sed 's/^\.//; s/^$/\//'
}

# The files of the groups named on stdin that are in the folder $1, a line each.  Each group is
# entered first: a name that leads through a link or out of the folder is not where we are then.
# Not by this shell itself: yash cannot read names that are not in its character set.
host_group_files() {
    # shellcheck disable=SC2016
    tr '\n' '\000' | xargs -0 sh -c '
        root=$1
        shift
        for group; do
            group=${group%/}
            cd -P -- "$root$group" && [ "$PWD" = "$root$group" ] || continue
            set --
            for file in cpu.weight cpu.max cpu.shares cpu.cfs_quota_us cpu.cfs_period_us cpu.stat cpu.pressure; do
                [ ! -f "$file" ] || [ -h "$file" ] || set -- "$@" "$PWD/$file"
            done
            [ $# = 0 ] || printf "%s\n" "$@"
        done' sh "$1" 2>/dev/null
}

# Rows of groups.tsv for these groups and those that they lie in, whose quotas
# and weights hold for them, too (cgroup 2 has no process there); $1 is column `seen`.  With $2 also
# for others, of which COMMAND may enter one and have left it at the end.  Times
# are in us: `usage` CPU time, `throttled` time in which threads were held back by the quota,
# `pressure` time in which some thread of the group waited for a CPU.
host_groups() {
    host_group_at=$(host_group_home) || return 0
    {
        host_group_paths
        [ -z "${2:-}" ] || host_group_folders "$host_group_at"
    } | awk '
        /^\// {
            path = $0
            while (path != "" && !(path in told)) {
                told[path]
                print path
                sub("/[^/]*$", "", path)
            }
        }' | sort -u | host_group_files "$host_group_at" | host_heads 4000 |
        awk -v seen="$1" -v root="$host_group_at" "$host_awk_escaped"'
        function put() {
            if (group == "") return
            print seen, escaped(group), weight, quota, period, usage, periods, held, throttled, pressure
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
