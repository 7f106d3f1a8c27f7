# A long time of a flight recorder under churn, as a service would run it: processes, threads and
# control groups come and go, triggers fire, storms exceed the ring.
# Set by the caller: LONG, how many seconds; ROUND and FIGURES, seconds between two pieces of churn
# and two rows of figures.
mkdir /cgroup /disk
mount -t cgroup2 cgroup2 /cgroup
mount -t tmpfs -o size=192m,mode=755 disk /disk
log=/tmp/app.log
: >"$log"
LAB_DAY=ring setsid sh /collectors/capture --ring 8M --keep 64M --min-free 16M --pause 20 \
    --trigger "file /tmp/flag" --trigger "log $log ERROR" -o /disk/day.ring \
    >/dev/null 2>/out/said &
ring=$!
until [ -e /disk/day.ring/.scratch/armed ]; do
    kill -0 "$ring" || exit 1
    sleep 1
done

# The recorder's processes are told by their environment.
members() {
    for one in /proc/[0-9]*; do
        ! tr '\000' '\n' <"$one/environ" 2>/dev/null | grep -qx LAB_DAY=ring || echo "${one#/proc/}"
    done
}

figures() {
    pss=0 processes=0 files=0
    for pid in $(members); do
        more=$(sed -n 's/^Pss: *\([0-9]*\).*/\1/p' "/proc/$pid/smaps_rollup" 2>/dev/null)
        # shellcheck disable=SC2012
        pss=$((pss + ${more:-0})) processes=$((processes + 1)) files=$((files + $(ls "/proc/$pid/fd" 2>/dev/null | wc -l)))
    done
    set -- /disk/day.ring/*.capture
    printf '%s\t' "$now" "$pss" "$processes" "$files" \
        "$(cut -d ' ' -f 1 /sys/kernel/tracing/instances/*/buffer_total_size_kb)" \
        "$(du -sk /disk/day.ring | cut -f 1)" $# "$(du -sk /disk/day.ring/.scratch | cut -f 1)"
    awk '/^(MemAvailable|SUnreclaim):/ { printf "%s\t", $2 }' /proc/meminfo
    cut -d / -f 2 /proc/loadavg | cut -d ' ' -f 1
}
{
    printf '%s\t' seconds pss_kb processes files ring_kb snapshots_kb snapshots scratch_kb
    printf 'available_kb\tunreclaimable_kb\ttasks\n'
} >/out/figures.tsv

churn() {
    case $(($1 % 6)) in
    0) work - forks 4 20 200 ;;
    1) work - messages threads 1 4 50 ;;
    2)
        mkdir "/cgroup/a group $1"
        # shellcheck disable=SC2016
        sh -c 'echo $$ >"$1/cgroup.procs" && exec work - forks 2 8 300' sh "/cgroup/a group $1"
        rmdir "/cgroup/a group $1"
        ;;
    3) work - messages pipes 1 4 50 ;;
    4) for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 5 & done ;;
    5) work - locks 4 20 50 50 ;;
    esac
}

clock() {
    read -r now _ </proc/uptime
    now=${now%%.*}
}

# What was asked for: the recorder's own account is compared with it.
asked=0 early=0 number=0 storms=0
clock
begin=$now next_figures=$now
while clock && [ $((now - begin)) -lt "$LONG" ]; do
    churn $number
    number=$((number + 1))
    case $((number % 24)) in
    4)
        touch /tmp/flag
        asked=$((asked + 1))
        sleep 3
        rm /tmp/flag
        # Too early for another one.
        sleep 3
        touch /tmp/flag
        early=$((early + 1))
        sleep 3
        rm /tmp/flag
        ;;
    12)
        echo "an ERROR came" >>"$log"
        asked=$((asked + 1))
        ;;
    20)
        kill -USR1 "$ring"
        asked=$((asked + 1))
        ;;
    esac
    # More than the ring holds.
    if [ $((number % 400)) = 100 ]; then
        work - messages pipes 4 8 400
        storms=$((storms + 1))
    fi
    if [ "$now" -ge "$next_figures" ]; then
        next_figures=$((now + FIGURES))
        figures >>/out/figures.tsv
        echo "LAB: $now s: $number rounds, $asked snapshots asked for" >/dev/console
    fi
    sleep "$ROUND"
done
figures >>/out/figures.tsv
kill -TERM "$ring"
wait "$ring"
status=$?
{
    echo "seconds $((now - begin))"
    echo "rounds $number"
    echo "asked $asked"
    echo "early $early"
    echo "storms $storms"
    echo "status $status"
} >/out/asked
sleep 5
{
    members
    ls /sys/kernel/tracing/instances
    cat /sys/kernel/tracing/kprobe_events 2>/dev/null
    find /disk /tmp -name '*.partial' -o -name .scratch -o -name .reserve -o -name '*.new' -o -name 'schedscope*'
} >/out/left
mv /disk/day.ring /out/
