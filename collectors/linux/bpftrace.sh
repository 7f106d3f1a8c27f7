# bpftrace: for hosts without tracefs instances (interface: head of ../capture).
#
# The manual of what is recorded, and what it costs, is the head of sched.bt.
# SCHEDSCOPE_BPFTRACE names another bpftrace to run (a newer one in a chroot, say); several
# words are allowed: SCHEDSCOPE_BPFTRACE="chroot /opt/sid bpftrace".
# shellcheck shell=sh disable=SC2034,SC2154

bpftrace_tool() { echo "${SCHEDSCOPE_BPFTRACE:-bpftrace}"; }

# Sets bpftrace_minor to the N of version 0.N; 1000 and more from 1.0 on.
bpftrace_find_version() {
    # shellcheck disable=SC2046
    probe_version=$($(bpftrace_tool) --version 2>/dev/null | sed -n 's/^bpftrace v*//p' | head -n 1)
    bpftrace_minor=${probe_version#*.}
    bpftrace_minor=${bpftrace_minor%%[!0-9]*}
    case $probe_version in
    0.*) ;;
    [1-9]*) bpftrace_minor=1000 ;;
    *) bpftrace_minor='' ;;
    esac
    [ -n "$bpftrace_minor" ]
}

bpftrace_probe() {
    # shellcheck disable=SC2046
    set -- $(bpftrace_tool)
    if ! have "$1"; then
        probe_text="there is no $1; install the package bpftrace"
        return 1
    fi
    if ! bpftrace_find_version; then
        probe_text="'$(bpftrace_tool) --version' does not answer with a version"
        return 1
    fi
    if [ "$bpftrace_minor" -lt 17 ]; then
        probe_text="bpftrace $probe_version is too old; 0.17 or newer is needed"
        return 1
    fi
    if [ "$(id -u)" = 0 ] && ! bpftrace_events; then
        probe_text="no tracepoints to be seen; do: mount -t tracefs nodev /sys/kernel/tracing"
        return 1
    fi
    probe_text="bpftrace $probe_version; dearer than ftrace"
}

bpftrace_events() {
    for bpftrace_path in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        bpftrace_root=$bpftrace_path
        [ ! -d "$bpftrace_root/events/sched/sched_switch" ] || return 0
    done
    return 1
}

# 0.18 replaced a buffer for each CPU by one for all.  It counts in pages, a power of two.
bpftrace_pick_buffer() {
    [ -n "$buffer_kb" ] || buffer_kb=32768
    bpftrace_want=$((buffer_kb * 1024 / host_page_size))
    [ "$bpftrace_minor" -lt 18 ] || bpftrace_want=$((bpftrace_want * host_ncpu))
    bpftrace_pages=64
    while [ $((bpftrace_pages * 2)) -le "$bpftrace_want" ] && [ "$bpftrace_pages" -lt 262144 ]; do
        bpftrace_pages=$((bpftrace_pages * 2))
    done
}

bpftrace_prepare() {
    bpftrace_find_version
    bpftrace_events
    bpftrace_pick_buffer
    case $bpftrace_minor in
    17) note "bpftrace before 0.18 is woken for every line: switches cost several times more while it records" ;;
    27) ;;
    *) note "bpftrace $probe_version was never tried with this script; 0.17 and 0.27 were" ;;
    esac
    fail_text="cannot write into $capture_dir"
    bpftrace_script=$(cd "$scratch" && pwd)/sched.bt
    bpftrace_rename=args-\>pid
    # Newer kernels tell only by whom a task_rename was made, which is nearly always the renamed.
    grep -q ' pid;' "$bpftrace_root/events/task/task_rename/format" || bpftrace_rename=tid
    sed "s/args->pid, args->newcomm/$bpftrace_rename, args->newcomm/" "$(asset sched.bt)" \
        >"$bpftrace_script.new" && mv "$bpftrace_script.new" "$bpftrace_script" || return 1
    # Its end makes bpftrace's own end travel behind the last event.
    sleep 2147483 &
    bpftrace_marker=$!
    recorder_command="BPFTRACE_PERF_RB_PAGES=$bpftrace_pages $(bpftrace_tool) -q -B full sched.bt"
    # In a session of its own: a terminal sends Ctrl-C to a whole group, and bpftrace would drop what
    # it has not read yet.
    bpftrace_apart=
    ! have setsid || bpftrace_apart=setsid
    # shellcheck disable=SC2016,SC2046
    BPFTRACE_PERF_RB_PAGES=$bpftrace_pages BPFTRACE_MAP_KEYS_MAX=8192 BPFTRACE_MAX_MAP_KEYS=8192 \
        $bpftrace_apart sh -c 'trap "" HUP QUIT; script=$1 marker=$2; shift 2; exec "$@" -q -B full "$script" $$ "$marker"' \
        sh "$bpftrace_script" "$bpftrace_marker" $(bpftrace_tool) \
        >"$capture_dir/events.txt" 2>"$capture_dir/stderr.txt" </dev/null &
    bpftrace_pid=$!
    recorder_pids="$bpftrace_pid $bpftrace_marker"
    bpftrace_turn=0
    until grep -q '^#on ' "$capture_dir/events.txt" 2>/dev/null; do
        if ! kill -0 "$bpftrace_pid" 2>/dev/null; then
            fail_text="bpftrace ended at once: $(grep -v -i warning "$capture_dir/stderr.txt" | head -n 1)"
            return 1
        fi
        fail_text="bpftrace did not start recording within a minute"
        [ "$bpftrace_turn" -lt 240 ] || return 1
        bpftrace_turn=$((bpftrace_turn + 1))
        pause
    done
    fail_text=
}

bpftrace_start() {
    host_clock
    window_begin=$clock_ns
    bpftrace_watch &
    bpftrace_watcher=$!
    recorder_pids="$recorder_pids $bpftrace_watcher"
}

# Says so when bpftrace ends on its own, and ends it when the main program is gone.
bpftrace_watch() {
    trap - EXIT
    trap '' INT HUP QUIT PIPE USR1 ALRM TERM
    while [ ! -e "$scratch/stop" ]; do
        sleep 1
        if ! kill -0 "$capture_pid" 2>/dev/null; then
            kill "$bpftrace_marker"
            kill -s INT "$bpftrace_pid"
            rm -rf "$capture_dir"
            return
        fi
        kill -0 "$bpftrace_pid" 2>/dev/null && continue
        [ -e "$scratch/stop" ] || {
            echo "bpftrace ended early" >"$scratch/failed"
            kill -s USR1 "$capture_pid"
        }
        return
    done
}

bpftrace_stop() {
    host_clock
    window_end=$clock_ns
    : >"$scratch/stop"
    # Events of the last moments may be dropped with the marker's: let those lie behind the window.
    pause
    kill "$bpftrace_marker" 2>/dev/null
    wait "$bpftrace_marker" 2>/dev/null
    # It has to write what it holds first; a reader far behind may take a while.
    bpftrace_size='' bpftrace_idle=0
    while kill -0 "$bpftrace_pid" 2>/dev/null; do
        pause
        bpftrace_before=$bpftrace_size
        bpftrace_size=$(wc -c <"$capture_dir/events.txt")
        bpftrace_idle=$((bpftrace_idle + 1))
        [ "$bpftrace_size" = "$bpftrace_before" ] || bpftrace_idle=0
        # Where its pids are not the kernel's (a container), it did not see the marker end.
        [ $((bpftrace_idle % 20)) != 19 ] || kill -s INT "$bpftrace_pid"
        [ "$bpftrace_idle" -lt 120 ] || kill -s KILL "$bpftrace_pid"
    done
    wait "$bpftrace_pid" 2>/dev/null
    wait "$bpftrace_watcher" 2>/dev/null
    bpftrace_report
}

# A CPU's gaps in seq, and what is missing behind its last line (`@n[cpu]: N` at the end is how
# many it made) if that line lies before the window's end.
bpftrace_report() {
    # shellcheck disable=SC2046
    set -- $(awk -v window_end="${window_end:-0}" '
        /^@n\[/ { gsub(/[^0-9]+/, " "); made[$1] = $2; next }
        /^#end / { ended = 1 }
        /^[SKENMFCRPX] [0-9]+ [0-9]+ [0-9]+ / {
            all++
            gap = $4 - next_seq[$3]
            if (gap > 0 && $3 in last) {
                missing[$3] += gap
                if (!($3 in from)) from[$3] = last[$3]
                to[$3] = $2
            }
            next_seq[$3] = $4 + 1
            last[$3] = $2
        }
        END {
            print (ended ? "ended" : "cut"), all + 0
            for (cpu in made) {
                tail = made[cpu] - next_seq[cpu]
                if (tail > 0 && last[cpu] + 0 < window_end + 0) {
                    missing[cpu] += tail
                    if (!(cpu in from)) from[cpu] = (cpu in last) ? last[cpu] : "null"
                    to[cpu] = "null"
                }
            }
            for (cpu in missing) print cpu, missing[cpu], from[cpu], to[cpu]
        }' "$capture_dir/events.txt")
    recorder_events=${2:-0}
    bpftrace_ended=${1:-cut}
    [ $# -lt 2 ] || shift 2
    while [ $# -ge 4 ]; do
        lost "$1" "$2" output "$3" "$4"
        shift 4
    done
    if [ "$bpftrace_ended" != ended ]; then
        fail_text="bpftrace was cut short, its last lines are missing"
        return 1
    fi
}

bpftrace_cleanup() {
    [ ! -d "$scratch" ] || : >"$scratch/stop"
    for bpftrace_child in ${bpftrace_marker:-} ${bpftrace_pid:-}; do
        kill -s KILL "$bpftrace_child" 2>/dev/null
        wait "$bpftrace_child" 2>/dev/null
    done
    [ -z "${bpftrace_watcher:-}" ] || wait "$bpftrace_watcher" 2>/dev/null
}

bpftrace_json() { :; }
