# DTrace's timestamp counts from the start of the TSC, not from boot, and nothing but DTrace
# reads it: the recorder takes the clock pairs from its own first and last line.
# shellcheck shell=sh disable=SC2034
host_clock() { clock_ns=; }
