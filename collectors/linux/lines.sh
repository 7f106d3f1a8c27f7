# The recordings of Linux's own recorders as short lines (../recording-lines.sh).
# shellcheck shell=sh disable=SC2154

# perf prints its own file; the name of a thread may hold anything, so fields are looked for
# from the right.
lines_perf() {
    # shellcheck disable=SC2016,SC2046
    $(perf_tool) script -i "$(lines_place "$1/perf.data" "${SCHEDSCOPE_PERF:-}")" --ns -F tid,cpu,time,event,trace 2>/dev/null |
        awk '
        function after(key,    at, rest) {
            rest = $0
            while (at = index(rest, key)) rest = substr(rest, at + length(key))
            sub(/[^-A-Za-z0-9_+|].*/, "", rest)
            return rest
        }
        BEGIN { OFMT = CONVFMT = "%.0f" }
        {
            if (!match($0, /[0-9]+\.[0-9]+: +[a-z]+:[a-z_]+:/)) next
            split(substr($0, RSTART, RLENGTH), part, /: +|:/)
            clock = part[1]
            sub(/\./, "", clock)
            ts = clock + 0
            cpu = $2
            gsub(/[^0-9]/, "", cpu)
            cpu += 0
            event = part[3]
        }
        event == "sched_switch" {
            at = index($0, " ==> ")
            state = substr($0, 1, at)
            sub(/.*prev_state=/, "", state)
            sleeps = state !~ /^R/
            prev = substr($0, 1, at)
            sub(/ prev_prio=.*/, "", prev)
            sub(/.*prev_pid=/, "", prev)
            tid = after("next_pid=")
            print "S", ts, NR, cpu, prev, tid, (sleeps ? "V" : "I"), sleeps, "-", prev, tid
            next
        }
        event == "sched_waking" { print "W", ts, NR, cpu, after(" pid="); next }
        event == "sched_wakeup" { print "E", ts, NR, cpu, after(" pid="), 0; next }
        event == "sched_wakeup_new" { print "E", ts, NR, cpu, after(" pid="), 1; next }
        event == "sched_migrate_task" { print "M", ts, NR, cpu, after(" pid="); next }
        event == "sched_process_exit" { print "X", ts, NR, cpu, after(" pid="), after(" pid="); next }
        { print "K", ts, NR, cpu, event }'
}

# Another tool than the host's may live in another root, where only a whole path leads here.
lines_place() {
    case $2,$1 in
    ,* | *,/*) echo "$1" ;;
    *) echo "$(pwd -P)/$1" ;;
    esac
}

# A sleep of bpftrace itself is reported with its CPU's next switch, and at the end (sched.bt).
lines_bpftrace() {
    # shellcheck disable=SC2016
    awk '
        BEGIN { OFMT = CONVFMT = "%.0f" }
        '"$bpftrace_names"'
        /^#schedscope / { tool = substr($4, 5); print "T 0 0 -", tool }
        $1 !~ /^[A-Z]$/ || $2 !~ /^[0-9]+$/ { next }
        { ts = $2 + 0; cpu = $3 }
        $1 == "S" {
            if ($5 != 0) print "S", $5 + 0, NR, cpu, tool, $8, "V", 1, "-", tool, $8
            sleeps = $6 != 0 && $6 != 256
            print "S", ts, NR, cpu, $8, $10, (sleeps ? "V" : "I"), sleeps, "-", $8, $10
            next
        }
        $1 == "K" { print "W", ts, NR, cpu, $8; next }
        $1 == "E" || $1 == "N" { print "E", ts, NR, cpu, $8, ($1 == "N"); next }
        $1 == "M" { print "M", ts, NR, cpu, $5; next }
        $1 == "X" { print "X", ts, NR, cpu, $5, $6; next }
        { print "K", ts, NR, cpu, $1 }' "$1/events.txt"
}

# The kernel's sub-buffers, word by word, by the event formats that lie beside them.
lines_ftrace() {
    for lines_file in "$1"/raw/cpu[0-9]*; do
        lines_cpu=${lines_file##*cpu}
        # shellcheck disable=SC2016
        { cat "$1/events/header_page" "$1"/events/*/*/format && echo "@words" &&
            od -An -v -tu4 "$lines_file"; } | awk -v cpu="$lines_cpu" \
            -v page_bytes="$(sed -n 's/^ *"sub_buffer_bytes": *\([0-9]*\).*/\1/p' "$1/capture.json")" \
            -v big="$(sed -n 's/^ *"endian": *"big".*/1/p' "$1/capture.json")" '
            function number(text,    i, n) {
                if (text !~ /^0x/) return text + 0
                n = 0
                for (i = 3; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
                return n
            }
            # The word at a byte offset of the event that begins at word `data`.
            function field(name) { return words[data + at[type, name]] }
            BEGIN { OFMT = CONVFMT = "%.0f"; wrap = 134217728; header = 4 }
            !body && /^name:/ { name = $2 }
            !body && /^ID:/ { id = $2; name_of[id] = name }
            !body && /field:.* data;/ { header = offset($0) / 4 }
            !body && /^\tfield:/ && id != "" {
                text = $0
                sub(/;.*/, "", text)
                sub(/\[.*/, "", text)
                sub(/.* /, "", text)
                at[id, text] = offset($0) / 4
            }
            # R+ is the one bit above the states that the format knows letters for.
            !body && /^print fmt/ && name == "sched_switch" {
                text = $0
                while (match(text, /\{ *(0x)?[0-9a-f]+(UL)?, *"[A-Z]/)) {
                    word = substr(text, RSTART + 1, RLENGTH)
                    sub(/^ */, "", word)
                    sub(/[^0-9a-fx].*/, "", word)
                    if (number(word) > top) top = number(word)
                    text = substr(text, RSTART + RLENGTH)
                }
            }
            $0 == "@words" { body = 1; page_words = page_bytes / 4; next }
            !body { next }
            {
                for (i = 1; i <= NF; i++) {
                    words[filled++] = $i
                    if (filled == page_words) { page(); filled = 0 }
                }
            }
            function offset(line) { sub(/.*offset:/, "", line); return line + 0 }
            function page(    used, where, word, kind, delta, length_, stamp) {
                high = big ? words[0] : words[1]
                low = big ? words[1] : words[0]
                stamp = high * 4294967296 + low
                used = (big && header == 4 ? words[3] : words[2]) % 1073741824 / 4
                where = header
                while (where < header + used) {
                    word = words[where]
                    if (big) { kind = int(word / wrap); delta = word % wrap }
                    else { kind = word % 32; delta = int(word / 32) }
                    if (kind == 29) {
                        if (delta == 0) return
                        where += 1 + words[where + 1] / 4
                        stamp += delta
                        continue
                    }
                    if (kind == 30) { stamp += delta + words[where + 1] * wrap; where += 2; continue }
                    if (kind == 31) { stamp = delta + words[where + 1] * wrap; where += 2; continue }
                    stamp += delta
                    if (kind == 0) { length_ = words[where + 1] / 4; data = where + 2; where += 1 + length_ }
                    else { data = where + 1; where += 1 + kind }
                    event(stamp)
                }
            }
            function event(ts,    name, state, sleeps, tid) {
                type = big ? int(words[data] / 65536) : words[data] % 65536
                name = name_of[type]
                line++
                if (name == "sched_switch") {
                    state = field("prev_state")
                    sleeps = state != 0 && state <= 2 * top - 1
                    print "S", ts, line, cpu, field("prev_pid"), field("next_pid"), (sleeps ? "V" : "I"), sleeps, "-", field("prev_pid"), field("next_pid")
                }
                else if (name == "sched_waking") print "W", ts, line, cpu, field("pid")
                else if (name == "sched_wakeup") print "E", ts, line, cpu, field("pid"), 0
                else if (name == "sched_wakeup_new") print "E", ts, line, cpu, field("pid"), 1
                else if (name == "sched_migrate_task") print "M", ts, line, cpu, field("pid")
                else if (name == "sched_process_exit") { tid = field("pid"); print "X", ts, line, cpu, tid, tid }
                else print "K", ts, line, cpu, name
            }'
    done
}
