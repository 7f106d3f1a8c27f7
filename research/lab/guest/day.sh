# A long time of two flight recorders in one machine, under churn: one with triggers, as a service
# would run it, and the one that `schedscope top` starts, asked for a snapshot each minute.
# Set by the caller: SECONDS_LONG, how long; ROUND and FIGURES, seconds between two
# pieces of churn and two rows of figures.
say() { echo "LAB: $(cut -d . -f 1 /proc/uptime) s: $*" >/dev/console; }
say begins
mkdir /cgroup /disk
mount -t cgroup2 cgroup2 /cgroup
mount -t tmpfs -o size=192m,mode=755 disk /disk
mkdir /disk/top
log=/tmp/app.log
: >"$log"
up() { cut -d . -f 1 /proc/uptime; }
say() { echo "LAB: $(up) s: $*" >/dev/console; }

# Whose processes they are is told by their environment.
LAB_DAY=ring setsid sh /collectors/capture --ring 8M --keep 64M --min-free 16M --pause 20 \
    --trigger "file /tmp/flag" --trigger "log $log ERROR" -o /disk/day.ring \
    >/dev/null 2>/out/ring.said &
ring=$!
mkfifo /tmp/life
LAB_DAY=top setsid sh /collectors/capture --lifeline --ring 240s -o /disk/top/top.ring \
    4</tmp/life >/dev/null 2>/out/top.said &
top=$!
exec 5>/tmp/life
until [ -e /disk/day.ring/.scratch/armed ] && [ -e /disk/top/top.ring/.scratch/armed ]; do
    kill -0 "$ring" && kill -0 "$top" || exit 1
    sleep 1
done
# The pid of a recorder is that of its shell: setsid may have made another process of it.
of() {
    for one in /proc/[0-9]*; do
        ! tr '\000' '\n' <"$one/environ" 2>/dev/null | grep -qx "LAB_DAY=$1" || echo "${one#/proc/}"
    done
}

mkdir /out/top
figures() {
    for name in ring top; do
        pss=0 count=0 files=0
        for pid in $(of "$name"); do
            more=$(sed -n 's/^Pss: *\([0-9]*\).*/\1/p' "/proc/$pid/smaps_rollup" 2>/dev/null)
            pss=$((pss + ${more:-0})) count=$((count + 1))
            files=$((files + $(ls "/proc/$pid/fd" 2>/dev/null | wc -l)))
        done
        printf '%s\t%s\t%s\t' "$pss" "$count" "$files"
    done
    cat /sys/kernel/tracing/instances/*/buffer_total_size_kb | sed 's/ .*//' | tr '\n' '\t'
    set -- /disk/day.ring/*.capture
    printf '%s\t%s\t' "$(du -sk /disk/day.ring | cut -f 1)" $#
    printf '%s\t' "$(df -Pk /disk | awk 'NR == 2 { print $4 }')"
    awk '/^(MemAvailable|SUnreclaim|KernelStack|Percpu):/ { printf "%s\t", $2 }' /proc/meminfo
    cut -d / -f 2 /proc/loadavg | cut -d ' ' -f 1
}
printf '%s\t' seconds ring_pss_kb ring_processes ring_files top_pss_kb top_processes top_files \
    one_buffer_kb other_buffer_kb snapshots_kb snapshots free_kb available_kb >/out/figures.tsv
printf '%s\t' kernel_stack_kb unreclaimable_kb percpu_kb >>/out/figures.tsv
echo tasks >>/out/figures.tsv

churn() {
    case $1 in
    0) work - forks 4 30 200 ;;
    1) work - messages threads 1 4 100 ;;
    2)
        group=/cgroup/"a group $2"
        mkdir "$group"
        sh -c 'echo $$ >"$1/cgroup.procs" && exec work - forks 2 8 300' sh "$group"
        rmdir "$group"
        ;;
    3) work - messages pipes 1 4 100 ;;
    4)
        number=0
        while [ $number -lt 30 ]; do
            sleep 5 &
            number=$((number + 1))
        done
        ;;
    5) work - locks 6 40 50 50 ;;
    esac
}

# What was asked for: the recorder's own account is compared with it.
asked=0 early=0 number=0 tables=0 storms=0
begin=$(up)
say armed
next_table=$((begin + 60)) next_figures=$((begin + 120))
while now=$(up) && [ "$now" -lt "$SECONDS_LONG" ]; do
    churn $((number % 6)) $number
    number=$((number + 1))
    case $((number * ROUND % 1500 / ROUND)) in
    10) touch /tmp/flag && asked=$((asked + 1)) && sleep 9 ;;
    11) rm -f /tmp/flag ;;
    30)
        echo "an ERROR came" >>"$log" && asked=$((asked + 1))
        # Too early for another one.
        sleep 9
        echo "another ERROR came" >>"$log" && early=$((early + 1))
        ;;
    50) kill -USR1 "$ring" && asked=$((asked + 1)) ;;
    esac
    # More than the ring holds.
    if [ $((number % 700)) = 350 ]; then
        work - messages pipes 4 8 400
        storms=$((storms + 1))
    fi
    if [ "$now" -ge "$next_table" ]; then
        next_table=$((next_table + 60))
        kill -USR1 "$top"
        waited=0
        until set -- /disk/top/top.ring/*.capture && [ -d "$1" ]; do
            sleep 0.2
            waited=$((waited + 1))
            [ $waited -lt 600 ] || exit 1
        done
        tables=$((tables + 1))
        mv "$1" "/out/top/$tables.capture"
    fi
    if [ "$now" -ge "$next_figures" ]; then
        next_figures=$((next_figures + FIGURES))
        printf '%s\t%s\n' "$now" "$(figures)" >>/out/figures.tsv
        say "$number rounds, $asked snapshots asked for, $tables tables"
    fi
    sleep "$ROUND"
done
printf '%s\t%s\n' "$(up)" "$(figures)" >>/out/figures.tsv
{
    echo "seconds $(($(up) - begin))"
    echo "rounds $number"
    echo "asked $asked"
    echo "early $early"
    echo "storms $storms"
    echo "tables $tables"
} >/out/asked
kill -TERM "$ring"
kill -INT "$top"
wait "$ring"
echo "ring $?" >>/out/asked
wait "$top"
echo "top $?" >>/out/asked
sleep 15
{
    of ring
    of top
    ls /sys/kernel/tracing/instances
    cat /sys/kernel/tracing/kprobe_events
    ls -A /disk/top
    find /disk \( -name '*.partial' -o -name '.scratch' -o -name '.reserve' -o -name '*.new' \)
    find /tmp -type d -mindepth 1
} >/out/left
mv /disk/day.ring /out/
dmesg | tail -n 40 >/out/dmesg
exit 0
