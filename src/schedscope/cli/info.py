"""What a trace is: host, clock, recorder, workload, events and tables.

How far it can be trusted is the question of `schedscope check`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _headline, _options, _output
from schedscope.cli._output import Column

if TYPE_CHECKING:
    from schedscope.trace import Trace

NAME = "info"
HELP = "what a trace is: host, clock, recorder, events, tables"
EXAMPLE = "  schedscope info web.capture"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope info`."""
    _options.add_input(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    trace = _options.open_input(args)
    if args.format == "json":
        _output.emit_about({**trace.info, "path": str(trace.path)}, "json", [])
    elif args.format == "csv":
        _output.emit_about(trace.info, "csv", [])
    else:
        _output.emit_about({}, "table", _lines(trace))
    return 0


def _lines(trace: Trace) -> list[str]:
    lines = _headline.headline(trace)
    facts = [(key, text) for key, text in _facts(trace) if text]
    space = max(len(key) for key, _ in facts)
    lines += ["", *(f"{key:<{space}}  {units.printable(text)}" for key, text in facts)]
    if trace.info.get("events"):
        lines += ["", *_event_table(trace)]
    cpus = _cpu_table(trace)
    if cpus:
        lines += ["", *cpus]
    lines += [f"warning: {units.printable(str(text))}" for text in trace.info.get("warnings") or []]
    return lines


def _facts(trace: Trace) -> list[tuple[str, str]]:
    info = trace.info
    begin, end = trace.window
    return [
        (
            "source",
            _join(
                trace.fact("source", "name"),
                trace.fact("source", "format"),
                _bytes(trace.fact("source", "bytes")),
            ),
        ),
        ("host", _join(info.get("os"), info.get("release"), info.get("machine"))),
        (
            "clock",
            _join(trace.fact("clock", "name"), _resolution(trace.fact("clock", "resolution_ns"))),
        ),
        ("window", f"{begin} to {end} ns: {units.duration(trace.duration)}"),
        (
            "recorder",
            _join(
                trace.fact("recorder", "name"),
                trace.fact("recorder", "version"),
                trace.fact("recorder", "why"),
            ),
        ),
        ("workload", _command(trace.fact("workload", "command"))),
        (
            "scheduler",
            _join(trace.fact("scheduler", "name"), _hz(info.get("hz")), info.get("preempt")),
        ),
        ("tables", ", ".join(f"{name} {n:,}" for name, n in (info.get("rows") or {}).items() if n)),
        ("folder", str(trace.path or "")),
        ("written by", _join(info.get("generator"), f"schema {info.get('schema_version')}")),
    ]


def _command(words: object) -> str:
    return " ".join(map(str, words)) if isinstance(words, list) else str(words or "")


def _join(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, ""))


def _bytes(n: int | None) -> str:
    return "" if n is None else units.size(n)


def _resolution(ns: int | None) -> str:
    return "" if ns is None else f"resolution {units.duration(ns)}"


def _hz(hz: object) -> str:
    return "" if hz is None else f"{hz} Hz"


def _event_table(trace: Trace) -> list[str]:
    import polars as pl

    kinds: dict[str, dict[str, int]] = trace.info["events"]
    cpus = sorted({cpu for counts in kinds.values() for cpu in counts}, key=int)
    shown = cpus if len(cpus) <= 8 else []
    rows: list[dict[str, Any]] = []
    for kind, counts in sorted(kinds.items(), key=lambda item: -sum(item[1].values())):
        row: dict[str, Any] = {"event": kind, "all": sum(counts.values())}
        row.update({f"cpu{cpu}": counts.get(cpu, 0) for cpu in shown})
        rows.append(row)
    columns = [Column("event"), Column("all", kind="count")]
    columns += [Column(f"cpu{cpu}", kind="count", rank=1) for cpu in shown]
    return _output.table(pl.DataFrame(rows), columns, width=_output.width())


def _cpu_table(trace: Trace) -> list[str]:
    import polars as pl

    per_cpu = trace.info.get("per_cpu") or []
    if not per_cpu or not trace.duration:
        return []
    frame = pl.DataFrame(per_cpu).with_columns(
        (pl.col("running", "idle", "unknown") / trace.duration).name.suffix("_frac")
    )
    columns = [
        Column("cpu", kind="id"),
        Column("switches", kind="count"),
        Column("running_frac", "running", "share"),
        Column("idle_frac", "idle", "share"),
        Column("unknown_frac", "unknown", "share"),
    ]
    return _output.table(frame, columns, width=_output.width())
