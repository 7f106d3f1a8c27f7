"""What is to be said beside an answer of `whatif`: why it is refused, what was not recorded."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from schedscope.analysis._base.needs import has
from schedscope.analysis._base.policies import version_of
from schedscope.simulator.recorded_scheduler import recorded_policy
from schedscope.simulator.replay import replay
from schedscope.simulator.whatif import BOUND, REFUSED
from schedscope.trace import Trace
from schedscope.units import percent, several


def whatif_notes(trace: Trace | Sequence[Trace], frame: pl.DataFrame) -> list[str]:
    """Sentences: for which services the answer is refused, and what the recording does not show."""
    by = frame.columns[0]
    last = frame.filter(pl.col("configuration") == "changed")
    notes = []
    for verdict, bound in (("refused", REFUSED), ("doubtful", BOUND)):
        rows = last.filter(pl.col("verdict") == verdict)
        off = rows.filter(pl.col("replay_error") > bound)
        more = rows.filter(pl.col("replay_error") <= bound)
        if off.height:
            named = [f"{s!r} ({x:.2g}x)" for s, x in off.select(by, "replay_error").iter_rows()]
            notes.append(
                f"{verdict}, because the replay of the recorded configuration is off by more than"
                f" {bound:g}x: {_some(named)}"
            )
        if more.height:
            notes.append(
                f"{verdict}, because more threads are alive at once than ever in the recording,"
                f" which does not show what limited them: {_some([repr(s) for s in more[by]])}"
            )
    tails = last.filter(pl.col("verdict") != "refused", pl.col("p99_error") > BOUND)
    tail = []
    if tails.height:
        named = [f"{s!r} ({x:.2g}x)" for s, x in tails.select(by, "p99_error").iter_rows()]
        tail.append(
            "of the replay of the recorded configuration, the 99th percentile of waits is off by"
            f" more than {BOUND:g}x: {_some(named)}"
        )
    if not notes:
        most = max(last["replay_error"].to_list(), default=1.0)
        return [f"the replay of the recorded configuration is off by at most {most:.2f}x", *tail]
    traces = [trace] if isinstance(trace, Trace) else trace
    unseen = dict.fromkeys(text for one in traces for text in unrecorded(one))
    return [*notes, *tail, *(f"not in the recording: {text}" for text in unseen)]


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{rest}"


def unrecorded(trace: Trace) -> list[str]:
    """What the recorded scheduler knew, or did, and a replay of this trace does not."""
    found = []
    simulated = trace.metadata("source", "format") == "simulation"
    linux = trace.info.get("os") == "Linux" and not simulated
    lost = trace.losses.filter(pl.col("reason").is_in(["overrun", "chain_break", "exit_hole"]))
    n = lost.select(pl.len()).collect().item()
    if n:
        found.append(f"lost events ({several(n, 'gap')} in the trace)")
    report = replay(trace).workload.info["extraction"]
    if linux and report["groups_lacking"]:
        found.insert(0, report["groups_lacking"])
    anyone = report["waits_for_anyone"] / max(
        1, report["wakes_by_threads"] + report["wakes_external"]
    )
    if anyone > 0.1 and not report["calls_recorded"]:
        found.append(
            f"messages whose reader was already awake ({percent(anyone)} of the wakeups are of"
            " threads that several others wake; `capture --with syscalls` records them)"
        )
    elif report["pipes_left_out"]:
        left = several(report["pipes_left_out"], "pipe or socket", "pipes or sockets")
        found.append(f"all that was written into {left}")
    of_threads = report["wakes_by_threads"] > report["wakes_external"]
    if linux and of_threads and not report["mutexes"] and not has(trace, "system_calls"):
        found.append(
            "who had which mutex, if the threads use any (`capture --with locks` records those that"
            " were waited for)"
        )
    unknown = report["wakes_unknown_waker"] + report["wakes_missing"]
    if unknown * 20 > report["wakes_by_threads"] + report["wakes_external"]:
        found.append(f"the waker of {several(unknown, 'wakeup')}")
    own = version_of(recorded_policy(trace))
    release = version_of(f"-{trace.info.get('release') or ''}")
    if linux and own and release[:2] > own[:2]:
        near = recorded_policy(trace)
        found.append(f"a model of its kernel ({trace.info['release']}): the nearest is {near}")
    return found
