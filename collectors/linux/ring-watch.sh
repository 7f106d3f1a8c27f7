# What watches for the triggers of a flight recorder; it runs in the watchdog, behind
# ftrace-reader.sh, so that it ends with the capture however that ends (main part: ../ring.sh).
#
# .scratch/predicates has a line for each --trigger; a trigger puts one line, its kind and why, into
# .scratch/trigger and wakes capture, which takes the file away.
#
# OVERHEAD  docs/flight-recorder.md.  Files and logs are looked at twice a second; waits are measured
# by a bpftrace program in the kernel, which hands out a line only when the predicate holds.
# shellcheck shell=sh disable=SC2030,SC2031,SC2034,SC2154,SC2317

ring_limit=
! command -v timeout >/dev/null 2>&1 || ring_limit='timeout -s KILL'

ring_watch() {
    ring_number=0 ring_waits=
    while IFS= read -r ring_line; do
        ring_number=$((ring_number + 1))
        # They hold open nothing that must end with the watchdog: its pipe, the trace instance.
        case $ring_line in
        'file '*) (exec 6<&- 9>&- && ring_watch_file "${ring_line#file }") & ;;
        'log '*)
            ring_rest=${ring_line#log }
            (exec 6<&- 9>&- && ring_watch_log "${ring_rest%% *}" "${ring_rest#* }") &
            ;;
        'wait '* | 'quantile '*)
            ring_waits="$ring_waits $ring_number"
            (exec 6<&- 9>&- && ring_watch_waits "$ring_number" "$ring_line") &
            ;;
        esac
    done <.scratch/predicates
    (
        exec 6<&- 9>&-
        for ring_number in $ring_waits; do
            until [ -e ".scratch/on.$ring_number" ]; do
                [ -e .scratch/reading ] && [ ! -e .scratch/failed ] || exit
                sleep "$watch_nap"
            done
        done
        : >.scratch/watched
    ) &
}

# Ends the tools that watch, whose pids come on stdin; the shells that read them end with them.
ring_watch_end() {
    while read -r ring_pid; do
        kill -s TERM "$ring_pid" 2>/dev/null
    done
}

# KIND WHY. Signalled again until capture has taken it: a shell can miss a signal.
ring_post() {
    [ -e .scratch/armed ] || return 0
    printf '%s %s\n' "$1" "$2" >".scratch/trigger.$1" && mv ".scratch/trigger.$1" .scratch/trigger || return 0
    while [ -e .scratch/trigger ] && [ -e .scratch/reading ]; do
        watch_tell "$watch_wake"
        sleep "$watch_nap"
    done
}

# A file that appears: once for each time it was not there before.
ring_watch_file() {
    ring_there=
    [ ! -e "$1" ] || ring_there=1
    ring_nap=0.5
    [ "$watch_nap" != 1 ] || ring_nap=1
    while [ -e .scratch/reading ]; do
        if [ ! -e "$1" ]; then
            ring_there=
        elif [ -z "$ring_there" ]; then
            ring_there=1
            ring_post file "the file $1 appeared"
        fi
        sleep "$ring_nap"
    done
}

# Lines that are added to a file. Its owner may write endless lines, or put something else in its
# place: at most the last MiB is read each time, and only of a plain file. What was written while a
# snapshot was taken is not looked at: otherwise a log that repeats itself would make the watcher
# lag behind.
ring_watch_log() {
    ring_log_state "$1" || ring_inode=
    ring_known=$ring_inode ring_start=$ring_size ring_read=$ring_size
    ring_nap=0.5
    [ "$watch_nap" != 1 ] || ring_nap=1
    while [ -e .scratch/reading ]; do
        sleep "$ring_nap"
        ring_log_state "$1" || continue
        # Another file, or this one from its beginning.
        [ "$ring_inode" = "$ring_known" ] && [ "$ring_size" -ge "$ring_read" ] || ring_start=0 ring_read=0
        ring_known=$ring_inode
        [ "$ring_size" -gt "$ring_read" ] || continue
        # The text may have begun before.
        ring_from=$((ring_read - ${#2} + 1))
        [ "$ring_from" -ge "$ring_start" ] || ring_from=$ring_start
        [ "$ring_from" -ge $((ring_size - 1048576)) ] || ring_from=$((ring_size - 1048576))
        ring_read=$ring_size
        ring_log_has "$1" "$2" || continue
        ring_post log "$1 has a line with: $2"
        if ring_log_state "$1"; then ring_known=$ring_inode ring_start=$ring_size ring_read=$ring_size; fi
    done
}

# Sets ring_inode and ring_size of a plain file; 1 if there is none.
ring_log_state() {
    ring_size=0
    [ -f "$1" ] || return 1
    # shellcheck disable=SC2012
    read -r ring_inode ring_2 ring_2 ring_2 ring_2 ring_size ring_2 <<END_STATE
$(ls -Lnid "$1" 2>/dev/null)
END_STATE
    ring_size=${ring_size:-0}
}

# 0 if the file has the text between ring_from and ring_size.
ring_log_has() {
    # shellcheck disable=SC2086
    ${ring_limit:+$ring_limit 5} tail -c +$((ring_from + 1)) "$1" 2>/dev/null </dev/null |
        head -c $((ring_size - ring_from)) | tr '\000' '\n' | grep -qF -e "$2"
}

# Waits for a CPU, from the time on a queue to the switch-in, or by chance of preemption from the
# switch-out on.  A thread that never gets a CPU is not seen: its wait has no end.
ring_watch_waits() {
    # shellcheck disable=SC2086
    set -- "$1" $2
    ring_bpf=${SCHEDSCOPE_BPFTRACE:-bpftrace} ring_pid=
    # Ended before it began: the code that ends the tools has looked for its pid, or it sees the end
    # itself.
    # shellcheck disable=SC2016,SC2086
    case $2 in
    wait) ring_script_wait "$3" ;;
    quantile) ring_script_quantile "$3" "$4" "$5" ;;
    esac | BPFTRACE_MAP_KEYS_MAX=65536 BPFTRACE_MAX_MAP_KEYS=65536 sh -c 'echo "#pid $$"; echo $$ >>.scratch/triggers; [ ! -e .scratch/reading ] || exec "$@"' ring $ring_bpf -q - 2>".scratch/bpf.$1" |
        while IFS= read -r ring_text; do
            if [ ! -e .scratch/reading ]; then
                # It may have missed the signal, and ignores a pipe without a reader.
                [ -z "$ring_pid" ] || kill -s KILL "$ring_pid" 2>/dev/null
                break
            fi
            case $ring_text in
            '#pid '*) ring_pid=${ring_text#'#pid '} ;;
            '#on') : >".scratch/on.$1" ;;
            'hit '*)
                # No class as [:print:]: small tools read it as the letters of its name.
                ring_text=$(printf '%s' "${ring_text#hit }" | tr -cd '\040-\176')
                case $2 in
                wait) ring_post wait "a wait longer than $4: $ring_text" ;;
                *) ring_post wait "$6 $7 $8 $9 ${10} ($ring_text)" ;;
                esac
                ;;
            esac
        done
    [ ! -e .scratch/reading ] ||
        watch_failed "bpftrace, which watches for waits, ended by itself: $(sed '/^ *$/d; /[Ww]arn/d' ".scratch/bpf.$1" | tail -n 1)"
}

# Sets $wait to the length of the wait that ends with this switch, ns; 0 if none is known.
# A wake of a thread that is on its CPU is no wait: its next sleep takes the time back.
ring_script_waits() {
    cat <<'END_SCRIPT'
BEGIN { printf("#on\n"); }
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @ready[args->pid] = nsecs; }
tracepoint:sched:sched_process_exit { delete(@ready[args->pid]); }
interval:s:5 { printf("\n"); }
tracepoint:sched:sched_switch {
    $now = nsecs;
    if (args->prev_pid != 0) {
        if ((args->prev_state & 255) == 0) { @ready[args->prev_pid] = $now; }
        else { @ready[args->prev_pid] = 0; }
    }
    if (args->next_pid != 0) {
        $ready = @ready[args->next_pid];
        if ($ready != 0) {
END_SCRIPT
}

ring_script_wait() {
    ring_script_waits
    cat <<END_SCRIPT
            if (\$now - \$ready > $1) {
                if (\$now > @quiet) {
                    @quiet = \$now + 200000000;
                    printf("hit thread %d (%s) waited %d us\n", args->next_pid, args->next_comm, (\$now - \$ready) / 1000);
                }
            }
        }
    }
}
END { clear(@ready); clear(@quiet); }
END_SCRIPT
}

# One more than the largest number in a list of CPUs as the kernel writes it: a CPU that is offline,
# or whose number is missing, has no part in the count of the others.
ring_cpus() {
    read -r ring_list <"$1"
    echo $((${ring_list##*[-,]} + 1))
}

# The quantile is above the limit if more than so many of a thousand waits are: no histogram, no
# error.  Counted for each CPU by itself; looked at twice a second.
ring_script_quantile() {
    ring_script_waits
    cat <<END_SCRIPT
            @all[cpu]++;
            if (\$now - \$ready > $1) { @slow[cpu]++; }
        }
    }
}
interval:ms:500 {
    \$i = 0; \$all = 0; \$slow = 0;
    while (\$i < $(ring_cpus /sys/devices/system/cpu/present)) {
        \$all = \$all + @all[\$i]; \$slow = \$slow + @slow[\$i];
        @all[\$i] = 0; @slow[\$i] = 0;
        \$i++;
    }
    if (\$slow * 1000 > \$all * $2) { @row = @row + 1; } else { @row = 0; }
    if (@row >= $3) { @row = 0; printf("hit %d of the last %d waits\n", \$slow, \$all); }
}
END { clear(@ready); clear(@all); clear(@slow); clear(@row); }
END_SCRIPT
}

# Capture was killed: finished snapshots stay; one that was being taken is kept as far as it came,
# under a name that says so, if it has its capture.json.
ring_salvage() {
    for ring_path in ./*.capture.partial; do
        [ -d "$ring_path" ] || continue
        if [ ! -s "$ring_path/capture.json" ]; then
            rm -rf "$ring_path"
            continue
        fi
        rm -f "$ring_path/capture.json.new"
        [ -z "$watch_owner" ] || find "$ring_path" -depth -exec chown -h "$watch_owner" {} +
    done
    rm -rf .scratch .reserve
    if [ -n "$watch_owner" ]; then
        chown "$watch_owner" . && chmod 700 .
    fi
    cd .. && rmdir "./$watch_name" 2>/dev/null
}
