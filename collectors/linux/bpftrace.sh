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
        probe_text="'$(bpftrace_tool) --version' prints no version"
        return 1
    fi
    if [ "$bpftrace_minor" -lt 17 ]; then
        probe_text="bpftrace $probe_version is too old; 0.17 or newer is needed"
        return 1
    fi
    if [ "$(id -u)" = 0 ] && ! bpftrace_events; then
        probe_text="tracepoints are not visible; run: mount -t tracefs nodev /sys/kernel/tracing"
        return 1
    fi
    probe_text="bpftrace $probe_version; higher overhead than ftrace"
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
    guard_buffer 32768 256
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
    23 | 27) ;;
    *) note "bpftrace $probe_version has not been tested with this script; 0.17, 0.23 and 0.27 have" ;;
    esac
    fail_text="cannot write into $output.partial"
    bpftrace_rename=args-\>pid
    # Newer kernels record only which thread made a task_rename, nearly always the renamed one.
    grep -q ' pid;' "$bpftrace_root/events/task/task_rename/format" || bpftrace_rename=tid
    recorder_refills=false
    host_quota_timer
    [ -z "$quota_timer" ] || [ ! -d "$bpftrace_root/events/timer/hrtimer_expire_entry" ] ||
        recorder_refills=true
    {
        [ "$recorder_refills" = false ] || text linux/quotas.bt | sed "s/== TIMER/== 0x$quota_timer/"
        text linux/sched.bt
    } | sed "s/args->pid, args->newcomm/$bpftrace_rename, args->newcomm/" >"$scratch/sched.bt" || return 1
    : >events.txt && : >stderr.txt || return 1
    recorder_command="BPFTRACE_PERF_RB_PAGES=$bpftrace_pages $(bpftrace_tool) -q -B full sched.bt"
    # The script comes through a descriptor: a path could be redirected, or lie outside the tool's
    # root.
    guard_output=events.txt guard_input=$scratch/sched.bt
    # The marker's end makes bpftrace's own end travel behind the last event.
    # shellcheck disable=SC2016,SC2046
    guard_start -- env BPFTRACE_PERF_RB_PAGES="$bpftrace_pages" BPFTRACE_MAP_KEYS_MAX=8192 \
        BPFTRACE_MAX_MAP_KEYS=8192 sh -c 'exec "$@" -q -B full - $$ "$SCHEDSCOPE_MARKER"' bpftrace $(bpftrace_tool) || return 1
    bpftrace_turn=0
    until grep -q '^#on ' events.txt 2>/dev/null; do
        if guard_failed; then
            fail_text=$guard_said
            return 1
        fi
        fail_text="bpftrace did not start recording within a minute"
        [ "$bpftrace_turn" -lt 240 ] || return 1
        bpftrace_turn=$((bpftrace_turn + 1))
        pause
    done
    guard_pids
    fail_text=
}

bpftrace_start() {
    guard_window_begin
}

bpftrace_stop() {
    guard_window_end
    # Events of the last moments may be dropped with the marker's: let those lie behind the window.
    pause
    guard_end || fail_text="the process that watches bpftrace was killed"
    bpftrace_report
}

bpftrace_orphaned() { guard_kill_tools; }

# A name may hold ends of lines: text before the line's own time, at its end, is not a line.
# shellcheck disable=SC2016
bpftrace_names='
    named != "" { if ($NF == named || ++rest > 15) named = ""; next }
    /^[SFCR] [0-9]+ [0-9]+ [0-9]+ / && $NF != $2 { named = $2; rest = 0 }'

# A CPU's gaps in seq, and what is missing behind its last line (`@n[cpu]: N` at the end is how
# many it made) if that line lies before the window's end.
bpftrace_report() {
    # shellcheck disable=SC2046
    set -- $(awk -v window_end="${window_end:-0}" '
        '"$bpftrace_names"'
        /^@n\[/ { gsub(/[^0-9]+/, " "); made[$1] = $2; next }
        /^#end / { ended = 1 }
        /^[SKENMFCRPXQ] [0-9]+ [0-9]+ [0-9]+ / {
            all++
            gap = $4 - next_seq[$3]
            if (gap > 0 && $3 in last) {
                missing[$3] += gap
                if (!($3 in from)) from[$3] = last[$3]
                to[$3] = $2
            }
            next_seq[$3] = $4 + 1
            last[$3] = $2
            if (length($2) > length(newest) || (length($2) == length(newest) && $2 > newest)) newest = $2
        }
        END {
            print (ended ? "ended" : "cut"), all + 0, newest
            if (!ended) for (cpu in last) print cpu, "null", last[cpu], "null"
            for (cpu in made) {
                tail = made[cpu] - next_seq[cpu]
                if (tail > 0 && last[cpu] + 0 < window_end + 0) {
                    missing[cpu] += tail
                    if (!(cpu in from)) from[cpu] = (cpu in last) ? last[cpu] : "null"
                    to[cpu] = "null"
                }
            }
            for (cpu in missing) print cpu, missing[cpu], from[cpu], to[cpu]
        }' events.txt)
    recorder_events=${2:-0}
    bpftrace_ended=${1:-cut}
    bpftrace_newest=
    # Without events there is no third word.
    if [ "${2:-0}" != 0 ]; then
        bpftrace_newest=$3
        shift
    fi
    [ $# -lt 2 ] || shift 2
    if [ "$bpftrace_ended" != ended ]; then
        # What came after the last written line is unknown on every CPU.
        lost null null early_end "${bpftrace_newest:-$window_begin}" "$window_end"
        window_end=${bpftrace_newest:-$window_begin}
    fi
    while [ $# -ge 4 ]; do
        if [ "$2" = null ]; then
            lost "$1" null early_end "$3" "$window_end"
        else
            lost "$1" "$2" output "$3" "$4"
        fi
        shift 4
    done
    if [ "$bpftrace_ended" != ended ]; then
        fail_text=${fail_text:-bpftrace was cut short, its last lines are missing}
        dd if=/dev/zero of="$scratch/room" bs=65536 count=1 2>/dev/null ||
            fail_text="no space was left for bpftrace's lines: the last ones are missing"
    fi
    [ -z "$fail_text" ]
}

bpftrace_json() { :; }
