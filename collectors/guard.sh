# The interface of `capture` to its watchdog (watchdog.sh), which starts and ends all recording
# processes.
# shellcheck shell=sh disable=SC2034,SC2154

guard_nap=0.05
guard_room_kb='' guard_reserve_kb=0

# In a session of its own a signal to our whole group does not reach the watchdog, kill -9 of a
# group or a closed terminal included.  Where the host cannot make a session, it works without one.
guard_apart() {
    if have setsid; then
        echo setsid
    elif have perl; then
        echo "perl -MPOSIX -e POSIX::setsid();exec{\$ARGV[0]}@ARGV"
    fi
}

# guard_start [TEXT_FILE ...] -- [WORDS]: starts the watchdog, whose child is the tool that WORDS
# run, or what the TEXT_FILEs record with.  guard_output, guard_input, guard_growing, guard_signal,
# guard_last, guard_full and guard_timed are the watchdog's settings of those names; guard_settings names variables of the recorder.
guard_start() {
    : >"$scratch/recording"
    : >"$scratch/watching"
    : >"$scratch/starting"
    fail_text="cannot make a pipe in $output"
    mkfifo "$scratch/alive" || return 1
    # Opened for both directions first, so that neither side waits for the other to open it.
    command exec 5<>"$scratch/alive" || return 1
    command exec 6<"$scratch/alive" || return 1
    guard_text=$(
        text "$os_folder/clock.sh"
        text watchdog.sh
        while [ "$1" != -- ]; do
            text "$1"
            shift
        done
        # shellcheck disable=SC2016
        echo 'watch_main "$@"'
    ) || return 1
    while [ "$1" != -- ]; do shift; done
    shift
    # An explicit subshell: some shells stay between themselves and a background program, and
    # would hold the pipe.
    # shellcheck disable=SC2046
    (
        exec 5>&-
        [ -n "$lifeline" ] || exec 4<&-
        trap - EXIT
        watch_capture=$capture_pid watch_owner=${run_uid:+$run_uid:$run_gid} watch_name=$partial
        watch_recorder=$recorder
        watch_min_kb=$min_free_kb watch_max_kb=$max_size_kb watch_lifeline=$lifeline
        watch_output=${guard_output:-/dev/null} watch_growing=${guard_growing:-${guard_output:-/dev/null}}
        watch_input=${guard_input:-} watch_signal=${guard_signal:-} watch_last=${guard_last:-}
        # The ring uses no disk: its snapshots check for room themselves.
        [ -z "$ring" ] || watch_min_kb=0
        watch_ring=${ring:+1} watch_wake=${ring:+USR2} watch_full=${guard_full:-} watch_timed=${guard_timed:-} watch_reserve_kb=$guard_reserve_kb
        # shellcheck disable=SC2086
        export watch_capture watch_owner watch_name watch_recorder watch_min_kb watch_max_kb watch_lifeline \
            watch_output watch_growing watch_input watch_signal watch_last watch_ring watch_wake watch_full watch_timed watch_reserve_kb ${guard_settings:-}
        SCHEDSCOPE_RECORDER=$capture_pid
        export SCHEDSCOPE_RECORDER
        exec $(guard_apart) sh -c "$guard_text" schedscope-watchdog ${1+"$@"} \
            </dev/null >/dev/null 2>"$scratch/watchdog.err"
    ) &
    guard_pid=$!
    exec 6<&-
    [ -z "$lifeline" ] || exec 4<&-
    guard_turn=0
    [ "$pause_seconds" != 1 ] || guard_nap=1
    until [ -e "$scratch/ready" ]; do
        if guard_failed || ! kill -0 "$guard_pid" 2>/dev/null; then
            fail_text=${guard_said:-the watchdog ended at once: $(tail -n 1 "$scratch/watchdog.err")}
            return 1
        fi
        fail_text="the watchdog was not ready within a minute"
        guard_turn=$((guard_turn + 1))
        [ "$guard_turn" -lt 1200 ] || return 1
        sleep "$guard_nap"
    done
    fail_text=
    read -r clock_file 2>/dev/null <"$scratch/clock" || clock_file=
    guard_pids
}

# Before anything is recorded: 0 with min_free_kb set if there is room, else it ends the program.
# The default floor is small, so that it holds on small disks too.  Sets guard_room_kb to what
# may be written then, empty where nothing limits it.
check_space() {
    guard_room_kb=
    [ "$max_size_kb" -eq 0 ] || guard_room_kb=$max_size_kb
    # shellcheck disable=SC2046
    set -- $(df -Pk . 2>/dev/null | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9][0-9]*  *\(-\{0,1\}[0-9][0-9]*\)  *[0-9]*% .*$/\1 \2/p')
    [ $# -eq 2 ] || return 0
    # UFS: root may write where less than nothing is available to others.
    case $2 in -*) set -- "$1" 0 ;; esac
    if [ -z "$min_free" ]; then
        min_free_kb=$(($1 / 20))
        [ "$min_free_kb" -le 524288 ] || min_free_kb=524288
    fi
    [ "$2" -gt "$min_free_kb" ] ||
        die "not enough space for $output: $(($2 / 1024)) MiB are free, and recording ends at $((min_free_kb / 1024)) MiB; --min-free changes that"
    [ "$min_free_kb" -gt 0 ] || return 0
    [ "${guard_room_kb:-$2}" -le $(($2 - min_free_kb)) ] || guard_room_kb=$(($2 - min_free_kb))
    guard_room_kb=${guard_room_kb:-$(($2 - min_free_kb))}
}

# Sets buffer_kb, of a CPU, unless -b gave it: $1, or with $2 less where all of them together could
# hold more than an eighth of what may be written; at least $2.  What they hold when a limit is
# near is still written: it is set aside, with what comes while they are emptied.
guard_buffer() {
    if [ -z "$buffer_kb" ]; then
        buffer_kb=$1
        if [ -n "${2:-}" ] && [ -n "$guard_room_kb" ]; then
            guard_most=$((guard_room_kb / 8 / host_ncpu))
            [ "$buffer_kb" -le "$guard_most" ] || buffer_kb=$guard_most
            [ "$buffer_kb" -ge "$2" ] || buffer_kb=$2
        fi
    fi
    [ -n "$guard_room_kb" ] || return 0
    guard_reserve_kb=$((2 * buffer_kb * host_ncpu))
    [ "$guard_reserve_kb" -le $((guard_room_kb / 4)) ] || guard_reserve_kb=$((guard_room_kb / 4))
}

# The long-lived pids of everything that records, as far as it has started.
guard_pids() { recorder_pids="$guard_pid $(tr '\n' ' ' 2>/dev/null <"$scratch/pids")"; }

# 0 if the recorder has failed; guard_said is the message.
guard_failed() {
    guard_said=
    [ -e "$scratch/failed" ] || return 1
    guard_said=$(cat "$scratch/failed")
    guard_said=${guard_said:-no space left for the recording}
}

# Sets fail_text where the folder was removed while it recorded.
guard_folder() {
    [ -d "$scratch" ] || fail_text="the folder $output was removed while it recorded, and all in it is gone"
    [ -d "$scratch" ]
}

# Ends the recording and waits until all is drained and gone: closing the pipe makes the watchdog do
# so. Once the file `recording` is gone, it leaves the folder to this program. Returns 1 if the
# watchdog itself was killed; what it left running is ended here.
guard_end() {
    [ -n "$guard_pid" ] || return 0
    rm -f "$scratch/recording" "$scratch/watching"
    exec 5>&-
    while kill -0 "$guard_pid" 2>/dev/null; do wait "$guard_pid"; done
    guard_pid=
    # Its last act is to remove this file.
    [ -e "$scratch/ready" ] || return 0
    "${recorder}_orphaned"
    [ -z "$clock_file" ] || rmdir "${clock_file%/per_cpu/*}" 2>/dev/null
    return 1
}

# Sets window_begin: now, and not before.
guard_window_begin() {
    host_clock
    window_begin=
    [ -z "$clock_ns" ] || window_begin=$((clock_ns + clock_step))
}

# Sets window_end: now, or when the watchdog says that recording ended.  Takes what is counted up to
# it.
guard_window_end() {
    host_clock
    window_end=$clock_ns
    guard_ended=$(cat "$scratch/ended_at" 2>/dev/null)
    [ -z "$guard_ended" ] || window_end=$guard_ended
    take_counts
}

# For a tool whose watchdog was killed and no longer supervises it.
guard_kill_tools() {
    while read -r guard_tool; do
        kill -s KILL "$guard_tool" 2>/dev/null
    done <"$scratch/pids"
}
