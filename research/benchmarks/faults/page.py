"""The campaign's results as a page of tables."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from typing import Any

from faults.words import length

Result = dict[str, Any]


def wrong(result: Result) -> int:
    """Wrong facts and figures given as measured in one damaged input."""
    if result["refused"]:
        return 0
    if result["crashed"]:
        return 1
    waits = int(result["wrong_waits"]) + int(result["wrong_bounds"])
    figures = len(result["wrong_figures"])
    return waits + bool(result["wrong_state_time"]) + figures


def by_kind(results: list[Result]) -> dict[str, list[Result]]:
    """The results of each kind, in the order of kinds."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        found[result["kind"]].append(result)
    return dict(found)


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{part / whole:.{digits}%}" if whole else "-"


def row(kind: str, results: list[Result]) -> list[str]:
    """One line of the table."""
    read = [r for r in results if not r["refused"] and not r["crashed"]]

    def total(name: str) -> int:
        return sum(int(r[name]) for r in read)

    right = total("measured_waits") - total("wrong_waits") - total("doubted_waits")
    wrong_figures = sum(len(r["wrong_figures"]) for r in read)
    state_time = total("true_state_time")
    silent = sum(r["trusted"] and wrong(r) > 0 for r in read)
    longest = max((r["longest_wrong_wait"] for r in read), default=0)
    return [
        kind,
        str(len(results)),
        str(sum(bool(r["refused"]) for r in results)),
        str(sum(bool(r["crashed"]) for r in results)),
        f"**{sum(map(wrong, results)):,}**",
        f"{total('wrong_waits'):,}",
        length(longest) if longest else "-",
        f"{total('wrong_bounds'):,}",
        _share(total("wrong_state_time"), state_time, 3),
        str(wrong_figures),
        f"{total('doubted_waits'):,} / {total('doubted_figures')}",
        f"{total('bound_figures')} / {total('flagged_figures')}",
        str(silent),
        _share(right, total("true_waits")),
        _share(total("right_wait_time"), total("true_wait_time")),
        _share(total("right_state_time"), state_time),
    ]


HEADINGS = (
    "damage",
    "inputs",
    "refused",
    "crashed",
    "wrong, given as measured",
    "wrong waits",
    "longest wrong wait",
    "wrong lower bounds",
    "state time wrong",
    "wrong figures",
    "waits / figures within the stated doubt of clocks",
    "figures bounded / flagged",
    "inputs with something wrong and no new warning",
    "true waits still measured",
    "their time",
    "state time still known",
)


def table(headings: tuple[str, ...], rows: list[list[str]]) -> str:
    """A Markdown table; everything but the first column to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "--:|" * (len(headings) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def by_damage(results: list[Result]) -> str:
    """The table: a line for each kind, and one for all."""
    rows = [row(kind, found) for kind, found in by_kind(results).items()]
    return table(HEADINGS, [*rows, row("**all**", results)])


def common_failures(results: list[Result]) -> str:
    """Per kind: which figures were wrong, how often."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for result in results:
        for name in result.get("wrong_figures") or []:
            counts[result["kind"]][name] += 1
    rows = [
        [kind, ", ".join(f"{name} ({n})" for name, n in sorted(names.items(), key=lambda i: -i[1]))]
        for kind, names in counts.items()
    ]
    return table(("damage", "wrong figures (inputs)"), rows) if rows else "None."


_LABORATORY = """
## Other kernels, architectures and settings

The same damage, drawn once for each of the other {captures} recordings of `fixtures/lab` whose
truth is known: Linux 5.10 to 7.2, x86_64, arm64, ppc64el and riscv64, 1 to 8 CPUs, all modes
of preemption, NUMA, SMT, hot-plug, quotas, a flight recorder. Clocks that differ and CPUs that go
offline need two CPUs; what a flight recorder's ring overwrote is not in the kernel's counts.
"""

_INTRO = """\
# Damaged captures: what is still right

Captures whose truth is known are damaged in {kinds} ways, and everything that schedscope gives as
*measured* is compared with the truth. `python research/benchmarks/faults.py` makes this page. The
numbers are of {date}, commit {commit}, {host}, with

    {command}

{captures}

**The truth** is taken from the undamaged records by a separate state machine
(`research/benchmarks/faults/truth.py`), for the longest stretch of each capture in which nothing is
missing.

**Wrong, given as measured** is the sum of

* wrong waits: rows of `waits` with `censored` = `none` that no true wait equals: same thread, same
  instant of running and same length, within 1 us each;
* wrong lower bounds: right-censored rows of `waits` that are longer than the thread then waited
  (where clocks were moved, than it ever waited);
* inputs with wrong states: a known state (running, runnable, sleeping, ...) at an instant at which
  the thread was in another one. The table shows the share of the threads' time. Where clocks were
  moved, only running time is compared, on the clock of its CPU;
* wrong figures: totals, maxima, quantiles and counts of latency, starvation, work conservation,
  off CPU, migrations, queue depth, efficiency, run lengths and wakers. A figure is right within
  0.1 % of that of the undamaged capture. It is *bounded* if the headline says that more is missing
  and a part of the truth can give this figure, *flagged* if `schedscope check` warns of something
  new, or of more cases. Otherwise it is wrong;
* crashes: neither an answer nor a one-sentence error.

**Within the stated doubt of clocks** are times that are off by no more than `schedscope check` says
of that very input that clocks may differ unnoticed ("clocks that differ by up to 13.0 us, or by
more for up to 799 ms, would not show"); a sum may be off by the first for each wait in it, a count
by the sleeps that are shorter. More than that is excused only in the last stretch of the second
length, and only if no clock was off by more before it.

*Unmarked* means that nothing shows the damage: sub-buffers have no mark, and the kernel's counts
are made to agree with what is left, which no recorder of schedscope does. It stands for formats
that count nothing, such as text.

The goal is 0, with as much as possible still measured and known. What remains above 0 comes from
damage that leaves no trace in the file, or too little:

* a hole that is neither marked nor counted, with the same thread running at both ends, so that the
  switches around it match; or, of a CPU that goes idle too often for a few of its switches to tell
  (rule *Leaking* of the trace model), two switches dropped together;
* a CPU that falls silent and is handed no thread until the end of the recording;
* a bit flipped in a time stamp, a CPU number or a thread id, if the result is possible and the
  file has no checksum, as `trace.dat` and captures of earlier collectors. Noticed, and the file
  refused, are time stamps more than 1 ms out of the order of sub-buffers, thread ids and states
  that no kernel writes, and switches away from another thread than the one that was running;
* clocks that step or drift by more than that doubt, but in a stretch in which no thread is woken
  across CPUs fast enough to show it;
* two recordings of one kernel mixed, with their times shifted to match and all counts made to
  agree, where one CPU's threads have little to do with the other's: `check` warns of missing
  wakeups, but a few waits that begin in one and end in the other are given.

`check` names the limits in its verdict: what counted lost events, if anything did; how far clocks
may differ unnoticed; and for how long by more.
"""


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def page(
    results: list[Result],
    laboratory: list[Result],
    captures: list[str],
    command: str,
    date: str,
    host: str,
    peers: str,
) -> str:
    """The whole page; `laboratory`: results of the other captures."""
    kinds = by_kind(results)
    listed = "\n".join(f"* {line}" for line in captures)
    intro = _INTRO.format(
        commit=_commit(),
        kinds=len(kinds),
        date=date,
        host=host,
        command=command,
        captures=listed,
    )
    parts = [
        intro,
        "## Every kind of damage\n",
        by_damage(results),
        "\n## Which figures were wrong\n",
        common_failures(results),
    ]
    if laboratory:
        others = len({result["capture"] for result in laboratory})
        parts += [_LABORATORY.format(captures=others), by_damage(laboratory)]
    parts += [
        "\n## What other tools say of the same inputs\n",
        peers,
    ]
    return "\n".join(parts).rstrip() + "\n"
