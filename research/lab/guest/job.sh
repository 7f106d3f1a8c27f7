# What one laboratory machine does: the project's own collector records a workload, and beside
# it another trace instance holds the kernel's own text of the same events.
# Set by the caller: WORK (a workload and its arguments), OPTIONS (of capture), BEFORE (a command),
# DURING (a command that runs beside the workload, recorded as it is), SETTINGS (of work.c).
[ -w /proc/sys/kernel/sched_schedstats ] && echo 1 >/proc/sys/kernel/sched_schedstats
[ -z "$BEFORE" ] || eval "$BEFORE"
judge=/sys/kernel/tracing/instances/judge
mkdir "$judge"
echo mono >"$judge/trace_clock"
echo 8192 >"$judge/buffer_size_kb"
for event in sched_switch sched_waking sched_wakeup sched_wakeup_new sched_migrate_task; do
    echo 1 >"$judge/events/sched/$event/enable"
done
set -- work /out/truth.tsv
# The recording ends with its command: that waits for both.
# shellcheck disable=SC2016
[ -z "$DURING" ] ||
    set -- sh -c 'eval "$1" & shift; "$@"; status=$?; wait; exit $status' lab "$DURING" "$@"
# shellcheck disable=SC2086
sh /collectors/capture -o lab.capture $OPTIONS -- "$@" $WORK
status=$?
echo 0 >"$judge/tracing_on"
cat "$judge/trace" >/out/trace.txt
cat "$judge"/per_cpu/cpu*/stats >/out/judge-stats.txt
rmdir "$judge"
exit $status
