"""Which threads did a thread wake, which did those wake, and how long did each wait for a CPU?

Lists the wakeups that followed from what the thread did from --since on, in order of
time: its own, those of the threads that it woke, and so on. When an interrupt or a thread
outside the chain wakes one of these threads, that thread no longer belongs to the chain.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.needs import needs
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_CHAIN = pl.Schema(
    {"row": pl.UInt32, "hops": pl.UInt32, "chain_wait": pl.Int64, "chain_wait_high": pl.Int64}
)


COMMAND = Command(
    heading="who waited, and why?",
    help="the wakeups that followed from what a thread did",
    example="""\
  schedscope wake-chain web.capture --tid 4711 --since 2.5s --until 2.51s
  schedscope wake-chain web.capture --worst 1
""",
    page="docs/definitions/wake-chain.md",
)


@needs("switches", "wakeups")
def wake_chain(
    trace: Trace,
    since: str | float | None = None,
    until: str | float | None = None,
    *,
    utid: int,
) -> pl.DataFrame:
    """One row per wakeup that followed from what thread `utid` did from `since` on.

    Those are the wakeups by the thread itself, by the threads that it woke, by those that they
    woke, and so on, in order of time. A thread belongs to the chain from its wakeup until an
    interrupt or a thread outside the chain wakes it; `utid` itself always belongs to it. A fork
    counts as a wakeup.

    * `ts_ready`: when it was woken; `hops`: wakeups from `utid` to here, 1 for a thread that it
      woke itself;
    * `waker_comm`, `waker_tid`, `waker_utid`: who woke it;
    * `comm`, `tid`, `utid`: the thread; `cpu`: where it then ran, or on whose queue it was when
      last seen;
    * `wait`, `wait_high`, `ts_run`: how long it then waited for a CPU, at least and at most (ns;
      null if not known, or if nothing bounds it), and when that ended (null if it was not seen to
      end);
    * `chain_wait`, `chain_wait_high`: the sum of the waits after the wakeups that led here, this
      one included (ns).

    Times are as in `Trace.between`; without `since` and `until` they are those of the window.
    Wakeups of threads that already ran or waited began no wait, and have no row.

    Definition and its limits: docs/definitions/wake-chain.md. Raises `UsageError` for a thread or
    an interval that the trace does not have.

    >>> from schedscope import Trace
    >>> waits = pl.DataFrame({
    ...     "utid": [2, 3, 4, 3], "cause": ["wake"] * 4, "waker_utid": [1, 2, None, 1],
    ...     "ts_ready": [10, 30, 35, 50], "ts_run": [15, 32, 36, 58], "wait": [5, 2, 1, 8],
    ...     "cpu": [0] * 4, "queue_cpu": [0] * 4, "censored": ["none"] * 4, "wait_high": [None] * 4,
    ... })
    >>> threads = pl.DataFrame({
    ...     "utid": range(5), "tid": [0, 11, 12, 13, 14],
    ...     "comm": ["idle", "client", "server", "db", "x"],
    ... })
    >>> trace = Trace.from_tables({"waits": waits, "threads": threads},
    ...                           {"ncpu": 1, "window": [0, 80]})
    >>> wake_chain(trace, utid=1).select("hops", "waker_comm", "comm", "wait", "chain_wait")
    shape: (3, 5)
    ┌──────┬────────────┬────────┬──────┬────────────┐
    │ hops ┆ waker_comm ┆ comm   ┆ wait ┆ chain_wait │
    │ ---  ┆ ---        ┆ ---    ┆ ---  ┆ ---        │
    │ u32  ┆ str        ┆ str    ┆ i64  ┆ i64        │
    ╞══════╪════════════╪════════╪══════╪════════════╡
    │ 1    ┆ client     ┆ server ┆ 5    ┆ 5          │
    │ 2    ┆ server     ┆ db     ┆ 2    ┆ 7          │
    │ 1    ┆ client     ┆ db     ┆ 8    ┆ 8          │
    └──────┴────────────┴────────┴──────┴────────────┘
    """
    first, last = trace.window
    threads = trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm", "tid").collect()
    if not isinstance(utid, Integral) or utid < trace.ncpu or utid not in threads["utid"]:
        raise UsageError(
            f"utid={utid!r}", "a thread of this trace, not an idle one", "trace.threads lists them"
        )
    begin = first if since is None else trace.instant(since)
    end = last if until is None else trace.instant(until)
    if not first <= begin < end <= last:
        raise UsageError(
            f"since={since!r}, until={until!r}",
            f"times within {trace.seconds(first):.6f} and {trace.seconds(last):.6f} s, in order",
            "trace.seconds(ts) is the time of an instant of a column ts",
        )
    woken = (
        trace.part("waits", begin, end)
        .filter(
            pl.col("cause").cast(pl.String).is_in(["wake", "new"]),
            pl.col("ts_ready").is_between(begin, end, "left"),
        )
        .select(
            "ts_ready", "ts_run", "wait",
            wait_high=pl.when(pl.col("censored") == "none").then("wait").otherwise("wait_high"),
            cpu=pl.coalesce("cpu", "queue_cpu"),
            waker_utid=pl.col("waker_utid").cast(pl.UInt32),
            utid=pl.col("utid").cast(pl.UInt32),
        )
        .sort("ts_ready", maintain_order=True)
        .with_row_index("row")
        .collect()
    )  # fmt: skip
    wakers = threads.rename({name: f"waker_{name}" for name in threads.columns})
    return (
        woken.join(_followed(woken, utid), on="row", maintain_order="left")
        .join(threads, on="utid", how="left", maintain_order="left")
        .join(wakers, on="waker_utid", how="left", maintain_order="left")
        .select(
            "ts_ready", "hops", "waker_comm", "waker_tid", "waker_utid", "comm", "tid", "utid",
            "cpu", "wait", "wait_high", "ts_run", "chain_wait", "chain_wait_high",
        )
    )  # fmt: skip


def _followed(woken: pl.DataFrame, utid: int) -> pl.DataFrame:
    """Which rows of `woken` belong to the chain, how far from its start, after which waits."""
    chain: dict[int, tuple[int, int, int | None]] = {utid: (0, 0, 0)}
    rows = []
    names = ("row", "waker_utid", "utid", "wait", "wait_high")
    for row, waker, who, wait, high in woken.select(names).iter_rows():
        if (before := chain.get(waker)) is not None:
            most = None if before[2] is None or high is None else before[2] + high
            chain[who] = before[0] + 1, before[1] + (wait or 0), most
            rows.append((row, *chain[who]))
        elif who == utid:
            chain[utid] = 0, 0, 0
        else:
            # Any other waker ends the membership: what it does now follows from that wakeup.
            chain.pop(who, None)
    return pl.DataFrame(rows, _CHAIN, orient="row")
