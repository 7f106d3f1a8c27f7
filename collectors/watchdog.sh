# The watchdog: what records is its child and ends with the capture, however that ends.
#
# Not sourced but run by guard.sh as a program of its own, in a session of its own, before
# anything records; its working directory is the folder being written.  Descriptor 6 is the
# reading end of a pipe whose only writing end `capture` holds: the kernel closes that when
# capture ends, kill -9 included, so no pid is trusted.  Then
#   * the recording is ended: by the tracer's own means, then by signals, then by KILL;
#   * if capture is gone (the file .scratch/recording is still there), the folder is finished
#     from here: what was recorded can be opened, and says that it ended early.
# Until then it looks after free space and size, and tells capture when the recorder is gone.
#
# Arguments: the tool and its words; none for a recorder that brings its own tracer_begin,
# tracer_end, tracer_halt and tracer_quit (they follow this text).  Settings come as variables:
#   watch_capture   pid of capture, for signals while it is known to live
#   watch_min_kb    free space that must be left; 0 = do not care
#   watch_max_kb    size the folder may have; 0 = any
#   watch_reserve_kb  what may still be written once the end is decided: the buffers' content
#   watch_owner     uid:gid that gets a folder finished here; empty = not handed over
#   watch_name      the folder's name in its parent
#   watch_recorder  the recorder's name, for sentences
#   watch_output    the tool's stdout; watch_growing: the file that shows that it still writes
#   watch_input     the tool's stdin: a file, `pipe` for descriptor 6, or empty
#   watch_signal    what tells the tool to finish, where it does not notice the pipe's end
#   watch_last      how the last line of its output begins, where it has one
#   watch_full      what it says when it ends because its own limit of size is reached
#   watch_timed     1 if it ends by itself when the time of -d is up
#   watch_ring      1 for a flight recorder: the folder holds snapshots, which are kept as they are
#   watch_wake      the signal that wakes capture (USR1)
#   watch_lifeline  1 if descriptor 4 is a pipe whose end is as good as a SIGHUP
# shellcheck shell=sh disable=SC2154,SC2317

set -u
trap '' INT HUP QUIT PIPE USR1 USR2 ALRM
watch_wake=${watch_wake:-USR1}
watch_reserve_kb=${watch_reserve_kb:-0} watch_full=${watch_full:-} watch_timed=${watch_timed:-}
trap : TERM

watch_nap=0.2 watch_per_second=5
sleep 0.01 2>/dev/null || watch_nap=1 watch_per_second=1

# Only to a live capture: .scratch/watching disappears only if capture removes it or ends.
watch_tell() { [ ! -e .scratch/watching ] || kill -s "$1" "$watch_capture" 2>/dev/null; }

# One sentence on why nothing more is recorded, the first one; on a full disk the file alone says it.
watch_failed() {
    [ ! -e .scratch/failed ] || return 0
    printf '%s\n' "$1" 2>/dev/null >.scratch/failed.new
    mv .scratch/failed.new .scratch/failed 2>/dev/null || true >.scratch/failed
    watch_tell "$watch_wake"
}

# The clock now: nothing is recorded after this.
watch_mark_end() {
    [ ! -e .scratch/ended_at ] || return 0
    host_clock
    printf '%s\n' "$clock_ns" 2>/dev/null >.scratch/ended_at.new &&
        mv .scratch/ended_at.new .scratch/ended_at
}

# ------------------------------------------------------------------ a tool as the recorder

tracer_begin() {
    SCHEDSCOPE_MARKER=
    if [ "$watch_input" != pipe ]; then
        # For tools that end when a process does: this one ends with the capture.
        (exec <&6 6<&- >/dev/null 2>&1 cat) &
        SCHEDSCOPE_MARKER=$!
        echo "$SCHEDSCOPE_MARKER" >>.scratch/pids
        echo "$SCHEDSCOPE_MARKER" >.scratch/marker
    fi
    export SCHEDSCOPE_MARKER
    : >.scratch/running
    watch_tool "$@" &
    watch_session=$!
    watch_known='' watch_asked=0
    until read -r watch_known 2>/dev/null <.scratch/tool || [ "$watch_asked" -ge 20 ]; do
        watch_asked=$((watch_asked + 1))
        sleep "$watch_nap"
    done
}

# The parent of the tool, which learns of its end.
watch_tool() {
    (
        if [ -n "$watch_signal" ]; then
            # No signal but ours ends it, since it counts them (tracer_quit).
            trap '' TERM
            trap - "$watch_signal"
        else
            trap - TERM
        fi
        case $watch_input in
        pipe) exec <&6 ;;
        '') exec </dev/null ;;
        *) exec <"$watch_input" ;;
        esac
        exec 6<&- 9>&- >>"$watch_output" 2>>stderr.txt
        exec "$@"
    ) &
    watch_pid=$!
    exec 6<&- 7<&- 8<&- 9>&-
    echo "$watch_pid" >>.scratch/pids
    echo "$watch_pid" >.scratch/tool.new
    mv .scratch/tool.new .scratch/tool
    # First of all waited for: one that ended at once may have been reaped while mv ran, and only
    # `wait` still knows its status then.
    while :; do
        wait "$watch_pid"
        watch_status=$?
        kill -0 "$watch_pid" 2>/dev/null || break
    done
    rm -f .scratch/tool .scratch/running
    # The end of the capture may have ended it: then there is no one to notify.
    sleep "$watch_nap"
    [ -e .scratch/watching ] && [ ! -e .scratch/limit ] || exit 0
    watch_mark_end
    if [ -n "$watch_full" ] && grep -q "$watch_full" stderr.txt; then
        watch_why="the recording reached $((watch_max_kb / 1024)) MiB (--max-size)"
        watch_post
        exit 0
    fi
    if [ -n "$watch_timed" ] && [ "$watch_status" = 0 ] && tracer_is_done; then
        watch_tell ALRM
        exit 0
    fi
    if [ "$watch_status" = 137 ]; then
        watch_failed "$watch_recorder was killed by SIGKILL, as the kernel does where memory is short"
    else
        watch_failed "$watch_recorder ended by itself with status $watch_status: $(watch_reason)"
    fi
}

# The line in which a tool says why it ended: its last error, which may be followed by the words
# that it is about and a line of marks below them; else its last line.
watch_reason() {
    sed '/^ *$/d; /[Ww]arning/d; / drops* /d' stderr.txt | awk '
        tolower($0) ~ /error|cannot|failed/ { why = $0 }
        { last = $0 }
        END { print (why != "" ? why : last) }'
}

tracer_signal() {
    read -r watch_pid 2>/dev/null <.scratch/tool || return 0
    kill -s "$1" "$watch_pid" 2>/dev/null
}

# Tells the tool to finish. A tool that is stopped by a signal (dtrace) takes a second one as
# impatience, and drops what it has not written yet: send only one.
tracer_quit() {
    [ -z "$watch_signal" ] || mkdir .scratch/asked 2>/dev/null || return 0
    tracer_signal "${watch_signal:-INT}"
}

# At a limit, before capture hears of it: the same end as capture's, where the tool has one.
tracer_halt() {
    read -r watch_pid 2>/dev/null <.scratch/marker && rm .scratch/marker || return 0
    kill "$watch_pid" 2>/dev/null
}

# The tool writes what it still holds, however long that takes; one that has stopped writing is
# asked again after 5 seconds and killed after 30, or 300 if it still uses CPU time.  One that
# writes on and on may have missed the end of its marker, whose notice can be lost like any event in
# a storm, just when a limit of size ended the recording: it is asked after two seconds, and again
# every minute.  (For a tool that is stopped by a signal, see tracer_quit.)
tracer_end() {
    if [ ! -d .scratch ]; then
        # The folder was removed: there is nothing to keep, and no file with the tool's state.
        [ -z "$watch_known" ] || kill -s KILL "$watch_known" 2>/dev/null
        wait "$watch_session"
        return
    fi
    if [ ! -s capture.json ]; then
        tracer_abandon
        return
    fi
    [ -z "$watch_signal" ] || tracer_quit
    watch_size='' watch_idle=0 watch_asked=0 watch_cpu='' watch_more=0
    while [ -e .scratch/running ]; do
        sleep "$watch_nap"
        watch_asked=$((watch_asked + 1))
        [ -z "${SCHEDSCOPE_MARKER:-}" ] || [ "$watch_asked" -ne $((watch_per_second * 2)) ] || tracer_quit
        [ $((watch_asked % (watch_per_second * 60))) != $((watch_per_second * 60 - 1)) ] || tracer_quit
        watch_before=$watch_size
        watch_size=$(wc -c 2>/dev/null <"$watch_growing")
        watch_idle=$((watch_idle + 1))
        [ "$watch_size" = "$watch_before" ] || watch_idle=0
        [ $((watch_idle % 25)) != 24 ] || tracer_quit
        if [ "$watch_idle" -ge 150 ] && tracer_works; then
            watch_idle=100
        elif [ "$watch_idle" -ge 150 ]; then
            : >.scratch/killed
            tracer_signal KILL
        elif [ "$watch_idle" -ge 15 ] && tracer_is_done; then
            tracer_signal KILL
        fi
    done
    wait "$watch_session"
}

# It has used CPU time since the last look, of 27 at most: a busy host may give it little.
tracer_works() {
    read -r watch_pid 2>/dev/null <.scratch/tool || return 1
    watch_before=$watch_cpu watch_more=$((watch_more + 1))
    watch_cpu=$(ps -o time= -p "$watch_pid" 2>/dev/null)
    [ -n "$watch_cpu" ] && [ "$watch_cpu" != "$watch_before" ] && [ "$watch_more" -le 27 ]
}

# Its last line is written: all that follows is tidying up, for which DTrace on Linux takes half
# a minute of CPU time.  The kernel does that at once for a process that is gone.
tracer_is_done() {
    [ -n "$watch_last" ] && tail -n 3 "$watch_output" 2>/dev/null | grep -q "^$watch_last"
}

# The end came before anything was recorded for keeps. A tool that is still enabling its probes does
# not notice such an end, and may miss a signal.
tracer_abandon() {
    watch_asked=0
    while [ -e .scratch/running ]; do
        [ $((watch_asked % 5)) != 0 ] || tracer_signal "${watch_signal:-INT}"
        [ "$watch_asked" -lt 25 ] || tracer_signal KILL
        watch_asked=$((watch_asked + 1))
        sleep "$watch_nap"
    done
    wait "$watch_session"
}

# ------------------------------------------------------------------ limits

# Sets watch_free, in KiB, of the file system that is written to.
watch_space() {
    # A device or a mount point may have blanks in its name: the figures are before the "%". What is
    # available is below zero where root may write more than others (UFS).
    # shellcheck disable=SC2046
    set -- $(df -Pk . 2>/dev/null | sed -n '2s/^.* \(-\{0,1\}[0-9][0-9]*\)  *[0-9]*% .*$/\1/p')
    [ $# -eq 1 ] || return 1
    watch_free=$1
}

# 0 if nothing more can be written. Not every recorder notices: FreeBSD's dtrace records on, and
# drops what it prints.
watch_is_full() {
    if dd if=/dev/zero of=.scratch/room bs=65536 count=1 2>/dev/null; then
        rm .scratch/room
        return 1
    fi
    [ -d .scratch ]
}

watch_over() {
    watch_left=
    if [ "$watch_min_kb" -gt 0 ] && watch_space; then
        watch_left=$((watch_free - watch_min_kb - watch_reserve_kb))
        watch_why="only $((watch_free / 1024)) MiB of disk space were left (--min-free)"
    elif [ -z "${watch_ring:-}" ] && watch_space; then
        # With --min-free 0. Root may write on where nothing is left for others: 262144 is a look a
        # second.
        watch_left=$((watch_free > 0 ? watch_free : 262144))
        if [ "$watch_free" -lt 64 ] && watch_is_full; then
            watch_failed "no space left for the recording"
            # What a tool that prints lines still holds has no place to go.
            [ -z "$watch_last" ] || tracer_signal KILL
        fi
    fi
    if [ "$watch_max_kb" -gt 0 ]; then
        watch_used=$(du -sk . 2>/dev/null)
        watch_used=${watch_used%%[!0-9]*}
        # .reserve will be gone.
        [ ! -e .reserve ] || watch_used=$((${watch_used:-0} - 1024))
        watch_used=$((watch_max_kb - ${watch_used:-0} - watch_reserve_kb))
        if [ -z "$watch_left" ] || [ "$watch_used" -lt "$watch_left" ]; then
            watch_left=$watch_used
            watch_why="the recording reached $((watch_max_kb / 1024)) MiB (--max-size)"
        fi
    fi
    [ -n "$watch_left" ] && [ "$watch_left" -le 0 ]
}

# The recording will end: watch_why says why.  Capture finishes; a busy one may take seconds to
# hear.
watch_post() {
    watch_mark_end && tracer_halt
    printf '%s\n' "$watch_why" 2>/dev/null >.scratch/limit.new
    mv .scratch/limit.new .scratch/limit 2>/dev/null || true >.scratch/limit
    watch_tell "$watch_wake"
}

# Looks again when, at the pace of late or in a burst, half of what is left may be used up, five
# times a second at most.  Time is counted in fifths of a second here.
watch_limits() {
    trap 'kill "$!" 2>/dev/null; wait; exit 0' TERM
    watch_due=1 watch_waited=0 watch_before='' watch_posted='' watch_fifths=0
    exec 6<&- 7<&- 8<&-
    # It ends with the watchdog, even if that is killed.
    while kill -0 "$$" 2>/dev/null; do
        watch_step=5 watch_second=1
        if [ "$watch_due" -lt 5 ] && [ "$watch_nap" != 1 ] && [ -z "$watch_posted" ]; then
            watch_step=1 watch_second=$watch_nap
        fi
        sleep "$watch_second" &
        wait "$!"
        # A signal just before a shell's `wait` goes unnoticed until the next one.
        watch_fifths=$((watch_fifths + watch_step))
        # Without its folder capture cannot record; it is alive, or the watchdog would have ended.
        [ -d .scratch ] || ! kill -0 "$$" 2>/dev/null || kill -s "$watch_wake" "$watch_capture" 2>/dev/null
        if [ "$watch_fifths" -ge 25 ]; then
            watch_fifths=0
            if [ -s capture.json ] || [ -n "${watch_ring:-}" ]; then watch_tell "$watch_wake"; fi
        fi
        if [ -z "$watch_posted" ] && [ -e .scratch/limit ]; then watch_posted=0; fi
        if [ -n "$watch_posted" ]; then
            # A capture that does not react (stopped, hung): its tracer is ended without it.
            watch_posted=$((watch_posted + 1))
            [ "$watch_posted" -ne 12 ] || { watch_mark_end && tracer_quit; }
            continue
        fi
        watch_waited=$((watch_waited + watch_step))
        watch_due=$((watch_due - watch_step))
        [ "$watch_due" -le 0 ] || continue
        if watch_over; then
            watch_post
            watch_posted=0
            continue
        fi
        watch_due=50
        if [ -n "$watch_left" ]; then
            # A burst may reach 128 MiB/s, however slow the recording was before.
            watch_due=$((watch_left / 52429))
            watch_used_up=$((${watch_before:-0} - watch_left))
            [ -n "$watch_before" ] && [ "$watch_used_up" -ge 0 ] || watch_used_up=$watch_left
            watch_pace=$((watch_left * watch_waited / 2 / (watch_used_up + 1)))
            [ "$watch_due" -le "$watch_pace" ] || watch_due=$watch_pace
            [ "$watch_due" -le 50 ] || watch_due=50
        fi
        watch_before=$watch_left watch_waited=0
    done
    # If capture lives, it learns here that nothing records any more.
    watch_tell "$watch_wake"
}

# ------------------------------------------------------------------ the end

# Capture was killed.  Its folder is opened like any other, and says so; a folder without
# capture.json was never recorded into.
watch_salvage() {
    if [ -n "${watch_ring:-}" ]; then
        ring_salvage
        return
    fi
    if [ ! -s capture.json ]; then
        rm -rf ./* .scratch .reserve
        cd .. && rmdir "./$watch_name" 2>/dev/null
        return
    fi
    rm -f .reserve
    # Where the tool had to be killed, it is unknown how much of the end is missing.
    if [ ! -e .scratch/killed ] && read -r watch_end 2>/dev/null <.scratch/ended_at && [ -n "$watch_end" ]; then
        sed "s/^\(  \"window\": {\"begin\": [0-9]*, \"end\": \)null}/\1$watch_end}/" capture.json >capture.new &&
            mv capture.new capture.json
    fi
    rm -rf .scratch
    [ -z "$watch_owner" ] || find . -depth -exec chown -h "$watch_owner" {} +
}

watch_parent_end() {
    exec 6<&- 7<&- 8<&-
    trap 'kill "$!" 2>/dev/null; wait; exit 0' TERM
    cat <&4 >/dev/null 2>&1 &
    wait "$!"
    watch_tell HUP
}

watch_main() {
    if [ -n "$watch_lifeline" ]; then
        watch_parent_end &
        watch_parent=$!
    fi
    exec 4<&-
    watch_limits &
    watch_limiter=$!
    # A load that fills the disk keeps the CPUs busy, too.
    renice -n -20 -p "$watch_limiter" >/dev/null 2>&1
    echo "$watch_limiter" >>.scratch/pids
    ! command -v host_clock_open >/dev/null 2>&1 || host_clock_open "$watch_capture"
    tracer_begin "$@" && mv .scratch/starting .scratch/ready
    exec 7<&- 8<&-
    # Nothing is ever written into it: this returns when capture closes it, or is gone.
    while :; do
        read -r watch_word <&6
        watch_word=$?
        # More than 128: a signal to us.
        [ "$watch_word" -gt 128 ] || break
    done
    rm -f .scratch/watching
    [ ! -e .scratch/recording ] || watch_mark_end
    kill "$watch_limiter" ${watch_parent:+"$watch_parent"} 2>/dev/null
    tracer_end
    wait
    ! command -v host_clock_close >/dev/null 2>&1 || host_clock_close
    [ ! -e .scratch/recording ] || watch_salvage
    rm -f .scratch/ready
}
