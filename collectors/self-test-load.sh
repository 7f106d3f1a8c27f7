# The known load of `capture --self-test`: about ten seconds of work of which the kernel itself
# keeps account, so that a recording of it can be judged on the host that made it.
#
# Not sourced but run, as the command that is recorded; needs sh, awk and, to bind threads,
# taskset (Linux) or cpuset (FreeBSD).  Arguments: its SECONDS, and after how many it gives up on
# roles that do not answer.  It prints the account on stdout:
#   os NAME          ticks HZ            cpus LIST           window SECONDS
#   process ROLE PID                     one thread each:
#       hog, nice    busy, bound to one CPU, the second with nice 10 (where renice is there)
#       mover        busy, sent from CPU to CPU (`moves COUNT`)
#       ping, pong   wake each other through two pipes (`turns COUNT`)
#       sleeper      sleeps for `sleeps SECONDS` at a stretch
#   bound CPU        where hog and nice are
#   begin ROLE VOLUNTARY INVOLUNTARY NS  the kernel's counts of that thread, NS of CPU time
#   end ROLE VOLUNTARY INVOLUNTARY NS    (`-` where the kernel does not say)
#   mark begin|end PID                   the exit of that process is the moment of ...
#   stat begin|end ...                   ... the kernel's counts of CPUs, switches and forks
# Every role waits at a pipe when it is counted, so its counts stand still meanwhile.
# shellcheck shell=sh disable=SC2016,SC2034,SC3045

set -u
LC_ALL=C
export LC_ALL
load_seconds=${1:-8}
load_limit=${2:-$((load_seconds * 5 + 60))}
load_turns=1000
load_os=$(uname -s)
load_folder=$(mktemp -d "${TMPDIR:-/tmp}/schedscope-self-test.XXXXXX") || exit 1
load_pids=
load_timer_pid=
load_leave() {
    trap - EXIT
    trap '' INT TERM HUP
    # shellcheck disable=SC2086
    [ -z "$load_pids" ] || kill -s KILL $load_pids 2>/dev/null
    [ -z "$load_timer_pid" ] || kill -s TERM "$load_timer_pid" 2>/dev/null
    rm -rf "$load_folder"
    exit "$1"
}
trap 'load_leave 1' EXIT INT TERM HUP

load_nap=0.2
sleep 0.01 2>/dev/null || load_nap=1

# ------------------------------------------------------------------ what the kernel counts

# "0-2,5" or "0, 1, 2, 5" -> "0 1 2 5"
load_list() {
    tr ',' ' ' | awk '{ for (i = 1; i <= NF; i++) {
        n = split($i, part, "-")
        for (cpu = part[1]; cpu <= part[n] + 0; cpu++) printf "%s%d", (any++ ? " " : ""), cpu } }'
}

load_cpus() {
    case $load_os in
    Linux) sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status ;;
    *) cpuset -g 2>/dev/null | sed -n '1s/.*mask: *//p' ;;
    esac | load_list
}

load_ticks() {
    case $load_os in
    Linux) getconf CLK_TCK 2>/dev/null || echo 100 ;;
    *) sysctl -n kern.clockrate | tr '{},' '   ' |
        awk '{ for (i = 1; i < NF; i++) if ($i == "stathz") print $(i + 2) }' ;;
    esac
}

# Voluntary and involuntary switches and ns of CPU time of a process with one thread.
load_counts() {
    case $load_os in
    Linux)
        load_ns=-
        [ ! -r "/proc/$1/schedstat" ] || read -r load_ns _ <"/proc/$1/schedstat"
        awk -v ns="${load_ns:--}" '/^voluntary_ctxt/ { v = $2 } /^nonvoluntary_ctxt/ { i = $2 }
            END { print (v == "" ? "-" : v), (i == "" ? "-" : i), ns }' "/proc/$1/status"
        ;;
    *)
        procstat -h -r "$1" 2>/dev/null | awk '
            function ns(clock,    part) {
                split(clock, part, ":")
                return ((part[1] * 60 + part[2]) * 60 + part[3]) * 1000000000
            }
            / user time / || / system time / { time += ns($NF); timed = 1 }
            / voluntary context switches / { v = $NF }
            / involuntary context switches / { i = $NF }
            END { printf "%s %s ", (v == "" ? "-" : v), (i == "" ? "-" : i)
                if (timed) printf "%.0f\n", time; else print "-" }'
        ;;
    esac
}

# One process that reads all counts of the host and ends.
load_mark() {
    case $load_os in
    Linux)
        awk '/^cpu[0-9]/ { print "cpu", substr($1, 4), $2, $3, $4, $5, $6, $7, $8, $9 }
            /^ctxt / { print "switches", $2 }
            /^processes / { print "forks", $2 }' /proc/stat >"$load_folder/mark.$1" &
        ;;
    *) sysctl kern.cp_times vm.stats.sys.v_swtch >"$load_folder/mark.$1" 2>/dev/null & ;;
    esac
    load_marker=$!
    wait "$load_marker"
    echo "mark $1 $load_marker"
    # kern.cp_times: user nice sys intr idle of CPU 0, of CPU 1, ...
    awk -v when="$1" '
        /^kern.cp_times/ { for (i = 2; i + 4 <= NF; i += 5)
            print "stat", when, "cpu", (i - 2) / 5, $i, $(i + 1), $(i + 2), $(i + 4), 0, $(i + 3); next }
        /^vm.stats.sys.v_swtch/ { print "stat", when, "switches", $2; next }
        { print "stat", when, $0 }' "$load_folder/mark.$1"
}

# ------------------------------------------------------------------ the roles

load_bind() {
    case $load_os in
    Linux) taskset -c "$@" ;;
    *) cpuset -l "$@" ;;
    esac
}

load_move() {
    case $load_os in
    Linux) taskset -cp "$1" "$2" ;;
    *) cpuset -l "$1" -p "$2" ;;
    esac >/dev/null 2>&1
}

# Only this program may hold the writing ends of go and end: a role that it can no longer
# release must see them close.  ROLE and the command that becomes it.
load_role() {
    load_name=$1
    shift
    (exec 3>&- 4>&- && cd "$load_folder" && exec "$@") &
    load_pids="$load_pids $!"
    eval "load_pid_$load_name=$!"
    load_roles="$load_roles $load_name"
}

# Each says its name ($0) when it begins its work and when it has done it.
load_busy='read -r _ <go; run=1; trap "run=" TERM; echo "$0" >&7
    while [ -n "$run" ]; do n=$((${n:-0} + 1)); done; echo "$0" >&7; read -r _ <end'
load_ping='read -r _ <go; echo "$0" >&7; n=0
    while [ "$n" -lt "$1" ]; do echo >&5; read -r _ <&6; n=$((n + 1)); done; echo "$0" >&7; read -r _ <end'
load_pong='read -r _ <go; echo "$0" >&7; n=0
    while [ "$n" -lt "$1" ]; do read -r _ <&5; echo >&6; n=$((n + 1)); done; echo "$0" >&7; read -r _ <end'

# As many answers as there are roles, or those that come in time.
load_gather() {
    for load_name in $load_roles; do
        read -r load_answer <&7
        [ "$load_answer" != late ] || load_give_up
        load_answers="$load_answers $load_answer "
    done
}

# A role that has died, or that the machine is too slow for, has not answered twice.
load_give_up() {
    load_missing=
    for load_name in $load_roles; do
        case $load_answers in *" $load_name "*" $load_name "*) ;; *) load_missing="$load_missing $load_name" ;; esac
    done
    echo "self-test-load: not done after $load_limit s:$load_missing" >&2
    load_leave 1
}

# Write an answer to wake the reader that waits for one.  Sleep in short steps, so that no sleep
# outlives this for long.
load_timer() {
    trap - EXIT INT TERM HUP
    load_elapsed=0
    while [ "$load_elapsed" -lt "$load_limit" ]; do
        sleep 1
        load_elapsed=$((load_elapsed + 1))
    done
    echo late >&7
}

load_release() {
    for load_name in $load_roles; do echo; done >&"$1"
}

load_all_counts() {
    for load_name in $load_roles; do
        eval "load_pid=\$load_pid_$load_name"
        echo "$1 $load_name $(load_counts "$load_pid")"
    done
}

cd "$load_folder" || exit 1
mkfifo go end to from ready || exit 1
exec 3<>go 4<>end 5<>to 6<>from 7<>ready
load_timer >/dev/null 2>&1 &
load_timer_pid=$!
load_roles=
load_answers=
load_allowed=$(load_cpus)
# shellcheck disable=SC2086
set -- $load_allowed
load_first=${1:-} load_last=
for load_last; do :; done
load_bound=$load_last
[ -n "$load_bound" ] && load_bind "$load_bound" true 2>/dev/null || load_bound=
if [ -n "$load_bound" ]; then
    # Every CPU has something to do once.
    for load_cpu; do load_bind "$load_cpu" true 2>/dev/null; done
    load_role hog sh -c "$load_busy" hog
    # shellcheck disable=SC2154
    load_move "$load_bound" "$load_pid_hog"
    # Not `nice`, which busybox may lack.
    if sh -c 'renice -n 10 -p $$' >/dev/null 2>&1; then
        load_role nice sh -c "$load_busy" nice
        # shellcheck disable=SC2154
        renice -n 10 -p "$load_pid_nice" >/dev/null 2>&1
        load_move "$load_bound" "$load_pid_nice"
    fi
    [ "$load_first" = "$load_last" ] || load_role mover sh -c "$load_busy" mover
else
    load_role hog sh -c "$load_busy" hog
fi
load_role ping sh -c "$load_ping" ping "$load_turns"
load_role pong sh -c "$load_pong" pong "$load_turns"
sleep 1

echo "os $load_os"
echo "ticks $(load_ticks)"
echo "cpus $load_allowed"
echo "window $load_seconds"
[ -z "$load_bound" ] || echo "bound $load_bound"
for load_name in $load_roles; do
    eval "echo \"process $load_name \$load_pid_$load_name\""
done
load_all_counts begin
load_mark begin

# ------------------------------------------------------------------ the load

load_release 3
load_gather
sleep 2 &
echo "process sleeper $!"
echo "sleeps 2"
load_moves=0
load_turn=0
case $load_nap in 1) load_naps=$load_seconds ;; *) load_naps=$((load_seconds * 5)) ;; esac
while [ "$load_turn" -lt "$load_naps" ]; do
    # Each a process of its own.
    sleep "$load_nap"
    load_turn=$((load_turn + 1))
    if [ -n "${load_pid_mover:-}" ]; then
        load_to=$load_first
        [ $((load_turn % 2)) = 0 ] || load_to=$load_last
        ! load_move "$load_to" "$load_pid_mover" || load_moves=$((load_moves + 1))
    fi
done
for load_name in hog nice mover; do
    eval "load_pid=\${load_pid_$load_name:-}"
    [ -z "$load_pid" ] || kill -s TERM "$load_pid"
done
load_gather
# Until the last of them stands at its pipe.
sleep 1
load_mark end
load_all_counts end
echo "moves $load_moves"
echo "turns $load_turns"
echo "naps $load_naps"
echo whole
load_release 4
# shellcheck disable=SC2086
wait $load_pids
load_pids=
load_leave 0
