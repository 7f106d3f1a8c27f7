"""The lines above every result: which trace this is, and how good its data are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.units import several

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace


COMPLETE = "nothing is missing"


def headline(trace: Trace) -> list[str]:
    """Two lines: the recording, and what is missing from it."""
    info = trace.info
    host = " ".join(str(info[key]) for key in ("os", "release") if info.get(key))
    parts = [
        units.printable(trace.name),
        *([host] if host else []),
        f"{trace.ncpu} CPU{'s' * (trace.ncpu != 1)}",
        _window(trace),
        units.several(trace.events, "event"),
    ]
    return [" · ".join(parts), "data quality: " + "; ".join(gaps(trace) or [COMPLETE])]


def _window(trace: Trace) -> str:
    text = units.duration(trace.duration)
    if "origin" in trace.info:
        start, end = (units.instant(ts, trace.origin) for ts in trace.window)
        text += f" ({start} to {end})"
    return text


def about(trace: Trace) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "trace": trace.name,
        "window": list(trace.window),
        "ncpu": trace.ncpu,
        "events": trace.events,
        "doubts": gaps(trace),
        "time_unit": "ns",
    }


def gaps(trace: Trace) -> list[str]:
    """What the trace lacks or cannot tell, each in a few words; empty if nothing is missing."""
    from schedscope.analysis.asking.memo import once

    return list(once(_gaps, trace))


def _gaps(trace: Trace) -> list[str]:
    import polars as pl

    from schedscope.analysis.asking.needs import has
    from schedscope.analysis.check.missing_wakeups import missing_wakeups
    from schedscope.analysis.cpus.offline import offline
    from schedscope.analysis.cpus.stolen_time import stolen_shares
    from schedscope.analysis.recording.lost_events import is_short_edge
    from schedscope.analysis.recording.recorded_threads import filtered
    from schedscope.analysis.recording.ring_trigger import trigger
    from schedscope.store.losses import BROKEN_CHAINS, IS_BREAK

    found = [] if trace.events else ["no events"]
    found += [text] if (text := filtered(trace)) else []
    snapshot = trigger(trace)
    if snapshot and snapshot.wait is not None and not snapshot.shown:
        found.append(f"the wait of {units.duration(snapshot.wait)} that triggered it is not shown")
    # Counts from files may be as large as they like: their sum must not wrap.
    counts = pl.col("count").cast(pl.Float64).sum()
    rows = pl.when(IS_BREAK).then(BROKEN_CHAINS).otherwise(1)
    told = trace.losses.filter(~is_short_edge(trace))
    losses = told.group_by("reason").agg(rows.sum().alias("rows"), counts).collect()
    gone = offline(trace)
    found += _offline(gone.group_by("cpu").agg(pl.col("dur").sum()).sort("cpu"), trace.duration)
    for reason, intervals, count in sorted(losses.iter_rows()):
        if reason == "chain_break":
            habit = (trace.info.get("reconstruction") or {}).get("unreported_leavings") or 0
            intervals -= gone["broken"].sum() + habit
            if habit:
                found.append(
                    f"{several(habit, 'switch', 'switches')} that this kernel never reports"
                )
        if intervals <= 0:
            continue
        if reason == "chain_break":
            found.append(several(intervals, "prev/next mismatch", "prev/next mismatches"))
        elif reason == "exit_hole":
            found.append(f"{several(intervals, 'gap')} at thread exits")
        elif reason in ("late_start", "early_end"):
            edge = "started late" if reason == "late_start" else "ended early"
            found.append(f"{several(intervals, 'CPU')} {edge}")
        else:
            found.append(_lost(str(reason), intervals, int(count)))
    for loss in trace.info.get("unplaced_losses") or []:
        where = f" on CPU {loss['cpu']}" if loss.get("cpu") is not None else ""
        found.append(f"{_events(loss.get('count'))} lost{where}, no record of when")
    counters = trace.info.get("reconstruction") or {}
    if (missing := missing_wakeups(trace)) and missing[0]:
        some = f"{several(missing[0], 'wakeup')} not recorded"
        found.append(some if has(trace, "wakeup_events") else "wakeups were not recorded")
    if n := counters.get("contradictions"):
        found.append(several(n, "contradiction"))
    if offsets := trace.info.get("clock_offsets"):
        unsure = any(one.get("ahead") is None for one in offsets)
        what = ": no wait is measured" if unsure else ""
        found.append(f"CPU clocks disagree{what} (schedscope check has more)")
    unknown = sum(cpu.get("unknown", 0) for cpu in trace.info.get("per_cpu") or [])
    unknown -= int(gone["dur"].sum())
    known_of = trace.duration * trace.ncpu - int(gone["dur"].sum())
    if unknown > 0 and known_of:
        share = unknown / known_of
        found.append(f"{units.percent(share)} of CPU time unknown")
    if shares := stolen_shares(trace):
        share = units.percent(sum(shares.values()) / len(shares))
        found.append(f"the hypervisor took {share} of CPU time")
    if warnings := trace.info.get("warnings"):
        found.append(f"{several(len(warnings), 'warning')} (schedscope check shows them)")
    return found


def _offline(gone: pl.DataFrame, whole: int) -> list[str]:
    """CPUs that the host did not use: what is missing from them is not lost."""
    import polars as pl

    from schedscope.analysis.cpus.topology import cpu_text

    always = gone.filter(pl.col("dur") >= whole)["cpu"].to_list()
    for_a_time = [
        f"CPU {cpu} offline for {units.duration(dur)}"
        for cpu, dur in gone.filter(pl.col("dur") < whole).iter_rows()
    ]
    cpus = f"CPU{'s' * (len(always) != 1)} {cpu_text(always)} offline"
    return [*([cpus] if always else []), *for_a_time]


def _lost(reason: str, intervals: int, count: int) -> str:
    """One kind of loss: how much, and why."""
    if reason == "absent":
        return f"no events from {several(intervals, 'CPU')}, where there must have been some"
    if reason == "unrecorded":
        return f"{several(intervals, 'CPU')} not recorded"
    if reason == "truncated":
        where = several(intervals, "place")
        return f"{_events(count)} lost where the file is cut or damaged, in {where}"
    if not count:
        return f"events may be missing in {several(intervals, 'place')}"
    return f"{_events(count)} lost in {several(intervals, 'overrun')}"


def _events(count: int | None) -> str:
    return several(count, "event") if count else "events"
