# What a machine of the prediction bench does: the project's own collector records one workload
# some times over.
# Set by the caller: WORK (a workload and its arguments), REPEATS, OPTIONS (of capture), BEFORE,
# SETTINGS (of work.c).
[ -w /proc/sys/kernel/sched_schedstats ] && echo 1 >/proc/sys/kernel/sched_schedstats
[ -z "$BEFORE" ] || eval "$BEFORE"
SEED=1
export SEED
while [ "$SEED" -le "$REPEATS" ]; do
    # shellcheck disable=SC2086
    sh /collectors/capture -q -o "$SEED.capture" $OPTIONS -- work - $WORK || exit
    echo "LAB: $SEED recorded"
    SEED=$((SEED + 1))
done
