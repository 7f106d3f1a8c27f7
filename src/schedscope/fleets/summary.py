"""What is kept of one trace: facts about its host, exact counts, a sketch of its waits, and data
quality.

A summary is a JSON document of some kB. Its counts and its sketch add up to those of any group of
traces; the trace itself is not needed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.check.check import check, verdict
from schedscope.analysis.check.row import LEVEL
from schedscope.analysis.latency import latency
from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.analysis.waits.observed import MEASURED
from schedscope.fleets.sketch import Sketch
from schedscope.processes import NoMatchError, named, of_processes

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

FORMAT = 3
"""Of the document; a summary of another one is made again."""


BOUNDED = ("n", "total", "mean", "p50", "p90", "p99", "p99.9", "max")
"""Figures that have an upper bound beside them, under the same names as in `latency`."""


WINDOW = ("since", "until")
"""What of `select` is about time."""


def summarise(trace: Trace, select: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The summary of a trace: `facts`, `settings`, `labels`, `numbers`, `trust` and `waits`.

    With `select`, `comm` and arguments of `of_processes`, the waits are those of these threads, and
    `trust` has what is known of them; of a trace without such threads there are none. With `since`
    or `until` in it, the summary is of that part of the trace.

    Raises `MissingEventsError` for a trace without switches or wakeups.
    """
    select = dict(select or {})
    since, until = (select.pop(name, None) for name in WINDOW)
    if since is not None or until is not None:
        trace = trace.between(since, until)
    info = trace.info
    where = _where(trace, select)
    mine = pl.lit(True)
    if where is not None:
        mine = pl.col("utid").is_in(chosen_threads(trace, where).implode())
    whole = latency(trace, where=where).row(0, named=True)
    matched = where is not None and not where.meta.is_literal()
    checks = check(trace, where=where if matched else None)
    unknown = checks.row(by_predicate=pl.col("check") == "unknown time", named=True)
    per_cpu = info.get("per_cpu") or []
    running, idle = (sum(int(cpu.get(name, 0)) for cpu in per_cpu) for name in ("running", "idle"))
    capacity = trace.duration * trace.ncpu
    order = list(LEVEL.categories)
    waits = trace.waits.filter(mine, MEASURED).select("wait").collect()["wait"].to_numpy()
    return {
        "facts": {
            "trace": trace.name,
            "host": _text(info.get("hostname")),
            "os": _text(info.get("os")),
            "release": _text(info.get("release")),
            "machine": _text(info.get("machine")),
            "cpus": trace.ncpu,
            "scheduler": _text(trace.metadata("scheduler", "name")),
            "preempt": _text(info.get("preempt")),
            "hz": info.get("hz"),
        },
        "settings": _settings(trace.metadata("scheduler", "tunables")),
        "labels": _texts(info.get("labels")),
        "numbers": {
            "dur": trace.duration,
            "events": trace.events,
            **{name: whole[name] for name in ("n", "n_censored", "n_excluded", "total", "mean")},
            **{name: whole[name] for name in ("p50", "p90", "p99", "p99.9", "max")},
            **{f"{name}_high": whole[f"{name}_high"] for name in BOUNDED},
            "coverage": whole["coverage"],
            "waiting_frac": whole["total"] / capacity if capacity else None,
            "waiting_frac_high": whole["total_high"] / capacity if capacity else None,
            "busy_frac": running / (running + idle) if running + idle else None,
        },
        "trust": {
            "unknown_frac": unknown["found"] / unknown["total"] if unknown["total"] else None,
            "level": max(checks["level"].cast(pl.String), key=order.index),
            "verdict": verdict(checks),
        },
        "waits": Sketch.of(waits).to_json(),
    }


def _where(trace: Trace, select: Mapping[str, Any]) -> pl.Expr | None:
    """The selected threads; false where the trace has none of them."""
    if not select:
        return None
    of = {name: value for name, value in select.items() if name != "comm"}
    try:
        chosen = [of_processes(trace, **of)] if of else []
    except NoMatchError:
        return pl.lit(False)
    if "comm" in select:
        chosen.append(named(select["comm"]))
    where = pl.all_horizontal(chosen)
    return pl.lit(False) if chosen_threads(trace, where).is_empty() else where


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _texts(given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {str(key): str(value) for key, value in given.items() if value is not None}


def _settings(tunables: object) -> dict[str, str]:
    """By the last part of their paths, as `sched_rr_timeslice_ms`; with more where two share it."""
    told = _texts(tunables)
    last = [path.rstrip("/").rsplit("/", 1)[-1] for path in told]
    return {
        (name if last.count(name) == 1 else path.strip("/")): value.strip()
        for name, (path, value) in zip(last, told.items(), strict=True)
    }
