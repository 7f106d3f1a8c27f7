"""What a picture of some lanes over a stretch of time needs to know, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from schedscope.errors import UsageError
from schedscope.timelines.lanes import NOBODY, STATES, Lane, Lanes
from schedscope.timelines.levels import Levels, Steps
from schedscope.units import printable

if TYPE_CHECKING:
    from schedscope.trace import Trace

INTERVALS = 20_000
"""Most intervals in one answer; lanes with more than fit get sums per pixel."""
MOST_BINS, MOST_LANES = 16_384, 1_024
_WIDTHS = (("u1", 1 << 8), ("u2", 1 << 16), ("u4", 1 << 32))

_FIRST_CPUS = 256
Answer = tuple[dict[str, Any], list[bytes]]


class Timeline:
    """Answers the questions of the picture; each stands alone, nothing is remembered.

    Times are ns after the start of the trace's window. A pixel is a whole
    number of ns (`scale`) and its edges are multiples of it, so that Python and
    the browser speak of the very same stretches.
    """

    def __init__(self, trace: Trace, lanes: Sequence[str] | None = None, waits: int = 50) -> None:
        """Choose what is shown first: `lanes`, else every CPU and who waited longest.

        Of a machine of more than 256 CPUs it is the first 256.

        A lane is `cpu:N`, `utid:N`, `tid:N` or `comm:NAME`. Raises `UsageError`
        for others, and for one the trace does not have.
        """
        self.lanes = Lanes(trace)
        self.levels = Levels(trace, self.lanes.cpus())
        self.waits = self._worst(waits)
        self.first = (
            [f"cpu:{cpu}" for cpu in self.lanes.cpus()[:_FIRST_CPUS]]
            + [f"utid:{utid}" for utid in dict.fromkeys(w["utid"] for w in self.waits)][:4]
            if lanes is None
            else self._resolve(lanes)
        )

    def about(self) -> dict[str, Any]:
        """What the picture knows before it asks: the window, the lanes, the worst waits."""
        utids = {w[key] for w in self.waits for key in ("utid", "waker")} - {None}
        utids |= {int(key[5:]) for key in self.first if key.startswith("utid:")}
        return {
            "name": printable(self.lanes.trace.name),
            "origin": self.lanes.begin - self.lanes.trace.origin,
            "duration": self.lanes.duration,
            "cpus": self.lanes.cpus(),
            "states": list(STATES),
            "lanes": self.first,
            "waits": self.waits,
            "names": {str(utid): self.lanes.name(utid) for utid in sorted(utids)},
        }

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """The lanes over `bins` pixels of `scale` ns each from pixel number `first` on.

        `request` has `lanes`, `first`, `bins`, `scale`, and what else is in it
        comes back (`id`). The answer's `lanes` say for each one what it got:
        `intervals` as they are, or `bins`, the ns per pixel in each state; or, of lanes with a
        height, `levels`: the area, the known time and the largest value per pixel. Lanes
        with few intervals come first until `intervals` (20,000) are given out.
        Numbers are in the buffers: an array is `[buffer, dtype]`.

        Raises `UsageError` for a request that cannot be meant.
        """
        keys = request.get("lanes")
        first, bins, scale = (_whole(request, name) for name in ("first", "bins", "scale"))
        if not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) > MOST_LANES:
            raise UsageError(f"lanes {keys!r:.80}", f"a list of at most {MOST_LANES} lanes")
        if not (0 < bins <= MOST_BINS and 0 < scale < 1 << 53 and abs(first) * scale < 1 << 53):
            raise UsageError(
                f"{bins} bins of {scale} ns from number {first} on",
                f"1 to {MOST_BINS} bins of 1 ns or more, within 2^53 ns of the start",
            )
        begin, end = first * scale, (first + bins) * scale
        every, keys = keys, [key for key in keys if not Levels.names(key)]
        heights = {str(key): self.levels.get(str(key)) for key in every if Levels.names(key)}
        lanes = self.lanes.get(keys)
        parts = [lane.between(begin, end) for lane in lanes]
        left = _whole({"intervals": INTERVALS, **request}, "intervals")
        whole = set()
        for i in sorted(range(len(lanes)), key=lambda i: parts[i].stop - parts[i].start):
            left -= parts[i].stop - parts[i].start
            if left < 0:
                break
            whole.add(i)
        edges = np.arange(first, first + bins + 1, dtype=np.int64) * scale
        buffers: list[bytes] = []
        utids: set[int] = set()
        rows = []
        for i, (key, lane) in enumerate(zip(keys, lanes, strict=True)):
            if i in whole:
                rows.append(_intervals(key, lane, parts[i], buffers, utids))
            else:
                spent = lane.binned(edges)
                codes = {str(code): _pack(ns, buffers) for code, ns in spent.items()}
                rows.append({"key": key, "kind": "bins", "states": codes})
        limits = edges.clip(0, self.lanes.duration)
        for key, level in heights.items():
            parts_of = {
                name: _pack(values, buffers) for name, values in level.binned(limits).items()
            }
            top = level.top if isinstance(level, Steps) else None
            rows.append({"key": key, "kind": "levels", "top": top, **parts_of})
        utids |= {int(str(key)[5:]) for key in keys if str(key).startswith("utid:")}
        names = {str(utid): self.lanes.name(utid) for utid in sorted(utids - {NOBODY})}
        return {**request, "kind": "answer", "lanes": rows, "names": names}, buffers

    def _worst(self, n: int) -> list[dict[str, Any]]:
        """The longest waits, worst first; one that was not seen to end is at least that long."""
        begin = self.lanes.begin
        rows = (
            self.lanes.trace.waits.filter(
                pl.col("wait").is_not_null() & pl.col("ts_ready").is_not_null()
            )
            .select(
                "utid",
                "wait",
                "cause",
                ready=pl.col("ts_ready") - begin,
                queue=pl.coalesce("queue_cpu", "cpu"),
                waker="waker_utid",
                waker_cpu="waker_cpu",
                open=pl.col("censored") != "none",
            )
            .top_k(n, by="wait")
            .collect()
        )
        # Equal waits in order of time, or two runs would differ.
        return rows.sort("wait", "ready", "utid", descending=[True, False, False]).to_dicts()

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
