# The part of the ftrace recorder that outlives `capture`: it runs in the watchdog, makes the
# trace instance, copies its pages and removes it (main part: ftrace.sh).
#
# The instance lives exactly as long as a process holds its file free_buffer open: the kernel
# refuses to remove it until then (EBUSY for any caller, from any pid name space), and when the last
# holder is gone, kill -9 included, it stops the tracing and gives the memory back. So an instance
# that can be removed is unused, and no pid has to be checked.
#
# With ftrace_own_events there is a second instance beside it, NAME-calls, for events of chosen
# processes; its pages go to calls/.  Descriptors: 9 holds the first one, 3 the second.
#
# Settings: ftrace_root ftrace_name ftrace_events ftrace_own_events ftrace_stacks_of ftrace_queues
# ftrace_buffer_kb ftrace_subbuf_kb ftrace_calls_only ftrace_read_kb quota_timer.
# shellcheck shell=sh disable=SC2034,SC2154,SC2317

ftrace_dir=$ftrace_root/instances/$ftrace_name

ftrace_set() { printf '%s\n' "$2" 2>/dev/null >"$ftrace_dir/$1"; }

# All instances stop.
ftrace_off() {
    ftrace_set tracing_on 0
    [ -z "$ftrace_own_events" ] || printf '0\n' 2>/dev/null >"$ftrace_dir-calls/tracing_on"
}

# The kernel notes the name of every thread switched to, for readers that need names; the
# events and the thread table have them, and without it a third of the cost of an event is
# gone.  The switch reaches all users of tracing, so it is left alone where there are any
# (if one user has it on, switching it off would gain nothing).
ftrace_skip_names() {
    for ftrace_path in "$ftrace_root" "$ftrace_root"/instances/*; do
        [ -z "$(head -n 1 "$ftrace_path/set_event" 2>/dev/null)" ] || return 0
    done
    ftrace_set trace_options norecord-cmd || :
}

# Another capture may mistake an instance that is not held open yet for one left behind.
ftrace_make() {
    ftrace_try=0
    until mkdir "$ftrace_dir" 2>/dev/null && command exec 9>>"$ftrace_dir/free_buffer"; do
        ftrace_try=$((ftrace_try + 1))
        [ "$ftrace_try" -lt 10 ] || return 1
    done 2>/dev/null
    [ -n "$ftrace_own_events" ] || return 0
    until mkdir "$ftrace_dir-calls" 2>/dev/null && command exec 3>>"$ftrace_dir-calls/free_buffer"; do
        ftrace_try=$((ftrace_try + 1))
        [ "$ftrace_try" -lt 20 ] || return 1
    done 2>/dev/null
}

tracer_begin() {
    if ! ftrace_make; then
        watch_failed "cannot make the trace instance $ftrace_dir"
        return 1
    fi
    ftrace_set_up || {
        watch_failed "$ftrace_fail"
        return 1
    }
    : >.scratch/reading
    # The first to see the end of the capture: even if the watchdog is killed with it, tracing
    # stops and the readers end.
    # The folder may be gone by then; descriptor 8 still has what was written into the file.
    : >.scratch/triggers
    command exec 8<.scratch/triggers
    (
        read -r _ <&6
        ftrace_off
        rm -f .scratch/reading
        [ -z "${watch_ring:-}" ] || ring_watch_end <&8
    ) &
    exec 8<&-
    if [ -n "${watch_ring:-}" ]; then
        ring_watch
        ftrace_tell
        return
    fi
    # One loop for eight CPUs: copying goes on in parallel on a large host.
    # shellcheck disable=SC2086
    set -- $ftrace_buffers
    ftrace_pids=
    ftrace_groups=$((($# + 7) / 8))
    while [ $# -gt 0 ]; do
        ftrace_group=
        while [ $# -gt 0 ]; do
            ftrace_group="$ftrace_group $1"
            shift
            [ $(($# % 8)) != 0 ] || break
        done
        # shellcheck disable=SC2086
        ftrace_read_loop $ftrace_group &
        ftrace_pids="$ftrace_pids $!"
    done
    # A reader needs little CPU time, but should not wait for twenty others first.
    # shellcheck disable=SC2086
    renice -n -20 -p $ftrace_pids >/dev/null 2>&1
    # Where the kernel groups sessions (autogroup), that counts among the processes of ours alone:
    # ours, in which only readers and the watchdog are, has a weight of its own.
    if read -r ftrace_ours _ 2>/dev/null </proc/self/autogroup &&
        ! grep -q "^$ftrace_ours " "/proc/$watch_capture/autogroup" 2>/dev/null; then
        printf '%s\n' -20 2>/dev/null >/proc/self/autogroup
    fi
    # shellcheck disable=SC2086
    printf '%s\n' $ftrace_pids >>.scratch/pids
    ftrace_tell
}

# Its clock is that of this instance, which lives as long.
host_clock_open() { :; }
host_clock_close() { :; }

# What capture needs to know about the instance.
ftrace_tell() {
    for clock_file in "$ftrace_dir"/per_cpu/cpu[0-9]*/stats; do break; done
    echo "$clock_file" >.scratch/clock
    echo "$ftrace_page" >.scratch/ftrace
    printf '%s\n' "$ftrace_cpus" >>.scratch/ftrace
}

ftrace_set_up() {
    ftrace_fail="cannot set up $ftrace_dir"
    ftrace_set tracing_on 0 || return 1
    # Without this option the memory is given back all the same.
    ftrace_set options/disable_on_free 1 || :
    ftrace_set trace_clock mono || return 1
    ftrace_skip_names
    # Linux 6.8 and later can copy more than a page at a time: half the cost of reading.
    if [ -e "$ftrace_dir/buffer_subbuf_size_kb" ]; then
        ftrace_set buffer_subbuf_size_kb "$ftrace_subbuf_kb"
    fi
    ftrace_fail="the kernel refuses a buffer of $ftrace_buffer_kb KiB per CPU; give a smaller one with -b"
    ftrace_set buffer_size_kb "$ftrace_buffer_kb" || return 1
    ftrace_fail="cannot write into the folder of the capture"
    # A flight recorder copies the formats into each snapshot.
    ftrace_at=${watch_ring:+.scratch/}
    mkdir "${ftrace_at}events" || return 1
    [ -n "$ftrace_at" ] || mkdir raw stats || return 1
    cat "$ftrace_root/events/header_page" >"${ftrace_at}events/header_page" || return 1
    cat "$ftrace_root/events/header_event" >"${ftrace_at}events/header_event" || return 1
    ftrace_stacks all trigger "stacktrace if $ftrace_asleep" || return 1
    ftrace_switch_on "$ftrace_dir" "$ftrace_events" || return 1
    ftrace_quotas || return 1
    ftrace_probe_queues || return 1
    ftrace_group_moves || return 1
    ftrace_set_up_own || return 1
    # A sub-buffer is a header and the data; header_page gives the offset and the size of the data.
    ftrace_page=$(awk -F '[:;]' '/ data;/ { print $4 + $6 }' "${ftrace_at}events/header_page")
    if [ -r "$ftrace_dir/buffer_subbuf_size_kb" ]; then
        ftrace_page=$(head -n 1 "$ftrace_dir/buffer_subbuf_size_kb")
        ftrace_page=$((ftrace_page * 1024))
    fi
    # A second guard against waiting, where dd has it.
    ftrace_nonblock=
    if dd if=/dev/null of=/dev/null iflag=nonblock count=0 2>/dev/null; then
        ftrace_nonblock=iflag=nonblock
    fi
    ftrace_cpus=
    for ftrace_path in "$ftrace_dir"/per_cpu/cpu[0-9]*; do
        ftrace_cpu=${ftrace_path##*cpu}
        [ ! -d "/sys/devices/system/cpu/cpu$ftrace_cpu" ] || ftrace_cpus="$ftrace_cpus $ftrace_cpu"
    done
    ftrace_buffers=$ftrace_cpus
    if [ -n "$ftrace_own_events" ]; then
        for ftrace_cpu in $ftrace_cpus; do ftrace_buffers="$ftrace_buffers c$ftrace_cpu"; done
    fi
    # An event takes 40 to 70 bytes here.
    ftrace_threshold=$((ftrace_read_kb * 1024 / 50))
}

# Switches on the events $2 of an instance.
ftrace_switch_on() {
    for ftrace_event in $2; do
        [ -d "$1/events/$ftrace_event" ] || continue
        mkdir -p "${ftrace_at}events/$ftrace_event" || return 1
        cat "$ftrace_root/events/$ftrace_event/format" >"${ftrace_at}events/$ftrace_event/format" || return 1
        case $ftrace_calls_only$ftrace_event in
        *"("*raw_syscalls/*)
            printf '%s\n' "$ftrace_calls_only" 2>/dev/null >"$1/events/$ftrace_event/filter" || {
                ftrace_fail="the event $ftrace_event cannot be filtered"
                return 1
            }
            ;;
        esac
        printf '1\n' 2>/dev/null >"$1/events/$ftrace_event/enable" || {
            ftrace_fail="the event $ftrace_event cannot be switched on"
            return 1
        }
    done
}

# The second instance: it follows the forks of the processes in set_event_pid. While that is empty
# it would record every process; it is switched on with the first pid.
ftrace_set_up_own() {
    [ -n "$ftrace_own_events" ] || return 0
    ftrace_first=$ftrace_dir
    ftrace_dir=$ftrace_dir-calls
    ftrace_own_ready
    ftrace_ready=$?
    ftrace_dir=$ftrace_first
    return "$ftrace_ready"
}

ftrace_own_ready() {
    ftrace_fail="cannot set up $ftrace_dir"
    ftrace_set tracing_on 0 && ftrace_set trace_clock mono && ftrace_set options/event-fork 1 || return 1
    ftrace_set options/disable_on_free 1 || :
    ftrace_set trace_options norecord-cmd || :
    [ ! -e "$ftrace_dir/buffer_subbuf_size_kb" ] || ftrace_set buffer_subbuf_size_kb "$ftrace_subbuf_kb"
    ftrace_fail="the kernel refuses a second buffer of $ftrace_buffer_kb KiB per CPU; give a smaller one with -b"
    ftrace_set buffer_size_kb "$ftrace_buffer_kb" || return 1
    ftrace_fail="cannot write into the folder of the capture"
    mkdir calls calls/raw calls/stats || return 1
    ftrace_stacks own filter "$ftrace_asleep" || return 1
    ftrace_switch_on "$ftrace_dir" "$ftrace_own_events"
}

# The kernel's stack of threads that leave their CPU to sleep, if this instance records them: $1 is
# its setting for that, and $3 goes into the file $2 of sched_switch. A preempted thread does not
# sleep: bits above the first eight of prev_state show the preemption.
ftrace_asleep='prev_state & 255'
ftrace_stacks() {
    [ "$ftrace_stacks_of" = "$1" ] || return 0
    ftrace_fail="the kernel refuses stacks of threads that fall asleep"
    ftrace_set "events/sched/sched_switch/$2" "$3" || return 1
    [ "$2" = trigger ] || ftrace_set options/stacktrace 1 || return 1
    ftrace_to=${ftrace_at}events/sleep/kernel_stack
    mkdir -p "$ftrace_to" &&
        cat "$ftrace_root/events/ftrace/kernel_stack/format" >"$ftrace_to/format" || return 1
    # Where each function of the kernel begins: that of an address is known when it is read.
    awk '$2 ~ /^[tTwW]$/ && $3 !~ /^__(pfx|cfi)_/ && $1 !~ /^0*$/ { print $1, $3 }' \
        /proc/kallsyms >"$ftrace_to/symbols" || return 1
    ftrace_fail="the kernel hides its addresses, without which stacks have no names; try: sysctl kernel.kptr_restrict=1"
    [ -s "$ftrace_to/symbols" ]
}

# Of the functions in `symbols`, those that the recorded stacks need: a few hundred of some hundred
# thousand. An address is a number of two words (on 32 bits, of one) in the recording, between the
# first function and the last; another number in that range only adds a line. It is of the last
# function that begins before it. Reading a long recording once more would take longer than the 3 MB
# are worth: then all stay.
ftrace_needed_symbols() {
    ftrace_to=events/sleep/kernel_stack/symbols
    [ -z "${watch_ring:-}" ] && [ -s "$ftrace_to" ] || return 0
    set -- raw/cpu*
    [ ! -d calls/raw ] || set -- raw/cpu* calls/raw/cpu*
    [ "$(cat "$@" | wc -c)" -le 33554432 ] || return 0
    ftrace_ends=$(printf 'ab' | od -An -tx2 | tr -d ' ')
    {
        awk '{ print $1, NR, $2 }' "$ftrace_to"
        od -An -v -tx4 "$@" | LC_ALL=C awk -v swapped="$([ "$ftrace_ends" = 6162 ] || echo 1)" '
            NR == FNR {
                # Some look like numbers: all are compared as text.
                at = $1 ""
                if (!wide) { first = at; wide = length(at) }
                if (at < first) first = at
                if (at > last) last = at
                known[substr(at, 1, 8)]
                next
            }
            {
                for (field = 1; field <= NF; field++) {
                    if (wide == 8) at = $field ""
                    else {
                        upper = swapped ? $field : before
                        at = upper (swapped ? before : $field)
                        before = $field
                        if (!(upper in known)) continue
                    }
                    if (at >= first && at <= last && !(at in seen)) { seen[at]; print at, 0 }
                }
            }' "$ftrace_to" -
    } >.scratch/addresses && LC_ALL=C sort -k 1,1 -k 2,2n .scratch/addresses >.scratch/sorted &&
        awk '
            NF == 2 { for (i = 1; i <= same; i++) print line[i]; same = 0; next }
            $1 "" != at { at = $1 ""; same = 0 }
            { line[++same] = $1 " " $3 }' .scratch/sorted >.scratch/symbols &&
        [ -s .scratch/symbols ] && cat .scratch/symbols >"$ftrace_to"
    rm -f .scratch/addresses .scratch/sorted .scratch/symbols
}

# When the period timers of CPU quotas fire.
ftrace_quotas() {
    ftrace_event=events/timer/hrtimer_expire_entry
    [ -n "$quota_timer" ] && [ -d "$ftrace_dir/$ftrace_event" ] || return 0
    ftrace_set "$ftrace_event/filter" "function == 0x$quota_timer" || return 0
    mkdir -p "${ftrace_at}events/quota/hrtimer_expire_entry" || return 1
    cat "$ftrace_root/$ftrace_event/format" >"${ftrace_at}events/quota/hrtimer_expire_entry/format" || return 1
    ftrace_set "$ftrace_event/enable" 1 || rm -r "${ftrace_at}events/quota"
}

# sched_ext's dispatch queues: each time that a thread is put into one or taken out. The kernel
# finds arguments and members by name in its type information (BTF), so that neither their order,
# which differs between releases, nor their places matter. All local queues share one id: the CPU
# identifies the queue. The watchdog's limit is recorded where the function gets the scheduler. The
# probes' group has the instance's name, so that their owner can be identified.
ftrace_probe_queues() {
    [ -n "$ftrace_queues" ] || return 0
    ftrace_probes=$(echo "$ftrace_name" | tr - _)
    # shellcheck disable=SC2016
    ftrace_of_thread='pid=p->pid:s32 slice=p->scx.slice:u64 vtime=p->scx.dsq_vtime:u64 flags=enq_flags:u64'
    ftrace_of_queue='cpu=p->thread_info.cpu:s32 dsq=dsq->id:u64 nr=dsq->nr:u32'
    ftrace_of_local='cpu=dst_rq->cpu:s32 dsq=dst_rq->scx.local_dsq.id:u64 nr=dst_rq->scx.local_dsq.nr:u32'
    ftrace_queue insert dispatch_enqueue "$ftrace_of_queue $ftrace_of_thread timeout_ms=sch->ops.timeout_ms:u32" ||
        ftrace_queue insert dispatch_enqueue "$ftrace_of_queue $ftrace_of_thread" || return 1
    ftrace_queue insert_local move_local_task_to_local_dsq "$ftrace_of_local $ftrace_of_thread" || return 1
    ftrace_queue remove task_unlink_from_dsq "$ftrace_of_queue pid=p->pid:s32" || return 1
    # Which CPUs a scheduler asks to look into its queues.
    ftrace_queue kick scx_bpf_kick_cpu 'cpu=cpu:s32 flags=flags:u64'
}

# One probe: event $1 at the function $2 with the fields $3.
ftrace_queue() {
    ftrace_fail="the kernel refuses a probe on $2, without which --with scx would miss threads in dispatch queues, or kicks"
    printf 'p:%s/%s %s %s\n' "$ftrace_probes" "$1" "$2" "$3" 2>/dev/null >>"$ftrace_root/kprobe_events" || return 1
    mkdir -p "${ftrace_at}events/scx/$1" &&
        cat "$ftrace_root/events/$ftrace_probes/$1/format" >"${ftrace_at}events/scx/$1/format" &&
        ftrace_set "events/$ftrace_probes/$1/enable" 1
}

# A probe can only be removed when no instance has it on.
ftrace_unprobe() {
    [ -n "$ftrace_queues" ] || return 0
    for ftrace_event in insert insert_local remove kick; do
        printf -- '-:%s/%s\n' "$ftrace_probes" "$ftrace_event" 2>/dev/null >>"$ftrace_root/kprobe_events"
    done
}

# Processes that are put into another control group while it is recorded; of the hierarchy alone that
# shares CPU time out, whose number stands in /proc/PID/cgroup.
ftrace_group_moves() {
    ftrace_event=events/cgroup/cgroup_attach_task
    [ -d "$ftrace_dir/$ftrace_event" ] || return 0
    ftrace_hierarchy=$(awk -F: '
        ("," $2 ",") ~ /,cpu,/ { one = $1 }
        $2 == "" { two = $1 }
        END { print (one != "" ? one : two) }' /proc/self/cgroup 2>/dev/null)
    [ -n "$ftrace_hierarchy" ] || return 0
    ftrace_set "$ftrace_event/filter" "dst_root == $ftrace_hierarchy" || return 0
    mkdir -p "${ftrace_at}events/group/cgroup_attach_task" || return 1
    cat "$ftrace_root/$ftrace_event/format" >"${ftrace_at}events/group/cgroup_attach_task/format" || return 1
    ftrace_set "$ftrace_event/enable" 1 || rm -r "${ftrace_at}events/group"
}

# Where the buffer $1 is: N is that of a CPU, cN the one of the second instance.  Sets ftrace_per,
# its folder, and ftrace_to, where its files go.
ftrace_place() {
    case $1 in
    c*)
        ftrace_per=$ftrace_dir-calls/per_cpu/cpu${1#c}
        ftrace_to=calls/
        ;;
    *)
        ftrace_per=$ftrace_dir/per_cpu/cpu$1
        ftrace_to=
        ;;
    esac
}

# Sets ftrace_entries to the number of unread events of a buffer, without a process; 1 if the kernel
# does not say. The kernel writes the file again for each byte that a shell reads: a number that
# grows a digit meanwhile (999, 1000) can be read as 9900. So it is read twice, and the smaller one
# taken.
ftrace_count() {
    ftrace_first "$1" || return 1
    ftrace_least=$ftrace_entries
    ftrace_first "$1" || return 1
    [ "$ftrace_entries" -le "$ftrace_least" ] || ftrace_entries=$ftrace_least
}

ftrace_first() {
    ftrace_place "$1"
    ftrace_entries=0 ftrace_error=
    while read -r ftrace_key ftrace_value; do
        [ "$ftrace_key" = entries: ] || continue
        ftrace_entries=$ftrace_value
        return 0
    done 2>/dev/null <"$ftrace_per/stats"
    return 1
}

# Sets ftrace_pages to at most what may be written, by the limits of free space and size; 1 if that
# is nothing.  A reader checks again after it has used up its share of what was left, or 64 MiB.
ftrace_share=0
ftrace_fit() {
    ftrace_want=$(((ftrace_pages * ftrace_page + 1023) / 1024))
    if [ "$ftrace_share" -lt "$ftrace_want" ]; then
        if watch_over; then return 1; fi
        ftrace_share=65536
        [ -z "$watch_left" ] || [ $((watch_left / ftrace_groups)) -ge 65536 ] ||
            ftrace_share=$((watch_left / ftrace_groups))
        if [ "$ftrace_share" -lt "$ftrace_want" ]; then
            ftrace_pages=$((ftrace_share * 1024 / ftrace_page))
            ftrace_want=$ftrace_share
            [ "$ftrace_pages" -gt 0 ] || return 1
        fi
    fi
    ftrace_share=$((ftrace_share - ftrace_want))
}

# Copies whole pages of a CPU's buffer until at most $2 events are left; 1 if they cannot be
# written, 2 if they may not.  Asking for no more than the events of 36 bytes (the shortest that come in numbers)
# must fill, dd never waits, and never takes a page that is still being filled: reading on
# while events come would write a page for every handful of them.
ftrace_copy() {
    while [ "$ftrace_entries" -gt "$2" ]; do
        ftrace_pages=$((ftrace_entries * 36 / ftrace_page))
        [ "$ftrace_pages" -gt 0 ] || ftrace_pages=1
        ftrace_fit || return 2
        # shellcheck disable=SC2086
        ftrace_error=$(dd if="$ftrace_per/trace_pipe_raw" bs="$ftrace_page" \
            count="$ftrace_pages" $ftrace_nonblock 2>&1 >>"${ftrace_to}raw/cpu${1#c}") || break
        ftrace_count "$1" || return 1
    done
    case $ftrace_error in
    *"o space left"* | *"uota"* | *"ile too large"* | *"nput/output error"*) return 1 ;;
    esac
    return 0
}

# What went wrong with a CPU that could not be read.
ftrace_why() {
    ftrace_place "$1"
    if [ ! -d "${ftrace_per%/per_cpu/*}" ]; then
        echo "the trace instance ${ftrace_per%/per_cpu/*} was removed while it recorded"
    elif ! ftrace_count "$1"; then
        echo "the kernel no longer reports counts for CPU ${1#c} ($ftrace_per/stats)"
    else
        echo "no space left for the recording"
    fi
}

# The reader of some CPUs.
ftrace_read_loop() {
    exec 6<&-
    trap '' TERM
    ftrace_nap=0.25
    [ "$watch_nap" != 1 ] || ftrace_nap=1
    while [ -e .scratch/reading ] && [ ! -e .scratch/limit ]; do
        sleep "$ftrace_nap"
        [ "$watch_nap" = 1 ] || ftrace_nap=0.25
        for ftrace_cpu in "$@"; do
            if ftrace_count "$ftrace_cpu"; then
                [ "$ftrace_entries" -gt "$ftrace_threshold" ] || continue
                [ "$watch_nap" = 1 ] || ftrace_nap=0.05
                ftrace_copy "$ftrace_cpu" "$ftrace_threshold"
                case $? in
                0) continue ;;
                2)
                    watch_post
                    return
                    ;;
                esac
            fi
            watch_mark_end
            watch_failed "$(ftrace_why "$ftrace_cpu")"
            return
        done
    done
}

tracer_quit() { ftrace_off; }

tracer_halt() { ftrace_off; }

tracer_end() {
    [ -d "$ftrace_dir" ] || return 0
    ftrace_off
    rm -f .scratch/reading
    # Nothing is to be written, or the folder is gone: to a shell, a file that cannot be made is the end.
    if [ -n "${watch_ring:-}" ] || [ ! -d .scratch ]; then ftrace_cpus='' ftrace_buffers=''; fi
    for ftrace_pid in ${ftrace_pids:-}; do
        while kill -0 "$ftrace_pid" 2>/dev/null; do wait "$ftrace_pid"; done
    done
    # The space set aside is for this.  Events that do not fit stay unread, and are counted as such.
    watch_reserve_kb=0 ftrace_share=0 ftrace_groups=1
    for ftrace_cpu in ${ftrace_buffers:-}; do
        [ ! -e .scratch/failed ] || break
        ftrace_entries=0
        if ftrace_count "$ftrace_cpu"; then ftrace_copy "$ftrace_cpu" 0; else false; fi
        [ $? -ne 1 ] || watch_failed "$(ftrace_why "$ftrace_cpu")"
    done
    # On a full disk what follows needs the space set aside.
    [ -z "${ftrace_cpus:-}" ] || rm -f .reserve
    for ftrace_cpu in ${ftrace_buffers:-}; do
        ftrace_place "$ftrace_cpu"
        cat "$ftrace_per/stats" >"${ftrace_to}stats/cpu${ftrace_cpu#c}" 2>/dev/null
        ftrace_trim "${ftrace_to}raw/cpu${ftrace_cpu#c}"
    done
    ftrace_needed_symbols
    exec 9>&- 3>&-
    ftrace_try=0
    for ftrace_path in "$ftrace_dir-calls" "$ftrace_dir"; do
        until rmdir "$ftrace_path" 2>/dev/null || [ ! -d "$ftrace_path" ]; do
            ftrace_try=$((ftrace_try + 1))
            [ "$ftrace_try" -lt 50 ] || break
            sleep "$watch_nap"
        done
    done
    ftrace_unprobe
}

# A full disk can tear the last sub-buffer: only whole ones stay.
ftrace_trim() {
    [ -e "$1" ] || true >"$1" || return 0
    ftrace_size=$(wc -c <"$1")
    [ $((ftrace_size % ftrace_page)) = 0 ] ||
        dd if=/dev/null of="$1" bs="$ftrace_page" seek=$((ftrace_size / ftrace_page)) 2>/dev/null
}
