# The flight recorder: `capture --ring` records into a ring in memory and writes nothing until a
# trigger comes; then the last seconds become a capture folder of their own (docs/flight-recorder.md).
#
# The ring is the kernel's buffer of the trace instance, in overwrite mode. A snapshot reads it
# while recording goes on: whole sub-buffers leave the ring at ten times the pace at which a storm
# fills it, so tracing is never held and nothing is missing between two snapshots. What comes after
# the trigger's instant is left out by the reader. Earlier events that the ring overwrote are not
# losses: they set where each CPU begins, and capture.json says when that is.
#
# The folder NAME.ring belongs to root while recording, and only root writes there; a snapshot is
# made in it under a name ending in .partial, handed over, and renamed when it is complete.
# Triggers: ring-watch.sh in the folder of the operating system.
# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2017

# ------------------------------------------------------------------ what was asked for

# A time like 50ms in ns.
ring_ns() {
    ring_digits=${1%%[!0-9]*}
    case $ring_digits in '' | 0 | 0?* | ????????????*) return 1 ;; esac
    case ${1#"$ring_digits"} in
    ns) echo "$ring_digits" ;;
    us) echo "$((ring_digits * 1000))" ;;
    ms) echo "$((ring_digits * 1000000))" ;;
    s) echo "$((ring_digits * 1000000000))" ;;
    *) return 1 ;;
    esac
}

# Sets ring_seconds or ring_kb, ring_pause and keep_kb from the options.
ring_options() {
    case $ring in
    *[0-9][smh])
        ring_seconds=$(seconds_of "$ring")
        case $ring_seconds in
        *[!0-9]* | '' | 0* | ?????*) die "--ring $ring is neither a time nor a size; try --ring 20s or --ring 64M" ;;
        esac
        ;;
    *) ring_kb=$(size_kb "$ring") && [ "$ring_kb" -gt 0 ] ||
        die "--ring $ring is neither a time nor a size; try --ring 20s or --ring 64M" ;;
    esac
    [ -z "$ring_kb" ] || [ -z "$buffer_kb" ] ||
        die "--ring $ring and -b both say how much memory to use; give -b with a time only, like --ring 20s"
    ring_least=$(seconds_of "$ring_pause") || ring_least=
    case $ring_least in
    *[!0-9]* | '' | 0?* | ??????*) die "--pause $ring_pause is not a duration in whole seconds; try --pause 60s" ;;
    esac
    ring_pause=$ring_least
    [ -z "$max_size" ] || die "--max-size limits a recording on disk; with --ring, --keep limits all snapshots together"
    if [ -n "$keep" ]; then
        keep_kb=$(size_kb "$keep") && [ "$keep_kb" -gt 0 ] || die "--keep $keep is not a size; try --keep 2G"
    fi
    [ -z "$then_command" ] || [ -n "$service" ] || have timeout || die "--then needs the tool timeout; install coreutils or busybox"
    if [ "$os_folder" = freebsd ]; then
        ring_of_dtrace
        return
    fi
    case $recorder in
    '' | ftrace) recorder=ftrace ;;
    *) die "$recorder cannot record into a ring; only ftrace can: leave out -t $recorder" ;;
    esac
    ring_predicates=
    while IFS= read -r ring_line; do
        [ -z "$ring_line" ] || ring_predicate "$ring_line"
    done <<END_TRIGGERS
$ring_triggers
END_TRIGGERS
    [ -z "$service" ] || [ "$words_left$seconds" = 0 ] ||
        die "--systemd-unit records until the unit is stopped; leave out COMMAND and -d"
    case "
$ring_predicates" in
    *"
exit "*) [ "$words_left" -gt 0 ] || die "--trigger exit needs a COMMAND; give one at the end, after --" ;;
    esac
    case "
$ring_predicates" in
    *"
wait "* | *"
quantile "*)
        [ -n "$service" ] || bpftrace_probe ||
            die "triggers about waits need bpftrace: $probe_text; the others (exit, file, log, a signal) need no tool"
        ;;
    esac
}

# FreeBSD: an ordinary recording whose buffers keep what came last. DTrace prints a ring once, when it
# ends: there is one snapshot, and nothing is known of it before.
ring_of_dtrace() {
    [ -n "$ring_kb" ] || die "on FreeBSD --ring takes a size for all CPUs together, like --ring 64M: how long a time that is depends on the load"
    [ -z "$ring_triggers$keep$then_command$service" ] ||
        die "on FreeBSD --ring writes one snapshot, when it is ended (Ctrl-C, -d or the end of COMMAND): leave out --trigger, --keep, --then and --systemd-unit"
    dtrace_ring=1 ring=''
}

# One --trigger, checked, as words that ring-watch.sh and ring_exit read.
ring_predicate() {
    ring_bad="--trigger '$1' is not a trigger; try 'exit != 0', 'file /run/alarm', 'log /var/log/app.log ERROR', 'wait > 50ms' or 'p99 > 5ms for 2s'"
    case $1 in
    'file '*)
        case $1 in 'file /'*) ;; *) die "--trigger '$1': give the absolute path of the file" ;; esac
        ring_predicates="$ring_predicates$1
"
        return
        ;;
    'log '*)
        ring_rest=${1#log }
        case $ring_rest in /*' '?*) ;; *) die "--trigger '$1': give the absolute path of the file, then the text to look for" ;; esac
        [ -f "${ring_rest%% *}" ] || die "--trigger '$1': there is no file ${ring_rest%% *}"
        ring_predicates="$ring_predicates$1
"
        return
        ;;
    esac
    ring_words=$(printf '%s\n' "$1" | sed 's/[!=<>][!=<>]*/ & /g')
    set -f
    # shellcheck disable=SC2086
    set -- $ring_words
    set +f
    case "$# ${1:-} ${2:-}" in
    "1 exit ") ring_predicates="${ring_predicates}exit any
" ;;
    "3 exit !=" | "3 exit =" | "3 exit ==")
        case $3 in *[!0-9]* | ????*) die "$ring_bad" ;; esac
        ring_predicates="${ring_predicates}exit $2 $3
"
        ;;
    "3 wait >")
        ring_least=$(ring_ns "$3") || die "$ring_bad"
        ring_predicates="${ring_predicates}wait $ring_least $3
"
        ;;
    "5 p50 >" | "5 p90 >" | "5 p95 >" | "5 p99 >" | "5 p99.9 >")
        [ "$4" = for ] && ring_least=$(ring_ns "$3") && ring_long=$(ring_ns "$5") || die "$ring_bad"
        ring_turns=$((ring_long / 500000000))
        [ $((ring_turns * 500000000)) = "$ring_long" ] && [ "$ring_turns" -gt 0 ] ||
            die "--trigger: $5 is not a multiple of 500ms, the interval at which $1 is checked"
        case $1 in p50) ring_above=500 ;; p90) ring_above=100 ;; p95) ring_above=50 ;; p99) ring_above=10 ;; *) ring_above=1 ;; esac
        ring_predicates="${ring_predicates}quantile $ring_least $ring_above $ring_turns $1 > $3 for $5
"
        ;;
    *) die "$ring_bad" ;;
    esac
}

# 0 if the exit status of COMMAND is one that --trigger names; sets ring_reason.
ring_exit() {
    while read -r ring_kind ring_compare ring_status; do
        [ "$ring_kind" = exit ] || continue
        case $ring_compare in
        any) ;;
        !=) [ "$1" -ne "$ring_status" ] || continue ;;
        *) [ "$1" -eq "$ring_status" ] || continue ;;
        esac
        ring_reason="the command ended with status $1"
        return 0
    done <<END_TRIGGERS
$ring_predicates
END_TRIGGERS
    return 1
}

# ------------------------------------------------------------------ memory

# Seconds to bytes, by a guess that capture.json repeats: the switches of the host in half a
# second, 200 bytes for each with its wakeup, and four times its share for the busiest CPU; but
# at least 1 MiB/s a CPU, since a recorder is started in quiet times for others.  At most an eighth
# of the free memory, as for every recording.
ring_memory() {
    if [ -n "$ring_kb" ]; then
        buffer_kb=$((ring_kb / host_ncpu))
        [ "$buffer_kb" -ge 64 ] ||
            die "--ring $ring is too small for $host_ncpu CPUs; try --ring $((host_ncpu * 64))K or more"
        ring_guess="$ring for all CPUs together, as asked for"
    elif [ -n "$buffer_kb" ]; then
        ring_guess="$buffer_kb KiB for each CPU, as asked for"
    else
        ring_before=$(awk '$1 == "ctxt" { print $2 }' /proc/stat)
        sleep 0.5 2>/dev/null || sleep 1
        ring_rate=$(awk -v before="$ring_before" '$1 == "ctxt" { printf "%.0f\n", ($2 - before) * 2 }' /proc/stat)
        # shellcheck disable=SC2086
        set -- $recorder_extras
        ring_bytes=$((ring_rate * 200 * 4 * (1 + 2 * $#) / host_ncpu))
        [ "$ring_bytes" -ge 1048576 ] || ring_bytes=1048576
        buffer_kb=$((ring_bytes * ring_seconds / 1024))
        ring_free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
        ring_most=$((${ring_free:-1048576} / 8 / host_ncpu))
        ring_guess="$ring_seconds s at $((ring_bytes / 1024)) KiB/s for each CPU, from $ring_rate switches a second of the host at the start"
        if [ "$buffer_kb" -gt "$ring_most" ]; then
            buffer_kb=$ring_most
            ring_guess="$ring_guess, cut to an eighth of the free memory"
        fi
        [ "$buffer_kb" -ge 256 ] || buffer_kb=256
    fi
    # What one snapshot can take: every ring, once more that of a CPU whose file is being cut, and
    # the tables.
    ring_worst_kb=$((buffer_kb * (host_ncpu + 1) + 8192))
    [ -z "$keep" ] || [ "$keep_kb" -ge "$ring_worst_kb" ] ||
        die "--keep $keep is less than one snapshot may take; give --keep $((ring_worst_kb / 1024 + 1))M or more, or a smaller --ring"
}

# ------------------------------------------------------------------ the folder

# NAME.ring may be there already: a service that starts again goes on in it.
ring_folder() {
    case $output in
    */*) folder_parent=${output%/*}/ ;;
    *) folder_parent=. ;;
    esac
    base=${output##*/}
    partial=$base
    cd -- "$folder_parent" 2>/dev/null || die "cannot make the folder $output: the folder $folder_parent does not exist or cannot be entered"
    folder_parent=$(folder_now) || die "cannot tell where $output would be; give an absolute path with -o"
    folder_path=${folder_parent%/}/$base
    ring_new=
    if [ ! -e "./$base" ] && [ ! -h "./$base" ]; then
        folder_mkdir "$output"
        ring_new=1
    fi
    [ -d "./$base" ] || die "$folder_path exists and is not a folder; give another name with -o"
    if [ -h "./$base" ] || ! cd -P "./$base" || [ "$(folder_now)" != "$folder_path" ] ||
        ! { ring_is_ours || ring_take_back; }; then
        folder_new=
        die "$folder_path is not a folder that only root can write to; give another name with -o"
    fi
    if [ -d .scratch ]; then
        read -r ring_other 2>/dev/null <.scratch/ring || ring_other=
        for ring_path in /sys/kernel/tracing /sys/kernel/debug/tracing; do
            [ -z "$ring_other" ] || [ ! -d "$ring_path/instances/$ring_other" ] ||
                die "another capture --ring records into $folder_path; give another name with -o"
        done
        rm -rf .scratch .reserve ./*.partial
    fi
    capture_dir=.
    folder_new=
    ring_order
    ring_number=$ring_highest
    scratch=.scratch
    mkdir -m 700 "$scratch" || die "cannot write into $output"
    # The user who asked may look at the snapshots while recording goes on.
    [ -z "$run_uid" ] || chmod 755 .
}

ring_is_ours() {
    # shellcheck disable=SC2012
    case $(ls -ldn . | awk '{ print substr($1, 1, 10), $3; exit }') in
    d???[-r][-x]?[-rs][-x]?" $(id -u)" | d???[-r]-[-xs][-r]-[-x]" $(id -u)") return 0 ;;
    *) return 1 ;;
    esac
}

# A folder of the user, from an earlier recording: makes it root's again, as it was while recording.
# What has a name of ours there may be anything; a folder of the user's is emptied as the user.
ring_take_back() {
    [ -n "$run_uid" ] && [ "$(ring_owner .)" = "$run_uid" ] || return 1
    chmod 700 . && chown "$(id -u):$(id -g)" . || return 1
    capture_dir=.
    for ring_path in .scratch .reserve ./*.partial; do
        if [ -h "$ring_path" ] || [ ! -d "$ring_path" ]; then
            rm -f "$ring_path"
        elif [ "$(ring_owner "$ring_path")" != 0 ]; then
            ring_drop "${ring_path#./}" || die "$ring_path in $folder_path is in the way and cannot be removed"
        fi
    done
}

# shellcheck disable=SC2012
ring_owner() { ls -ldn "$1" 2>/dev/null | awk '{ print $3; exit }'; }

# Removes what the recorder left, and an empty folder.
ring_remove() {
    rm -rf .scratch .reserve ./*.capture.partial
    if [ -n "$run_uid" ] && [ "$(folder_now 2>/dev/null)" = "$folder_path" ]; then
        chown "$run_uid:$run_gid" . && chmod 700 .
    fi
    cd .. 2>/dev/null && rmdir "./$base" 2>/dev/null
}

# ------------------------------------------------------------------ triggers

# After every wake of `record`: is a snapshot due?  A signal ends the `read` of a shell half-way, and
# the watchdog's come every few seconds: they are not heard meanwhile.
ring_turn() {
    trap '' USR2
    ring_then_look
    ring_look
    trap 'signalled=1' USR2
}

ring_look() {
    if ! ring_alive; then
        ring_done=1
        return
    fi
    if [ -n "$ring_asked" ]; then
        ring_asked=
        ring_snapshot "asked for" signal
    fi
    [ -e "$scratch/trigger" ] || return 0
    # The first word says what kind of trigger it was.
    read -r ring_kind ring_reason 2>/dev/null <"$scratch/trigger"
    rm -f "$scratch/trigger"
    host_clock
    if [ -n "$ring_last" ] && [ $(((clock_ns - ring_last) / 1000000000)) -lt "$ring_pause" ]; then
        ring_skipped=$((ring_skipped + 1))
        return 0
    fi
    ring_snapshot "$ring_reason" "$ring_kind"
    ring_last=$clock_ns
    # Without --keep the first snapshot is what the recording was for.
    [ -n "$keep" ] || ring_done=1
}

# 0 if what holds the ring is there and records; no other program should have touched it.
ring_alive() {
    fail_text=
    guard_folder || return 1
    kill -0 "$guard_pid" 2>/dev/null || fail_text="the process that records was killed"
    # A signal from outside may have interrupted it: try again.
    read -r ring_on 2>/dev/null <"$ftrace_dir/tracing_on" ||
        read -r ring_on 2>/dev/null <"$ftrace_dir/tracing_on" || ring_on=
    [ "$ring_on" = 1 ] || fail_text=${fail_text:-recording was switched off by somebody else while it ran ($ftrace_dir)}
    [ -z "$fail_text" ]
}

# Takes a snapshot in a shell of its own, which no signal ends: REASON KIND.
ring_snapshot() {
    host_clock
    ring_now=$clock_ns
    ring_wall=$(date +%Y%m%d-%H%M%S)
    rm -f "$scratch/why" "$scratch/summary" "$scratch/from"
    ring_name=
    # What the user put into the folder before it was root's again may have any name.
    while [ -z "$ring_name" ] || [ -e "./$ring_name" ] || [ -h "./$ring_name" ]; do
        ring_number=$((ring_number + 1))
        ring_name=$ring_wall-$ring_number-$2.capture
    done
    (
        trap '' INT TERM HUP QUIT PIPE USR1 USR2 ALRM
        trap - EXIT
        # Ahead of what fills the ring, where the host is overloaded.
        # shellcheck disable=SC2016
        renice -n -20 -p "$(sh -c 'echo $PPID')" >/dev/null 2>&1
        ring_write "$1"
    ) 2>/dev/null
    ring_status=$?
    [ "$ring_status" = 0 ] && ring_load_counts || ring_recount
    clock_ns=$ring_now
    if [ "$ring_status" = 0 ]; then
        ring_made=$((ring_made + 1))
        say "snapshot $output/$ring_name: $1$(cat "$scratch/summary" 2>/dev/null)"
        ring_then "$folder_path/$ring_name" "$1" "$2"
    else
        ring_failed=$((ring_failed + 1))
        ring_why=$(cat "$scratch/why" 2>/dev/null)
        ring_why=${ring_why:-the disk is full}
        tell "no snapshot ($1): $ring_why"
    fi
    # For --snapshot, which waits for it.
    {
        echo "$ring_number $ring_status"
        if [ "$ring_status" = 0 ]; then echo "$folder_path/$ring_name"; else echo "$ring_why"; fi
    } 2>/dev/null >"$scratch/answer.new" && mv "$scratch/answer.new" "$scratch/answer"
}

ring_give_up() {
    cd .. && rm -rf "./$ring_name.partial"
    printf '%s\n' "$1" 2>/dev/null >"$scratch/why"
    [ -e .reserve ] || dd if=/dev/zero of=.reserve bs=65536 count=16 2>/dev/null
    exit 1
}

# Room for the worst snapshot within --keep and above --min-free: the oldest ones go first.
ring_room() {
    while :; do
        ring_why=
        if [ -n "$keep" ]; then
            # Snapshots are their user's, who may have put anything into them.
            # shellcheck disable=SC2086
            ring_used=$(${host_limit:+$host_limit 10} du -sk . 2>/dev/null)
            ring_used=${ring_used%%[!0-9]*}
            if [ -z "$ring_used" ]; then
                ring_why="the snapshots in $output could not be measured within 10 seconds"
                return 1
            fi
            [ $((ring_used + ring_worst_kb)) -le "$keep_kb" ] ||
                ring_why="--keep $keep leaves no room for another"
        fi
        if [ "$min_free_kb" -gt 0 ]; then
            ring_space=$(df -Pk . 2>/dev/null | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9]*% .*$/\1/p')
            [ -z "$ring_space" ] || [ $((ring_space - ring_worst_kb)) -ge "$min_free_kb" ] ||
                ring_why="only $((ring_space / 1024)) MiB of disk space are left (--min-free)"
        fi
        [ -n "$ring_why" ] || return 0
        [ -n "$keep" ] || return 1
        ring_order
        [ -n "$ring_oldest" ] || return 1
        ring_drop "$ring_oldest" || return 1
    done
}

# Sets ring_oldest, empty if there is no snapshot, and ring_highest, after which a recorder that
# continues in the folder goes on counting: the numbers in the names say the order, since the clock may
# have been set meanwhile. A name without one is the user's, as is one that leaves no room above it.
ring_order() {
    ring_oldest='' ring_least=0 ring_highest=0
    for ring_path in [0-9]*-[0-9]*-[0-9]*-*.capture; do
        [ -d "$ring_path" ] && [ ! -h "$ring_path" ] || continue
        ring_digits=${ring_path#*-*-}
        ring_digits=${ring_digits%%-*}
        case $ring_digits in *[!0-9]* | 0* | ???????????*) ring_digits=0 ;; esac
        if [ -z "$ring_oldest" ] || [ "$ring_digits" -lt "$ring_least" ]; then
            ring_oldest=$ring_path ring_least=$ring_digits
        fi
        [ "$ring_digits" -le "$ring_highest" ] || [ "$ring_digits" -ge 1000000000 ] ||
            ring_highest=$ring_digits
    done
}

# Folders of the user are emptied as that user: a user who may change the folder could redirect
# root.
ring_drop() {
    if [ -n "$run_uid" ]; then
        (
            cd -P "./$1" || exit
            ring_rm='rm -rf ./* ./.[!.]* ./..?*'
            # shellcheck disable=SC2086
            if have setpriv; then
                ${host_limit:+$host_limit 60} setpriv "--reuid=$run_uid" "--regid=$run_gid" --init-groups -- sh -c "$ring_rm"
            elif have runuser; then
                ${host_limit:+$host_limit 60} runuser -u "$run_user" -- sh -c "$ring_rm"
            else
                su "$run_user" -s /bin/sh -c "$ring_rm"
            fi
        ) 2>/dev/null
        rmdir "./$1" 2>/dev/null
    else
        rm -rf "./$1"
    fi
    [ -d "./$1" ] || return 0
    ring_why="the oldest snapshot, $1, cannot be removed"
    return 1
}

# ------------------------------------------------------------------ from start to end

ring_main() {
    stage=preparing
    host_clean
    # Slow steps come before the folder exists: a kill -9 leaves it behind until what records is
    # there.
    host_facts
    json_facts
    ring_memory
    tunables_json=$(host_tunables | json_pairs)
    ring_folder
    check_space
    dd if=/dev/zero of=.reserve bs=65536 count=16 2>/dev/null || die "no space left for $output; nothing was recorded"
    read -r ring_online </sys/devices/system/cpu/online
    host_cpus >"$scratch/cpus.tsv" || die "cannot write into $output"
    printf '%s' "$ring_predicates" >"$scratch/predicates"
    "${recorder}_prepare" || die "$recorder cannot record: $fail_text"
    ring_nonblock=
    ! dd if=/dev/null of=/dev/null iflag=nonblock count=0 2>/dev/null || ring_nonblock=iflag=nonblock
    ring_armed
    printf '%s\n' "$ftrace_name" >"$scratch/ring"
    clock_pair
    "${recorder}_start" || die "$recorder cannot record: $fail_text"
    ring_recount
    ring_from=$window_begin
    : >"$scratch/armed"
    stage=recording
    say "recording into a ring of $((buffer_kb * host_ncpu)) KiB ($ring_guess)"
    say "a snapshot: kill -USR1 $capture_pid, or capture --snapshot; Ctrl-C ends without one"
    trap 'signalled=1' USR2
    record ${1+"$@"}
    trap '' USR2
    stage=finishing
    [ -n "$work_pid$seconds" ] || [ "$interrupted" != INT ] || interrupted=
    if [ -n "$work_status" ] && [ -z "$ring_done" ] && ring_exit "$work_status"; then
        ring_snapshot "$ring_reason" exit
    fi
    guard_failed && fail_text=$guard_said
    guard_folder || :
    guard_end || fail_text=${fail_text:-the process that records was killed}
    finish_command
    ring_then_end
    [ "${work_status:-0}" -le 384 ] || work_status=$((work_status - 256))
    capture_dir=
    ring_remove
    exit_status=${work_status:-0}
    ring_summary="$ring_made snapshots in $output"
    [ "$ring_made" != 1 ] || ring_summary="1 snapshot in $output"
    case $ring_made:$ring_failed in
        0:0) ring_summary="no trigger came, and nothing was written" ;;
        0:*) ring_summary="nothing was written" ;;
    esac
    ring_many="$ring_skipped triggers"
    [ "$ring_skipped" != 1 ] || ring_many="1 trigger"
    [ "$ring_skipped" = 0 ] || ring_summary="$ring_summary; $ring_many came within --pause ${ring_pause}s of one before"
    case $ring_failed in
        0) ;;
        1) ring_summary="$ring_summary; 1 snapshot FAILED" ;;
        *) ring_summary="$ring_summary; $ring_failed snapshots FAILED" ;;
    esac
    [ "$ring_failed" = 0 ] || exit_status=125
    if [ -n "$fail_text" ]; then
        [ -z "$fail_told" ] || fail_text="the flight recorder has ended"
        tell "$fail_text ($ring_summary)"
        exit_status=125
    else
        say "$ring_summary"
    fi
    leave
}

# The watchdog was killed: the trigger watchers are unsupervised.
ring_kill_tools() {
    while read -r ring_pid; do
        kill -s TERM "$ring_pid" 2>/dev/null
    done 2>/dev/null <"$scratch/triggers"
}

# Waits until those triggers watch that need time to start.
ring_armed() {
    ring_tries=0
    until [ -e "$scratch/watched" ]; do
        ! guard_failed || die "$guard_said"
        ring_tries=$((ring_tries + 1))
        [ "$ring_tries" -lt 240 ] || die "the triggers were not ready within a minute"
        pause
    done
}
