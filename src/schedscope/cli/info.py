"""What does a trace hold? Host, clock, recorder, workload, events and tables.

With a selection, its processes and threads are listed, too: how many there are, and how
long each one ran and waited for a CPU. With --cpu, the tables of events and CPUs have
only these CPUs. All other lines remain about the whole recording. `schedscope check` says
how far it can be trusted.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.analysis.cpus.many_cpus import FEW_CPUS, SHOWN_CPUS
from schedscope.cli import _options, _output
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Facts
from schedscope.present.columns import Column, choose
from schedscope.present.text_table import sentence, text_table
from schedscope.store import clock

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace

GROUP = "inspect the recording"
HELP = "what a trace holds: host, clock, recorder, events, tables"
EXAMPLE = """\
  schedscope info web.capture
  schedscope info web.capture --service nginx.service
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope info`."""
    _options.add_input(parser)
    _options.add_selection(
        parser, what="these threads and CPUs, in tables that are about threads or CPUs"
    )
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Facts:
    """What `trace.json` holds, and the selection."""
    trace = _options.open_input(args)
    where = _options.where_threads(args, trace)
    cpus = _options.known_cpus(args, trace)
    about: dict[str, Any] = {**trace.info, "path": str(trace.path)}
    if cpus:
        about["selected_cpus"] = cpus
    lines = _lines(trace, cpus)
    if where is not None:
        threads = _threads(trace, where)
        processes = _processes(threads)
        selected = _options.selected(args, trace, where)
        lines += ["", *selected, *_tables(processes, threads)]
        about["selection"] = {
            "options": _options.words(args),
            "processes": processes.to_dicts(),
            "threads": threads.to_dicts(),
        }
    return Facts(about, lines)


def _threads(trace: Trace, where: pl.Expr) -> pl.DataFrame:
    """One row per selected thread, those that ran longest first."""
    import polars as pl

    from schedscope.analysis.threads.of_threads import threads_with
    from schedscope.store.thread_totals import totals_of

    names = ("comm", "tid", "pid", "process_name", "service", "cgroup", "cmdline")
    known = threads_with(trace, names).filter(where, pl.col("utid") >= trace.ncpu)
    return (
        known.select(pl.col("utid").cast(pl.UInt32), *names)
        .join(totals_of(trace).lazy(), on="utid", how="left")
        .with_columns(pl.col("run", "wait").fill_null(0))
        .sort("run", "wait", "utid", descending=[True, True, False])
        .select("utid", *names, "wait", "longest", running="run")
        .collect()
    )


def _processes(threads: pl.DataFrame) -> pl.DataFrame:
    """One row per process of these threads, those that ran longest first."""
    import polars as pl

    return (
        threads.filter(pl.col("pid").is_not_null())
        .group_by("pid")
        .agg(
            pl.col("process_name", "service", "cgroup", "cmdline").first(),
            pl.len().alias("threads"),
            pl.col("running", "wait").sum(),
            pl.col("longest").max(),
        )
        .sort("running", "wait", "pid", descending=[True, True, False])
    )


def _tables(processes: pl.DataFrame, threads: pl.DataFrame) -> list[str]:
    lines = []
    for frame, name, names in (
        (
            processes,
            ("process", "processes"),
            ["process_name?", "pid", "threads", "running", "wait", "longest?", "service?"],
        ),
        (
            threads,
            ("thread", "threads"),
            ["comm", "tid", "pid?", "running", "wait", "longest?"],
        ),
    ):
        if frame.is_empty():
            continue
        rest = frame.height - _MOST
        columns = choose(frame, names, narrow="service longest")
        lines += ["", *text_table(frame[:_MOST], columns, width=_output.width())]
        if rest > 0:
            more = units.several(rest, f"more {name[0]}", f"more {name[1]}")
            lines.append(f"({more}, which ran less; --format json has every one)")
    return lines


_MOST = 20
"""Rows of processes, and of threads, that are listed for people."""


def _lines(trace: Trace, cpus: list[int]) -> list[str]:
    wide = _output.width()
    lines = [line for text in headline.headline(trace) for line in sentence(text, wide)]
    facts = [(key, text) for key, text in _facts(trace) if text]
    space = max(len(key) for key, _ in facts)
    lines += ["", *(f"{key:<{space}}  {units.printable(text)}" for key, text in facts)]
    if trace.info.get("events"):
        lines += ["", *_event_table(trace, cpus), *_unread(trace)]
    if table := _cpu_table(trace, cpus):
        lines += ["", *table]
    lines += [f"warning: {units.printable(str(text))}" for text in trace.info.get("warnings") or []]
    return lines


def _facts(trace: Trace) -> list[tuple[str, str]]:
    info = trace.info
    start, end = trace.window
    return [
        (
            "source",
            _join(
                trace.metadata("source", "name"),
                trace.metadata("source", "format"),
                _bytes(trace.metadata("source", "bytes")),
            ),
        ),
        ("host", _join(info.get("os"), info.get("release"), info.get("machine"))),
        (
            "clock",
            _join(
                trace.metadata("clock", "name"),
                _resolution(trace.metadata("clock", "resolution_ns")),
            ),
        ),
        ("window", f"{start} to {end} ns: {units.duration(trace.duration)}"),
        ("time of day", _time_of_day(trace)),
        (
            "recorder",
            _join(
                trace.metadata("recorder", "name"),
                trace.metadata("recorder", "version"),
                trace.metadata("recorder", "why"),
            ),
        ),
        ("trigger", _trigger(trace)),
        ("workload", _command(trace.metadata("workload", "command"))),
        (
            "scheduler",
            _join(trace.metadata("scheduler", "name"), _hz(info.get("hz")), info.get("preempt")),
        ),
        ("control groups", _groups(info.get("groups") or [])),
        ("kernel's count", _cpu_time(info.get("cpu_time") or [])),
        ("tables", ", ".join(f"{name} {n:,}" for name, n in (info.get("rows") or {}).items() if n)),
        ("folder", str(trace.path or "")),
        ("written by", _join(info.get("generator"), f"schema {info.get('schema_version')}")),
    ]


def _time_of_day(trace: Trace) -> str:
    """When it was recorded, by this machine's zone, and how far that can be wrong."""
    try:
        begin, end = (trace.time_of_day(ts) for ts in trace.window)
    except UsageError as wrong:
        return str(wrong.found)
    if begin is None or end is None:
        return ""
    first, last = (
        f"{there:%Y-%m-%d %H:%M:%S}.{there.microsecond // 1000:03}" for there in (begin, end)
    )
    if begin.date() == end.date():
        last = last.split()[1]
    apart = clock.error(trace)
    within = f" (± {units.duration(apart)})" if apart else ""
    return f"{first} to {last} {end:%z}{within}"


def _trigger(trace: Trace) -> str:
    """Why a flight recorder took this snapshot, and whether it shows that."""
    from schedscope.analysis.recording.ring_trigger import trigger

    found = trigger(trace)
    return found.text if found else ""


def _groups(groups: list[dict[str, Any]]) -> str:
    """How many, and which of them their CPU quota held back."""
    if not groups:
        return ""
    held = sorted((group for group in groups if group.get("throttled")), key=_throttled)
    names = [f"{units.printable(one['cgroup'])} {units.duration(_throttled(one))}" for one in held]
    said = f"; held back by a CPU quota: {', '.join(reversed(names))}" if names else ""
    return f"{len(groups):,}{said}"


def _cpu_time(rows: list[dict[str, Any]]) -> str:
    """What the CPUs did, as the kernel counted it; kinds of time that are 0 are left out."""
    names = ("user", "system", "irq", "softirq", "steal", "idle")
    sums = {name: sum(int(row.get(name) or 0) for row in rows) for name in names}
    return ", ".join(f"{name} {units.duration(ns)}" for name, ns in sums.items() if ns)


def _throttled(group: dict[str, Any]) -> int:
    return int(group["throttled"])


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


_UNREAD = ("cgroup_", "page_fault_", "sched_stat_", "hrtimer_", "other", "unknown")
"""How events begin that may tell why a thread waited and are only counted; our own recorder's
captures have of these what it let through, which is read."""


_READ = ("cgroup_attach_task", "cgroup_transfer_tasks", "sched_stat_iowait")
"""Of these, events that are read."""


def _unread(trace: Trace) -> list[str]:
    """One sentence about events of another tracer that no answer uses."""
    if str(trace.metadata("source", "format")).endswith("capture"):
        return []
    names = [name.rpartition(":")[2] for name in trace.info["events"]]
    found = [name for name in names if name.startswith(_UNREAD) and name not in _READ]
    if not found:
        return []
    listed = units.printable(", ".join(sorted(set(found))))
    return [f"counted, but not used by any question: {listed}"]


def _event_table(trace: Trace, chosen: list[int]) -> list[str]:
    import polars as pl

    kinds: dict[str, dict[str, int]] = trace.info["events"]
    cpus = sorted({cpu for counts in kinds.values() for cpu in counts}, key=int)
    if chosen:
        cpus = [str(cpu) for cpu in sorted(set(chosen))]
    shown = cpus if len(cpus) <= 8 else []
    rows: list[dict[str, Any]] = []
    for kind, counts in sorted(kinds.items(), key=lambda item: -sum(item[1].values())):
        row: dict[str, Any] = {"event": kind, "all": sum(counts.values())}
        row.update({f"cpu{cpu}": counts.get(cpu, 0) for cpu in shown})
        rows.append(row)
    frame = pl.DataFrame(rows)
    columns = choose(frame, ["event", "all"], question="info")
    columns += [Column(f"cpu{cpu}", kind="count", rank=1) for cpu in shown]
    return text_table(frame, columns, width=_output.width())


def _cpu_table(trace: Trace, chosen: list[int]) -> list[str]:
    import polars as pl

    per_cpu = [row for row in trace.info.get("per_cpu") or [] if not chosen or row["cpu"] in chosen]
    if not per_cpu or not trace.duration:
        return []
    frame = pl.DataFrame(per_cpu).with_columns(
        (pl.col("running", "idle", "unknown") / trace.duration).name.suffix("_frac")
    )
    columns = choose(frame, ["cpu", "switches", "running_frac", "idle_frac", "unknown_frac"])
    if frame.height <= FEW_CPUS:
        return text_table(frame, columns, width=_output.width())
    shown = frame.sort("unknown", "running", descending=True, maintain_order=True)[:SHOWN_CPUS]
    rest = units.several(frame.height - shown.height, "more CPU")
    parts = [
        f"{name} {units.percent(int(frame[name].sum()) / (frame.height * trace.duration))}"
        for name in ("running", "idle", "unknown")
    ]
    return [
        f"all {units.several(frame.height, 'CPU')}: {', '.join(parts)}",
        "",
        *text_table(shown, columns, width=_output.width()),
        f"({rest}, less unknown and less busy; --format json has every one)",
    ]
