# CLOCK_MONOTONIC in ns, without a process: the kernel's timer list says what it is now.
# shellcheck shell=sh disable=SC2034
host_clock() {
    clock_ns=
    [ -r /proc/timer_list ] || return 0
    while read -r host_1 host_2 host_3 _; do
        case "$host_1 $host_2" in "now at") clock_ns=$host_3 && return 0 ;; esac
        case $host_1 in cpu:) return 0 ;; esac
    done </proc/timer_list
}
