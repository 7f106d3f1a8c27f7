# Records one scene: loads that are known run, and a capture is taken of 0.8 s of them.
#
#     sh scene.sh CAPTURE FOLDER LOADS BEFORE SETTLE DURING OPTIONS
#
# LOADS has a command on each line, which runs in the background until the end; BEFORE is a command
# that runs ahead of them, SETTLE one between them and the recording, DURING one that runs in it.
# They may use
#   load NAME ...        load.c
#   group NAME FILE=X..  makes a control group; FILE is of cgroup 2, and translated for version 1
#   in_group NAME COMMAND .. (in LOADS)
#   again NAME           the pids of the loads of that name
# shellcheck shell=sh disable=SC2317
set -u

again() {
    for place in /proc/[0-9]*/comm; do
        read -r comm <"$place" || continue
        [ "$comm" != "$1" ] || { place=${place#/proc/} && echo "${place%/comm}"; }
    done 2>/dev/null
}

# The recorded command: loads started before it keep running.
if [ "$1" = --during ]; then
    # shellcheck disable=SC2086
    kill -s CONT $2
    sleep 0.3
    eval "$3"
    exec sleep 0.5
fi
capture=$1 folder=$2 loads=$3 before=$4 settle=$5 during=$6 options=$7

groups=
if [ -f /sys/fs/cgroup/cpu/cgroup.procs ]; then
    version=1 top=/sys/fs/cgroup/cpu
else
    version=2 top=/cgroup
    [ -d $top ] || mkdir $top
    [ -f $top/cgroup.procs ] || mount -t cgroup2 cgroup2 $top
    echo +cpu >$top/cgroup.subtree_control
fi
own=$top/scene-$$

# On a host with other work, give ours priority over it. A dedicated machine needs nothing.
if [ "$version" = 1 ]; then
    mkdir "$own"
    groups=$own
    echo 262144 >"$own/cpu.shares"
    [ ! -f "$own/cpu.rt_runtime_us" ] || echo 400000 >"$own/cpu.rt_runtime_us"
    echo $$ >"$own/cgroup.procs"
else
    mkdir "$own"
    groups=$own
    echo +cpu >"$own/cgroup.subtree_control"
fi

group() {
    made=$own/$1
    shift
    mkdir "$made"
    groups="$made $groups"
    for setting in "$@"; do
        text=${setting#*=}
        case $version,$setting in
        2,*) echo "$text" >"$made/${setting%%=*}" ;;
        1,cpu.weight=*) echo $((text * 1024 / 100)) >"$made/cpu.shares" ;;
        1,cpu.max=*)
            echo "${text#* }" >"$made/cpu.cfs_period_us"
            echo "${text% *}" >"$made/cpu.cfs_quota_us"
            ;;
        esac
    done
}

in_group() {
    made=$own/$1
    shift
    exec sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$made" "$@"
}

eval "$before"
pids=
while read -r line; do
    [ -n "$line" ] || continue
    eval "$line &"
    pids="$pids $!"
done <<END
$loads
END
sleep 0.2
eval "$settle" >/dev/null
# Thread metadata is read before the recording, so the loads need not compute meanwhile.
# shellcheck disable=SC2086
if kill -s STOP $pids; then
    # shellcheck disable=SC2086
    sh "$capture" -q -o "$folder" $options -- sh "$0" --during "$pids" "${during:-:}"
    status=$?
else
    echo "a load ended by itself" >&2
    status=1
fi
# shellcheck disable=SC2086
kill $pids 2>/dev/null
# shellcheck disable=SC2086
wait $pids 2>/dev/null
[ "$version" = 2 ] || echo $$ >"$top/cgroup.procs"
turns=0
for made in $groups; do
    # The kernel may still be ending threads, which keeps the group for a moment.
    until rmdir "$made" 2>/dev/null || [ "$turns" -ge 30 ]; do
        turns=$((turns + 1))
        sleep 0.1
    done
done
exit $status
