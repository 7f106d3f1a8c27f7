# What `--then` runs when the flight recorder has written a snapshot (main part: ring.sh).
# shellcheck shell=sh disable=SC2034,SC2154

# It may take this long; then it is killed, with what it started.
then_seconds=300
then_pid=''

then_word() { printf "'%s' " "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

# PATH REASON KIND of a snapshot.  In the background, since recording goes on; the time limit is that
# of a program of its own, which holds if this one is killed.
ring_then() {
    [ -n "$then_command" ] || return 0
    ring_then_look
    if [ -n "$then_pid" ]; then
        tell "--then is not run for $1: it still runs for the snapshot before"
        return 0
    fi
    # Settings in this subshell are for the command only.
    # shellcheck disable=SC2030
    (
        # Some shells write a line of their own about a child that was killed.
        exec 5>&- 8>&2 2>/dev/null 9</dev/null
        [ -z "$lifeline" ] || exec 4<&-
        trap - EXIT
        (
            command_environment="$(then_word "PATH=$caller_path") $(then_word "HOME=${HOME:-/}")"
            command_environment="$command_environment $(then_word "SNAPSHOT=$1")"
            command_environment="$command_environment $(then_word "REASON=$2") $(then_word "TRIGGER=$3")"
            recorder_adopts=no
            exec_command "$(command_tool timeout)" -s KILL "$then_seconds" sh -c "$then_command"
        ) 2>&8
        echo "$?" 2>/dev/null >"$scratch/then"
    ) &
    then_pid=$!
}

# Whether it has ended; prints its status if it failed.
ring_then_look() {
    [ -n "$then_pid" ] && read -r then_status 2>/dev/null <"$scratch/then" || return 0
    rm -f "$scratch/then"
    wait "$then_pid" 2>/dev/null
    then_pid=
    # yash says 384 + signal where others say 128 + signal.
    [ "$then_status" -le 384 ] || then_status=$((then_status - 256))
    case $then_status in
    0) ;;
    137) tell "--then was killed; it may take $then_seconds seconds" ;;
    *) tell "--then ended with status $then_status" ;;
    esac
}

# At the end of the recording: until it has ended, or a signal comes.
ring_then_end() {
    while [ -n "$then_pid" ] && wait_for "$then_pid"; do
        [ -e "$scratch/then" ] || return 0
        ring_then_look
    done
}
