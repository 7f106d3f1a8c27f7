# A snapshot of the flight recorder: the last seconds of every CPU as a capture folder (main part:
# ring.sh).
# shellcheck shell=sh disable=SC2034,SC2154,SC2015

# Writes the snapshot of `ring_now` for the reason $1; the working directory is NAME.ring.
ring_write() {
    ring_aim
    if ! ring_room; then
        printf '%s\n' "$ring_why" 2>/dev/null >"$scratch/why"
        exit 1
    fi
    if ! mkdir -m 700 "./$ring_name.partial" 2>/dev/null || ! cd "./$ring_name.partial"; then
        echo "no folder can be made: is the disk full?" 2>/dev/null >"$scratch/why"
        exit 1
    fi
    ring_home=../$scratch
    ring_reason=$1
    mkdir raw stats 2>/dev/null || ring_give_up "no space left for it"
    # First of all: the ring goes on, and in a storm soon overwrites what the trigger was about.
    ring_unread=
    for ring_cpu in $ftrace_cpus; do
        ring_copy "$ring_cpu" || ring_unread="no space was left for all of the snapshot"
        # At once: what is overwritten from here on lies before the beginning of the next one.
        ring_count "$ring_cpu" || ring_give_up "the kernel gives no account of CPU $ring_cpu ($ftrace_dir)"
        eval "ring_new_overrun_$ring_cpu=$ring_overrun ring_new_read_$ring_cpu=$ring_read"
        eval "ring_new_commit_$ring_cpu=$ring_commit ring_new_dropped_$ring_cpu=$ring_dropped"
    done
    host_clock
    ring_next=$clock_ns
    cp -R "$ring_home/events" . 2>/dev/null && ring_cpus_file 2>/dev/null || ring_give_up "no space left for it"
    window_begin=$ring_from window_end=
    recorder_events='' losses='' fail_text="capture was killed while it took this snapshot"
    ring_held=
    write_json >capture.json && json_whole capture.json || ring_give_up "no space left for it, or there is no working awk"
    fail_text=$ring_unread
    rm -f ../.reserve
    ring_cut || fail_text=${fail_text:-no space was left for all of the snapshot}
    window_end=$ring_now
    for ring_cpu in $ftrace_cpus; do
        [ -z "$fail_text" ] || ftrace_end_unknown "$ring_cpu"
        ring_account "$ring_cpu"
    done
    host_threads >threads.tsv
    {
        printf 'seen\tpid\tppid\tcreated\tcgroup\tautogroup\tcmdline\n'
        host_processes start >"$ring_home/processes"
        cat "$ring_home/processes"
        # The tables are read now, to include threads created meanwhile.
        sed 's/^start/end/' "$ring_home/processes"
    } >processes.tsv
    {
        printf 'seen\tcgroup\tweight\tquota\tperiod\tusage\tperiods\tn_throttled\tthrottled\tpressure\n'
        host_groups start
    } >groups.tsv
    end_sched_ext=$(host_sched_ext | json_pairs)
    clock_pair
    ring_save_counts
    write_json >capture.json.new && json_whole capture.json.new && mv capture.json.new capture.json || ring_give_up "no space left for it, or there is no working awk"
    folder_checksums
    ring_span=$(((window_end - window_begin) / 10000000))
    printf ' (%s events, %d.%02d s%s)\n' "${ring_events:-0}" $((ring_span / 100)) $((ring_span % 100)) \
        "${fail_text:+; $fail_text}" >"$ring_home/summary"
    if [ -n "$run_uid" ]; then
        find . -name . -o -exec chown -h "$run_uid:$run_gid" {} +
        chown "$run_uid:$run_gid" .
    fi
    cd .. && mv "./$ring_name.partial" "./$ring_name" || exit 1
    dd if=/dev/zero of=.reserve bs=65536 count=16 2>/dev/null
    exit 0
}

# The CPUs as they are now; they are asked again only if others are online than at the start.
ring_cpus_file() {
    read -r ring_online_now </sys/devices/system/cpu/online
    if [ "$ring_online_now" = "$ring_online" ]; then
        cp "$ring_home/cpus.tsv" .
    else
        host_cpus >cpus.tsv
    fi
}

# CPU...: a line for each with what the kernel counts now: unread events, overwritten, commit
# overruns, dropped, read.  The kernel writes the file again for each `read` of it, and a shell
# reads byte by byte: that would mix the digits of two moments.
ring_counts() {
    ring_files=
    for ring_cpu; do
        ring_files="$ring_files $ftrace_dir/per_cpu/cpu$ring_cpu/stats"
    done
    # shellcheck disable=SC2086
    awk -F: '
        FNR == 1 { cpu = FILENAME; sub(/\/stats$/, "", cpu); sub(/.*cpu/, "", cpu); found = "" }
        $1 ~ /^(entries|overrun|commit overrun|dropped events|read events)$/ {
            gsub(/ /, "", $2)
            found = found " " $2
            if ($1 == "read events") print cpu found
        }' $ring_files 2>/dev/null
}

# Sets ring_entries, ring_overrun, ring_commit, ring_dropped and ring_read of a CPU.
ring_count() {
    ring_read=
    read -r ring_6 ring_entries ring_overrun ring_commit ring_dropped ring_read <<END_COUNTS
$(ring_counts "$1")
END_COUNTS
    [ -n "$ring_read" ]
}

# What had been counted where the snapshot before ends, from what it wrote down.
ring_load_counts() {
    read -r ring_from 2>/dev/null <"$scratch/from" || return 1
    while read -r ring_cpu ring_2 ring_3 ring_4 ring_5; do
        eval "ring_overrun_$ring_cpu=$ring_2 ring_read_$ring_cpu=$ring_3"
        eval "ring_commit_$ring_cpu=$ring_4 ring_dropped_$ring_cpu=$ring_5"
    done <"$scratch/counts"
}

# The same counts now: at the start, or where a snapshot failed, whose progress is unknown. Earlier
# events are then in no snapshot.
ring_recount() {
    host_clock
    ring_from=$clock_ns
    # A signal from outside may have interrupted it: try again.
    ring_each_count ring_begins || ring_each_count ring_begins ||
        die "the kernel gives no account of every CPU ($ftrace_dir)"
}

# CPU ENTRIES OVERRUN COMMIT DROPPED READ
ring_begins() {
    eval "ring_overrun_$1=$3 ring_read_$1=$6 ring_commit_$1=$4 ring_dropped_$1=$5"
}

# Calls a function with the counts of each CPU; 1 if the kernel does not give all of them.
ring_each_count() {
    ring_told=
    # shellcheck disable=SC2086
    ring_lines=$(ring_counts $ftrace_cpus)
    while read -r ring_cpu ring_2 ring_3 ring_4 ring_5 ring_6; do
        [ -n "$ring_6" ] || break
        "$1" "$ring_cpu" "$ring_2" "$ring_3" "$ring_4" "$ring_5" "$ring_6"
        ring_told="$ring_told $ring_cpu"
    done <<END_COUNTS
$ring_lines
END_COUNTS
    # shellcheck disable=SC2086
    set -- $ftrace_cpus
    [ "$ring_told" = " $*" ]
}

# How far a snapshot goes: all that every CPU had recorded when the trigger came.
ring_aim() {
    ring_each_count ring_aims && return
    echo "the kernel gives no account of every CPU ($ftrace_dir)" 2>/dev/null >"$scratch/why"
    exit 1
}

# CPU ENTRIES OVERRUN COMMIT DROPPED READ
ring_aims() { eval "ring_goal_$1=$(($2 + $6 + $3))"; }

ring_save_counts() {
    for ring_cpu in $ftrace_cpus; do
        eval "echo \"$ring_cpu \$ring_new_overrun_$ring_cpu \$ring_new_read_$ring_cpu \$ring_new_commit_$ring_cpu \$ring_new_dropped_$ring_cpu\""
    done >"$ring_home/counts"
    printf '%s\n' "$ring_next" >"$ring_home/from"
}

# Copies what the CPU had recorded when the trigger came.  As in ftrace-reader.sh, no more pages
# are asked for than there must be, so that dd never waits; where it cannot wait, as many as 80
# bytes for each event would fill, so that it is seldom started twice.
ring_copy() {
    : >"raw/cpu$1" || return 1
    eval "ring_goal=\$ring_goal_$1"
    ring_error='' ring_event_bytes=36
    [ -z "$ring_nonblock" ] || ring_event_bytes=80
    while ring_count "$1"; do
        ring_left=$((ring_goal - ring_read - ring_overrun))
        [ "$ring_left" -le "$ring_entries" ] || ring_left=$ring_entries
        [ "$ring_left" -gt 0 ] || break
        ring_pages=$((ring_left * ring_event_bytes / ftrace_page))
        [ "$ring_pages" -gt 0 ] || ring_pages=1
        # shellcheck disable=SC2086
        ring_error=$(dd if="$ftrace_dir/per_cpu/cpu$1/trace_pipe_raw" bs="$ftrace_page" \
            count="$ring_pages" $ring_nonblock 2>&1 >>"raw/cpu$1") || break
    done
    case $ring_error in
    *"o space left"* | *"uota"* | *"ile too large"* | *"nput/output error"*)
        ring_size=$(wc -c <"raw/cpu$1")
        dd if=/dev/null of="raw/cpu$1" bs="$ftrace_page" seek=$((ring_size / ftrace_page)) 2>/dev/null
        return 1
        ;;
    esac
    return 0
}

# The time stamp of a file's sub-buffer: FILE NUMBER.
ring_stamp() {
    # shellcheck disable=SC2046
    set -- $(od -An -v -tu8 -j $(($2 * ftrace_page)) -N 8 "$1" 2>/dev/null)
    echo "${1:-}"
}

# 0 if the kernel marks that events before a file's first sub-buffer were overwritten (bit 31).
ring_marked() {
    # shellcheck disable=SC2046
    set -- $(od -An -v -tu4 -j 8 -N 8 "$1" 2>/dev/null)
    [ "$host_long_bits$host_endian" != 64big ] || shift
    [ "${1:-0}" -ge 2147483648 ]
}

# Cuts every file to what belongs to the snapshot; sets window_begin, and ring_begin_<cpu> for
# each CPU of which less is known.
ring_cut() {
    ring_least='' ring_all=1
    for ring_cpu in $ftrace_cpus; do
        ring_file=raw/cpu$ring_cpu
        eval "ring_gone=\$((ring_new_overrun_$ring_cpu - ring_overrun_$ring_cpu))"
        eval "ring_gone_$ring_cpu=$ring_gone ring_begin_$ring_cpu="
        if [ "$ring_gone" -gt 0 ]; then
            # The rest of a sub-buffer that the snapshot before has read in part, now far away.
            [ ! -s "$ring_file" ] || ring_marked "$ring_file" || ring_keep_from "$ring_file" 1 || return 1
            # In a storm the ring can come round before the copy begins: then nothing is kept.
            ring_first=$ring_now
            [ ! -s "$ring_file" ] || ring_first=$(ring_stamp "$ring_file" 0)
            eval "ring_begin_$ring_cpu=$ring_first"
            [ -n "$ring_least" ] && [ "$ring_least" -le "$ring_first" ] || ring_least=$ring_first
        else
            ring_all=
        fi
    done
    window_begin=$ring_from
    if [ -n "$ring_seconds" ]; then
        ring_wanted=$((ring_now - ring_seconds * 1000000000))
        [ "$window_begin" -ge "$ring_wanted" ] || window_begin=$ring_wanted
        [ -z "$ring_all" ] || [ -z "$ring_least" ] || [ "$window_begin" -ge "$ring_least" ] || window_begin=$ring_least
    elif [ -n "$ring_least" ] && [ "$window_begin" -lt "$ring_least" ]; then
        # As far back as a CPU that the ring does not hold in full.
        window_begin=$ring_least
    fi
    ring_begin=$window_begin
    for ring_cpu in $ftrace_cpus; do
        ring_file=raw/cpu$ring_cpu
        [ -s "$ring_file" ] || continue
        # The last sub-buffer that begins before the window, by halves.  Where the snapshot before
        # ends nothing is cut: what a CPU recorded while the others were read is in no other file.
        ring_low=0 ring_high=0
        [ "$ring_begin" = "$ring_from" ] || ring_high=$(($(wc -c <"$ring_file") / ftrace_page))
        while [ $((ring_low + 1)) -lt "$ring_high" ]; do
            ring_middle=$(((ring_low + ring_high) / 2))
            if [ "$(ring_stamp "$ring_file" "$ring_middle")" -le "$ring_begin" ]; then
                ring_low=$ring_middle
            else
                ring_high=$ring_middle
            fi
        done
        if [ "$ring_low" -gt 0 ]; then
            ring_keep_from "$ring_file" "$ring_low" || return 1
            eval "ring_begin_$ring_cpu=\$(ring_stamp $ring_file 0)"
        fi
        eval "ring_first=\$ring_begin_$ring_cpu"
        if [ -n "$ring_first" ] && [ "$ring_first" -le "$ring_from" ]; then
            # Everything since the previous snapshot is there.
            eval "ring_begin_$ring_cpu="
            window_begin=$ring_from
        elif [ -n "$ring_first" ] && [ "$ring_first" -lt "$window_begin" ]; then
            window_begin=$ring_first
        fi
    done
}

# Leaves out the first sub-buffers of a file: FILE HOW_MANY.
ring_keep_from() {
    tail -c +$(($2 * ftrace_page + 1)) "$1" >"$1.new" && mv "$1.new" "$1"
}

# What the kernel counted since the snapshot before, and what the CPU holds.
ring_account() {
    eval "ring_gone=\$ring_gone_$1 ring_first=\$ring_begin_$1"
    ring_never=0
    for ring_key in commit dropped; do
        eval "ring_more=\$((ring_new_${ring_key}_$1 - ring_${ring_key}_$1))"
        ring_never=$((ring_never + ring_more))
        case $ring_key in commit) ring_word=commit_overrun ;; *) ring_word=dropped ;; esac
        [ "$ring_more" = 0 ] || lost "$1" "$ring_more" "$ring_word"
    done
    eval "ring_taken=\$((ring_new_read_$1 - ring_read_$1))"
    ring_events=$((${ring_events:-0} + ring_taken))
    {
        printf 'entries: 0\noverrun: %s\ncommit overrun: %s\ndropped events: 0\nread events: %s\n' \
            "$ring_gone" "$ring_never" "$ring_taken"
        sed -n '/^now ts:/p' "$ftrace_dir/per_cpu/cpu$1/stats"
    } >"stats/cpu$1"
    ring_known=$window_begin
    [ -z "$ring_first" ] || ring_known=$ring_first
    ring_held="$ring_held${ring_held:+,
      }{\"cpu\": $1, \"begin\": ${ring_first:-null}, \"held_ns\": $((window_end - ring_known)), \"overwritten\": $ring_gone}"
}

# The member `ring` of capture.json.
ring_json() {
    cat <<END_JSON
  "ring": {
    "trigger": $(json_string "$ring_reason"),
    "at": $ring_now,
    "seconds": ${ring_seconds:-null},
    "memory": $(json_string "$ring_guess"),
    "snapshot": $ring_number,
    "skipped": $ring_skipped,
    "cpus": [
      $ring_held
    ]
  },
END_JSON
}
