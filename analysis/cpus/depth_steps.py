"""How many threads wanted each CPU at every instant: the steps of that function.

Nearly all of it is NumPy's, which nothing else of a queue's depth needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.asking.batches import in_batches
from schedscope.analysis.cpus.offline import online_cpus
from schedscope.analysis.cpus.topology import recorded_cpus
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    from schedscope.store.trace import Trace

    Ints = npt.NDArray[np.int64]

# What an interval adds while it lasts, in one number of three digits, so that one
# column is summed: threads waiting, threads running, and intervals that say what a
# CPU does (idle is known, too).
_BITS = 20
_DIGIT = 1 << _BITS
_WAITING, _RUNNING, _KNOWN = 1, _DIGIT, _DIGIT * _DIGIT
# An edge is its instant and, in the lowest bits, which of these it adds: what
# begins with a thread's wait, an idle thread's run, a thread's run; what ends with
# each of the three; nothing.
_ADDS = np.array([_WAITING, _KNOWN, _KNOWN + _RUNNING, -_WAITING, -_KNOWN, -_KNOWN - _RUNNING, 0])
_CODE_BITS = 3
_CODES = (1 << _CODE_BITS) - 1
_NOTHING = 6
STEPS = {
    "cpu": pl.UInt16,
    "ts": pl.Int64,
    "dur": pl.Int64,
    "waiting": pl.Int32,
    "running": pl.Int32,
    "depth": pl.Int32,
}


def of_cpus(states: pl.LazyFrame, cpus: Collection[int] | None) -> pl.LazyFrame:
    """Threads that ran or waited on these CPUs, or on no known one."""
    found = states.filter(pl.col("state").is_in(["running", "runnable"]))
    return found if cpus is None else found.filter(pl.col("cpu").is_in(list(cpus)))


def functions(trace: Trace, by: str, cpus: Collection[int] | None) -> Iterator[pl.DataFrame]:
    """The step functions of CPUs, one after the other, or that of the machine."""
    if by == "cpu":
        yield from steps_of_cpus(trace, cpus)
    elif parts := list(steps_of_cpus(trace)):
        yield together(trace, parts)


def _intervals(trace: Trace, cpus: Collection[int] | None) -> Iterator[pl.DataFrame]:
    """Threads that ran or waited within the window, with what each adds to the levels of its
    CPU.
    """
    begin, end = trace.window
    idle = pl.col("utid") < trace.ncpu
    ran = pl.when(idle).then(pl.lit(1, pl.UInt8)).otherwise(pl.lit(2, pl.UInt8))
    code = pl.when(pl.col("state") == "running").then(ran).otherwise(pl.lit(0, pl.UInt8))
    for states in in_batches(trace.states):
        yield (
            of_cpus(states, cpus)
            .select(
                pl.col("cpu").cast(pl.UInt16),
                pl.col("ts").clip(lower_bound=begin),
                until=(pl.col("ts") + pl.col("dur")).clip(upper_bound=end),
                code=code,
            )
            .filter(pl.col("ts") < pl.col("until"))
            .collect()
        )


def _edges(trace: Trace, cpus: Collection[int] | None) -> dict[int | None, Ints]:
    """The edges of each CPU's intervals in order, as instants since the start of the window."""
    begin, end = trace.window
    if end - begin >= 1 << (63 - _CODE_BITS):
        raise UsageError(f"a window of {end - begin} ns", "less than 36 years", "cut it")
    found: dict[int | None, tuple[list[Ints], list[Ints]]] = {}
    nobody = 1 << 16
    for part in filter(len, _intervals(trace, cpus)):
        cpu = part["cpu"].cast(pl.UInt32).fill_null(nobody).to_numpy()
        if part["cpu"].null_count():
            order = np.argsort(cpu, kind="stable")
        else:
            order = np.argsort(part["cpu"].to_numpy(), kind="stable")  # 16 bits: by radix
        cpu = cpu[order]
        code = part["code"].to_numpy()
        begins = ((part["ts"].to_numpy() - begin << _CODE_BITS) | code)[order]
        ends = ((part["until"].to_numpy() - begin << _CODE_BITS) | code + 3)[order]
        cuts = [0, *(np.flatnonzero(cpu[1:] != cpu[:-1]) + 1).tolist(), len(cpu)]
        for low, high in pairwise(cuts):
            number = int(cpu[low])
            lists = found.setdefault(None if number == nobody else number, ([], []))
            lists[0].append(begins[low:high])
            lists[1].append(ends[low:high])
    window = _window_edges(begin, end)
    # Ends are in order and starts nearly so: a sort that merges ordered runs is six times as fast.
    return {
        cpu: np.sort(np.concatenate([window[:1], *begins, *ends, window[1:]]), kind="stable")
        for cpu, (begins, ends) in found.items()
    }


def _window_edges(begin: int, end: int) -> Ints:
    return np.array([_NOTHING, end - begin << _CODE_BITS | _NOTHING])


def steps_of_cpus(trace: Trace, cpus: Collection[int] | None = None) -> Iterator[pl.DataFrame]:
    """The step function of one CPU after the other; then that of no CPU, if there is one."""
    begin, end = trace.window
    if begin == end:
        return
    window = _window_edges(begin, end)
    found = _edges(trace, cpus)
    recorded = {cpu for cpu in recorded_cpus(trace) if cpus is None or cpu in cpus}
    for cpu in [
        *sorted({*recorded, *(found.keys() - {None})}),  # type: ignore[type-var]
        *([None] if None in found else []),
    ]:
        edges = found.pop(cpu) if cpu in found else window
        codes = (edges & _CODES).astype(np.intp, copy=False)
        yield _levels((edges >> _CODE_BITS) + begin, _ADDS.take(codes), cpu)


def _levels(at: Ints, adds: Ints, cpu: int | None, ncpu: int = 1) -> pl.DataFrame:
    """The step function of edges in order, the first and last of which are the window's.

    Its depth is known where `ncpu` intervals say `known`.
    """
    level = np.cumsum(adds)
    # Of several edges at one instant only their sum ever held.
    held = np.append(at[1:] != at[:-1], True)
    at, level = at[held], level[held]
    changes = np.append(True, level[1:] != level[:-1])
    changes[-1] = True
    at, level = at[changes], level[changes]
    dur, level = np.diff(at), level[:-1]
    digit = _DIGIT - 1
    running = pl.Series((level >> _BITS & digit).astype(np.int32))
    known = pl.Series(level >> 2 * _BITS >= ncpu)
    frame = pl.DataFrame(
        {
            "ts": at[:-1],
            "dur": dur,
            "waiting": (level & digit).astype(np.int32),
            "running": running if known.all() else running.set(~known, None),
        }
    )
    return frame.select(
        pl.lit(cpu, dtype=pl.UInt16).alias("cpu"),
        pl.all(),
        depth=pl.col("waiting") + pl.col("running"),
    )


def together(trace: Trace, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """The step function of the sum: not known while one of the CPUs in use is not."""
    used = online_cpus(trace)
    parts = [part for part in parts if part["cpu"][0] is None or part["cpu"][0] in used]
    if not parts:
        return pl.DataFrame(schema=STEPS)
    sums = [
        part.select(
            pl.col("waiting").cast(pl.Int64) * _WAITING
            + pl.col("running").fill_null(0).cast(pl.Int64) * _RUNNING
            + pl.col("running").is_not_null().cast(pl.Int64) * _KNOWN
        ).to_series()
        for part in parts
    ]
    begin, end = trace.window
    # Each CPU's steps adjoin: one edge where a step ends and the next begins.
    at = np.concatenate([[begin], *(part["ts"].to_numpy() for part in parts), [end]])
    adds = np.concatenate([[0], *(np.diff(part.to_numpy(), prepend=0) for part in sums), [0]])
    order = np.argsort(at, kind="stable")
    ncpu = sum(part["cpu"][0] is not None for part in parts)
    whole = _levels(at[order], adds[order], None, ncpu)
    # Where one CPU of several becomes known, the sum may not change.
    levels = pl.struct("waiting", "running")
    return (
        whole.with_columns(run=levels.rle_id())
        .group_by("run", maintain_order=True)
        .agg(pl.exclude("dur").first(), pl.col("dur").sum())
        .select(*STEPS)
    )
