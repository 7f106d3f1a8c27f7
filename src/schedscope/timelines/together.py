"""Lanes of nodes, packages and caches: how busy their CPUs are, and how many threads wait there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from schedscope.analysis.cpus.many_cpus import SHOWN_CPUS
from schedscope.analysis.cpus.occupancy import occupancy
from schedscope.analysis.cpus.topology import places, recorded_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schedscope.store.trace import Trace
    from schedscope.timelines.steps import Ints

GROUPS = {"llc": "llc", "package": "package", "node": "numa_node"}
"""What CPUs are grouped by: its name in the page, and the column of `cpus`."""
KINDS = ("busy", "waiting")
"""The CPUs that are busy, and the threads that wait for them."""

_BINS = 512
"""Stretches that the window is cut into: sums over these are all there is of such a lane."""
_NAME = re.compile(f"({'|'.join(KINDS)}):({'|'.join(GROUPS)})([0-9]+)")


def names(key: str) -> bool:
    """Is this the name of such a lane, as `busy:node3`?"""
    return _NAME.fullmatch(key) is not None


def _place_of(trace: Trace, by: str) -> dict[int, int]:
    """The group of each CPU that was recorded and whose group is known."""
    of = places(trace, GROUPS[by])
    return {cpu: at for cpu in recorded_cpus(trace) if (at := of.get(cpu)) is not None}


def lanes(trace: Trace, by: str, cpus: Sequence[int]) -> list[str]:
    """Both lanes of each group of the trace's CPUs: first of those that `cpus` are in, in order."""
    of = _place_of(trace, by)
    found = dict.fromkeys(of[cpu] for cpu in [*cpus, *of] if cpu in of)
    return [f"{kind}:{by}{place}" for place in [*found][:SHOWN_CPUS] for kind in KINDS]


class Together:
    """Sums over groups of CPUs, made in one pass over `states` when first asked for."""

    def __init__(self, trace: Trace) -> None:
        """Reads nothing from the trace yet."""
        self._trace = trace
        self.scale = max(1, -(-trace.duration // _BINS))
        self.bins = -(-trace.duration // self.scale)
        self._cpus: pl.DataFrame | None = None
        self._lanes: dict[str, dict[str, Ints]] = {}
        self._tops: dict[str, int] = {}

    def has(self, key: str) -> bool:
        """Does the trace have this lane?"""
        _, by, place = self._split(key)
        return place in _place_of(self._trace, by).values()

    def sums(self, key: str) -> dict[str, Ints]:
        """For each stretch: the time that CPUs were busy, or threads waited, and the whole that it
        is part of.

        That is the CPUs' time in which it is known what they did, or the time that passed.
        """
        _, by, _ = self._split(key)
        if key not in self._lanes:
            self._read(by)
        return self._lanes[key]

    def top(self, key: str) -> int:
        """What the full height is, alike for all groups of a kind."""
        self.sums(key)
        kind, by, _ = self._split(key)
        return self._tops[f"{kind}:{by}"]

    @staticmethod
    def _split(key: str) -> tuple[str, str, int]:
        found = _NAME.fullmatch(key)
        assert found is not None
        return found[1], found[2], int(found[3])

    def _read(self, by: str) -> None:
        """All lanes of one kind of group: to sum up one takes as long."""
        if self._cpus is None:
            parts = occupancy(self._trace).parts(recorded_cpus(self._trace), False, self.scale)
            self._cpus = pl.DataFrame(parts).filter(pl.col("cpu").is_not_null())
        place = _place_of(self._trace, by)
        numbered = pl.DataFrame(
            {"cpu": place.keys(), "place": place.values()},
            schema={"cpu": pl.UInt16, "place": pl.Int64},
        )
        at = (pl.col("ts") - self._trace.window[0]) // self.scale
        sums = (
            self._cpus.join(numbered, on="cpu")
            .group_by("place", at=at)
            .agg(
                busy=pl.col("running").sum(),
                known=(pl.col("dur") - pl.col("unknown")).sum(),
                waiting=(pl.col("waiting") + pl.col("waiting_unknown")).sum(),
                dur=pl.col("dur").first(),
            )
        )
        most = (pl.col("waiting") / pl.col("dur")).max().ceil()
        self._tops[f"waiting:{by}"] = max(1, int(sums.select(most.fill_null(1)).item()))
        self._tops[f"busy:{by}"] = 1
        by_place = sums.partition_by("place", as_dict=True)
        for number in set(place.values()):
            # None where the window is empty.
            part = by_place.get((number,))
            for kind, (of, within) in {
                "busy": ("busy", "known"),
                "waiting": ("waiting", "dur"),
            }.items():
                lane = {name: np.zeros(self.bins, np.int64) for name in ("sum", "known")}
                if part is not None:
                    lane["sum"][part["at"].to_numpy()] = part[of].to_numpy()
                    lane["known"][part["at"].to_numpy()] = part[within].to_numpy()
                self._lanes[f"{kind}:{by}{number}"] = lane
