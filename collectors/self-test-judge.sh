# What must hold of a recording of the known load (self-test-load.sh): the kernel's account of it
# against the recording's, and the recording against itself.
# shellcheck shell=sh disable=SC2016

# judge_lines NAME ACCOUNT: short lines (recording-lines.sh), sorted by time, on stdin; a line
# "ok|FAILED <tab> check <tab> expected <tab> found" for each check, then "verdict ...".
judge_lines() {
    awk -v recorder="$1" '
        function told(good, check, expected, found) {
            printf "%s\t%s\t%s\t%s\n", (good ? "ok" : "FAILED"), check, expected, found
            checks++
            if (!good) failed++
        }
        function near(found, expected, part, floor,    off) {
            off = found - expected
            if (off < 0) off = -off
            return off <= expected * part + floor
        }
        function seconds(ns) { return sprintf("%.3f s", ns / 1e9) }

        BEGIN { begin = end = -1 }

        # ---------------------------------------------------------------- the account
        NR == FNR {
            if ($1 == "process") pid_of[$2] = $3
            else if ($1 == "begin" || $1 == "end") { v[$1, $2] = $3; i_[$1, $2] = $4; ns[$1, $2] = $5; if ($1 == "end") role[++roles] = $2 }
            else if ($1 == "mark") mark[$2] = $3
            else if ($1 == "stat" && $3 == "cpu") {
                all[$2, $4] = 0
                for (f = 5; f <= NF; f++) all[$2, $4] += $f
                idle[$2, $4] = $8 + $9
            }
            else if ($1 == "stat") count[$2, $3] = $4
            else account[$1] = $0
            next
        }

        # ---------------------------------------------------------------- the recording
        $1 == "T" { quiet[$5] = 1; next }
        { kinds[$1]++; ts = $2; cpu = $4; if (!(cpu in seen_cpu)) { seen_cpu[cpu] = 1; cpus[++ncpu] = cpu } }
        ts < last_ts { backwards++ }
        { last_ts = ts }
        inside { events[$1]++ }
        $1 == "X" { exited[$5] = 1 }
        $1 == "X" && $6 == mark["begin"] { open_window(); next }
        $1 == "X" && $6 == mark["end"] && inside { close_window(); next }
        $1 == "X" { next }
        $1 == "M" { if (inside) moved[$5]++; next }
        $1 == "W" || $1 == "E" {
            tid = $5
            if ($1 == "E" && $6) { if (inside) born++; delete asleep[tid] }
            if (tid in asleep) {
                length_ = ts - asleep[tid]
                if (length_ > longest[tid]) longest[tid] = length_
                delete asleep[tid]
            }
            else if (tid in on) pending[tid] = 1
            next
        }
        $1 == "P" {
            # The same thread was chosen again: the kernel counts a switch that did not happen.
            if ($5 == 0 && inside && (cpu in current)) { remained[current[cpu]]++; remains++ }
            next
        }
        # The kernel counts these, too.
        $1 == "Y" { if (inside) { voluntary[$5] += $6; remains += $6 }; next }
        $1 == "S" {
            prev = $5; next_ = $6
            if (inside) switches++
            if (prev != 0) { pid[prev] = $10; tid_of[$10] = prev }
            if (next_ != 0) { pid[next_] = $11; tid_of[$11] = next_ }
            if (cpu in current) {
                if (inside && current[cpu] != prev) broken(current[cpu], prev)
                spend(cpu)
            }
            else if (inside && !(cpu in known)) { current[cpu] = prev; since[cpu] = begin; spend(cpu) }
            known[cpu] = 1
            if (prev != 0) {
                if (inside) { if ($7 == "V") voluntary[prev]++; else involuntary[prev]++ }
                if ($9 != "-") {
                    if ((prev in counted)) {
                        if (inside && $9 != counted[prev] + 1 && pid_counted[prev] == $10) { skipped++; if (skips == "") skips = prev " from " counted[prev] " to " $9 }
                        steps++
                    }
                    counted[prev] = $9
                    pid_counted[prev] = $10
                }
                delete on[prev]
                delete asleep[prev]
                if ($8 == 1) { if (!(prev in pending)) asleep[prev] = ts }
                delete pending[prev]
                left[prev]++
            }
            if (next_ != 0) {
                if (inside && (next_ in on) && on[next_] != cpu && next_ in left) { twice++; if (twice_who == "") twice_who = next_ }
                if (next_ in asleep) { if (inside) { unwoken++; who[next_]++ } delete asleep[next_] }
                on[next_] = cpu
                if (inside) place[next_] = place[next_] (index(place[next_] " ", " " cpu " ") ? "" : " " cpu)
            }
            current[cpu] = next_
            since[cpu] = ts
            next
        }
        function broken(believed, found) {
            breaks[believed, found]++
            break_of[++nbreaks] = believed
            break_to[nbreaks] = found
        }
        # What the thread on a CPU ran until now, if the window is open.
        function spend(cpu,    from) {
            if (!inside) return
            from = since[cpu] < begin ? begin : since[cpu]
            if (current[cpu] == 0) free[cpu] += ts - from
            else { busy[cpu] += ts - from; ran[current[cpu]] += ts - from }
        }
        function open_window() { inside = 1; begin = ts }
        function close_window(    c) {
            end = ts
            for (c in current) { spend(c); since[c] = ts }
            inside = 0
        }

        # ---------------------------------------------------------------- what must hold
        END {
            if (begin < 0 || end < 0) {
                told(0, "the load is in the recording", "exits of processes " mark["begin"] " and " mark["end"], (begin < 0 ? "neither" : "only the first"))
                finish()
            }
            window = end - begin
            if (window <= 0) { told(0, "the window has a length", "some seconds", seconds(window)); finish() }
            fired = ""; missing = ""
            wanted = recorder == "dtrace" && account["os"] ~ /FreeBSD/ ? "S W E X P" : "S W E X"
            sub(/^[^ ]* /, "", account["moves"])
            n = split(wanted " " (account["os"] ~ /Linux/ && account["moves"] > 0 ? "M" : ""), letter, " ")
            for (f = 1; f <= n; f++) { fired = fired letter[f] " " events[letter[f]] + 0 " "; if (!events[letter[f]]) missing = missing " " letter[f] }
            told(missing == "", "every probe fired", "some of each", fired (missing == "" ? "" : "(none of" missing ")"))
            told(!backwards, "times do not run backwards", "0", backwards + 0)

            # A thread that is switched in, and of which neither a switch-out nor an exit is ever
            # seen, is hidden from every tracer by the kernel.
            hidden = 0
            for (f = 1; f <= nbreaks; f++) {
                tid = break_of[f]
                if (tid != 0 && !(tid in left) && !(tid in exited)) hidden++
                else if (tid == 0) { from_idle++; if (idle_first == "") idle_first = break_to[f] " found" }
                else { open_++; if (first == "") first = break_of[f] " believed, " break_to[f] " found" }
            }
            told(!open_, "prev/next chain unbroken", "0 breaks", open_ + 0 (first == "" ? "" : ", the first: " first) (hidden ? ", and " hidden " at threads the kernel never traces" : ""))
            told(!from_idle, "switches out of idle are all there", "0 missing", from_idle + 0 (from_idle ? ", the first: " idle_first : ""))
            if (steps) told(skipped <= hidden, "no switch of a thread is missing", "its count steps by 1", skipped + 0 " of " steps " steps do not" (skips == "" ? "" : ", the first: thread " skips))
            told(!twice, "no thread runs on two CPUs", "0 times", twice + 0 (twice ? ", the first: thread " twice_who : ""))
            known_unwoken = 0
            for (f in who) if (!(f in left) || f in quiet) known_unwoken += who[f]
            told(unwoken - known_unwoken <= hidden, "every sleeper is woken before it runs", "0 without a wakeup", unwoken - known_unwoken + 0 " of " events["S"] + 0)

            # Conservation.
            total = apart = 0
            for (f = 1; f <= ncpu; f++) if (cpus[f] in known) {
                off = window - busy[cpus[f]] - free[cpus[f]]
                if (off < 0) off = -off
                if (off > 1000 + ncpu) apart++
                total += busy[cpus[f]]
            }
            sum = 0
            for (f in ran) sum += ran[f]
            told(!apart, "each CPU: busy + idle = window", seconds(window), apart + 0 " CPUs off")
            told(near(sum, total, 0, 1000 + ncpu), "time of threads = time of CPUs", seconds(total), seconds(sum))

            # The kernel counts.
            here = there = 0; off_cpus = ""
            sub(/^[^ ]* /, "", account["ticks"])
            tick = 1e9 / (account["ticks"] + 0 ? account["ticks"] : 100)
            for (f in idle) {
                split(f, key, SUBSEP)
                if (key[1] != "end" || all["end", key[2]] == all["begin", key[2]]) continue
                there++
                c = key[2]
                kernel_all = all["end", c] - all["begin", c]
                kernel_busy = (1 - (idle["end", c] - idle["begin", c]) / kernel_all) * window
                if (near(busy[c], kernel_busy, 0, window * 0.05 + 3 * tick)) here++
                else off_cpus = off_cpus " CPU " c ": " seconds(busy[c]) " for " seconds(kernel_busy)
                shown = shown sprintf(" %.1f/%.1f%%", busy[c] / window * 100, kernel_busy / window * 100)
            }
            told(there > 0 && here == there, "busy time of CPUs = the kernel\047s", "within 5 % of the window", (off_cpus == "" ? there " CPUs" (there <= 4 ? ":" shown : "") : off_cpus))
            kernel = count["end", "switches"] - count["begin", "switches"]
            told(kernel > 0 && near(switches + hidden + remains, kernel, (account["os"] ~ /Linux/ ? 0.005 : 0.02), 100), "switches = the kernel\047s count", kernel, switches + remains (hidden ? " and " hidden " never traced" : ""))
            if (("end", "forks") in count) {
                kernel = count["end", "forks"] - count["begin", "forks"]
                told(near(born + 0, kernel, 0.02, 3), "new threads = the kernel\047s count", kernel, born + 0)
            }
            for (f = 1; f <= roles; f++) {
                name = role[f]
                tid = tid_of[pid_of[name]]
                if (v["end", name] != "-") {
                    told(tid != "" && voluntary[tid] + 0 == v["end", name] - v["begin", name], name ": voluntary switches", v["end", name] - v["begin", name], voluntary[tid] + 0)
                    told(tid != "" && involuntary[tid] + remained[tid] + 0 == i_["end", name] - i_["begin", name], name ": involuntary switches", i_["end", name] - i_["begin", name], involuntary[tid] + remained[tid] + 0)
                }
                if (ns["end", name] != "-") {
                    kernel = ns["end", name] - ns["begin", name]
                    told(near(ran[tid] + 0, kernel, 0.08, 5e6), name ": CPU time", seconds(kernel) " (8 %)", seconds(ran[tid]))
                }
            }

            # What the load did.
            tid = tid_of[pid_of["sleeper"]]
            sub(/^[^ ]* /, "", account["sleeps"])
            told(near(longest[tid], account["sleeps"] * 1e9 + 24e6, 0, 26e6), "sleeper sleeps as long as it asked", account["sleeps"] " s (+ 0.05 s)", seconds(longest[tid]))
            if ("bound" in account) {
                sub(/^[^ ]* /, "", account["bound"])
                niced = "nice" in pid_of
                where = place[tid_of[pid_of["hog"]]] (niced ? place[tid_of[pid_of["nice"]]] : "")
                # They were started elsewhere before they were bound.
                told(ran[tid_of[pid_of["hog"]]] > 0 && only(where, account["bound"]), "bound threads stay on their CPU", "CPU " account["bound"], "CPUs" where)
                if (niced) told(ran[tid_of[pid_of["hog"]]] > ran[tid_of[pid_of["nice"]]], "the nice one gets less", "less than " seconds(ran[tid_of[pid_of["hog"]]]), seconds(ran[tid_of[pid_of["nice"]]]))
            }
            if ("mover" in pid_of) {
                tid = tid_of[pid_of["mover"]]
                n = split(place[tid], part, " ")
                told(n > 1, "the mover is seen on its CPUs", "2 or more", n)
                if (account["os"] ~ /Linux/) told(moved[tid] + 0 >= 1, "its moves are recorded", "some of " account["moves"], moved[tid] + 0)
            }
            sub(/^[^ ]* /, "", account["turns"])
            told(voluntary[tid_of[pid_of["ping"]]] + voluntary[tid_of[pid_of["pong"]]] > 0, "ping and pong wait for each other", "up to " 2 * account["turns"], voluntary[tid_of[pid_of["ping"]]] + voluntary[tid_of[pid_of["pong"]]])
            finish()
        }
        function only(list, cpu,    part, n, f) {
            n = split(list, part, " ")
            for (f = 1; f <= n; f++) if (part[f] != cpu) return 0
            return n > 0
        }
        function finish() {
            printf "verdict\t%s\t%d\t%d\t%s\t%d\n", (failed ? "FAILED" : "ok"), failed + 0, checks, seconds(window), switches + 0
            exit
        }' "$2" -
}
