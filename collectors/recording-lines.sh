# A recording as short lines, whatever recorder made it, for the self-test's judge: what sh and
# awk can read of it on the host itself, by other code than schedscope's.
#   S TS SEQ CPU PREV NEXT HOW SLEEPS COUNT PREV_PID NEXT_PID   a switch; HOW is V (voluntary) or
#                          I, SLEEPS is 1 if PREV does not want the CPU any more, COUNT is the
#                          number of switches of PREV by the kernel's count, or -
#   W TS SEQ CPU TID       decided to wake          E TS SEQ CPU TID NEW   put on a queue
#   X TS SEQ CPU TID PID   exits                    M TS SEQ CPU TID       sent to another CPU
#   P TS SEQ CPU TID       about to be preempted; 0: was preempted and chosen again
#   Y TS SEQ CPU TID COUNT gave way COUNT times since its last switch and was chosen again
#   K TS SEQ CPU LETTER    any other event      T 0 0 - TID   wakeups of TID are not recorded
# TS is in ns, as far as the numbers of awk hold it: beyond 104 days it is off by a few.  SEQ keeps
# a CPU's order where times are equal.  0 is the idle thread of every CPU.
# shellcheck shell=sh disable=SC2034

# The grammar of lines.md, of both systems.
lines_dtrace() {
    # shellcheck disable=SC2016
    awk '
        BEGIN { OFMT = CONVFMT = "%.0f" }
        $1 == "#sched" { linux = $3 == "linux"; base = $4 + 0; version = $2; next }
        version != 2 || $1 !~ /^[A-Z]$/ || NF < 3 { next }
        { ts = base + $2; cpu = $3 }
        $1 == "N" { process[$4] = $5; if ($7 % 2) idle[$4] = 1; next }
        $1 == "S" {
            prev = (linux || $6 % 10 != 2) ? $4 : 0
            next_ = $8 < 1000 ? $7 : 0
            if (linux) { sleeps = $6 >= 10 && $6 % 10 != 1; how = sleeps ? "V" : "I" }
            else {
                # One that gives way and is chosen again has no line, but it is counted: those times
                # are what the count grew by, less this switch and those after a preemption. A tid
                # may be given to another process.
                sleeps = $6 % 10 == 1
                how = int($6 / 10) % 10 ? "I" : "V"
                if (how == "I") print "P", ts, NR, cpu, prev
                unseen = (prev in counted) && of[prev] == process[prev] ? $9 - counted[prev] - 1 - remained[prev] : 0
                if (prev && unseen > 0) print "Y", ts, NR, cpu, prev, unseen
                counted[prev] = $9
                of[prev] = process[prev]
                delete remained[prev]
                current[cpu] = next_
            }
            print "S", ts, NR, cpu, prev, next_, how, sleeps + 0, (linux && prev ? $9 : "-"), (prev ? process[prev] + 0 : 0), (next_ ? process[next_] + 0 : 0)
            next
        }
        $1 == "W" { print "W", ts, NR, cpu, linux ? $5 : $4; next }
        $1 == "E" { print "E", ts, NR, cpu, $5, $7 % 2; next }
        $1 == "M" { print "M", ts, NR, cpu, $4; next }
        $1 == "X" { left[cpu] = $4; left_pid[cpu] = $5; process[$4] = $5; print "X", ts, NR, cpu, $4, $5; next }
        # The switch of an exit has no line of its own on FreeBSD.
        $1 == "R" {
            next_ = $5 < 1000 ? $4 : 0
            print "S", ts, NR, cpu, left[cpu], next_, "V", 1, "-", left_pid[cpu], (next_ ? process[next_] + 0 : 0)
            current[cpu] = next_
            next
        }
        $1 == "P" { remained[current[cpu]]++; print "P", ts, NR, cpu, 0; next }
        { print "K", ts, NR, cpu, $1 }' "$1/events.txt"
}
