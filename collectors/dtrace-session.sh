# DTrace as a recorder: one run of dtrace with a script that prints the grammar of
# collectors/lines.md. Both systems share this; $OS/dtrace.sh defines what differs:
#   dtrace_ready      does what must be done first; sets dtrace_bufsize and dtrace_switchrate
#   dtrace_words      calls its arguments, a command, with the words that run dtrace appended
#   dtrace_starts_late  yes if dtrace starts after the tables are taken: where only dtrace can read
#                     its clock, the window is from its first line to its last
#   dtrace_signal     what dtrace takes like Ctrl-C, and then flushes everything
#   dtrace_limits     not empty if dtrace ends by itself when the time of -d is up
# shellcheck shell=sh disable=SC2034,SC2154

dtrace_prepare() {
    : >events.txt
    : >stderr.txt
    dtrace_ready || return 1
    recorder_command=$(dtrace_words echo)
    [ "$dtrace_starts_late" = yes ] || dtrace_launch
}

# Starts dtrace and waits for its first line: enabling the probes takes seconds.
dtrace_launch() {
    guard_output=events.txt guard_signal=$dtrace_signal guard_last='#end' guard_timed=${dtrace_limits:+1}
    if ! dtrace_words guard_start --; then
        dtrace_explain
        return 1
    fi
    dtrace_turns=0
    # A ring prints nothing before its end: give dtrace time to enable the probes.
    while [ -n "$dtrace_ring" ] || ! dtrace_clock head '#sched' 4 5; do
        if guard_failed; then
            fail_text=$guard_said
            dtrace_explain
            return 1
        fi
        dtrace_turns=$((dtrace_turns + 1))
        [ -z "$dtrace_ring" ] || [ "$dtrace_turns" -lt "${SCHEDSCOPE_RING_PATIENCE:-12}" ] || break
        if [ "$dtrace_turns" -gt "${SCHEDSCOPE_DTRACE_PATIENCE:-480}" ]; then
            fail_text="dtrace printed nothing; try it by hand: $recorder_command"
            return 1
        fi
        pause
    done
    guard_pids
}

# A kernel that differs from those the scripts were written for: prints what it lacks, and what
# works.
dtrace_explain() {
    dtrace_lacks=$(sed -n \
        -e 's/.*failed to compile script \(.*\/\)\{0,1\}\([a-z]*\)\.d: line [0-9]*: \([a-z_0-9]*\) is not a member of \(.*\)/\2 member \3 of \4/p' \
        -e 's/.*failed to compile script \(.*\/\)\{0,1\}\([a-z]*\)\.d: line [0-9]*: probe description \([^ ]*\) does not match any probes.*/\2 probe \3/p' \
        stderr.txt | head -n 1)
    [ -n "$dtrace_lacks" ] || return 0
    case $dtrace_lacks in
    sched\ *) dtrace_instead="nothing but a release of schedscope for this kernel helps; please report it" ;;
    duration\ *) dtrace_instead="record without -d" ;;
    *) dtrace_instead="record without --with ${dtrace_lacks%% *}" ;;
    esac
    fail_text="this kernel ($(uname -r)) has no ${dtrace_lacks#* }, which ${dtrace_lacks%% *}.d reads: $dtrace_instead"
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
    [ "$dtrace_starts_late" != yes ] || dtrace_launch || return 1
    dtrace_pair=
    [ -z "$dtrace_ring" ] || return 0
    window_begin=$dtrace_ts
    [ -n "$clock_pairs" ] || dtrace_pair="[$dtrace_ts, $dtrace_wall]"
    clock_pairs=$clock_pairs$dtrace_pair
}

dtrace_stop() {
    take_counts
    dtrace_progress &
    dtrace_shows=$!
    guard_end || fail_text="the process that watches dtrace was killed"
    wait "$dtrace_shows"
    dtrace_full=
    dd if=/dev/zero of="$scratch/room" bs=65536 count=1 2>/dev/null || dtrace_full=1
    free_reserve
    [ -z "$dtrace_ring" ] || dtrace_unroll
    dtrace_losses
    recorder_events=$(grep -c '^[A-MO-Z] ' events.txt)
    [ -n "$dtrace_ring" ] || dtrace_unwritten
    if dtrace_clock tail '#end' 2 3; then
        window_end=$dtrace_ts
        [ -z "$dtrace_pair" ] || clock_pairs="$clock_pairs, [$dtrace_ts, $dtrace_wall]"
        dtrace_early
        [ -z "$fail_text" ]
        return
    fi
    # The last complete line: what came after it is unknown.
    window_end=$(awk -v begin="$window_begin" '/^[A-Z] [0-9]+ [0-9]/ && $2 + 0 > last { last = $2 + 0 } END { if (last) printf "%.0f", begin + last }' events.txt)
    [ -z "$window_end" ] || lost null null early_end "$window_end" null
    fail_text=${fail_text:-dtrace ended before it could flush, as it does at a second signal: its last line is missing}
    ! grep -q 'systemic unresponsiveness' stderr.txt ||
        note "DTrace ends a recording when its clock stands still for 10 seconds, or when dtrace gets no CPU time for 30 seconds or prints that long without a break: use a smaller -b (it was $buffer_kb), or a host with less to do"
    [ -z "$dtrace_full" ] ||
        fail_text="no space was left for dtrace's lines: the last ones are missing"
    return 1
}

# A ring's first line is printed at its end: move it to its place, and read the clock pair from it.
dtrace_unroll() {
    { awk '/^#sched\t/' events.txt && awk '!/^#sched\t/' events.txt; } >events.unrolled &&
        mv events.unrolled events.txt && dtrace_clock head '#sched' 4 5 || return 0
    window_begin=$dtrace_ts
    clock_pairs="[$dtrace_ts, $dtrace_wall]" dtrace_pair=1
    note "the buffers kept what came last: each CPU's lines begin at a time of its own, a busy one's later"
}

# dtrace prints what its buffers hold, which takes a slow host minutes.  Ends with the watchdog, or
# when nothing has been printed for a minute.
dtrace_progress() {
    exec 5>&- 7<&- 8<&- </dev/null
    trap - EXIT
    progress_turn=0 progress_size=0 progress_still=0
    while [ -e "$scratch/ready" ] && [ "$progress_still" -lt 6 ]; do
        pause
        progress_turn=$((progress_turn + 1))
        [ $((progress_turn % 40)) = 0 ] || continue
        progress_before=$progress_size
        progress_size=$(wc -c <events.txt) 2>/dev/null
        progress_still=$((progress_still + 1))
        [ "$progress_size" = "$progress_before" ] || progress_still=0
        say "dtrace still prints what it holds: $((progress_size / 1048576)) MiB so far"
    done
}

dtrace_orphaned() { guard_kill_tools; }

# dtrace's own account of what is missing. Its buffers are per CPU and drained at intervals, so
# losses have no finer time, and none is given.
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
        # A clause that had no room for its variable was aborted, without a record.
        /^dtrace: [0-9]+ dynamic variable drops?/ { add("null", number()); next }
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

# Lines that were recorded and are not in the file: FreeBSD's dtrace does not notice a full disk.
dtrace_unwritten() {
    dtrace_counted=$(tail -n 50 events.txt | awk -F '\t' '$1 == "#count" && $2 != "N" { sum += $3 } END { print sum + 0 }')
    # On Linux dropped lines are counted, too.
    [ -n "$losses" ] || [ "$dtrace_counted" -le "$recorder_events" ] ||
        lost null "$((dtrace_counted - recorder_events))" output
}

# With -d dtrace ends when the time is up; if it ends sooner, another program stopped it.
dtrace_early() {
    [ -n "$dtrace_limits" ] && [ -n "$timed_out" ] && [ -z "$fail_text$interrupted" ] || return 0
    dtrace_span=$(awk -v from="$window_begin" -v to="$window_end" -v asked="$seconds" 'BEGIN {
        span = (to - from) / 1e9
        if (span < asked - 0.1) printf "%.1f", span }')
    [ -z "$dtrace_span" ] || fail_text="dtrace was told to end by somebody else, after $dtrace_span s"
}

dtrace_json() {
    printf '  "dtrace": {"grammar": 2, "bufsize": "%s", "switchrate": "%s"},\n' \
        "$dtrace_bufsize" "$dtrace_switchrate"
}
