"""The data that a picture of some lanes over a stretch of time needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.analysis.cpus.many_cpus import (
    FEW_CPUS,
    SHOWN_CPUS,
    grouping,
    most_waited_cpus,
)
from schedscope.analysis.cpus.topology import cpu_text, places
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.store.overview_writer import worst
from schedscope.timelines import together
from schedscope.timelines.lanes import CODES, NOBODY, STATES, Lane, Lanes
from schedscope.timelines.levels import Levels
from schedscope.units import duration, printable

if TYPE_CHECKING:
    from schedscope.store.overview import Overview
    from schedscope.store.trace import Trace

INTERVALS = 20_000
"""Most intervals in one answer; lanes with more than fit get sums per pixel."""
MOST_BINS, MOST_LANES = 16_384, 1_024
LONGEST = 1 << 53
"""From so many ns on (104 days), numbers in a browser are no longer exact."""
_WIDTHS = (("u1", 1 << 8), ("u2", 1 << 16), ("u4", 1 << 32))

_STATE_NAMES = cast("pl.Enum", TABLES["states"].schema["state"]).categories
_WORDS = {"llc": "LLC", "package": "package", "node": "node"}
"""What a heading calls a group of CPUs."""

Answer = tuple[dict[str, Any], list[bytes]]


@dataclass(frozen=True)
class _Far:
    """A lane as sums: how they differ from the request, and ns in each state, or None."""

    more: dict[str, Any]
    spent: dict[int, npt.NDArray[np.int64]] | None

    def row(self, key: str, buffers: list[bytes]) -> dict[str, Any]:
        if self.spent is None:
            return {"key": key, "kind": "later", **self.more}
        states = {str(code): _pack(ns, buffers) for code, ns in self.spent.items()}
        return {"key": key, "kind": "bins", "states": states, **self.more}


class Timeline:
    """Answers the requests of the picture; each is independent, and no state is kept.

    Times are ns after the start of the trace's window. A pixel is a whole
    number of ns (`scale`) and its edges are multiples of it, so that Python and
    the browser speak of the very same stretches.
    """

    def __init__(
        self,
        trace: Trace,
        lanes: Sequence[str] | None = None,
        waits: int = 50,
        overview: Overview | None = None,
        threads: int = 4,
        chosen: Collection[int] | None = None,
        cpus: Collection[int] = (),
    ) -> None:
        """Choose what is shown first: `lanes`, else every CPU and `threads` threads.

        Those threads waited longest; of more than 64 CPUs it is the 32 for which threads waited
        longest, in that order. With `chosen`, by `utid`, the threads and the longest waits are of
        these only; with `cpus` the first CPUs are of these, and the longest waits those for them.

        A lane is `cpu:N`, `utid:N`, `tid:N` or `comm:NAME`. With the trace's `overview` an answer
        may be of sums over longer stretches, until it is asked for again. Raises `UsageError`
        for other lanes, for one the trace does not have, and for a trace of 104 days or more.
        """
        if trace.duration >= LONGEST:
            raise UsageError(
                f"a trace of {duration(trace.duration)}",
                "at most 104 days, because a browser's numbers are exact up to 2^53 ns",
                "cut it with `since` and `until` (--since, --until)",
            )
        self.lanes, self.chosen = Lanes(trace, overview), chosen
        self.levels = Levels(trace, self.lanes.cpus(), overview)
        self._many: dict[str, str] = {}
        self.groups: list[str] = []
        """Lanes of groups of CPUs, above all others where CPUs are many."""
        ledger = trace.waits
        if chosen is not None:
            ledger = ledger.filter(pl.col("utid").cast(pl.UInt32).is_in(list(chosen)))
        if cpus:
            ledger = ledger.filter(
                pl.coalesce("queue_cpu", "cpu").cast(pl.UInt32).is_in(list(cpus))
            )
        self.waits = (
            worst(ledger, self.lanes.begin, waits)
            if overview is None or chosen is not None or cpus
            else overview.waits[:waits]
        )
        # Includes threads that never waited if they were asked for.
        waited = dict.fromkeys([*(w["utid"] for w in self.waits), *(chosen or ())])
        self.first = (
            [f"cpu:{cpu}" for cpu in self._first_cpus(cpus)]
            + [f"utid:{utid}" for utid in waited][:threads]
            if lanes is None
            else self._resolve(lanes)
        )

    def about(self) -> dict[str, Any]:
        """What the picture knows before any request: the window, the lanes, the worst waits."""
        utids = {w[key] for w in self.waits for key in ("utid", "waker")} - {None}
        utids |= {int(key[5:]) for key in self.first if key.startswith("utid:")}
        return {
            "name": printable(self.lanes.trace.name),
            "origin": self.lanes.begin - self.lanes.trace.origin,
            "duration": self.lanes.duration,
            "grain": self.lanes.overview.width if self.lanes.overview else None,
            "cpus": self.lanes.cpus(),
            "places": self._places(),
            **self._many,
            "states": list(STATES),
            "lanes": [*self.groups, *self.first],
            "waits": self.waits,
            "names": {str(utid): self.lanes.name(utid) for utid in sorted(utids)},
        }

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """The lanes over `bins` pixels of `scale` ns each from pixel number `first` on.

        `request` has `lanes`, `first`, `bins`, `scale`, and what else is in it comes back (`id`).
        The answer's `lanes` say for each one what it got: `intervals` as they are, or `bins`, the
        ns per pixel in each state; or, of lanes with a height, `levels`: the area, the known time
        and the largest value per pixel. Lanes with few intervals come first until `intervals`
        (20,000) are given out. Numbers are in the buffers: an array is `[buffer, dtype]`. For a
        long trace a lane may come as `bins` of its own `first`, `bins` and `scale`, or as `later`;
        `refining` says that the same request will be answered better soon. A request with `now`
        waits for rows that take longer to be read.

        Raises `UsageError` for an invalid request.
        """
        keys = request.get("lanes")
        first, bins, scale = (_whole(request, name) for name in ("first", "bins", "scale"))
        if not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) > MOST_LANES:
            raise UsageError(f"lanes {keys!r:.80}", f"a list of at most {MOST_LANES} lanes")
        if not (0 < bins <= MOST_BINS and 0 < scale < LONGEST and abs(first) * scale < LONGEST):
            raise UsageError(
                f"{bins} bins of {scale} ns from number {first} on",
                f"1 to {MOST_BINS} bins of 1 ns or more, within 2^53 ns of the start",
            )
        begin, end = first * scale, (first + bins) * scale
        now = request.get("now") is True
        every, keys = keys, [key for key in keys if not Levels.names(key)]
        heights = {
            str(key): self.levels.picture(str(key), first, bins, scale, now=now)
            for key in every
            if Levels.names(key)
        }
        lanes, coming = self.lanes.within(keys, begin, end, now=now)
        far = self._far(
            [key for key, lane in zip(keys, lanes, strict=True) if lane is None],
            coming,
            first,
            bins,
            scale,
            now,
        )
        parts = [slice(0) if lane is None else lane.between(begin, end) for lane in lanes]
        left = _whole({"intervals": INTERVALS, **request}, "intervals")
        whole = set()
        near = [i for i, lane in enumerate(lanes) if lane is not None]
        for i in sorted(near, key=lambda i: parts[i].stop - parts[i].start):
            left -= parts[i].stop - parts[i].start
            if left < 0:
                break
            whole.add(i)
        edges = np.arange(first, first + bins + 1, dtype=np.int64) * scale
        buffers: list[bytes] = []
        utids: set[int] = set()
        rows = []
        for i, (key, lane) in enumerate(zip(keys, lanes, strict=True)):
            if lane is None:
                rows.append(far[str(key)].row(str(key), buffers))
            elif i in whole:
                rows.append(_intervals(key, lane, parts[i], buffers, utids))
            else:
                spent = lane.binned(edges)
                codes = {str(code): _pack(ns, buffers) for code, ns in spent.items()}
                rows.append({"key": key, "kind": "bins", "states": codes})
        for key, level in heights.items():
            sums = {name: _pack(ns, buffers) for name, ns in (level.sums or {}).items()}
            kind = "later" if level.sums is None else "levels"
            rows.append({"key": key, "kind": kind, "top": level.top, **sums, **level.more})
        utids |= {int(str(key)[5:]) for key in keys if str(key).startswith("utid:")}
        names = {str(utid): self.lanes.name(utid) for utid in sorted(utids - {NOBODY})}
        return {**request, "kind": "answer", "lanes": rows, "names": names}, buffers

    def _first_cpus(self, of: Collection[int]) -> list[int]:
        """The CPUs shown first, `of` these if given; of many in groups, the worst CPU and the first
        of its group.
        """
        cpus = [cpu for cpu in self.lanes.cpus() if not of or cpu in of]
        if len(cpus) <= FEW_CPUS:
            return cpus
        waited = most_waited_cpus(self.lanes.trace)
        shown = [cpu for cpu in waited if not of or cpu in of][:SHOWN_CPUS]
        if over := grouping(self.lanes.trace):
            by = next(name for name, column in together.GROUPS.items() if column == over)
            self._many["by"] = by
            self.groups = together.lanes(self.lanes.trace, by, shown)
        self._many["few"] = (
            f"{SHOWN_CPUS} of {len(cpus):,} CPUs, those for which threads waited longest, the worst"
            " first."
        )
        return shown

    def _places(self) -> dict[str, dict[str, str]]:
        """What CPUs are grouped by beside their numbers, and each CPU's group, where known."""
        found = {}
        for by, over in together.GROUPS.items():
            word = _WORDS[by]
            of = places(self.lanes.trace, over)
            texts = {
                number: f"{word} {number}, CPUs {cpu_text(cpu for cpu in of if of[cpu] == number)}"
                for number in set(of.values())
                if number is not None
            }
            if texts:
                found[by] = {str(cpu): texts[n] for cpu, n in of.items() if n is not None}
        return found

    def _far(
        self, keys: Sequence[str], coming: set[str], first: int, bins: int, scale: int, now: bool
    ) -> dict[str, _Far]:
        """The overview's sums of lanes that are too long to be read now, or are `coming`.

        If not `now`, threads' whole lanes begin to be read.
        """
        overview = self.lanes.overview
        if overview is None or not keys:
            return {}
        loading = set(coming)
        if not now:
            loading |= self.lanes.load(key for key in keys if key.startswith("utid:"))
        begin, end = max(0, first * scale), min(self.lanes.duration, (first + bins) * scale)
        found = {}
        for key in keys:
            kind, _, rest = key.partition(":")
            number = int(rest)
            more: dict[str, Any] = {"refining": True} if key in loading else {}
            if kind == "cpu":
                if (sums := overview.cpu(number, first, bins, scale)) is None:
                    fine = overview.width
                    low, high = begin // fine, -(-end // fine)
                    sums = overview.cpu(number, low, high - low, fine) or {}
                    more = {**more, "first": low, "bins": high - low, "scale": fine}
                spent = {STATES.index(name): ns for name, ns in sums.items() if ns.any()}
                found[key] = _Far(more, spent)
            elif thread := overview.thread(number, begin, end):
                low, width, cells = thread
                more = {**more, "first": low, "bins": cells.shape[1], "scale": width}
                spent = {}
                for name, ns in zip(_STATE_NAMES, cells, strict=True):
                    if ns.any() and (code := CODES.get(name)) is not None:
                        spent[code] = spent[code] + ns if code in spent else ns
                found[key] = _Far(more, spent)
            else:
                found[key] = _Far(more, None)
        return found

    def _resolve(self, lanes: Sequence[str]) -> list[str]:
        if isinstance(lanes, str):
            raise UsageError(f"lanes={lanes!r}", "a list of lanes", f"write [{lanes!r}]")
        found: dict[str, None] = {}
        for text in lanes:
            kind, _, rest = str(text).partition(":")
            for key in self._keys(kind, rest, str(text)):
                found[key] = None
        return list(found)

    def _keys(self, kind: str, rest: str, text: str) -> list[str]:
        threads = self.lanes.trace.threads.select("utid", "tid", "comm")
        if kind == "cpu" and rest.isdecimal():
            keys = [f"cpu:{int(rest)}"] if int(rest) in self.lanes.cpus() else []
        elif kind in ("utid", "tid") and rest.isdecimal():
            rows = threads.filter(pl.col(kind) == int(rest)).collect()
            keys = [f"utid:{utid}" for utid in rows["utid"]]
        elif kind == "comm":
            rows = threads.filter(pl.col("comm") == rest).collect()
            keys = [f"utid:{utid}" for utid in rows["utid"]]
        else:
            raise UsageError(f"lane {text!r}", "cpu:N, tid:N, utid:N or comm:NAME", "as in cpu:0")
        if not keys:
            cpus = ", ".join(map(str, self.lanes.cpus()))
            raise UsageError(
                f"lane {text!r} is not in this trace",
                f"one of its CPUs ({cpus}) or threads",
                "trace.threads lists them",
            )
        return keys


def _whole(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r:.40}", "a whole number")
    return value


def _intervals(
    key: str, lane: Lane, part: slice, buffers: list[bytes], utids: set[int]
) -> dict[str, Any]:
    starts, ends = lane.starts[part], lane.ends[part]
    row: dict[str, Any] = {
        "key": key,
        "kind": "intervals",
        "from": int(starts[0]) if len(starts) else 0,
        "gaps": _pack(np.diff(starts, prepend=starts[:1]), buffers),
        "durs": _pack(ends - starts, buffers),
        "codes": _pack(lane.codes[part], buffers),
        "who": _pack(lane.who[part], buffers),
    }
    waker = lane.waker[part]
    if (waker != NOBODY).any() or (lane.waker_cpu[part] != NOBODY).any():
        row["waker"] = _pack(waker, buffers)
        row["waker_cpu"] = _pack(lane.waker_cpu[part], buffers)
    utids.update(np.unique(lane.who[part] if key.startswith("cpu:") else waker).tolist())
    return row


def _pack(values: npt.NDArray[Any], buffers: list[bytes]) -> list[Any]:
    """Little-endian in the fewest bytes that hold them all; f8 is exact up to 2^53."""
    top = int(values.max(initial=0))
    dtype = next((name for name, limit in _WIDTHS if top < limit), "f8")
    buffers.append(values.astype(f"<{dtype}").tobytes())
    return [len(buffers) - 1, dtype]
