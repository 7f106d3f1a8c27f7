"""The lines above every result: which trace this is, and how good its data are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.units import several

if TYPE_CHECKING:
    from schedscope.analysis.gaps import Gap
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
    """What the trace lacks or cannot show, each in a few words; empty if nothing is missing."""
    from schedscope.analysis.gaps import gaps as found

    return [_worded(gap, trace) for gap in found(trace)]


def _worded(gap: Gap, trace: Trace) -> str:
    from schedscope.analysis.recording.recorded_threads import filtered

    share, time = units.percent(gap.share), units.duration(gap.time)
    match gap.kind:
        case "filter":
            return filtered(trace)
        case "trigger not shown":
            return f"the wait of {time} that triggered it is not shown"
        case "always offline":
            from schedscope.analysis.cpus.topology import cpu_text

            return f"CPU{'s' * (len(gap.cpus) != 1)} {cpu_text(list(gap.cpus))} offline"
        case "offline":
            return f"CPU {gap.cpus[0]} offline for {time}"
        case "unreported switches":
            return f"{several(gap.n, 'switch', 'switches')} that this kernel never reports"
        case "loss":
            return _lost(gap.reason, gap.n, gap.events)
        case "loss without a time":
            where = f" on CPU {gap.cpus[0]}" if gap.cpus else ""
            return f"{_events(gap.events)} lost{where}, no record of when"
        case "wakeups":
            return f"{several(gap.n, 'wakeup')} not recorded"
        case "all wakeups":
            return "wakeups were not recorded"
        case "contradictions":
            return several(gap.n, "contradiction")
        case "clocks":
            return "CPU clocks disagree (schedscope check has more)"
        case "clocks of unknown distance":
            return "CPU clocks disagree: no wait is measured (schedscope check has more)"
        case "unknown":
            return f"{share} of CPU time unknown"
        case "stolen":
            return f"the hypervisor took {share} of CPU time"
        case "warnings":
            return f"{several(gap.n, 'warning')} (schedscope check shows them)"
        case "no events":
            return gap.kind


def _lost(reason: str, places: int, count: int) -> str:
    """One kind of loss: how much, and why."""
    match reason:
        case "chain_break":
            return several(places, "prev/next mismatch", "prev/next mismatches")
        case "exit_hole":
            return f"{several(places, 'gap')} at thread exits"
        case "late_start":
            return f"{several(places, 'CPU')} started late"
        case "early_end":
            return f"{several(places, 'CPU')} ended early"
        case "absent":
            return f"no events from {several(places, 'CPU')}, where there must have been some"
        case "unrecorded":
            return f"{several(places, 'CPU')} not recorded"
        case "truncated":
            where = several(places, "place")
            return f"{_events(count)} lost where the file is cut or damaged, in {where}"
    if not count:
        return f"events may be missing in {several(places, 'place')}"
    return f"{_events(count)} lost in {several(places, 'overrun')}"


def _events(count: int) -> str:
    return several(count, "event") if count else "events"
