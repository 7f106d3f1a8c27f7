"""Lanes with a height of a long trace from afar: sums over the stretches of its overview.

They are made in the background, part by part, because each part's rows have to fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from schedscope.timelines.lanes import MOST_ROWS
from schedscope.timelines.steps import Ints, Reader

if TYPE_CHECKING:
    from schedscope.overview import Overview

Part = dict[str, npt.NDArray[np.generic]]

_KEPT = {"depth": ("sum", "known", "max"), "irq": ("sum",), "rate": ("sum",)}
"""What is kept of a lane: an interrupt is as large as it is long, and never not known."""


class Sums:
    """Of one kind of lane (`depth`, `irq`, `rate`), of each CPU and, where there is, of all."""

    def __init__(self, kind: str, reader: Reader, overview: Overview) -> None:
        """Begin to read."""
        self._kind, self._reader, self._overview = kind, reader, overview
        self._lanes: dict[str, Part] = {}
        self._ready, self._failed = False, None
        Thread(target=self._make, daemon=True).start()

    _failed: BaseException | None

    @property
    def ready(self) -> bool:
        """Is all read? Raises what went wrong."""
        if self._failed is not None:
            raise self._failed
        return self._ready

    @property
    def failed(self) -> bool:
        """Has anything gone wrong?"""
        return self._failed is not None

    def top(self, key: str) -> int | None:
        """The largest value of a lane in all of the trace, where it has one."""
        if self._kind == "rate":
            return None
        return int(self._lanes[key]["max"].max()) if self._kind == "depth" else 1

    def binned(self, key: str, first: int, bins: int, scale: int) -> dict[str, Ints] | None:
        """As `Steps.binned` of these pixels; None if they are not made of whole stretches."""
        width, duration = self._overview.width, int(np.diff(self._overview.head["window"])[0])
        if scale % width:
            return None
        many, lane, found = scale // width, self._lanes[key], {}
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
            found["known"] = np.diff(edges.clip(0, duration))
            found["max"] = (found["sum"] > 0).astype(np.int64)
        return found

    def _make(self) -> None:
        try:
            bins, width = self._overview.running.shape[1], self._overview.width
            window = self._overview.head["window"]
            duration = int(window[1]) - int(window[0])
            for low, high in self._parts(0, bins):
                edges = (np.arange(low, high + 1, dtype=np.int64) * width).clip(0, duration)
                if edges[0] >= edges[-1]:
                    continue
                for key, sums in self._read(edges):
                    if key not in self._lanes:
                        kept = _KEPT[self._kind]
                        self._lanes[key] = {
                            name: np.zeros(bins, self._dtype(name)) for name in kept
                        }
                    for name, values in self._lanes[key].items():
                        values[low : low + len(sums[name])] = sums[name]
            self._ready = True
        except BaseException as error:  # whoever asks next is told
            self._failed = error

    def _read(self, edges: Ints) -> Iterator[tuple[str, dict[str, Ints]]]:
        span = int(edges[0]), int(edges[-1])
        if self._kind == "depth":
            yield from self._reader.depth_sums(*span, self._overview.width)
            return
        for rest in ("0", "all") if self._kind == "rate" else ("0",):
            for key, lane in self._reader.read(self._kind, rest, *span).items():
                yield key, lane.binned(edges)

    def _dtype(self, name: str) -> type[np.generic]:
        """A stretch has fewer than 2^32 ns, and no more threads wait than there are."""
        if name == "max":
            return np.uint16 if self._overview.head["threads"] < 1 << 16 else np.uint32
        return np.int64 if name == "sum" and self._kind == "depth" else np.uint32

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """First and last stretch of parts that fit into memory."""
        width = self._overview.width
        rows = sum(many for _, many in self._overview.running_rows(low * width, high * width))
        if rows <= MOST_ROWS or high - low == 1:
            yield low, high
            return
        middle = (low + high) // 2
        yield from self._parts(low, middle)
        yield from self._parts(middle, high)
