"""An overview of a long trace, and which of its rows a stretch of time needs.

A viewer of a hundred million intervals shows its first picture from here, without reading them.
`overview_writer` makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.parsers.files import read_small
from schedscope.store import checked_file, overview_writer
from schedscope.store.overview_writer import CODES, NAME, STATES, VERSION
from schedscope.store.thread_totals import SCHEMA

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Overview:
    """The numbers, as `_native.overview` describes them; times are ns after the window's begin."""

    head: Mapping[str, Any]
    running: npt.NDArray[np.uint32]
    idle: npt.NDArray[np.uint32]
    spent: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint32]
    reach: Ints
    present: npt.NDArray[np.uint8]
    totals: Ints

    @property
    def width(self) -> int:
        """ns of a stretch of a CPU: sums over whole ones are exact."""
        return self._width(self.running.shape[1])

    def _width(self, bins: int) -> int:
        begin, end = self.head["window"]
        return -(-max(1, int(end) - int(begin)) // bins)

    @property
    def waits(self) -> list[dict[str, Any]]:
        """The longest waits, as `worst_waits` finds them."""
        return list(self.head["waits"])

    def thread_totals(self) -> pl.DataFrame:
        """What `thread_totals` says of the whole trace."""
        known = zip(SCHEMA.items(), self.totals, strict=True)
        columns = [pl.Series(name, values).cast(to, strict=False) for (name, to), values in known]
        return pl.DataFrame(columns).with_columns(
            pl.when(pl.col(name) >= 0).then(name) for name in ("run", "wait", "ready", "longest")
        )

    def rows_of(self, utid: int) -> int:
        """How many intervals this thread has."""
        return int(self.counts[utid]) if utid < len(self.counts) else 0

    def cpu(self, cpu: int, first: int, bins: int, scale: int) -> dict[str, Ints] | None:
        """ns that a CPU ran and idled per pixel; None if pixels are not made of whole stretches."""
        if scale % self.width or cpu >= len(self.running):
            return None
        rows = {"running": self.running[cpu], "idle": self.idle[cpu]}
        return {name: _sums(row, first, bins, scale // self.width) for name, row in rows.items()}

    def thread(self, utid: int, begin: int, end: int) -> tuple[int, int, Ints] | None:
        """Number and ns of the stretches that hold `[begin, end)`, and ns in each state there.

        States are numbered as in the table. None where the overview has no threads.
        """
        many = self.spent.shape[2]
        if not many or utid >= len(self.spent):
            return None
        width = self._width(many)
        first = min(max(0, begin // width), many - 1)
        last = min(max(first + 1, -(-end // width)), many)
        return first, width, self.spent[utid, :, first:last].astype(np.int64)

    def running_rows(self, begin: int, end: int) -> list[tuple[int, int]]:
        """First and number of the rows among which all runs lie that overlap `[begin, end)`."""
        chosen = (self.reach[:, 3] < end) & (self.reach[:, 4] > begin)
        return self._stretches(chosen)

    def thread_rows(self, utids: Iterable[int], begin: int, end: int) -> list[tuple[int, int]]:
        """The same for all intervals of these threads.

        The table is in the order in which intervals end, but for a few. Of what ends at `end` or
        later only one interval of each thread matters, that with the earliest end.
        """
        from_, until, ends_from = (self.reach[:, i] for i in range(3))
        may = (from_ < end) & (until > begin)
        chosen = np.zeros(len(may), dtype=bool)
        for utid in utids:
            if utid >= len(self.counts):
                continue
            there = may & ((self.present[:, utid // 8] >> (utid % 8)) & 1).astype(bool)
            later = there & (ends_from >= end)
            if later.any():
                there &= ends_from <= until[int(np.argmax(later))]
            chosen |= there
        return self._stretches(chosen)

    def rows_within(self, begin: int, end: int) -> int:
        """How many rows must be read for everything in `[begin, end)`, at most."""
        chosen = (self.reach[:, 0] < end) & (self.reach[:, 1] > begin)
        return sum(many for _, many in self._stretches(chosen))

    def _stretches(self, chosen: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
        edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
        chunk, rows = int(self.head["chunk"]), int(self.head["rows"])
        pairs = edges.reshape(-1, 2) * chunk
        return [(int(a), min(int(b), rows) - int(a)) for a, b in pairs]


def _sums(row: npt.NDArray[np.uint32], first: int, bins: int, many: int) -> Ints:
    """Sums of `many` neighbours, from `first * many` on; 0 beyond the ends."""
    found = np.zeros(bins, dtype=np.int64)
    low, high = max(0, -first), min(bins, -(-len(row) // many) - first)
    if low < high:
        starts = (np.arange(low, high) + first) * many
        end = min(len(row), (first + high) * many)
        found[low:high] = np.add.reduceat(row[:end], starts, dtype=np.int64)
    return found


def of(trace: Trace) -> Overview | None:
    """The overview of a long trace, made now if there is none; None for any other trace.

    Raises `FormatError` if it has to be made and a table is damaged.
    """
    recorded = (trace.info.get("files") or {}).get(STATES)
    rows = (trace.info.get("rows") or {}).get("states", 0)
    if trace.path is None or not recorded or rows < overview_writer.LEAST:
        return None
    identity = [recorded.get("bytes"), recorded.get("crc32")]
    try:
        found = _parsed(read_small(trace.path / NAME, 1 << 30), identity, trace.info)
    except OSError:
        found = None
    if found is not None:
        return found
    trace.folder_of("states")  # raises if the file is damaged
    parts = overview_writer.made(trace.path, trace.info, identity)
    if parts is None:
        return None
    checked_file.keep(trace.path / NAME, parts)
    return _parsed(b"".join(parts), identity, trace.info)


def _parsed(data: bytes, identity: list[Any], about: Mapping[str, Any]) -> Overview | None:
    """None for the bytes of another version, of other tables, or that are damaged."""
    if (found := checked_file.opened(data)) is None:
        return None
    head, numbers = found
    try:
        wanted = [VERSION, identity, list(about["window"]), about["rows"]["states"]]
        if [head[name] for name in ("version", "states", "window", "rows")] != wanted:
            return None
        cpus, threads, chunk = head["cpus"], head["threads"], head["chunk"]
        fine, coarse = head["bins"]
        sizes = min(fine, chunk, coarse + 1, head["totals"] + 1)
        if not all(_is_wait(row) for row in head["waits"]) or sizes < 1:
            return None
        chunks = -(-head["rows"] // chunk)
        at, parts = 0, []
        for shape, dtype in (
            ((cpus, fine), "<u4"),
            ((cpus, fine), "<u4"),
            ((threads, CODES, coarse), "<u4"),
            ((threads,), "<u4"),
            ((chunks, 5), "<i8"),
            ((chunks, -(-threads // 8)), "u1"),
            ((len(SCHEMA), head["totals"]), "<i8"),
        ):
            many = int(np.prod(shape))
            part = np.frombuffer(numbers, dtype, count=many, offset=at).reshape(shape)
            parts.append(part)
            at += part.nbytes
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return Overview(head, *parts) if at == len(numbers) else None


def _is_wait(row: Mapping[str, Any]) -> bool:
    """Has it what `worst` gives?"""
    numbers = ("utid", "wait", "ready", "queue", "waker", "waker_cpu")
    may_be_none = ("queue", "waker", "waker_cpu")
    return (
        isinstance(row["cause"], str)
        and isinstance(row["open"], bool)
        and all(type(row[name]) is int or name in may_be_none for name in numbers)
    )
