# DTrace as a recorder: one run of dtrace with a script that prints the grammar of
# docs/dtrace-grammar.md. Both systems share this; $OS/dtrace.sh says what differs:
#   dtrace_ready      does what must be done first; sets dtrace_bufsize and dtrace_switchrate
#   dtrace_words      calls its arguments, a command, with the words that run dtrace appended
# shellcheck shell=sh disable=SC2034,SC2154

# Starts dtrace and waits for its first line: enabling the probes takes seconds.
dtrace_prepare() {
    : >events.txt
    : >stderr.txt
    dtrace_ready || return 1
    recorder_command=$(dtrace_words echo)
    # dtrace takes TERM like Ctrl-C, and flushes everything.
    guard_output=events.txt guard_signal=TERM guard_last='#end'
    dtrace_words guard_start -- || return 1
    dtrace_turns=0
    while ! dtrace_clock head '#sched' 4 5; do
        if guard_failed; then
            fail_text=$guard_said
            return 1
        fi
        dtrace_turns=$((dtrace_turns + 1))
        if [ "$dtrace_turns" -gt "${dtrace_patience:-480}" ]; then
            fail_text="dtrace printed nothing; try it by hand: $recorder_command"
            return 1
        fi
        pause
    done
    guard_pids
}

# Sets dtrace_ts and dtrace_wall from two columns of the complete line that starts with TAG
# near the head or the tail of the events; dtrace ends its output with an empty line.
dtrace_clock() {
    # shellcheck disable=SC2046
    set -- $("$1" -n 3 events.txt | awk -F '\t' -v tag="$2" -v ts="$3" -v wall="$4" '
        $1 == tag && NF >= wall { print $ts, $wall; exit }')
    [ $# -eq 2 ] || return 1
    dtrace_ts=$1
    dtrace_wall=$2
}

# On FreeBSD only dtrace can read its clock; its first and last line are the clock pairs.
dtrace_start() {
    window_begin=$dtrace_ts
    dtrace_pair=
    [ -n "$clock_pairs" ] || dtrace_pair="[$dtrace_ts, $dtrace_wall]"
    clock_pairs=$clock_pairs$dtrace_pair
}

dtrace_stop() {
    take_counts
    guard_end || fail_text="the process that watches dtrace was killed"
    dtrace_losses
    recorder_events=$(grep -c '^[A-Z]	' events.txt)
    if dtrace_clock tail '#end' 2 3; then
        window_end=$dtrace_ts
        [ -z "$dtrace_pair" ] || clock_pairs="$clock_pairs, [$dtrace_ts, $dtrace_wall]"
        [ -z "$fail_text" ]
        return
    fi
    # The last line that is whole: nothing is known of what came after.
    window_end=$(awk -F '\t' '/^[A-Z]\t[0-9]+\t/ && NF > 3 { if (length($2) > length(ts) || (length($2) == length(ts) && $2 > ts)) ts = $2 } END { print ts }' events.txt)
    [ -z "$window_end" ] || lost null null early_end "$window_end" null
    fail_text=${fail_text:-dtrace ended before it could flush: its last line is missing}
    dd if=/dev/zero of="$scratch/room" bs=65536 count=1 2>/dev/null ||
        fail_text="no space was left for dtrace's lines: the last ones are missing"
    return 1
}

dtrace_orphaned() { guard_kill_tools; }

# dtrace's own account of what is missing. Its buffers are per CPU and drained at intervals,
# so no time can be given more finely than that, and none is.
dtrace_losses() {
    awk '
        function number(    i) {
            for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+$/) return $i + 0
            return 0
        }
        function add(cpu, count) {
            if (!(cpu in total)) order[++cpus] = cpu
            total[cpu] += count
        }
        /^dtrace: [0-9]+ drops? on CPU [0-9]+$/ { add($NF, number()); next }
        /^dtrace: [0-9]+ .*drops?/ { side += number(); next }
        /error on enabled probe/ { add("null", 1); if (first == "") first = $0 }
        END {
            for (i = 1; i <= cpus; i++) print "lost", order[i], total[order[i]]
            if (side) print "side", side
            if (first != "") print "error", first
        }' stderr.txt >"$scratch/dtrace.losses"
    while read -r dtrace_what dtrace_cpu dtrace_rest; do
        case $dtrace_what in
        lost) lost "$dtrace_cpu" "$dtrace_rest" overrun ;;
        side) note "dtrace lost $dtrace_cpu updates of its own counters; the #count lines are too low" ;;
        error) note "an event could not be printed: $dtrace_cpu $dtrace_rest" ;;
        esac
    done <"$scratch/dtrace.losses"
}

dtrace_json() {
    printf '  "dtrace": {"grammar": 1, "bufsize": "%s", "switchrate": "%s"},\n' \
        "$dtrace_bufsize" "$dtrace_switchrate"
}
