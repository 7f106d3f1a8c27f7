"""How long did requests to a server take, and what did that time consist of?

A request is what a thread reads from a socket or pipe, and lasts until the answer is
written, as the system calls show. Its time is divided exactly into running, waiting for a
CPU, throttling, interrupts, locks, I/O, timers and other sleep. A second row shows the
slowest 1 % alone. This needs `capture --with syscalls`. Choose the server with --process,
--comm or --pid: a client that asks again after each answer looks the same, unless it was
seen to open the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS, count
from schedscope.analysis.asking.by import By, check_where, keys_of
from schedscope.analysis.asking.command import THREAD_GROUPS, Command
from schedscope.analysis.asking.needs import needs, require
from schedscope.analysis.requests.calls import answered
from schedscope.analysis.requests.parts import PARTS, parts_of
from schedscope.analysis.sums.quantiles import quantile
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

REPLIES = ("same", "any")
SLOWEST = 100
"""One in so many requests is among the slowest."""


COMMAND = Command(
    heading="who waited, and why?",
    help="how long requests to a server took, and what for",
    example="""\
  schedscope requests web.capture --process nginx
  schedscope requests web.capture --process nginx --by thread
  schedscope requests web.capture --process nginx --by request --top 20
  schedscope requests filter.capture --reply any
""",
    page="docs/definitions/requests.md",
    by=("process", "thread", "all", "request", *THREAD_GROUPS),
    by_default="process",
    each="request",
    top="the first N rows, or the N slowest requests",
    top_default=20,
    selects="requests to these threads",
    no_cpu="requests have no CPU",
    columns="*by which n p50 p99 max total n_at_least n_censored? n_excluded?",
    narrow="utid fd by_comm p50 n_at_least p99",
    rest=("more row", ", of less time"),
)


@needs("switches", "wakeups", "system_calls")
def requests(
    trace: Trace,
    *,
    by: By = "process",
    where: pl.Expr | None = None,
    reply: str = "same",
    top: int | None = None,
) -> pl.DataFrame:
    """Two rows per group of threads: all its requests, and the slowest 1 % of them.

    A request is a read of a descriptor (`read`, `recvfrom`, ...) and all that follows, up to the
    last write to it (`write`, `sendmsg`, ...) before it is read again; any thread of the process
    may write. It begins when the thread that read was woken for it, in the read or in the poll just
    before. If the data was there before the thread asked for it, the request begins when the read
    was entered, and its time is a lower bound (`n_at_least`). It ends when the last write returned.
    With `reply="any"` the thread's writes to any descriptor count, for servers that read one and
    write another, as with pipes.

    * the columns of `by`: those of `threads`, for the thread that read, or `thread`, `process`,
      `all`;
    * `which`: `all`, or `slowest 1 %` (at least one request);
    * `n`; `total`, `p50`, `p99`, `max`: their times (ns; exact quantiles, nearest rank);
    * the parts of `total`, which sum up to it exactly: `running`; `waiting` (for a CPU);
      `throttled`; `interrupted` (while it ran or waited for a CPU; null if not recorded); `locks`
      (slept in a futex call); `io` (in a call that reads, writes, polls or syncs, or for a page);
      `timer`; `other_sleep`; `backlog` (read, while the thread that answered still worked on
      earlier requests); `unknown`. If one thread reads and another one writes, the parts are those
      of the reader until it woke the writer, then the backlog until the writer's last answer to
      another request, and then those of the writer. Without such a wakeup, the backlog begins with
      the read; without such an answer either, the parts are unknown;
    * `n_at_least`; `n_censored`: requests without an answer when last observed; `n_excluded`: those
      during which events were lost.

    `by="request"`: a row for each request instead, or for the `top` slowest, with `ts` (its start),
    `comm` and `tid` of the thread that read, `by_comm` of the one that wrote, `fd` and `at_least`.

    A client that reads an answer and then asks again looks like a server, unless its `connect` was
    recorded (with `reply="same"`). Select the server with `where`, an expression over the columns
    of `threads` (for the thread that read).

    Definition: docs/definitions/requests.md. Raises `UsageError` for an unknown column or
    `reply`, and for `top` below 1.
    """
    single = by == "request"
    keys = [] if single else keys_of(by, ("utid", *THREAD_COLUMNS))
    check_where(where, ("utid",))
    if top is not None:
        count("top", top, "requests")
    found, whole = _found(trace, keys, where, reply)
    if single:
        whole = _slowest(whole, top)
        return _single(trace, whole.hstack(parts_of(trace, whole)))
    return _summed(whole.hstack(parts_of(trace, whole)), found, keys)


def processes_and_slowest(
    trace: Trace, process: str | None, *, reply: str = "same", top: int = 100
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`requests` by process name, and by request those of one process or of all, in one pass."""
    require(trace, "requests")
    keys = ["process_name"]
    found, whole = _found(trace, keys, None, reply)
    whole = whole.hstack(parts_of(trace, whole))
    own = whole if process is None else whole.filter(pl.col("process_name") == process)
    return _summed(whole, found, keys), _single(trace, _slowest(own, top))


def _found(
    trace: Trace, keys: list[str], where: pl.Expr | None, reply: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The requests to the threads chosen, and those of them that were seen from end to end."""
    if reply not in REPLIES:
        raise UsageError(f"reply={reply!r}", " or ".join(REPLIES))
    used = {name for name in keys if name != "utid"} | {"comm", "tid"}
    used |= set(where.meta.root_names() if where is not None else ()) - {"utid"}
    threads = threads_with(trace, used).select("utid", *sorted(used)).collect()
    served = threads if where is None else threads.filter(where)
    found = answered(trace, served.get_column("utid"), same=reply == "same")
    found = found.join(threads, on="utid", how="left", maintain_order="left")
    return found, found.filter(~pl.col("censored") & ~pl.col("lost"))


def _slowest(whole: pl.DataFrame, top: int | None) -> pl.DataFrame:
    return whole.sort("dur", "ts", descending=[True, False])[:top]


def _summed(whole: pl.DataFrame, found: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Two rows per group: all its requests, and the slowest of them."""
    rows = [
        _row(dict(zip(keys, _tuple(key), strict=True)), group, found, keys, slow=slow)
        for key, group in _groups(whole, keys)
        for slow in (False, True)
    ]
    columns = [*keys, "which", "n", "total", "p50", "p99", "max", *PARTS]
    columns += ["n_at_least", "n_censored", "n_excluded"]
    types = {name: whole.schema[name] for name in keys} | {"which": pl.String()}
    types |= {name: pl.Int64() for name in columns if name not in types}
    return pl.DataFrame(rows, schema=types).select(columns)


def _tuple(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


def _groups(whole: pl.DataFrame, keys: list[str]) -> list[tuple[object, pl.DataFrame]]:
    """The most time first."""
    if whole.is_empty():
        return []
    groups = [((), whole)] if not keys else list(whole.group_by(keys, maintain_order=True))
    return sorted(groups, key=lambda one: (-int(one[1]["dur"].sum()), str(one[0])))


def _row(
    key: dict[str, object],
    group: pl.DataFrame,
    found: pl.DataFrame,
    keys: list[str],
    *,
    slow: bool,
) -> dict[str, object]:
    every = found
    for name in keys:
        every = every.filter(pl.col(name).eq_missing(pl.lit(key[name], found.schema[name])))
    if slow:
        group = _slowest(group, -(-group.height // SLOWEST))
    times = group["dur"].sort()
    counts = {
        "n_censored": int(every["censored"].sum()),
        "n_excluded": int((every["lost"] & ~every["censored"]).sum()),
    }
    return {
        **key,
        "which": "slowest 1 %" if slow else "all",
        "n": group.height,
        "total": int(times.sum()),
        "p50": quantile(times, 0.5),
        "p99": quantile(times, 0.99),
        "max": times[-1],
        **{part: group[part].sum() if group[part].count() else None for part in PARTS},
        "n_at_least": int(group["at_least"].sum()),
        **({} if slow else counts),
    }


def _single(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    writers = trace.threads.select(writer="utid", by_comm="comm").collect()
    return rows.join(writers, on="writer", how="left", maintain_order="left").select(
        "ts", "comm", "tid", "by_comm", "fd", "dur", *PARTS, "at_least", "utid"
    )
