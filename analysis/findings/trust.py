"""What does the trace not show, or contradict?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.asking.needs import NEEDS, has
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.latency import latency
from schedscope.store.losses import IS_BREAK
from schedscope.units import duration, percent

_RECORDER = 0.01
"""Of the running time: what every recorder takes to start and to end is no finding."""

_WELL_COVERED = 0.99
"""With so much of the waiting measured, missing events change no finding."""

_LEFT_OUT = (
    "The recorder lost nothing: the kernel left these switches out of its trace events, so a"
    " larger buffer does not help. BPF programs may see them (-t bpftrace, -t dtrace)."
)

_QUIET = (
    "The recorder lost nothing, so a larger buffer does not help: a CPU raises no event while it"
    " idles or runs one thread, and is known from its first event on. Record for longer."
)

_ON_FREEBSD = (
    "Record for a shorter time or without --with; most of it is dtrace printing lines, for which an"
    " idle CPU helps."
)


def trust(facts: Facts) -> Iterator[Finding]:
    """Sums that are off, the recorder's share, and what the trace does not show."""
    warnings = []
    unknown, share, without = 0, "", False
    sentences = []
    for row in facts.checked:
        name, text, found = str(row["check"]), str(row["text"]), row["found"]
        number = found if isinstance(found, int) else 0
        total = row["total"] if isinstance(row["total"], int) else 0
        if row["level"] == "violated":
            said = f"The trace cannot be trusted: {name}: {text}."
            cost = number if row["unit"] == "ns" else 0
            yield Finding("sums", cost, said, "check", level="violated")
        elif name == "recorder" and number > _RECORDER * total:
            yield Finding(
                "recorder",
                number,
                f"{text[0].upper()}{text[1:]}.",
                "check",
                advice=_ON_FREEBSD if facts.trace.info.get("os") == "FreeBSD" else None,
            )
        elif name == "unknown time":
            unknown, share = number if row["level"] == "warning" else 0, text
        elif name == "missing wakeups" and not has(facts.trace, "wakeup_events"):
            without = True
        elif name == "filter" and row["level"] == "warning":
            sentences.append(f"{text[0].upper()}{text[1:]}.")
        elif name in ("losses", "missing wakeups", "unseen switch-ins", "contradictions"):
            warnings += [f"{name}: {text}"] if row["level"] == "warning" else []
    if unknown:
        sentences.append(f"The trace does not show what ran during {share}.")
    if without:
        sentences.append(
            "No wakeups were recorded: it is not known when sleeping threads could run again,"
            " nor how long they then waited."
        )
    if warnings:
        sentences.append(f"Events are missing: {'; '.join(warnings)}.")
    coverage = _coverage(facts) if sentences else 1.0
    if coverage < _WELL_COVERED:
        share = percent(coverage) if coverage else "None"
        sentences.append(f"{share} of the waiting time is measured: sums over waits are bounds.")
    if facts.phantoms:
        idle = duration(facts.machine["dispatch"])
        sentences.append(
            f"CPUs were idle for {idle} with a thread on their own queue: either those threads"
            " were throttled by a CPU quota, or switches to them were not recorded and"
            " their waits were shorter than shown."
        )
    if not sentences:
        return
    cost = max(unknown, facts.machine["dispatch"] if facts.phantoms else 0)
    longest = _longest_hole(facts)
    advice = None
    if without:
        record = NEEDS["wakeups"].record
        advice = f"{record[0].upper()}{record[1:]}."
    elif _left_out(facts):
        advice = _LEFT_OUT
    elif _quiet(facts):
        advice = _QUIET
    yield Finding(
        "data quality",
        cost,
        " ".join(sentences),
        "check",
        *longest,
        always=without or (bool(warnings) and coverage < _WELL_COVERED),
        advice=advice,
    )


def _coverage(facts: Facts) -> float:
    """The measured part of the time that the threads in question may have waited."""
    if not (has(facts.trace, "switches") and has(facts.trace, "wakeups")):
        return 1.0
    return float(facts.ask(latency, quantiles=())["coverage"].item())


def _left_out(facts: Facts) -> bool:
    """Are switches missing although our recorder, which counts what it loses, lost nothing?"""
    return _lossless(facts) and bool(_found(facts).get("chain breaks"))


def _quiet(facts: Facts) -> bool:
    """Is all that is unknown what CPUs did before their first event?"""
    found = _found(facts)
    missing = ("chain breaks", "contradictions", "unseen switch-ins", "missing wakeups")
    return _lossless(facts) and not any(found.get(name) for name in missing)


def _lossless(facts: Facts) -> bool:
    """Did our own recorder, which counts its losses, lose nothing?"""
    found = _found(facts)
    return (
        facts.trace.metadata("source", "format") == "ftrace capture"
        and facts.trace.metadata("recorder", "name") == "ftrace"
        and not found.get("losses")
        and not found.get("unplaced losses")
    )


def _found(facts: Facts) -> dict[str, object]:
    return {str(row["check"]): row["found"] for row in facts.checked}


def _longest_hole(facts: Facts) -> tuple[int | None, int | None]:
    begin, end = facts.trace.window
    rows = (
        facts.trace.losses.filter(~IS_BREAK)
        .select(
            ts=pl.max_horizontal("ts_begin", pl.lit(begin)),
            until=pl.min_horizontal("ts_end", pl.lit(end)),
        )
        .filter(pl.col("until") > pl.col("ts"))
        .with_columns(dur=pl.col("until") - pl.col("ts"))
        .top_k(1, by="dur")
        .collect()
    )
    return (rows["ts"][0], rows["dur"][0]) if rows.height else (None, None)
