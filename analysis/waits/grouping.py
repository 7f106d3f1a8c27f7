"""A whole number for each wait: its thread, CPU, cause, time bucket or several of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.by import By, keys_of
from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.waits.in_queues import DSQ, with_dsq
from schedscope.analysis.waits.wait_bounds import (
    COLUMNS,
    hidden_waits,
    possible_spans,
    rests,
    with_bounds,
)
from schedscope.analysis.waits.waits import (
    WAIT_COLUMNS,
    waits,
    waits_in_batches,
)
from schedscope.errors import FormatError, UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


@dataclass(frozen=True)
class Batch:
    """Some rows of the ledger, with a group's number each.

    `group`, `wait`, `ts` (the start) and `censored` are parallel, one entry per
    wait whose start was seen; `excluded` has the group of each of the others.
    """

    group: pl.Series
    wait: pl.Series
    ts: pl.Series
    censored: pl.Series
    excluded: pl.Series


@dataclass(frozen=True)
class _Part:
    """One key column, or the columns of a thread: codes 0 .. size, the last for null.

    `table` has the keys in order of code; without it a code is a value less `low`.
    """

    columns: tuple[str, ...]
    size: int
    low: int = 0
    step: int = 1
    dtype: pl.DataType | type[pl.DataType] = pl.Int64
    table: pl.DataFrame | None = None
    lookup: pl.Series | None = None

    def codes(self, values: pl.Series) -> pl.Series:
        """The code of each row; `values` are utids where there is a `lookup`."""
        if self.lookup is not None:
            return self.lookup.gather(values.clip(upper_bound=len(self.lookup) - 1))
        if values.dtype == pl.Enum:
            values = values.to_physical()
        codes = values.cast(pl.Int64) - self.low
        if self.step > 1:
            codes //= self.step
        codes = codes.fill_null(self.size)
        inside = codes.is_between(0, self.size - 1)
        return codes if inside.all() else codes.set(~inside, self.size)

    def keys(self, codes: pl.Series) -> pl.DataFrame:
        """The key columns of the given codes."""
        if self.table is not None:
            return self.table[codes]
        values = (codes * self.step + self.low).alias(self.columns[0])
        return pl.DataFrame(values.set(codes == self.size, None).cast(self.dtype))


class Grouping:
    """Reads the ledger in batches, with a whole number in each row that says whose it is."""

    def __init__(
        self,
        trace: Trace,
        by: By | None,
        where: pl.Expr | None = None,
        every: int | None = None,
    ) -> None:
        """Group by the columns `by`, and by buckets of length `every` in which waits began."""
        by = keys_of(by, (*THREAD_COLUMNS, *WAIT_COLUMNS, DSQ))
        trace = with_dsq(trace) if DSQ in by else trace
        if every is not None and every <= 0:
            raise UsageError(f"every={every}", "a time bucket longer than 0 ns", "as in 100ms")
        self._trace, self._where = trace, where
        self.by = by
        self._names = ["ts", *by] if every is not None else by
        self._parts = _parts(trace, by, every)
        size = 1
        for part in self._parts:
            size *= part.size + 1
        if size >= 1 << 63:
            raise UsageError(f"by={by} has too many combinations", "fewer columns at once")
        # Of those that `batches` has numbered, in order of their numbers.
        self.codes = _repeated(0, 0 if self._parts else 1)

    def __len__(self) -> int:
        """Groups that `batches` found so far."""
        return len(self.codes)

    def batches(self, *, times: bool = True) -> Iterator[Batch]:
        """The ledger from start to end; may be read more than once.

        Without `times` the batches' `ts` is empty, which saves reading it.
        """
        columns = ["wait", "censored"]
        if times:
            columns.append("ts_ready")
        for rows in waits_in_batches(self._trace, columns + self._columns(), self._where):
            yield self._batch(rows.collect(), times)

    def bounded(self, *, hidden: bool = True) -> Iterator[pl.DataFrame]:
        """All rows with their code, `group`, and the columns of `with_bounds`.

        With `hidden` also a possible wait for each stretch of unknown time that has none.
        """
        columns = [*COLUMNS, *self._columns()]
        rest = rests(self._trace)
        for rows in waits_in_batches(self._trace, columns, self._where):
            frame = rows.collect()
            _check(frame["wait"])
            coded = frame.with_columns(group=self._code(frame))
            yield with_bounds(coded, rest, self._trace.window[1])
        if hidden and self.of_threads:
            yield self._hidden()

    @property
    def of_threads(self) -> bool:
        """Whether the groups are groups of threads: unknown time is theirs."""
        selected = self._where.meta.root_names() if self._where is not None else []
        by_thread = {*self.by, *selected} <= {"utid", *THREAD_COLUMNS}
        return by_thread and "ts" not in self._names

    def stretches(self) -> pl.DataFrame:
        """Where threads may have waited unseen: `group` and `length`; `once`: in no row."""
        spans = possible_spans(self._trace, self._where).collect()
        once = hidden_waits(self._trace, self._where).with_columns(once=True).collect()
        spans = spans.join(once, on=["utid", "since", "until"], how="left", maintain_order="left")
        return spans.select(
            self._code(spans).alias("group"),
            length=pl.col("until") - pl.col("since"),
            once=pl.col("once").fill_null(value=False),
        )

    def _hidden(self) -> pl.DataFrame:
        """A possible wait for each stretch of unknown time without a wait in the ledger."""
        spans = hidden_waits(self._trace, self._where).collect()
        no, yes = pl.lit(value=False), pl.lit(value=True)
        return spans.select(
            group=self._code(spans),
            wait=pl.lit(0, pl.Int64),
            ts_ready=pl.lit(None, pl.Int64),
            low=pl.lit(0, pl.Int64),
            high=pl.col("until") - pl.col("since"),
            measured=no,
            open=no,
            again=yes,
        )

    def _columns(self) -> list[str]:
        """What the groups' keys are read from."""
        columns: list[str] = []
        for part in self._parts:
            columns += ["utid"] if part.lookup is not None else part.columns
        if "ts" in columns:  # buckets are computed, not read
            columns.remove("ts")
            columns += ["ts_ready", "ts_enqueued", "ts_run"]
        return columns

    def keys(self, codes: pl.Series | None = None) -> pl.DataFrame:
        """The columns asked for, one row per code: of those of `batches` if none are given."""
        rest = self.codes if codes is None else codes
        height = len(rest)
        frames = []
        for part in reversed(self._parts):
            frames.append(part.keys(rest % (part.size + 1)))
            rest = rest // (part.size + 1)
        if not frames:
            return pl.DataFrame(height=height)
        return pl.concat(frames, how="horizontal").select(self._names)

    def _code(self, frame: pl.DataFrame) -> pl.Series:
        code = _repeated(0, frame.height)
        for part in self._parts:
            if part.lookup is not None:
                values = frame["utid"]
            elif part.columns == ("ts",):
                values = frame.select(pl.coalesce("ts_ready", "ts_enqueued", "ts_run"))["ts_ready"]
            else:
                values = frame[part.columns[0]]
            code = code * (part.size + 1) + part.codes(values)
        return code

    def _batch(self, frame: pl.DataFrame, times: bool) -> Batch:
        group = self._number(self._code(frame))
        excluded = group.clear()
        if frame["wait"].null_count():
            known = frame["wait"].is_not_null()
            excluded = group.filter(~known)
            frame, group = frame.filter(known), group.filter(known)
        wait = frame["wait"]
        _check(wait)
        return Batch(
            group=group,
            wait=wait,
            ts=frame["ts_ready"] if times else wait.clear(),
            censored=frame["censored"] != "none",
            excluded=excluded,
        )

    def _number(self, code: pl.Series) -> pl.Series:
        distinct = code.unique().sort()
        fresh = distinct.filter(~distinct.is_in(self.codes.implode()))
        self.codes = pl.concat([self.codes, fresh])
        numbers = pl.int_range(len(self.codes), eager=True)
        return code.replace_strict(self.codes, numbers, return_dtype=pl.Int64)


def _check(wait: pl.Series) -> None:
    least: int = wait.min() or 0  # type: ignore[assignment]
    if least < 0:
        raise FormatError(
            f"there is a wait of {least} ns",
            "waits of 0 ns or more",
            "convert the trace again; if it is another tool's, its clocks disagree",
        )


def _repeated(value: int, rows: int) -> pl.Series:
    return pl.repeat(value, rows, dtype=pl.Int64, eager=True)


def _range(trace: Trace, name: str) -> tuple[int, int]:
    """Least and greatest value of a column; CPU numbers may have gaps."""
    values = waits(trace, [name]).select(low=pl.col(name).min(), high=pl.col(name).max()).collect()
    low, high = values.row(0)
    return (0, 0) if low is None else (int(low), int(high))


def _parts(trace: Trace, by: list[str], every: int | None) -> list[_Part]:
    parts = []
    of_thread = tuple(name for name in by if name in THREAD_COLUMNS)
    if of_thread or "utid" in by or "waker_utid" in by:
        threads = threads_with(trace, of_thread).select("utid", *of_thread).collect()
        top = int(threads["utid"].max() or 0)  # type: ignore[arg-type]
    if of_thread:
        # Thread columns have few distinct values: they are numbered in the small
        # table and looked up by utid, so that no string is touched per wait.
        distinct = threads.select(of_thread).unique(maintain_order=True).with_row_index("#")
        numbered = threads.join(distinct, on=of_thread, how="left", nulls_equal=True)
        # The last entry is for utids that the table does not have.
        lookup = _repeated(distinct.height, top + 2)
        lookup.scatter(numbered["utid"], numbered["#"].cast(pl.Int64))
        table = pl.concat([distinct.drop("#"), distinct.drop("#").clear(1)])
        parts.append(_Part(of_thread, distinct.height, table=table, lookup=lookup))
    schema = trace.waits.collect_schema()
    for name in (name for name in by if name in (*WAIT_COLUMNS, DSQ)):
        dtype = schema[name]
        if isinstance(dtype, pl.Enum):
            words = pl.Series(name, [*dtype.categories, None], dtype=dtype)
            parts.append(_Part((name,), len(dtype.categories), table=pl.DataFrame(words)))
        elif name in ("utid", "waker_utid"):
            parts.append(_Part((name,), top + 1, dtype=dtype))
        else:
            low, high = _range(trace, name)
            parts.append(_Part((name,), high - low + 1, low=low, dtype=dtype))
    if every is not None:
        begin, end = trace.window
        buckets = (end - begin) // every + 1
        parts.append(_Part(("ts",), buckets, low=begin, step=every))
    return parts
