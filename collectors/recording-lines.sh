# A recording as short lines, whatever recorder made it, for the self-test's judge: what sh and
# awk can read of it on the host itself, by other code than schedscope's.
#   S TS SEQ CPU PREV NEXT HOW SLEEPS COUNT PREV_PID NEXT_PID   a switch; HOW is V (voluntary) or
#                          I, SLEEPS is 1 if PREV does not want the CPU any more, COUNT is the
#                          number of switches of PREV by the kernel's count, or -
#   W TS SEQ CPU TID       decided to wake          E TS SEQ CPU TID NEW   put on a queue
#   X TS SEQ CPU TID PID   exits                    M TS SEQ CPU TID       sent to another CPU
#   P TS SEQ CPU TID       about to be preempted; 0: was chosen again
#   Y TS SEQ CPU TID COUNT gave way COUNT times since its last switch and was chosen again
#   K TS SEQ CPU LETTER    any other event      T 0 0 - TID   wakeups of TID are not recorded
# TS is in ns, as far as the numbers of awk hold it: beyond 104 days it is off by a few.  SEQ keeps
# a CPU's order where times are equal.  0 is the idle thread of every CPU.
# shellcheck shell=sh disable=SC2034

# The grammar of ../docs/dtrace-grammar.md, of both systems.
lines_dtrace() {
    # shellcheck disable=SC2016
    awk -F '\t' '
        BEGIN { OFMT = CONVFMT = "%.0f" }
        $1 == "#sched" { linux = $3 == "linux"; next }
        $1 !~ /^[A-Z]$/ || NF < 4 { next }
        { ts = $2 + 0; cpu = $3 }
        $1 == "S" {
            prev = $10 % 2 ? 0 : $5
            next_ = $17 % 2 ? 0 : $13
            if (linux) { sleeps = $4 != 1 && $8 != "0"; how = sleeps ? "V" : "I" }
            else {
                # A thread that is preempted has its P just before. One that gives way and is chosen
                # again has no line, but it is counted: those times are what the count grew by, less
                # this switch. A tid may be given to another process.
                sleeps = $8 == 1
                how = !sleeps && preempted[cpu] == $5 ? "I" : "V"
                unseen = (prev in counted) && process[prev] == $6 ? $11 - counted[prev] - (how == "V") : 0
                if (prev && unseen > 0) print "Y", ts, NR, cpu, prev, unseen
                counted[prev] = $11
                process[prev] = $6
                delete preempted[cpu]
            }
            print "S", ts, NR, cpu, prev, next_, how, sleeps + 0, (linux && prev ? $11 + $12 : "-"), (prev ? $6 : 0), (next_ ? $14 : 0)
            next
        }
        $1 == "W" { print "W", ts, NR, cpu, $6; next }
        $1 == "E" { print "E", ts, NR, cpu, $6, ($10 == -1); next }
        $1 == "M" { print "M", ts, NR, cpu, $5; next }
        $1 == "X" { left[cpu] = $4; left_pid[cpu] = $5; print "X", ts, NR, cpu, $4, $5; next }
        # The switch of an exit has no line of its own on FreeBSD.
        $1 == "R" {
            print "S", ts, NR, cpu, left[cpu], ($8 % 2 ? 0 : $4), "V", 1, "-", left_pid[cpu], ($8 % 2 ? 0 : $5)
            next
        }
        $1 == "P" { preempted[cpu] = $4; print "P", ts, NR, cpu, $4; next }
        { print "K", ts, NR, cpu, $1 }' "$1/events.txt"
}
