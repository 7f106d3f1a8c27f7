# The command that is run while recording.
# shellcheck shell=sh disable=SC2034,SC2154

# The user behind sudo, doas or pkexec, who owns the command's process and the folder; empty if that
# is root. src/schedscope/invoking_user.py answers the same question in the same way.
find_user() {
    run_user='' run_uid='' run_gid=''
    for find_named in "${SUDO_USER:-}" "${SUDO_UID:-}" "${DOAS_USER:-}" "${PKEXEC_UID:-}"; do
        [ -n "$find_named" ] || continue
        if ! run_user=$(find_user_name "$find_named") || ! run_uid=$(id -u "$run_user" 2>/dev/null) ||
            ! run_gid=$(id -g "$run_user" 2>/dev/null); then
            die "the invoking user $find_named is unknown on this host; run capture directly as root"
        fi
        [ "$run_uid" = 0 ] || return 0
        run_user='' run_uid='' run_gid=''
    done
}

# The name of a user given by name or number: not every `id` accepts a number.
find_user_name() {
    case $1 in
    *[!0-9]*) printf '%s\n' "$1" ;;
    *)
        id -un "$1" 2>/dev/null ||
            awk -F: -v uid="$1" '$3 == uid { print $1; found = 1; exit } END { exit !found }' /etc/passwd
        ;;
    esac
}

# Unset the variables that name the invoking user, so that programs run from here act for root.
forget_user() { unset SUDO_USER SUDO_UID SUDO_GID DOAS_USER PKEXEC_UID; }

# As env and timeout do: 127 if there is no such command, 126 if it cannot be run.
check_command() {
    case $1 in
    */*)
        check_found=$1
        [ -e "$1" ] || check_found=
        ;;
    *) check_found=$(PATH=$caller_path && command -v "$1" 2>/dev/null) ;;
    esac
    if [ -z "$check_found" ]; then
        fail_status=127
        die "there is no command $1; nothing was recorded"
    fi
    case $1 in */*) [ -d "$1" ] || [ ! -x "$1" ] || return 0 ;; *) return 0 ;; esac
    fail_status=126
    die "$1 cannot be run: it is not an executable file; nothing was recorded"
}

# The caller's environment as words for `eval`, a quoted NAME=VALUE each.  The kernel keeps what
# this program was started with, names included that a shell drops; bytes come through od and
# printf since awks and shells differ in what they do with those above 127.  yash may be unable to
# hold those: what has one is left out there.
environment_words() {
    environment_probe=$(printf '\377z' 2>/dev/null)
    {
        if [ -r "/proc/$$/environ" ]; then
            od -An -v -to1 "/proc/$$/environ"
        else
            printf '%s\n' "$caller_environ"
        fi
    } | awk -v bytes="${#environment_probe}" '
        function put() {
            # What `env` would read as an option or a program is not a variable.
            if (named && first != "075" && first != "055" && (high == 0 || bytes == 2)) print "\047" text "\047"
            text = first = ""
            named = high = 0
        }
        {
            for (i = 1; i <= NF; i++) {
                if ($i == "000") { put(); continue }
                if (first == "") first = $i
                if ($i == "075") named = 1
                if ($i >= "200") high = 1
                text = text ($i == "047" ? "\047\"\047\"\047" : "\\" $i)
            }
        }
        END { put() }' | while IFS= read -r environment_word; do
        # shellcheck disable=SC2059
        printf "$environment_word "
    done
}

# The recorder's own tools, found where only root writes; the command finds its own in its PATH.
command_tool() { command -v "$1" 2>/dev/null; }

# Replaces this (background) shell by the command, which gets what it would have without this
# program: its caller's directory, umask, environment and descriptors, and none of the recorder's.
# A shell without job control starts background jobs with INT and QUIT ignored, for good; env or
# perl can put them back.
exec_command() {
    trap - EXIT INT TERM HUP QUIT PIPE USR1 USR2 ALRM
    exec <&9 5>&- 6<&- 7<&- 8<&- 9<&-
    [ -z "$lifeline" ] || exec 4<&-
    # shellcheck disable=SC2016,SC2031
    if [ -z "$command_environment" ]; then
        set -- "$(command_tool sh)" -c 'PATH=$1; shift; exec "$@"' sh "$caller_path" "$@"
    else
        # env would take ./a=b for an assignment.
        case $1 in *=*) set -- "$(command_tool sh)" -c 'exec "$@"' sh "$@" ;; esac
    fi
    if [ -n "$run_user" ]; then
        run_home=$(getent passwd "$run_user" 2>/dev/null | cut -d: -f6)
        set -- "USER=$run_user" "LOGNAME=$run_user" "HOME=${run_home:-${HOME:-/}}" "$@"
    fi
    # shellcheck disable=SC2031
    [ -z "$command_environment$run_user" ] ||
        eval "set -- \"\$(command_tool env)\" ${command_environment:+-i} $command_environment \"\$@\""
    if [ -n "$run_user" ]; then
        if have setpriv; then
            set -- "$(command_tool setpriv)" "--reuid=$run_uid" "--regid=$run_gid" --init-groups -- "$@"
        elif have runuser; then
            set -- "$(command_tool runuser)" -u "$run_user" -- "$@"
        elif have sudo; then
            set -- "$(command_tool sudo)" -u "$run_user" -- "$@"
        else
            # shellcheck disable=SC2016
            set -- "$(command_tool su)" -m "$run_user" -c 'exec "$0" "$@"' "$@"
        fi
    fi
    if env --default-signal=INT,QUIT true 2>/dev/null; then
        set -- "$(command_tool env)" --default-signal=INT,QUIT "$@"
    elif have perl; then
        # shellcheck disable=SC2016
        set -- "$(command_tool perl)" -e '$SIG{INT} = $SIG{QUIT} = "DEFAULT"; exec {$ARGV[0]} @ARGV; exit 127' "$@"
    fi
    if [ "$recorder_adopts" = yes ] && ! "${recorder}_adopt"; then
        printf 'capture: the system calls of the command alone cannot be recorded; --of all records those of every process\n' >&2
        exit 125
    fi
    cd -- "$start_dir" || exit 125
    umask "$caller_umask"
    exec "$@"
}

# -d: wakes the main program. It reads the pipe that ends with that program, so that it ends with it
# and never signals another process that has the pid by then.
start_timer() {
    exec 6<"$scratch/alive"
    run_timer &
    timer_pid=$!
    exec 6<&-
}

run_timer() {
    # Some shells print a line of their own about a child that was killed.
    exec 2>/dev/null 5>&- 7<&- 8<&-
    trap - EXIT INT HUP QUIT PIPE USR1 USR2 ALRM
    # Not TERM: a process that was just forked loses it to this trap, which it has inherited.
    trap 'kill -s KILL "$timer_sleep" 2>/dev/null; exit 0' TERM
    sleep "$seconds" 6<&- &
    timer_sleep=$!
    end_timer &
    exec 6<&-
    wait "$timer_sleep" && kill -s ALRM "$capture_pid"
}

# Nothing is written into the pipe: `read` returns at its end.
end_timer() {
    trap - TERM
    read -r _ <&6
    kill -s KILL "$timer_sleep" 2>/dev/null
}

# Waits for the pid: 0 and `waited` when it has ended, 1 when one of our signals interrupted the
# wait. A shell that sees both at once gives the exit status and forgets the child, and only a
# status over 128 can also mean the signal: then the next wait knows no such child (127), and the
# status before it was the child's.
wait_for() {
    signalled=
    wait "$1"
    waited=$?
    if [ "$waited" -eq 127 ] && [ -n "$broken_wait" ]; then
        waited=$broken_wait
    elif [ -n "$signalled" ] && [ "$waited" -gt 128 ]; then
        broken_wait=$waited
        return 1
    fi
    broken_wait=
}

# Records until the command ends, time is up, a limit is reached, a signal comes, the recorder fails
# or the folder is removed.
record() {
    if [ $# -gt 0 ]; then
        exec 9<&0
        exec_command "$@" &
        work_pid=$!
        exec 9<&-
    fi
    [ -z "$seconds" ] || start_timer
    while [ -z "$interrupted$timed_out$ring_done" ] && [ ! -e "$scratch/failed" ] && [ ! -e "$scratch/limit" ] &&
        [ -d "$scratch" ] && kill -0 "$guard_pid" 2>/dev/null; do
        if [ -n "$work_pid" ]; then
            if wait_for "$work_pid"; then
                work_status=$waited
                break
            fi
        elif [ -n "$timer_pid" ]; then
            wait "$timer_pid"
        else
            # Only for a while: a signal just before `wait` would go unnoticed.
            (exec 5>&- 7<&- 8<&- sleep "$idle_seconds") &
            idle_pid=$!
            wait "$idle_pid"
            # A new process may still lose a TERM to the trap that it inherited.
            kill -s KILL "$idle_pid" 2>/dev/null
        fi
        [ -z "$ring" ] || ring_turn
    done
}

# After the recording: the command ends by itself after -d; after a signal it gets a second
# for its own handling of that signal (a terminal sends it to both), then TERM.
finish_command() {
    [ -n "$work_pid" ] && [ -z "$work_status" ] || return 0
    if [ -n "$interrupted" ]; then
        work_grace=0
        while [ "$work_grace" -lt 4 ] && kill -0 "$work_pid" 2>/dev/null; do
            pause
            work_grace=$((work_grace + 1))
        done
        kill -s TERM "$work_pid" 2>/dev/null
    elif kill -0 "$work_pid" 2>/dev/null; then
        if [ -n "$fail_text" ]; then
            tell "$fail_text; waiting for the command to end"
            fail_told=1
        else
            say "recording is over; waiting for the command to end"
        fi
    fi
    signal_before=$interrupted
    until wait_for "$work_pid"; do
        # A first signal during this wait ends the command as above.
        if [ -z "$signal_before" ] && [ -n "$interrupted" ]; then
            signal_before=$interrupted
            kill -s TERM "$work_pid" 2>/dev/null
        fi
    done
    work_status=$waited
}
