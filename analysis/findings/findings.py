"""What is wrong, worst first?

Starvation, avoidable idle time, masks, weights, real-time threads, quotas, interrupts,
locks, priority inversion, migrations that did not help, and what is missing from the
trace: each with its cost in thread or CPU time, the command that shows its table, the
command that opens the viewer where it is worst, what to try, and, if there is one, the
command that tests that in simulation. `schedscope report` shows the same on a page, with
figures.

With a selection, findings and their costs are about what affected the selected threads;
the threads that they waited behind may be any. Findings about the machine or the
recording follow, and are marked as such. The commands below a finding about threads have
the same selection.

Exit code: 0; 1 if the trace cannot be read; 2 for a wrong option; with --fail-on LEVEL 3
if a finding is of that level or worse (violated, then warning, then note), whether or not
--top leaves it out, so that a CI job can stop at it.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.by import check_where
from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.occupancy import reading_once
from schedscope.analysis.cpus.offline import offline, online_cpus
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import ADVICE, MACHINE, VERSION_1, Finding
from schedscope.analysis.findings.rules import found
from schedscope.analysis.shares.group_weights import GroupWeights
from schedscope.analysis.threads.of_threads import chosen_threads

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

SCHEMA = {
    "topic": pl.String,
    "level": pl.String,
    "cost": pl.Int64,
    "cost_high": pl.Int64,
    "cost_frac": pl.Float64,
    "text": pl.String,
    "command": pl.String,
    "advice": pl.String,
    "whatif": pl.String,
    "ts": pl.Int64,
    "dur": pl.Int64,
    "utid": pl.UInt32,
    "cpu": pl.UInt16,
    "about": pl.String,
}
LEVELS = ("violated", "warning", "note", "context")
"""From the worst on."""

WARN = 0.05
"""From this share on it is a warning."""


COMMAND = Command(
    heading="inspect the recording",
    help="what is wrong, worst first, with the evidence",
    example="""\
  schedscope findings web.capture
  schedscope findings web.capture --service nginx.service
  schedscope findings web.capture --threshold 20ms --format json
  schedscope findings web.capture --service web.service --fail-on warning || exit
""",
    page="docs/findings.md",
)


@needs("switches")
def findings(
    trace: Trace, *, threshold: str | int = "100ms", where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per problem found in this trace, worst first.

    * `topic`: trigger (why a flight recorder took this snapshot, and whether it shows that);
      scheduler exit (a scheduler of sched_ext ended or began meanwhile); watchdog (threads waited
      for half of its limit); late dispatch (waits in dispatch queues while a CPU idled);
      starvation; avoidable idle time (CPUs idled while threads waited); mask (a CPU idled
      while threads waited whose mask allows only one other CPU); crowding (threads with one allowed
      CPU, behind threads that run elsewhere, too); weight (behind threads of larger weight, by nice
      level or control group); fairness (furthest behind); migration (moved, then waited anyway);
      wakeup migration (woken onto another core again and again); ping-pong; affinity (ran outside
      the recorded mask); isolation (ran on an isolated CPU); quota (threads held back by the CPU
      quota of their control group); interrupts (one CPU handles most); priority inversion (a
      real-time thread slept until a thread woke it that had been kept off its CPU); steal (the
      hypervisor took CPU time); recorder (its own CPU time); data quality (what the trace does not
      show); sums (the trace contradicts itself); overload (too few CPUs for the load); lock convoy
      (threads queued for a mutex; where locks or system calls were recorded); disk (a thread slept
      for a disk for a tenth of the window; where requests to disks were recorded);
    * `level`: `violated` for sums; `warning` from 5 % of the machine's time on, and for missing
      events; `context` for overload, which explains other findings and is not a fault of the
      scheduler; else `note`. Fairness is always a `note`, because no trace shows all of it, and so
      is disk;
    * `cost`: thread or CPU time that the finding concerns, at least, and `cost_high` at most, ns;
      `cost_frac`: the former relative to the window times the number of CPUs. Many threads can
      wait at once, so it may exceed 1;
    * `text`: a sentence with numbers; `command`: the command that shows its table (append the
      input); `advice`: what to try; `whatif`: the command that tests the advice in simulation, null
      where there is none;
    * `ts`, `dur`: start and length of the worst case, if there is a single one; `utid`, `cpu`: the
      thread and the CPU that are affected most, null where there is none or it is not known;
    * `about`: `machine` for trigger, scheduler exit, sums, data quality, recorder, steal,
      interrupts and overload, else `threads`.

    `where`: which threads count as affected, an expression over columns of the threads. The rows
    about threads, and their costs, are then of those threads alone, and come before the rows about
    the machine, which stay as they are. The level of a finding about threads, and whether it makes
    a row, are then judged by the time of as many CPUs as threads were selected, at most all.

    A scheduler's exit and a snapshot's trigger come first. Then in order of level and of cost: sums
    that do not add up come before others, because then nothing else can be believed. A cost below 1
    % makes no row (0.1 % for a wakeup migration). Waits of `threshold` or longer count as
    starvation. Topics overlap: a thread that starves while a CPU idles is in both, so costs do not
    add up. Definition:
    docs/report.md.
    """
    capacity = trace.duration * trace.ncpu - int(offline(trace)["dur"].sum())
    check_where(where, ("utid",))
    affected, room = None, capacity
    if where is not None:
        affected = chosen_threads(trace, where)
        room = trace.duration * max(min(len(online_cpus(trace)), len(affected)), 1)
    with reading_once(trace):
        facts = Facts(trace, threshold, affected)
        wrong = list(found(facts)) if capacity else []
    rows = [row for row in (_row(finding, capacity, room) for finding in wrong) if row is not None]
    if GroupWeights(trace).version_1:
        for row, (name, old) in product(rows, VERSION_1.items()):
            row["advice"] = row["advice"].replace(name, old)
    rows.sort(key=lambda row: (LEVELS.index(row["level"]), -row["cost"]))
    if where is not None:
        rows.sort(key=lambda row: row["about"] == "machine" and row["level"] != "violated")
    first = ("scheduler exit", "trigger")
    rows.sort(key=lambda row: first.index(row["topic"]) if row["topic"] in first else len(first))
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(finding: Finding, capacity: int, room: int) -> dict[str, Any] | None:
    """`capacity`: the machine's time; `room`: that which the threads asked about could use."""
    about = "machine" if finding.topic in MACHINE else "threads"
    share = finding.cost / (capacity if about == "machine" else room)
    if share < finding.worth and finding.level != "violated" and not finding.always:
        return None
    level = finding.level or ("warning" if share >= WARN or finding.always else "note")
    return {
        "topic": finding.topic,
        "level": "context" if finding.context else level,
        "cost": finding.cost,
        "cost_high": max(finding.cost, finding.cost_high),
        "cost_frac": finding.cost / capacity,
        "text": finding.text,
        "command": finding.command,
        "advice": finding.advice or ADVICE[finding.topic],
        "whatif": finding.whatif and f"whatif {finding.whatif}",
        "ts": finding.ts,
        "dur": finding.dur,
        "utid": finding.utid,
        "cpu": finding.cpu,
        "about": about,
    }
