"""Notes beside an answer of `whatif`: why it is refused, what was not recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schedscope.analysis.asking.needs import has
from schedscope.analysis.asking.policies import version_of
from schedscope.simulator.changes.ranges import ENOUGH
from schedscope.simulator.changes.verdicts import BOUND, BRIEF, FAMILY, NARROW, REFUSED, WAITS_FOR
from schedscope.simulator.changes.wait_causes import QUOTA, THREADS
from schedscope.simulator.closeness.spread import ALIKE
from schedscope.simulator.recorded.scheduler import recorded_policy
from schedscope.simulator.runs.replay import replay
from schedscope.store.trace import Trace
from schedscope.units import duration, percent, several


def whatif_notes(trace: Trace | Sequence[Trace], frame: pl.DataFrame) -> list[str]:
    """Sentences: which answers or figures are refused, and what the recording does not show."""
    by = frame.columns[0]
    last = frame.filter(pl.col("configuration") == "changed")
    notes = []
    for verdict, bound in (("refused", REFUSED), ("doubtful", BOUND)):
        rows = last.filter(pl.col("verdict") == verdict)
        off = rows.filter(pl.col("replay_error") > bound)
        if off.height:
            notes.append(
                f"{verdict}, because the replay of the recorded configuration is off by more than"
                f" {bound:g}x: {_with(off, by, 'replay_error')}"
            )
        for row in rows.filter(pl.col("cause_error") > bound).to_dicts():
            notes.append(
                f"{verdict}, because {_CAUSES[row['cause']]} make up"
                f" {percent(row['cause_recorded'])} of the waiting in the recording and"
                f" {percent(row['cause_replayed'])} in its replay: {row[by]!r}"
            )
        unclear = rows.filter(pl.col("cause").is_not_null() & pl.col("cause_error").is_null())
        if unclear.height and verdict == "doubtful":
            notes.append(
                "doubtful, because the recording does not show when the quota held threads back"
                f" (the ftrace recorder does): {_some([repr(s) for s in unclear[by]])}"
            )
        more = rows.filter(pl.col("crowd") > bound)
        if more.height:
            notes.append(
                f"{verdict}, because more threads are alive at once than ever in the recording,"
                f" which does not show what limited them: {_some([repr(s) for s in more[by]])}"
            )
    if (last["model"] == FAMILY).any():
        notes.append(
            "doubtful, because the replay of the recorded configuration says how good the model of"
            " the recorded scheduler is, and nothing of another one"
        )
    told = last.filter(pl.col("verdict") != "refused")
    tail = []
    tails = told.filter(pl.col("p99_error") > BOUND)
    if tails.height:
        tail.append(
            "of the replay of the recorded configuration, the 99th percentile of waits is off by"
            f" more than {BOUND:g}x: {_with(tails, by, 'p99_error')}"
        )
    for key, what in (("n_waits", "number of waits"), ("wait_p50", "median of waits")):
        rows = told.filter(pl.col(f"{key}_verdict") > "good", pl.col("replay_error") <= BOUND)
        if rows.height:
            tail.append(
                f"of the replay of the recorded configuration, the {what} is off by more than"
                f" {BOUND:g}x: {_some([repr(s) for s in rows[by]])}"
            )
    for text, rows in told.drop_nulls("unclear").group_by("unclear", maintain_order=True):
        notes.append(
            f"doubtful, because the recording does not show {text[0]}:"
            f" {_some([repr(s) for s in rows[by]])}"
        )
    rounds = told.drop_nulls("throughput_verdict")
    if rounds.height:
        tail.append(
            "no CPU time is predicted of what runs for a time and not for an amount of work, but"
            f" how often it goes round its loop: {_some([repr(s) for s in rounds[by]])}"
        )
    tail += _chance(told, by, 1 if isinstance(trace, Trace) else len(trace))
    tests = [_test(row, by) for row in last.drop_nulls("tested_on").to_dicts()]
    if not notes:
        most = max(last["replay_error"].to_list(), default=1.0)
        first = f"the replay of the recorded configuration is off by at most {most:.2f}x"
        return [first, *tests, *tail]
    traces = [trace] if isinstance(trace, Trace) else trace
    unseen = dict.fromkeys(text for one in traces for text in unrecorded(one))
    return [*notes, *tests, *tail, *(f"not in the recording: {text}" for text in unseen)]


_CAUSES = {QUOTA: "times in which the quota was used up", THREADS: "times in which others ran"}


def _test(row: Mapping[str, Any], by: str) -> str:
    """What the recording's own times without the cause show about the answer."""
    waits = f"{several(row['tested_on'], 'wait')} of {row[by]!r} at times without throttling"
    found = f"{duration(row['tested_mean'])} on average, p99 {duration(row['tested_p99'])}"
    worse = max(row["test_error"], row["test_p99_error"])
    if worse <= BOUND:
        return f"tested on {waits}: they took {found}, no more than predicted"
    which = "on average" if row["test_error"] > BOUND else "in the p99"
    off = row["test_error"] if row["test_error"] > BOUND else row["test_p99_error"]
    return f"refuted by {waits}: they took {found}, {off:.2g}x what is predicted {which}"


def _chance(told: pl.DataFrame, by: str, captures: int) -> list[str]:
    """Why figures are not good although the replay is: too few waits, or too wide a range."""
    found = []
    real = told.drop_nulls("others_share")
    least = WAITS_FOR["wait_p99"]
    few = real.filter(
        pl.col("n_waits").is_between(1, least - 1), pl.col("wait_p99_verdict") > "good"
    )
    if few.height:
        found.append(
            f"of fewer than {least} waits the 99th percentile is one of the longest, which is"
            f" chance: {_some([repr(s) for s in few[by]])}"
        )
    outside = max(real["others_share"].to_list(), default=0.0)
    if outside >= ALIKE:
        low, high = percent(outside - ALIKE), percent(min(1.0, outside + ALIKE))
        more = f", from {ENOUGH} captures on (--again) as they show it" * (captures < ENOUGH)
        found.append(
            f"ranges in brackets hold while others take {low} to {high} of the CPU time, as here;"
            f" whatever they take, {_whatever(real, by)} (columns *_low and *_high{more})"
        )
    elif outside:
        found.append(
            f"ranges hold while others take as little of the CPU time as here ({percent(outside)})"
        )
    wide = real.filter(
        pl.col("waiting_alike_high") > NARROW**2 * pl.col("waiting_alike_low").clip(BRIEF)
    )
    if wide.height:
        apart = "captures lie far apart" if captures >= ENOUGH else "one capture cannot say more"
        found.append(
            f"waiting is doubtful where its range reaches further than a factor of {NARROW:g} from"
            f" its middle: {apart}"
        )
    return found


def _whatever(real: pl.DataFrame, by: str) -> str:
    """The range of waiting of the service that waits longest, whatever others take."""
    row = real.row(0, named=True)
    low, high = (duration(row[f"waiting_{end}"]) for end in ("low", "high"))
    return f"{row[by]!r} waits {low} to {high}"


def _with(rows: pl.DataFrame, by: str, error: str) -> str:
    return _some([f"{name!r} ({x:.2g}x)" for name, x in rows.select(by, error).iter_rows()])


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{rest}"


def unrecorded(trace: Trace) -> list[str]:
    """What the recorded scheduler knew or did that a replay of this trace does not."""
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
