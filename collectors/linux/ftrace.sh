# ftrace: records through tracefs alone; no tool is needed (interface: head of ../capture).
#
# A private instance holds its own buffers, clock and events, so other users of tracing
# are neither seen nor disturbed.  The kernel's sub-buffer pages go to raw/cpuN unread.
#
# OVERHEAD  docs/recorder-cost.md.  What keeps it small:
#   * no process waits on the buffers.  A blocked reader is woken by the very events it is to
#     read, thousands of times a second; here a loop looks four times a second how many
#     events each buffer holds, and starts one dd when a CPU's is an eighth full.
#   * whole sub-buffers are copied: no parsing, no text, one read and one write for about
#     300 events.
#   * the kernel's own book-keeping of thread names is off where no other program needs it.
# The instance, its readers and its removal are in ftrace-reader.sh, which the watchdog runs.
#
# Calls and locks of COMMAND's processes alone (--of) are recorded in a second instance: the kernel
# follows the forks of a process only for all events of an instance together (set_event_pid), and
# the scheduler's events must be complete.
# REQUIREMENTS  root, tracefs, Linux 4.1 or newer (clock "mono").
# shellcheck shell=sh disable=SC2034,SC2154

ftrace_events="sched/sched_switch sched/sched_waking sched/sched_wakeup sched/sched_wakeup_new
sched/sched_migrate_task sched/sched_process_fork sched/sched_process_exec
sched/sched_process_exit sched/sched_pi_setprio task/task_newtask task/task_rename"

ftrace_extras='irq yield syscalls locks block stacks scx'
ftrace_irq="irq/irq_handler_entry irq/irq_handler_exit irq/softirq_entry irq/softirq_exit"
ftrace_yield=syscalls/sys_enter_sched_yield
ftrace_syscalls="raw_syscalls/sys_enter raw_syscalls/sys_exit"
# Locks of the kernel; those of programs are futexes, whose calls ftrace_locks_wanted adds.
ftrace_locks="lock/contention_begin lock/contention_end"

# The kernel's stack of each thread that falls asleep, by a trigger: no event of its own.
ftrace_stacks=

# Events of sched_ext; its dispatch queues have no events, but functions that are probed.
ftrace_scx=

# Requests of threads to disks.  block_io_start is of Linux 6.5 and later.
ftrace_block="block/block_rq_issue block/block_rq_complete"

ftrace_find() {
    # Not `for ftrace_root`: yash keeps a loop's variable to the function.
    for ftrace_path in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        ftrace_root=$ftrace_path
        [ ! -d "$ftrace_root/events/sched/sched_switch" ] || return 0
    done
    ftrace_root=
    return 1
}

ftrace_probe() {
    probe_version=$(uname -r)
    if ! ftrace_find; then
        if [ "$(id -u)" != 0 ]; then
            probe_text="tracefs cannot be seen without root; run it with sudo"
        elif grep -q tracefs /proc/filesystems; then
            probe_text="tracefs is not mounted; run: mount -t tracefs nodev /sys/kernel/tracing"
        else
            probe_text="this kernel has no tracefs (CONFIG_EVENT_TRACING)"
        fi
        return 1
    fi
    if [ ! -d "$ftrace_root/instances" ]; then
        probe_text="$ftrace_root/instances is missing: the kernel is too old for private buffers"
        return 1
    fi
    case $(cat "$ftrace_root/trace_clock" 2>/dev/null) in
    *mono*) ;;
    *) probe_text="the kernel has no trace clock mono (Linux 4.1 and later have it)" && return 1 ;;
    esac
    probe_text="needs only tracefs, no tool; the recorder with the lowest overhead"
}

# A storm of switches makes 40 MB/s on a CPU; 32 MiB carry it for as long as the reader may
# have to wait for a CPU itself.  A small host gives at most an eighth of its free memory.
ftrace_pick_buffer() {
    ftrace_free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    ftrace_most=$((${ftrace_free:-1048576} / 8 / host_ncpu))
    [ "$ftrace_most" -le 32768 ] || ftrace_most=32768
    [ "$ftrace_most" -ge 256 ] || ftrace_most=256
    # Not smaller where little may be written: the reader stops at the limit by itself.
    guard_buffer "$ftrace_most"
}

ftrace_prepare() {
    ftrace_find
    ftrace_pick_buffer
    ftrace_name=schedscope-$capture_pid-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
    ftrace_dir=$ftrace_root/instances/$ftrace_name
    ftrace_buffer_kb=$buffer_kb
    # How much of a buffer is read at a time.
    ftrace_read_kb=$((buffer_kb / 8))
    [ -z "$guard_room_kb" ] || [ "$ftrace_read_kb" -le $((guard_room_kb / 16)) ] ||
        ftrace_read_kb=$((guard_room_kb / 16))
    ftrace_subbuf_kb=${SCHEDSCOPE_SUBBUF_KB:-16}
    ftrace_calls_only='' ftrace_own_events='' ftrace_stacks_of='' ftrace_queues=''
    ftrace_chosen || return 1
    # A ring is seldom read: a snapshot's beginning is as exact as its sub-buffers are small.
    [ -z "$ring" ] || ftrace_subbuf_kb=${SCHEDSCOPE_SUBBUF_KB:-4}
    for ftrace_extra in $recorder_extras; do
        [ "$ftrace_extra" != stacks ] || { ftrace_stacks_wanted || return 1; }
        [ "$ftrace_extra" != locks ] || { ftrace_locks_wanted || return 1; }
        [ "$ftrace_extra" != scx ] || { ftrace_scx_wanted || return 1; }
        eval "ftrace_event=\$ftrace_$ftrace_extra"
        [ -n "$ftrace_event" ] || continue
        if [ ! -d "$ftrace_root/events/${ftrace_event%% *}" ]; then
            fail_text="this kernel has no event ${ftrace_event%% *}, which --with $ftrace_extra records"
            return 1
        fi
        if [ "$ftrace_extra" = block ] && [ -d "$ftrace_root/events/block/block_io_start" ]; then
            ftrace_event="$ftrace_event block/block_io_start"
        fi
        case $ftrace_of,$ftrace_extra in
        all,* | *,irq | *,yield | *,block | *,scx) ftrace_events="$ftrace_events $ftrace_event" ;;
        *) ftrace_own_events="$ftrace_own_events $ftrace_event" ;;
        esac
    done
    # shellcheck disable=SC2086
    [ -z "$ftrace_own_events" ] || ftrace_own_events=$(printf '%s\n' $ftrace_own_events | sort -u | tr '\n' ' ')
    ftrace_events=$(echo "$ftrace_events" | tr '\n' ' ')
    guard_settings='ftrace_root ftrace_name ftrace_events ftrace_own_events ftrace_stacks_of ftrace_queues ftrace_buffer_kb ftrace_subbuf_kb ftrace_calls_only ftrace_read_kb quota_timer'
    host_quota_timer
    # shellcheck disable=SC2086
    guard_start linux/ftrace-reader.sh ${ring:+linux/ring-watch.sh} -- || return 1
    {
        read -r ftrace_page
        read -r ftrace_cpus
    } <"$scratch/ftrace"
    recorder_refills=false
    ! [ -d "${ring:+.scratch/}events/quota" ] || recorder_refills=true
}

# A program's lock is a futex: a thread that has to wait for it, or that has to wake another,
# makes a system call.  Of all calls only these are recorded, unless all are wanted.
ftrace_locks_wanted() {
    if [ ! -d "$ftrace_root/events/lock/contention_begin" ]; then
        note "this kernel has no event lock/contention_begin (Linux 5.19 and later have it): locks of the kernel are not recorded"
        ftrace_locks=
    fi
    case " $recorder_extras " in *" syscalls "*) return 0 ;; esac
    case $(uname -m) in
    x86_64) ftrace_futex="id == 202" ;;
    aarch64 | riscv64 | loongarch64) ftrace_futex="id == 98" ;;
    s390x) ftrace_futex="id == 238" ;;
    ppc64 | ppc64le) ftrace_futex="id == 221" ;;
    # futex and futex_time64
    arm | armv[5-8]* | i[3-6]86) ftrace_futex="id == 240 || id == 422" ;;
    *) ftrace_futex= ;;
    esac
    if [ -z "$ftrace_futex" ]; then
        fail_text="--with locks does not know the number of the futex call on $(uname -m); add syscalls, which records every call"
        return 1
    fi
    if [ ! -d "$ftrace_root/events/raw_syscalls/sys_enter" ]; then
        fail_text="this kernel has no event raw_syscalls/sys_enter, which --with locks records"
        return 1
    fi
    # futex, futex_waitv, futex_wake, futex_wait, futex_requeue
    ftrace_calls_only="$ftrace_futex || id == 449 || (id >= 454 && id <= 456)"
    ftrace_locks="${ftrace_locks:+$ftrace_locks }$ftrace_syscalls"
}

# Threads enter a dispatch queue in two functions of kernel/sched/ext.c and leave it in a third, in
# every kernel from 6.12 to 7.2; `ftrace_probe_queues` of ftrace-reader.sh puts probes on them.
ftrace_scx_wanted() {
    fail_text="this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT, Linux 6.12 and later), which --with scx records"
    [ -d /sys/kernel/sched_ext ] || return 1
    fail_text="this kernel has no kprobe_events (CONFIG_KPROBE_EVENTS), which --with scx uses"
    [ -w "$ftrace_root/kprobe_events" ] || return 1
    fail_text=
    ftrace_queues=yes
    for ftrace_path in "$ftrace_root"/events/sched_ext/sched_ext_*; do
        [ ! -d "$ftrace_path" ] || ftrace_scx="${ftrace_scx:+$ftrace_scx }sched_ext/${ftrace_path##*/}"
    done
    host_read /sys/kernel/sched_ext/state
    [ "$host_word" = enabled ] ||
        note "no scheduler of sched_ext is loaded (it is $host_word): nobody uses dispatch queues until one is"
}

# For chosen processes alone the stacks come with their switches, in the second instance, where
# every event gets one.  With calls or locks there, too, that would be too much: then they are of
# all.
ftrace_stacks_wanted() {
    if ! grep -q stacktrace "$ftrace_root/events/sched/sched_switch/trigger" 2>/dev/null; then
        fail_text="this kernel has no trigger stacktrace (CONFIG_STACKTRACE), which --with stacks uses"
        return 1
    fi
    ftrace_stacks_of=all
    [ "$ftrace_of" != all ] || return 0
    case " $recorder_extras " in
    *" syscalls "* | *" locks "*) ;;
    *)
        ftrace_stacks_of=own
        ftrace_own_events=sched/sched_switch
        ;;
    esac
}

# Sets ftrace_of, whose calls and locks are recorded: all, command, or pids.
ftrace_chosen() {
    ftrace_of=all
    case " $recorder_extras " in
    *" syscalls "* | *" locks "* | *" stacks "*) ;;
    *)
        fail_text="--of says whose system calls, locks and stacks are recorded; add --with syscalls, locks or stacks"
        [ -z "$calls_of" ]
        return
        ;;
    esac
    ftrace_want=$calls_of
    if [ -z "$ftrace_want" ]; then
        ftrace_want=all
        [ "$command_json" = null ] || [ -n "$ring" ] || ftrace_want="command"
    fi
    case $ftrace_want in
    all) return 0 ;;
    command)
        fail_text="--of command needs a COMMAND; --of all and --of PID need none"
        [ "$command_json" != null ] || return 1
        ;;
    *)
        fail_text="--of $ftrace_want is neither all, command nor pids; try --of 1234,1240"
        case $ftrace_want in *[!0-9,]* | *,,* | ,* | *,) return 1 ;; esac
        for ftrace_pid in $(echo "$ftrace_want" | tr , ' '); do
            fail_text="--of $ftrace_want: there is no process $ftrace_pid"
            [ -d "/proc/$ftrace_pid/task" ] || return 1
        done
        ;;
    esac
    ftrace_why=
    # PROC_PID_INIT_INO: the numbers that the kernel's filter takes.
    [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] ||
        ftrace_why="the pids here are those of a container"
    [ -e "$ftrace_root/options/event-fork" ] ||
        ftrace_why="this kernel cannot follow a process's forks (Linux 4.7 and later can)"
    fail_text="--of $ftrace_want: $ftrace_why; --of all records those of every process"
    if [ -z "$ftrace_why" ]; then
        ftrace_of=$ftrace_want
        [ "$ftrace_of" != command ] || recorder_adopts=yes
    elif [ -z "$calls_of" ]; then
        note "system calls, locks and stacks of all processes are recorded, not of COMMAND alone: $ftrace_why"
    else
        return 1
    fi
}

# Lets the second instance record one more process, or thread, and what it starts.
ftrace_adopt_one() { printf '%s\n' "$1" 2>/dev/null >>"$ftrace_dir-calls/set_event_pid"; }

# In the process that becomes COMMAND: its calls are recorded from here on.
ftrace_adopt() {
    [ "$ftrace_of" = command ] || return 0
    read -r ftrace_pid _ </proc/self/stat
    ftrace_adopt_one "$ftrace_pid" && ftrace_own_on
}

ftrace_own_on() {
    printf '1\n' 2>/dev/null >"$ftrace_dir-calls/tracing_on" && : >"$scratch/adopted"
}

# The processes of --of, with their threads and descendants.  Those that appear while we look are
# either seen the next time, or children of one that is recorded already.
ftrace_adopt_running() {
    ftrace_adopted=' '
    ftrace_turn=0
    while [ "$ftrace_turn" -lt 5 ]; do
        ftrace_turn=$((ftrace_turn + 1))
        ftrace_new=
        for ftrace_pid in $(ftrace_tree); do
            case $ftrace_adopted in *" $ftrace_pid "*) continue ;; esac
            ftrace_adopt_one "$ftrace_pid" || continue
            ftrace_adopted="$ftrace_adopted$ftrace_pid "
            ftrace_new=1
        done
        [ -n "$ftrace_new" ] || break
    done
    [ "$ftrace_adopted" != ' ' ] && ftrace_own_on
}

# The threads of the processes of --of and of their descendants.
ftrace_tree() {
    host_process_rows stat | awk -v asked="$ftrace_of" '
        BEGIN { n = split(asked, pid, ","); for (i = 1; i <= n; i++) wanted[pid[i]] = 1 }
        { parent[$1] = $2 }
        END {
            do {
                more = 0
                for (one in parent)
                    if (!(one in wanted) && (parent[one] in wanted)) { wanted[one] = 1; more = 1 }
            } while (more)
            for (one in wanted) print one
        }' | while read -r ftrace_pid; do
        for ftrace_path in "/proc/$ftrace_pid/task"/[0-9]*; do
            [ ! -d "$ftrace_path" ] || echo "${ftrace_path##*/}"
        done
    done
}

ftrace_start() {
    recorder_command="tracefs instance, events ${ftrace_events% }"
    [ "$ftrace_of" = all ] || recorder_command="$recorder_command; of $ftrace_of: ${ftrace_own_events% }"
    fail_text="none of the processes of --of $ftrace_of can be recorded"
    case $ftrace_of in
    all | command) ;;
    *) ftrace_adopt_running || return 1 ;;
    esac
    fail_text="cannot switch on recording"
    printf '1\n' 2>/dev/null >"$ftrace_dir/tracing_on" || return 1
    guard_window_begin
    fail_text=
}

# 0 if recording is still on; no other program should have touched it.
ftrace_recording() {
    host_read "$ftrace_dir/tracing_on"
    if [ "$host_word" = 1 ] && [ -e "$scratch/adopted" ]; then
        host_read "$ftrace_dir-calls/tracing_on"
    fi
    if [ "$host_word" = 1 ]; then
        host_read "$ftrace_dir/events/sched/sched_switch/enable"
        case $host_word in 1*) return 0 ;; esac
    fi
    fail_text="recording was switched off by somebody else while it ran ($ftrace_dir)"
    [ -d "$ftrace_dir" ] || fail_text="the trace instance $ftrace_dir was removed while it recorded"
    return 1
}

ftrace_stop() {
    guard_window_end
    # At a limit the watchdog may have been first.
    ftrace_recording || [ -z "$limit_text" ] || fail_text=
    guard_end || fail_text="${fail_text:-the process that records was killed}"
    ! guard_failed || fail_text=${fail_text:-$guard_said}
    ftrace_kept=0
    for ftrace_cpu in $ftrace_cpus; do
        ftrace_report "$ftrace_cpu" "stats/cpu$ftrace_cpu"
        [ "$ftrace_of" = all ] || ftrace_report "$ftrace_cpu" "calls/stats/cpu$ftrace_cpu"
    done
    recorder_events=$ftrace_kept
    [ -z "$fail_text" ] && return 0
    for ftrace_cpu in $ftrace_cpus; do ftrace_end_unknown "$ftrace_cpu"; done
    return 1
}

# The kernel's counts of a CPU's events. Without them losses are unknown.
ftrace_report() {
    if [ ! -s "$2" ]; then
        fail_text=${fail_text:-the kernel gave no account of what CPU $1 recorded}
        return
    fi
    while read -r ftrace_key ftrace_2 ftrace_3; do
        case "$ftrace_key $ftrace_2" in
        "overrun: 0" | "commit overrun:" | "dropped events:" | "read events:") ;;
        "overrun: "*) lost "$1" "$ftrace_2" overrun ;;
        "entries: 0") ;;
        "entries: "*) lost "$1" "$ftrace_2" unread ;;
        esac
        case "$ftrace_key $ftrace_2 $ftrace_3" in
        "commit overrun: 0" | "dropped events: 0") ;;
        "commit overrun: "*) lost "$1" "$ftrace_3" commit_overrun ;;
        "dropped events: "*) lost "$1" "$ftrace_3" dropped ;;
        "read events: "*) ftrace_kept=$((ftrace_kept + ftrace_3)) ;;
        esac
    done <"$2"
}

# After a failure a CPU is known up to its last sub-buffer, whose first 8 bytes are its time.
ftrace_end_unknown() {
    ftrace_known=
    if [ -s "raw/cpu$1" ]; then
        ftrace_size=$(wc -c <"raw/cpu$1")
        ftrace_known=$(dd if="raw/cpu$1" bs="$ftrace_page" skip=$((ftrace_size / ftrace_page - 1)) count=1 2>/dev/null |
            dd bs=8 count=1 2>/dev/null | od -An -v -tu8 | tr -d ' ')
    fi
    lost "$1" null early_end "${ftrace_known:-$window_begin}" "$window_end"
}

# The watchdog was killed. Its readers end by themselves or with us; once no process holds the
# instance, it can be removed.
ftrace_orphaned() {
    for ftrace_path in "$ftrace_dir" "$ftrace_dir-calls"; do
        [ ! -d "$ftrace_path" ] || printf '0\n' 2>/dev/null >"$ftrace_path/tracing_on"
    done
    rm -f "$scratch/reading"
    guard_kill_tools
    if [ -n "$ring" ]; then
        ring_kill_tools
        ftrace_cpus=
    fi
    for ftrace_cpu in $ftrace_cpus; do
        cat "$ftrace_dir/per_cpu/cpu$ftrace_cpu/stats" >"stats/cpu$ftrace_cpu" 2>/dev/null
        [ ! -d "$ftrace_dir-calls" ] ||
            cat "$ftrace_dir-calls/per_cpu/cpu$ftrace_cpu/stats" >"calls/stats/cpu$ftrace_cpu" 2>/dev/null
    done
    ftrace_turn=0
    for ftrace_path in "$ftrace_dir-calls" "$ftrace_dir"; do
        until rmdir "$ftrace_path" 2>/dev/null || [ ! -d "$ftrace_path" ] || [ "$ftrace_turn" -ge 40 ]; do
            ftrace_turn=$((ftrace_turn + 1))
            pause
        done
    done
    [ -z "$ftrace_queues" ] || clean_probes "$ftrace_root"
}

# Which calls were recorded: all, those of locks, or none.
ftrace_calls_told() {
    case " $recorder_extras " in
    *" syscalls "*) echo all ;;
    *" locks "*) echo locks ;;
    *) echo none ;;
    esac
}

# Which stacks were recorded: of all threads, of those whose calls are, or none.
ftrace_stacks_told() {
    case $ftrace_stacks_of in
    all) echo all ;;
    own) echo "$ftrace_of" ;;
    *) echo none ;;
    esac
}

ftrace_json() {
    cat <<END_JSON
  "ftrace": {
    "sub_buffer_bytes": $ftrace_page,
    "clock": "mono",
    "system_calls": "$(ftrace_calls_told)",
    "calls_of": "$ftrace_of",
    "stacks_of": "$(ftrace_stacks_told)",
    "instance": "$ftrace_name"
  },
END_JSON
    [ -z "$ring" ] || ring_json
}
