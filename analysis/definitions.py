"""The latency figures that other tools would report for the same trace.

perf, bcc's and bpftrace's runqlat, LISA, Perfetto, lttng-analyses and schedscore start
and stop their clocks at different events. This command applies the rule of each to the
same events, and says what that rule excludes, so that figures from different tools can be
compared. `schedscope latency --definition NAME` shows the waits by any of these rules, by
thread, process or CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.errors import MissingEventsError, UsageError
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope._native import StoredTable
    from schedscope.store.trace import Trace

_COLUMNS = ("n", "mean", "p50", "p99", "max", "total")
_OURS = "schedscope"


@dataclass(frozen=True)
class Definition:
    """One tool's rule, in words. The native engine implements it under the same name."""

    name: str
    counts: str
    leaves_out: str
    needs: tuple[str, ...]


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "perf",
        "first sched_waking (or wakeup_new) of a sleeping thread, or its leaving runnable, "
        "until it runs; a thread that is first seen running counts as 0",
        "waits whose waking came while the thread was still leaving its CPU",
        ("waking",),
    ),
    Definition(
        "runqlat",
        "last sched_wakeup, wakeup_new or leaving runnable until it runs",
        "the time from sched_waking to sched_wakeup",
        ("enqueued",),
    ),
    Definition(
        "runqlat.bt",
        "as runqlat, but leaving with state 0 only",
        "waits after a preemption inside the kernel (R+), and what runqlat excludes",
        ("enqueued",),
    ),
    Definition(
        "lisa",
        "sched_wakeup or wakeup_new directly followed by running",
        "waits after preemption, placement, waits with any event between wakeup and run",
        ("enqueued",),
    ),
    Definition(
        "lisa-preempt",
        "leaving with state 0 directly followed by running",
        "waits after a wakeup, and preemptions inside the kernel (R+)",
        (),
    ),
    Definition(
        "perfetto",
        "length of the last R or R+ state before a run: from sched_waking, fork or leaving "
        "runnable",
        "waits whose waking came while the thread was still leaving its CPU: "
        "such a run gets an older wait's length, or none",
        ("waking",),
    ),
    Definition(
        "lttng",
        "first of sched_waking, wakeup, wakeup_new of a thread that is not running until it runs",
        "waits after preemption, and wakings of a thread still leaving its CPU",
        ("waking", "enqueued"),
    ),
    Definition(
        "schedscore",
        "last sched_waking until it runs",
        "waits after preemption and of new threads; counts time in which a thread woken while "
        "running still ran",
        ("waking",),
    ),
)

NAMES = tuple(definition.name for definition in DEFINITIONS)


def definition_of(name: str) -> Definition:
    """The definition called `name`. Raises `UsageError` for an unknown one."""
    for definition in DEFINITIONS:
        if definition.name == name:
            return definition
    raise UsageError(f"definition {name!r}", "a known tool", "one of " + ", ".join(NAMES))


@needs("switches")
def as_defined(trace: Trace, name: str) -> Trace:
    """The same trace with `waits` as the tool `name` would count them.

    Every analysis of waits then uses that tool's rule. Each wait has `utid`, `ts_ready` (when the
    tool's clock starts), `ts_run`, `wait`, `cpu` and `prio`; `cause` and `censored` are `unknown`
    and `none`, as the tool does not record them. For `perfetto`, `wait` may be the length of an
    older wait.

    Raises `UsageError` for an unknown name, `MissingEventsError` if the trace lacks the events that
    the tool reads.
    """
    from schedscope.parsers.schema import TABLES
    from schedscope.store.trace import Trace as TraceClass

    _check_needs(trace, definition_of(name))
    tables = {table: getattr(trace, table) for table in TABLES if table != "waits"}
    tables["waits"] = _ledger(trace, _facts(trace), name)
    return TraceClass.from_tables(tables, {**trace.info, "definition": name})


COMMAND = Command(
    heading="compare",
    help="latency as perf, runqlat, LISA, Perfetto define it",
    example="""\
  schedscope definitions web.capture
  schedscope definitions perf.data --process nginx --format csv
""",
    page="docs/definitions.md",
    selects="waits of these threads, or for this CPU",
    columns="definition n mean p50 p99 max total",
)


@needs("switches")
def definitions(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per tool: how many waits it would count in this trace, and how long they are.

    The first row, `schedscope`, is our own ledger. `where`: which waits, an expression over the
    columns of `waits` and `threads`.

    Returns `definition`, `n`, `mean`, `p50`, `p99`, `max`, `total` (ns; exact order statistics),
    and in words what the tool `counts` and `leaves_out`. Statistics are null where the trace lacks
    events that the tool needs; `leaves_out` then says which.
    """
    from schedscope import _native

    facts = _facts(trace)
    told = [d.name for d in DEFINITIONS if not _missing(trace, d.needs)]
    if where is None:
        ledger = coded(trace, "waits", "wait", "censored")
        figures = [
            _native.ledger_figures(ledger),
            *_native.definition_figures(facts, trace.ncpu, told),
        ]
        found = {
            name: {**row, "mean": row["total"] / row["n"] if row["n"] else None}
            for name, row in zip([_OURS, *told], figures, strict=True)
        }
    else:
        from schedscope.analysis.latency import latency

        complete = pl.col("censored") == "none"
        measured = trace_with(trace, trace.waits.filter(complete))
        found = {_OURS: latency(measured, where=where).row(0, named=True)}
        for name in told:
            counted = trace_with(trace, _ledger(trace, facts, name))
            found[name] = latency(counted, where=where).row(0, named=True)
    rows: list[dict[str, object]] = [
        {
            "definition": _OURS,
            **{name: found[_OURS][name] for name in _COLUMNS},
            "counts": "from the moment a thread could run (woken, created, preempted, yielded) "
            "and had left its CPU until it runs",
            "leaves_out": "waits with no recorded start; unfinished waits are counted separately",
        }
    ]
    for definition in DEFINITIONS:
        row: dict[str, object] = {"definition": definition.name, "counts": definition.counts}
        if figure := found.get(definition.name):
            row |= {name: figure[name] for name in _COLUMNS}
            row["leaves_out"] = definition.leaves_out
        else:
            missing = _missing(trace, definition.needs)
            row |= dict.fromkeys(_COLUMNS) | {"leaves_out": f"needs {missing}, not recorded here"}
        rows.append(row)
    schema = {
        "definition": pl.String,
        "n": pl.Int64,
        "mean": pl.Float64,
        **dict.fromkeys(("p50", "p99", "max", "total"), pl.Int64),
        "counts": pl.String,
        "leaves_out": pl.String,
    }
    return pl.DataFrame(rows, schema=schema)


def trace_with(trace: Trace, waits: pl.LazyFrame) -> Trace:
    """The trace with another ledger; only what the ledger's analyses read.

    It includes the switches: without waits the trace would otherwise look as if it had none.
    """
    from schedscope.store.trace import Trace as TraceClass

    tables = {"waits": waits, "threads": trace.threads, "switches": trace.switches}
    return TraceClass.from_tables(tables, trace.info)


def _missing(trace: Trace, needs: Sequence[str]) -> str:
    names = {"waking": "sched_waking", "enqueued": "sched_wakeup"}
    return " and ".join(names[need] for need in needs if not trace.info.get(f"has_{need}"))


def _check_needs(trace: Trace, definition: Definition) -> None:
    missing = _missing(trace, definition.needs)
    if missing:
        raise MissingEventsError(
            f"{trace.name} has no {missing}",
            f"what {definition.name} measures from",
            "record it as well: `schedscope capture` does; perf record -e sched:sched_wakeup,...",
        )


def _facts(trace: Trace) -> dict[str, StoredTable | pl.DataFrame]:
    """The columns that the rules read, in order of time."""
    births = trace.threads.filter(pl.col("start_ts").is_not_null()).select(
        pl.col("start_ts").alias("ts"), pl.col("utid").cast(pl.UInt32)
    )
    switches = ("ts", "cpu", "prev_utid", "prev_state", "preempted", "next_utid", "next_prio")
    return {
        "switches": _in_order(coded(trace, "switches", *switches)),
        "wakeups": _in_order(coded(trace, "wakeups", "ts", "utid", "kind")),
        "births": births.sort("ts", maintain_order=True).collect(),
    }


def _in_order(facts: StoredTable | pl.DataFrame) -> StoredTable | pl.DataFrame:
    """What `convert` writes is in order of time; a table from elsewhere may not be."""
    if isinstance(facts, pl.DataFrame) and not facts["ts"].is_sorted():
        return facts.sort("ts", maintain_order=True)
    return facts


def _ledger(trace: Trace, facts: dict[str, StoredTable | pl.DataFrame], name: str) -> pl.LazyFrame:
    from schedscope import _native

    frame = pl.DataFrame(_native.definition_waits(facts, trace.ncpu, name))
    schema = trace.waits.collect_schema()
    given = {"cause": pl.lit("unknown"), "censored": pl.lit("none")}
    columns = [
        given.get(name, pl.col(name) if name in frame.columns else pl.lit(None))
        .cast(dtype)
        .alias(name)
        for name, dtype in schema.items()
    ]
    return frame.lazy().select(columns)
