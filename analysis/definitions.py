"""What would other tools call the scheduling latency of this trace?

Each of them measures something a little different from the same events. Here
their rules run over our tables, so that two tools' figures can be compared and
the difference explained. Where the rules come from is in docs/definitions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.errors import MissingEventsError, UsageError

if TYPE_CHECKING:
    from schedscope.trace import Trace

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

# Kinds of a thread's events, in their order at one time: it leaves, is woken, runs.
_OUT, _NEWTASK, _WAKING, _ENQUEUED, _NEW, _IN = range(6)
_NONE = -1


@dataclass(frozen=True)
class _Stream:
    """The events of all threads: by thread, then by time."""

    utid: Ints
    ts: Ints
    kind: Ints
    cpu: Ints
    prio: Ints
    runnable: Bools
    preempted: Bools
    first: Ints
    """For each event, the position of its thread's first event."""

    def last(self, hit: Bools) -> Ints:
        """For each event, the position of its thread's last hit up to and including it."""
        at = np.where(hit, np.arange(len(hit)), _NONE)
        at = np.maximum.accumulate(at) if len(at) else at
        return np.where(at >= self.first, at, _NONE)

    def before(self, hit: Bools) -> Ints:
        """For each event, the position of its thread's last hit before it."""
        found = np.full(len(hit), _NONE, dtype=np.int64)
        found[1:] = self.last(hit)[:-1]
        return np.where(found >= self.first, found, _NONE)


_Pairs = tuple[Ints, Ints, Ints]
"""Positions of the switch-ins that end a wait, when each wait began, how long it was."""


@dataclass(frozen=True)
class Definition:
    """One tool's rule: in words, and as a function of a thread's events."""

    name: str
    counts: str
    leaves_out: str
    needs: tuple[str, ...]
    rule: Callable[[_Stream], _Pairs]


def _ends(stream: _Stream, ends: Ints, begins: Ints) -> _Pairs:
    since = stream.ts[begins]
    return ends, since, stream.ts[ends] - since


def _perf(stream: _Stream) -> _Pairs:
    # perf has one open "atom" for each thread. A switch-out begins one: waiting
    # if the thread is still runnable, sleeping otherwise; the first wake turns
    # sleeping into waiting, and the first switch-in after that ends it. The
    # very first event of a thread begins one, too: a switch-in of delay 0.
    kind = stream.kind
    own = (kind != _NEWTASK) & (kind != _ENQUEUED)
    first = own & (stream.before(own) == _NONE)
    starts = (kind == _OUT) | first
    atom = stream.last(starts)
    wakes = (kind == _WAKING) | (kind == _NEW)
    at_once = stream.runnable | ((kind != _OUT) & first)
    ready_here = (at_once & starts) | (wakes & ~at_once[atom])
    ready_here &= _first_since(stream, ready_here, starts)
    ready = stream.last(ready_here)
    waiting = (kind == _IN) & (ready >= atom) & (ready != _NONE)
    waiting &= _first_since(stream, waiting, starts)
    ends = np.flatnonzero(waiting)
    return _ends(stream, ends, ready[ends])


def _first_since(stream: _Stream, hit: Bools, starts: Bools) -> Bools:
    """Is this hit the first since the last start (which may be the same event)?"""
    earlier = stream.before(hit)
    since: Bools = (earlier == _NONE) | (earlier < stream.last(starts))
    return since


def _runqlat(stream: _Stream) -> _Pairs:
    # A time stamp for each thread: set when it is put on a queue, or leaves a
    # CPU runnable; overwritten by the next; taken by the switch-in.
    kind = stream.kind
    return _stamped(stream, (kind == _ENQUEUED) | (kind == _NEW) | stream.runnable)


def _runqlat_bt(stream: _Stream) -> _Pairs:
    kind = stream.kind
    left = stream.runnable & ~stream.preempted
    return _stamped(stream, (kind == _ENQUEUED) | (kind == _NEW) | left)


def _schedscore(stream: _Stream) -> _Pairs:
    return _stamped(stream, stream.kind == _WAKING)


def _stamped(stream: _Stream, stamps: Bools) -> _Pairs:
    runs = stream.kind == _IN
    stamp, previous = stream.before(stamps), stream.before(runs)
    ends = np.flatnonzero(runs & (stamp != _NONE) & (stamp > previous))
    return _ends(stream, ends, stamp[ends])


def _lisa(stream: _Stream) -> _Pairs:
    return _adjacent(stream, (stream.kind == _ENQUEUED) | (stream.kind == _NEW))


def _lisa_preempt(stream: _Stream) -> _Pairs:
    return _adjacent(stream, stream.runnable & ~stream.preempted)


def _adjacent(stream: _Stream, begin: Bools) -> _Pairs:
    # Only events that LISA's table of states has are neighbours.
    rows = (stream.kind != _WAKING) & (stream.kind != _NEWTASK)
    neighbour = stream.before(rows)
    ends = np.flatnonzero((stream.kind == _IN) & (neighbour != _NONE) & begin[neighbour])
    return _ends(stream, ends, neighbour[ends])


def _lttng(stream: _Stream) -> _Pairs:
    kind = stream.kind
    current = stream.before((kind == _IN) | (kind == _OUT))
    running = (current != _NONE) & (kind[current] == _IN)
    wakes = np.isin(kind, (_WAKING, _ENQUEUED, _NEW)) & ~running
    first = wakes & _first_since(stream, wakes, kind == _IN)
    stamp, previous = stream.before(first), stream.before(kind == _IN)
    ends = np.flatnonzero((kind == _IN) & (stamp != _NONE) & (stamp > previous))
    return _ends(stream, ends, stamp[ends])


def _perfetto(stream: _Stream) -> _Pairs:
    # trace_processor's thread_state rows: a waking counts only while the last
    # row says blocked (R+ passes for that); each switch adds rows. A run gets
    # the length of its thread's last R or R+ row before it, however old.
    kind = stream.kind
    switch = (kind == _IN) | (kind == _OUT)
    opener = stream.before(switch)
    is_runnable_row = stream.runnable & ~stream.preempted
    blocked = (opener == _NONE) | ((kind[opener] == _OUT) & ~is_runnable_row[opener])
    wakes = (kind == _WAKING) & blocked
    born = (kind == _NEWTASK) & (opener == _NONE)
    opens = wakes | born
    opens &= _first_since(stream, opens, switch)
    rows = switch | opens
    waits = opens | stream.runnable
    ready = stream.before(waits)
    ends = np.flatnonzero((kind == _IN) & (ready != _NONE))
    # The row ends at its thread's next row, which need not be this run.
    following = _next(stream, rows)[ready[ends]]
    since = stream.ts[ready[ends]]
    return ends, since, stream.ts[following] - since


def _next(stream: _Stream, hit: Bools) -> Ints:
    """For each event, the position of the next hit after it (of any thread)."""
    at = np.where(hit, np.arange(len(hit)), len(hit) - 1)
    following = np.minimum.accumulate(at[::-1])[::-1] if len(at) else at
    return np.append(following[1:], len(hit) - 1)


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "perf",
        "first sched_waking (or wakeup_new) of a sleeping thread, or its leaving runnable, "
        "until it runs; a thread's first sight running counts as 0",
        "waits whose waking came while the thread was still leaving its CPU",
        ("waking",),
        _perf,
    ),
    Definition(
        "runqlat",
        "last sched_wakeup, wakeup_new or leaving runnable until it runs",
        "the time from sched_waking to sched_wakeup",
        ("enqueued",),
        _runqlat,
    ),
    Definition(
        "runqlat.bt",
        "as runqlat, but leaving with state 0 only",
        "waits after a preemption inside the kernel (R+), besides what runqlat leaves out",
        ("enqueued",),
        _runqlat_bt,
    ),
    Definition(
        "lisa",
        "sched_wakeup or wakeup_new directly followed by running",
        "waits after preemption, placement, waits with any event between wakeup and run",
        ("enqueued",),
        _lisa,
    ),
    Definition(
        "lisa-preempt",
        "leaving with state 0 directly followed by running",
        "waits after a wakeup, and preemptions inside the kernel (R+)",
        (),
        _lisa_preempt,
    ),
    Definition(
        "perfetto",
        "length of the last R or R+ state before a run: from sched_waking, fork or leaving "
        "runnable",
        "waits whose waking came while the thread was still leaving its CPU: "
        "such a run gets an older wait's length, or none",
        ("waking",),
        _perfetto,
    ),
    Definition(
        "lttng",
        "first of sched_waking, wakeup, wakeup_new of a thread that is not running until it runs",
        "waits after preemption, and wakings of a thread still leaving its CPU",
        ("waking", "enqueued"),
        _lttng,
    ),
    Definition(
        "schedscore",
        "last sched_waking until it runs",
        "waits after preemption and of new threads; counts time in which a thread woken while "
        "running still ran",
        ("waking",),
        _schedscore,
    ),
)

NAMES = tuple(definition.name for definition in DEFINITIONS)


def definition_of(name: str) -> Definition:
    """The definition called `name`. Raises `UsageError` for an unknown one."""
    for definition in DEFINITIONS:
        if definition.name == name:
            return definition
    raise UsageError(f"definition {name!r}", "a tool we know", "one of " + ", ".join(NAMES))


def as_defined(trace: Trace, name: str) -> Trace:
    """The same trace with `waits` as the tool `name` would count them.

    Every analysis of the ledger then answers in that tool's terms. Each wait
    has `utid`, `ts_ready` (when the tool's clock starts), `ts_run`, `wait`,
    `cpu` and `prio`; `cause` and `censored` are what the tool can tell: `unknown`
    and `none`. For `perfetto`, `wait` may be the length of an older wait.

    Raises `UsageError` for an unknown name, `MissingEventsError` if the trace
    lacks the events the tool reads.
    """
    from schedscope.trace import TABLES
    from schedscope.trace import Trace as TraceClass

    definition = definition_of(name)
    _check_needs(trace, definition)
    stream = _stream(trace)
    tables = {table: getattr(trace, table) for table in TABLES if table != "waits"}
    tables["waits"] = _ledger(trace, stream, definition.rule(stream))
    return TraceClass.from_tables(tables, {**trace.info, "definition": name})


def definitions(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per tool: how many waits it would count in this trace, and how long they are.

    The first row, `schedscope`, is our own ledger. `where` selects waits, an
    expression over the columns of `waits` and `threads`.

    Returns `definition`, `n`, `mean`, `p50`, `p99`, `max`, `total` (ns; exact order
    statistics), `counts` and `leaves_out` in words. Statistics are null where
    the trace lacks events the tool needs; `leaves_out` then says which.
    """
    from schedscope.analysis.runqueue_latency import runqueue_latency

    columns = ("n", "mean", "p50", "p99", "max", "total")
    ours = runqueue_latency(trace, where=where).row(0, named=True)
    rows: list[dict[str, object]] = [
        {
            "definition": "schedscope",
            **{name: ours[name] for name in columns},
            "counts": "from the moment a thread could run (woken, created, preempted, yielded) "
            "and had left its CPU until it runs",
            "leaves_out": "waits whose begin was not seen; open waits are counted apart",
        }
    ]
    stream = _stream(trace)
    for definition in DEFINITIONS:
        row: dict[str, object] = {"definition": definition.name, "counts": definition.counts}
        missing = _missing(trace, definition.needs)
        if missing:
            row |= dict.fromkeys(columns) | {"leaves_out": f"needs {missing}, not recorded here"}
        else:
            counted = trace_with(trace, _ledger(trace, stream, definition.rule(stream)))
            found = runqueue_latency(counted, where=where).row(0, named=True)
            row |= {name: found[name] for name in columns} | {"leaves_out": definition.leaves_out}
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
    """The trace with another ledger; only what the ledger's analyses read."""
    from schedscope.trace import Trace as TraceClass

    return TraceClass.from_tables({"waits": waits, "threads": trace.threads}, trace.info)


def _missing(trace: Trace, needs: Sequence[str]) -> str:
    names = {"waking": "sched_waking", "enqueued": "sched_wakeup"}
    return " and ".join(names[need] for need in needs if not trace.info.get(f"has_{need}"))


def _check_needs(trace: Trace, definition: Definition) -> None:
    missing = _missing(trace, definition.needs)
    if missing:
        raise MissingEventsError(
            f"{trace.name} has no {missing}",
            f"what {definition.name} measures from",
            "record it, too: `schedscope capture` does; perf record -e sched:sched_wakeup,...",
        )


def _stream(trace: Trace) -> _Stream:
    ncpu = trace.ncpu
    nothing: dict[str, pl.Expr] = {
        "prio": pl.lit(None, pl.Int16),
        "runnable": pl.lit(False),
        "preempted": pl.lit(False),
    }

    def events(table: pl.LazyFrame, kind: pl.Expr, **columns: pl.Expr) -> pl.LazyFrame:
        return table.select(
            "ts", kind=kind.cast(pl.Int8), **({"cpu": pl.col("cpu")} | nothing | columns)
        )

    def of(kind: int) -> pl.Expr:
        return pl.lit(kind)

    state = pl.col("prev_state") == "runnable"
    wake_kinds = {"waking": _WAKING, "enqueued": _ENQUEUED, "new": _NEW}
    parts = [
        events(
            trace.switches,
            of(_OUT),
            utid=pl.col("prev_utid"),
            prio=pl.col("prev_prio"),
            runnable=state,
            preempted=pl.col("preempted").fill_null(False) & state,
        ),
        events(trace.switches, of(_IN), utid=pl.col("next_utid"), prio=pl.col("next_prio")),
        events(
            trace.wakeups,
            pl.col("kind").cast(pl.String).replace_strict(wake_kinds, return_dtype=pl.Int8),
            utid=pl.col("utid"),
            prio=pl.col("prio"),
        ),
        trace.threads.filter(pl.col("start_ts").is_not_null()).select(
            ts="start_ts",
            kind=pl.lit(_NEWTASK, pl.Int8),
            cpu=pl.lit(None, pl.UInt16),
            **nothing,
            utid="utid",
        ),
    ]
    order = ["ts", "kind", "cpu", "prio", "runnable", "preempted", "utid"]
    stream = (
        pl.concat([part.select(order) for part in parts])
        .filter(pl.col("utid") >= ncpu)
        .collect()
        .sort("utid", "ts", "kind", maintain_order=True)
    )
    utid = stream["utid"].cast(pl.Int64).to_numpy()
    begins = np.flatnonzero(np.append(True, utid[1:] != utid[:-1])) if len(utid) else utid
    lengths = np.diff(np.append(begins, len(utid)))
    return _Stream(
        utid=utid,
        ts=stream["ts"].to_numpy(),
        kind=stream["kind"].cast(pl.Int64).to_numpy(),
        cpu=stream["cpu"].cast(pl.Int64).fill_null(_NONE).to_numpy(),
        prio=stream["prio"].cast(pl.Int64).fill_null(-(2**40)).to_numpy(),
        runnable=stream["runnable"].to_numpy(),
        preempted=stream["preempted"].to_numpy(),
        first=np.repeat(begins, lengths),
    )


def _ledger(trace: Trace, stream: _Stream, pairs: _Pairs) -> pl.LazyFrame:
    ends, since, wait = pairs
    prio = pl.Series(stream.prio[ends])
    frame = pl.DataFrame(
        {
            "utid": pl.Series(stream.utid[ends]).cast(pl.UInt32),
            "ts_ready": since,
            "ts_run": stream.ts[ends],
            "cpu": pl.Series(stream.cpu[ends]).cast(pl.UInt16),
            "prio": prio.set(prio == -(2**40), None).cast(pl.Int16),
            "wait": wait,
        }
    ).sort("ts_run", maintain_order=True)
    schema = trace.waits.collect_schema()
    given = {"cause": pl.lit("unknown"), "censored": pl.lit("none")}
    columns = [
        given.get(name, pl.col(name) if name in frame.columns else pl.lit(None))
        .cast(dtype)
        .alias(name)
        for name, dtype in schema.items()
    ]
    return frame.lazy().select(columns)
