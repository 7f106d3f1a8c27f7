"""Lanes with a height of a long trace: sums over the stretches of its overview.

They are made in the background at the first view, part by part where rows have to fit into memory,
and kept beside the tables as `sums-KIND.bin` (`checked_file`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.parsers.files import read_small
from schedscope.store import checked_file
from schedscope.timelines.background import Background
from schedscope.timelines.lanes import MOST_ROWS
from schedscope.timelines.steps import Ints, Reader

if TYPE_CHECKING:
    from pathlib import Path

    from schedscope.store.overview import Overview

Part = dict[str, npt.NDArray[Any]]

_VERSION = 1
_KEPT = {"depth": ("sum", "known", "max"), "irq": ("sum",), "rate": ("sum",)}
"""What is kept of a lane: an interrupt is as large as it is long, and never not known."""
_TABLES = {"depth": "states", "irq": "irqs", "rate": "switches"}
_WIDTHS = (np.uint16, np.uint32)


class Sums:
    """Sums of one kind of lane (`depth`, `irq`, `rate`), for each CPU and, where it exists, for
    all.
    """

    def __init__(self, kind: str, reader: Reader, cpus: list[int], overview: Overview) -> None:
        """Begin to read."""
        self._kind, self._reader, self._cpus, self._overview = kind, reader, cpus, overview
        self._bins, self._width = overview.running.shape[1], overview.width
        begin, end = overview.head["window"]
        self._duration = int(end) - int(begin)
        self._lanes: dict[str, Part] = {}
        self._ready, self._work = False, Background()
        self._work.begin(self._find)

    @property
    def ready(self) -> bool:
        """Is all read? Raises what went wrong."""
        if self._work.failed is not None:
            raise self._work.failed
        return self._ready

    @property
    def failed(self) -> bool:
        """Has anything gone wrong?"""
        return self._work.failed is not None

    def top(self, key: str) -> int | None:
        """The largest value of a lane in all of the trace, where it has one."""
        if self._kind == "rate":
            return None
        return int(self._lanes[key]["max"].max()) if self._kind == "depth" else 1

    def binned(self, key: str, first: int, bins: int, scale: int) -> dict[str, Ints] | None:
        """As `Steps.binned` of these pixels; None if they are not made of whole stretches."""
        if scale % self._width:
            return None
        many, lane, found = scale // self._width, self._lanes[key], {}
        size = len(lane["sum"])
        low, high = max(0, -first), min(bins, -(-size // many) - first)
        starts = (np.arange(low, max(low, high)) + first) * many
        for name, values in lane.items():
            found[name] = np.zeros(bins, np.int64)
            if len(starts):
                part = values[: min(size, int(starts[-1]) + many)]
                if name == "max":
                    found[name][low:high] = np.maximum.reduceat(part, starts)
                else:
                    found[name][low:high] = np.add.reduceat(part, starts, dtype=np.int64)
        if self._kind == "irq":
            edges = (np.arange(bins + 1) + first) * scale
            found["known"] = np.diff(edges.clip(0, self._duration))
            found["max"] = (found["sum"] > 0).astype(np.int64)
        return found

    # ---- making and keeping ----

    def _find(self) -> None:
        path = self._path()
        try:
            held = self._parsed(read_small(path, 1 << 30)) if path else None
        except OSError:
            held = None
        if held is None:
            made = getattr(self, f"_{self._kind}")()
            held = {key: self._packed(lane) for key, lane in made}
            if path:
                checked_file.keep(path, self._sealed(held))
        self._lanes = held
        self._ready = True

    def _path(self) -> Path | None:
        folder = self._reader.trace.folder_of(_TABLES[self._kind])
        return None if folder is None else folder / f"sums-{self._kind}.bin"

    def _head(self) -> dict[str, Any]:
        """What the sums are of: another table, or other stretches, have others."""
        files = self._reader.trace.info.get("files") or {}
        recorded = files.get(f"{_TABLES[self._kind]}.parquet") or {}
        return {
            "version": _VERSION,
            "table": [recorded.get("bytes"), recorded.get("crc32")],
            "window": list(self._overview.head["window"]),
            "bins": self._bins,
            "cpus": self._cpus,
        }

    def _sealed(self, lanes: dict[str, Part]) -> list[bytes]:
        names = _KEPT[self._kind]
        types = {key: [lane[name].dtype.str for name in names] for key, lane in lanes.items()}
        numbers = [lane[name].tobytes() for lane in lanes.values() for name in names]
        return checked_file.sealed({**self._head(), "lanes": types}, numbers)

    def _parsed(self, data: bytes) -> dict[str, Part] | None:
        """None for sums of something else, and for what is damaged."""
        if (found := checked_file.opened(data)) is None:
            return None
        head, numbers = found
        lanes: dict[str, Part] = {}
        at = 0
        try:
            if {name: head[name] for name in self._head()} != self._head():
                return None
            for key, types in head["lanes"].items():
                lanes[key] = {}
                for name, dtype in zip(_KEPT[self._kind], types, strict=True):
                    part = np.frombuffer(numbers, dtype, count=self._bins, offset=at)
                    lanes[key][name], at = part, at + part.nbytes
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return lanes if at == len(numbers) else None

    def _packed(self, lane: Part) -> Part:
        """In as few bytes as hold the numbers, and as many as there are stretches."""
        packed = {}
        for name, values in lane.items():
            most = int(values.max(initial=0))
            dtype = next((one for one in _WIDTHS if most <= np.iinfo(one).max), np.int64)
            packed[name] = np.zeros(self._bins, np.dtype(dtype).newbyteorder("<"))
            packed[name][: len(values)] = values
        return packed

    def _depth(self) -> Iterator[tuple[str, Part]]:
        """One native pass over `states`, which it reads page by page."""
        for cpu, numbers in occupancy(self._reader.trace).depth_sums(self._cpus, self._width):
            if cpu is None or cpu in self._cpus:
                types = zip(_KEPT["depth"], numbers, ("<i8", "<u4", "<u4"), strict=True)
                lane = {name: np.frombuffer(part, dtype) for name, part, dtype in types}
                yield f"depth:{'all' if cpu is None else cpu}", lane

    def _rate(self) -> Iterator[tuple[str, Part]]:
        trace, origin = self._reader.trace, self._reader.origin
        everybody = np.zeros(self._bins, np.uint32)
        counts = {cpu: np.zeros(self._bins, np.uint32) for cpu in self._cpus}
        for low, high in self._parts(0, self._bins):
            begin = origin + low * self._width
            end = origin + min(self._duration, high * self._width)
            inside = pl.col("ts").is_between(begin, end, "left")
            stretch = (pl.col("ts") - begin) // self._width
            rows = trace.part("switches", begin, end).filter(inside).select("cpu", at=stretch)
            for (cpu,), part in rows.collect().partition_by("cpu", as_dict=True).items():
                many = np.bincount(part["at"].to_numpy(), minlength=high - low).astype(np.uint32)
                everybody[low:high] += many
                if cpu in counts:
                    counts[cpu][low:high] = many
        yield "rate:all", {"sum": everybody}
        for cpu, sums in counts.items():
            yield f"rate:{cpu}", {"sum": sums}

    def _irq(self) -> Iterator[tuple[str, Part]]:
        sums = {f"irq:{cpu}": np.zeros(self._bins, np.int64) for cpu in self._cpus}
        for low, high in self._parts(0, self._bins):
            edges = np.arange(low, high + 1, dtype=np.int64) * self._width
            edges = edges.clip(0, self._duration)
            if edges[0] < edges[-1]:
                span = int(edges[0]), int(edges[-1])
                for key, lane in self._reader.read("irq", "0", *span).items():
                    sums[key][low:high] = lane.binned(edges)["sum"]
        yield from ((key, {"sum": each}) for key, each in sums.items())

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """First and last stretch of parts that fit into memory."""
        width = self._width
        rows = sum(many for _, many in self._overview.running_rows(low * width, high * width))
        if rows <= MOST_ROWS or high - low == 1:
            yield low, high
            return
        middle = (low + high) // 2
        yield from self._parts(low, middle)
        yield from self._parts(middle, high)
