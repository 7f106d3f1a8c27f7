"""What was a thread's time up to an instant spent on, back through the threads that woke it?

The path is followed backwards from the end. While the thread ran or waited for a CPU,
that is the path; where another thread woke it, the path continues with that thread.
The steps add up to the time from --since to --until exactly. Without these, the path
covers the whole recording, up to the thread's last instant.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.occupancy import coded_states
from schedscope.errors import UsageError
from schedscope.store.native_tables import coded

if TYPE_CHECKING:
    from schedscope._native import StoredTable
    from schedscope.store.trace import Trace

_HELD = 1 << 24
"""Rows of `states` that are held at once: with their waits 37 bytes for each."""
_ROWS = 1 << 22
"""Of more rows the path is followed through parts of about so many."""

KIND = pl.Enum(["run", "wait", "wake", "sleep", "unknown"])
"""What a step of the path is; see `critical_path`."""

ENDED = pl.Enum(
    ["woke", "slept", "preempted", "yielded", "ran", "moved", "enqueued", "woken", "end", "unknown"]
)
"""What ended a step; see `critical_path`."""


COMMAND = Command(
    heading="who waited, and why?",
    help="the chain of work and waits that led to an instant",
    example="""\
  schedscope critical-path web.capture --tid 4711 --since 2.5s --until 2.75s
  schedscope critical-path web.capture --tid 4711 --since 2.5s --until 2.75s --by thread
  schedscope critical-path web.capture --worst 1 --service nginx.service
""",
    page="docs/definitions/critical-path.md",
)


@needs("switches", "wakeups")
def critical_path(
    trace: Trace,
    since: str | float | None = None,
    until: str | float | None = None,
    *,
    utid: int,
) -> pl.DataFrame:
    """One row per step of the path that led thread `utid` up to `until`, in order of time.

    The path is followed backwards from `until`. While the thread runs or waits for a CPU, the path
    stays with it. Where another thread woke it, its sleep was spent on that thread's work: the path
    continues with the waker, at the instant of the wakeup. Where an interrupt woke it, the sleep
    itself is a step. Steps adjoin, and their `dur` adds up to `until - since` exactly.

    * `ts`, `dur`: the step (ns);
    * `kind`: `run`; `wait`: runnable, on a queue; `wake`: between the wakeup's decision and the
      queue; `sleep`: asleep for something other than the recorded threads, such as a timer or a
      device; `unknown`: from here back to `since` the trace shows nothing more;
    * `comm`, `tid`, `utid`: the thread; `cpu`: where it ran, or on whose queue it waited; null if
      not known;
    * `ended`: what ended the step: `woke`: it woke the next step's thread; `slept`;
      `preempted`; `yielded`; `ran`: it got the CPU; `moved` to another queue; `enqueued`; `woken`,
      by an interrupt; `end`: the path's end; `unknown`;
    * `other_comm`, `other_tid`, `other_utid`: the thread that it woke.

    Times are as in `Trace.between`. `since` is by default the start of the window, and `until` the
    last instant at which the thread was seen alive.

    Definition and its limits: docs/definitions/critical-path.md. Raises `UsageError` for a thread
    or an interval that the trace does not have.

    >>> from schedscope import Trace
    >>> states = pl.DataFrame({
    ...     "ts": [0, 30, 0, 30, 40],
    ...     "dur": [30, 50, 30, 10, 40],
    ...     "utid": [1, 1, 2, 2, 2],
    ...     "state": ["running", "sleeping", "sleeping", "runnable", "running"],
    ...     "cpu": [0, None, None, 0, 0],
    ...     "end": ["switched", "window", "woken", "switched", "window"],
    ... })
    >>> waits = pl.DataFrame({
    ...     "utid": [2], "cause": ["wake"], "waker_utid": [1],
    ...     "ts_ready": [30], "ts_enqueued": [32], "ts_run": [40],
    ... })
    >>> threads = pl.DataFrame({"utid": [0, 1, 2], "comm": ["idle", "client", "server"],
    ...                         "tid": [0, 7, 8], "parent_utid": [None] * 3})
    >>> trace = Trace.from_tables({"states": states, "waits": waits, "threads": threads},
    ...                           {"ncpu": 1, "window": [0, 80]})
    >>> critical_path(trace, "10ns", "80ns", utid=2).select("ts", "dur", "kind", "comm", "ended")
    shape: (4, 5)
    ┌─────┬─────┬──────┬────────┬──────────┐
    │ ts  ┆ dur ┆ kind ┆ comm   ┆ ended    │
    │ --- ┆ --- ┆ ---  ┆ ---    ┆ ---      │
    │ i64 ┆ i64 ┆ enum ┆ str    ┆ enum     │
    ╞═════╪═════╪══════╪════════╪══════════╡
    │ 10  ┆ 20  ┆ run  ┆ client ┆ woke     │
    │ 30  ┆ 2   ┆ wake ┆ server ┆ enqueued │
    │ 32  ┆ 8   ┆ wait ┆ server ┆ ran      │
    │ 40  ┆ 40  ┆ run  ┆ server ┆ end      │
    └─────┴─────┴──────┴────────┴──────────┘
    """
    first, last = trace.window
    threads = trace.threads.select("utid", "comm", "tid", "parent_utid").collect()
    if not isinstance(utid, Integral) or utid < trace.ncpu or utid not in threads["utid"]:
        raise UsageError(
            f"utid={utid!r}", "a thread of this trace, not an idle one", "trace.threads lists them"
        )
    begin = first if since is None else trace.instant(since)
    end = None if until is None else trace.instant(until)
    if end is None:
        of_thread = trace.states.filter(pl.col("utid") == utid)
        end = of_thread.select((pl.col("ts") + pl.col("dur")).max()).collect().item()
        end = last if end is None else min(int(end), last)
    if not first <= begin < end <= last:
        raise UsageError(
            f"since={since!r}, until={until!r}",
            f"times within {trace.seconds(first):.6f} and {trace.seconds(last):.6f} s, in order",
            "trace.seconds(ts) is the time of an instant of a column ts",
        )
    frame = _path(trace, (begin, end), utid, threads)
    names = threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid")
    others = names.rename({name: f"other_{name}" for name in names.columns})
    return (
        frame.join(names, on="utid", how="left", maintain_order="left")
        .join(others, on="other_utid", how="left", maintain_order="left")
        .select(
            "ts", "dur", "kind", "comm", "tid", "utid", "cpu", "ended",
            "other_comm", "other_tid", "other_utid",
        )
    )  # fmt: skip


def _path(
    trace: Trace, interval: tuple[int, int], utid: int, threads: pl.DataFrame
) -> pl.DataFrame:
    """The steps, by utid."""
    from schedscope import _native

    begin, end = interval
    rows = trace.states.select(pl.len()).collect().item() * (end - begin) / max(1, trace.duration)
    length = end - begin if rows <= _HELD else max(1, int((end - begin) * _ROWS / rows))

    def part(until: int) -> tuple[StoredTable | pl.DataFrame, StoredTable | pl.DataFrame, int]:
        since = max(begin, until - length)
        states, waits = None, None
        if (since, until) != trace.window:
            last = pl.col("ts") + pl.col("dur")
            states = trace.part("states", since, until).filter(
                pl.col("ts") < until, last > begin, last >= since
            )
            # Waits that end before the part cannot begin in it.
            waits = trace.part("waits", since, until).filter(
                (pl.col("ts_ready") <= until) & (pl.col("ts_run").fill_null(until) >= since)
            )
        columns = ("utid", "waker_utid", "ts_ready", "ts_run", "ts_enqueued", "cause")
        return (
            coded_states(trace, end=True, states=states),
            coded(trace, "waits", *columns, rows=waits),
            since,
        )

    parents: list[int | None] = [None] * (int(threads["utid"].max()) + 1)  # type: ignore[arg-type]
    for who, parent in threads.select("utid", "parent_utid").iter_rows():
        parents[who] = parent
    steps = _native.critical_path(part, interval, utid, trace.ncpu, parents)
    return pl.DataFrame(steps).with_columns(_named("kind", KIND), _named("ended", ENDED))


def _named(column: str, words: pl.Enum) -> pl.Expr:
    """Words for codes."""
    known = dict(enumerate(words.categories))
    return pl.col(column).replace_strict(known, return_dtype=words)
