"""Lanes with a height: queue depth, interrupts, quotas and switches, over any stretch of time."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.causes.softirqs import softirq
from schedscope.errors import UsageError
from schedscope.timelines.background import Background
from schedscope.timelines.lanes import MOST_ROWS, around
from schedscope.timelines.level_sums import Sums
from schedscope.timelines.steps import UNKNOWN, Heights, Ints, Reader, Steps, queues, throttled
from schedscope.timelines.together import Together, names as of_group
from schedscope.units import duration, printable, several

if TYPE_CHECKING:
    from schedscope.store.overview import Overview
    from schedscope.store.trace import Trace

QUICK_ROWS = 50_000
"""As in `lanes`: what is made of these rows takes longer."""

KINDS = {
    "depth": "queue depth",
    "irq": "interrupts",
    "quota": "held back by its CPU quota",
    "rate": "switches per second",
    "dsq": "threads in a dispatch queue",
    "lag": "behind what EEVDF would have given it",
}

_WHOLE = ("quota", "dsq")
"""Kinds of which a lane is read for all of the trace, however long that is."""


@dataclass(frozen=True)
class Height:
    """A lane's pixels: their `sums`, as `Steps.binned` has them, or None while they are read.

    `more` is what differs from the request: other pixels, and whether they are still `refining`.
    `top` is the largest value there is.
    """

    sums: dict[str, Ints] | None
    top: int | None
    more: dict[str, Any]


class Levels:
    """The lanes with a height that a trace has, built when first asked for.

    They are named `depth:N`, `depth:all`, `irq:N`, `quota:N`, `dsq:N`, `rate:N`, `rate:all` and
    `lag:N`; N is a CPU, of `quota` the place among the control groups that a quota held back, of
    `dsq` that among the dispatch queues of sched_ext, and of `lag` a thread; and, of groups of
    CPUs, as `together` says. Of a long trace, which has an `overview`, rows are read of what is
    shown, if those are not too many; else there are sums over the overview's stretches.
    """

    def __init__(self, trace: Trace, cpus: list[int], overview: Overview | None = None) -> None:
        """Reads nothing from the trace yet."""
        self.trace, self._cpus, self._overview = trace, cpus, overview
        self.begin, self.end = trace.window
        self._reader = Reader(trace, cpus)
        self._lanes: dict[str, Heights] = {}
        self._near: dict[str, tuple[int, int, dict[str, Heights]]] = {}
        self._sums: dict[str, Sums] = {}
        self._together = Together(trace)
        self._nearby = Background()

    @staticmethod
    def names(key: Any) -> bool:
        """Is this the name of such a lane?"""
        kind, _, rest = str(key).partition(":")
        if of_group(str(key)):
            return True
        return kind in KINDS and (rest.isdecimal() or (rest == "all" and kind in ("depth", "rate")))

    def offered(self) -> list[dict[str, Any]]:
        """What the trace has: what it is called, and its lanes with their titles."""
        found = [
            ("queue depth of each CPU", [f"depth:{cpu}" for cpu in self._cpus]),
            ("queue depth of all CPUs together", ["depth:all"]),
            ("switches per second on each CPU", [f"rate:{cpu}" for cpu in self._cpus]),
            ("switches per second on all CPUs together", ["rate:all"]),
        ]
        if self.trace.irqs.head(1).collect().height:
            found.append(("interrupts on each CPU", [f"irq:{cpu}" for cpu in self._cpus]))
        if groups := throttled(self.trace):
            quotas = [f"quota:{n}" for n in range(len(groups))]
            found.append(("control groups held back by a CPU quota", quotas))
        if names := once(queues, self.trace):
            lanes = [f"dsq:{n}" for n in range(len(names))]
            found.append(("depth of each dispatch queue of sched_ext", lanes))
        return [
            {"name": name, "lanes": keys, "titles": [self.title(key) for key in keys]}
            for name, keys in found
        ]

    def title(self, key: str) -> str:
        """The lane's title."""
        kind, _, rest = key.partition(":")
        if kind == "quota":
            return f"quota {printable(throttled(self.trace)[int(rest)]['cgroup'])}"
        if kind == "dsq":
            return f"dispatch queue {once(queues, self.trace)[int(rest)]}"
        what = {"depth": "queue", "irq": "interrupts", "rate": "switches"}[kind]
        return f"{what}, all CPUs" if rest == "all" else f"{what}, CPU {rest}"

    def picture(self, key: str, first: int, bins: int, scale: int, *, now: bool = True) -> Height:
        """A lane over `bins` pixels of `scale` ns from number `first` on.

        Of a long trace, if not `now`, rows that would take a person's time are read meanwhile.
        Raises `UsageError` for a lane that the trace does not have, and what went wrong while a
        long trace was read.
        """
        kind = self._check(key)
        if of_group(key):
            # All of it: there is nothing finer.
            whole = {"first": 0, "bins": self._together.bins, "scale": self._together.scale}
            return Height(self._together.sums(key), self._together.top(key), whole)
        self._nearby.check()
        begin, end = self._inside(first * scale), self._inside((first + bins) * scale)
        near = self._held(key, begin, end)
        if near is None and (span := self._span(kind, begin, end, now)):
            near = self._read(key, *span)
        if near is None:
            return self._from_afar(key, first, bins, scale, now)
        edges = (np.arange(first, first + bins + 1, dtype=np.int64) * scale).clip(
            0, self.end - self.begin
        )
        top = near.top if isinstance(near, Steps) else None
        if kind == "depth" and self._overview is not None and self._far(kind).ready:
            top = self._sums[kind].top(key)
        return Height(near.binned(edges), top, {})

    def _from_afar(self, key: str, first: int, bins: int, scale: int, now: bool) -> Height:
        """Sums over stretches of the overview; what is better begins to be read."""
        assert self._overview is not None
        kind, soon = key.partition(":")[0], {"refining": True}
        begin, end = self._inside(first * scale), self._inside((first + bins) * scale)
        if kind in _WHOLE:
            self._nearby.begin(lambda: self._read_all(key))
            return Height(None, None, soon)
        width, sums = self._overview.width, self._far(kind)
        ready = sums.ready
        if ready and (found := sums.binned(key, first, bins, scale)) is not None:
            return Height(found, sums.top(key), {})
        span = None if now else self._span(kind, begin, end, now=True)
        if span is not None:
            self._nearby.begin(lambda: self._read(key, *span))
        if not ready:
            return Height(None, None, soon)
        low, high = begin // width, -(-end // width)
        more = {"first": low, "bins": high - low, "scale": width, **(soon if span else {})}
        return Height(sums.binned(key, low, high - low, width), sums.top(key), more)

    def at(self, key: str, ts: int) -> dict[str, Any]:
        """The step of lane `key` at `ts`, in words."""
        kind, _, rest = self._check(key), *key.partition(":")[1:]
        answer: dict[str, Any] = {"lane": key, "at": ts, "state": None, "tables": []}
        if kind == "rate" or of_group(key) or not 0 <= ts < self.end - self.begin:
            return answer
        lane, since, until = self._around(key, ts)
        assert isinstance(lane, Steps)
        begin, value, end = lane.at(ts)
        # Where too many rows would have to be read it may go on beyond what was.
        cut = (begin <= since and since > 0) or (end is None and until < self.end - self.begin)
        end = until if end is None else end
        if value == UNKNOWN and kind != "quota":
            return answer
        limited = {0: "not held back", UNKNOWN: "its quota may hold it back"}
        text = {
            "depth": f"{value} {'thread wants' if value == 1 else 'threads want'} to run here",
            "irq": "interrupts are handled" if value else "no interrupt",
            "quota": limited.get(value, "held back by its quota"),
            "dsq": f"{several(value, 'thread')} in it",
            "lag": f"{duration(value * 1000)} behind" if value else "not behind",
        }[kind]
        if kind == "irq" and value:
            text = self._handlers(int(rest), begin, end)
        more = {"begin": begin, "end": end, "text": text, "least": cut}
        return {**answer, "state": "level", **more}

    # ---- reading ----

    def _check(self, key: str) -> str:
        kind, _, rest = key.partition(":")
        if of_group(key):
            if not self._together.has(key):
                raise UsageError(f"lane {key!r:.40}", "a lane that this trace has")
            return kind
        own: Container[int] = self._cpus
        if kind == "quota":
            own = range(len(throttled(self.trace)))
        elif kind == "dsq":
            own = range(len(once(queues, self.trace)))
        elif kind == "lag" and self._overview is None:
            own = self.trace.threads.select("utid").collect()["utid"].to_list()
        elif kind == "lag":
            own = ()  # a replay of all of a long trace
        if rest != "all" and int(rest) not in own:
            raise UsageError(f"lane {key!r:.40}", "a lane that this trace has")
        return kind

    def _inside(self, ts: int) -> int:
        return min(max(0, ts), self.end - self.begin)

    def _held(self, key: str, begin: int, end: int) -> Heights | None:
        """A lane that was read and knows what is in `[begin, end)`."""
        if self._overview is None or key.partition(":")[0] in _WHOLE:
            return self._lanes.get(key)
        since, until, lanes = self._near.get(_group(key)) or (0, -1, {})
        if since <= begin and end <= until:
            return lanes.get(key) or self._reader.unknown(since, until)
        return None

    def _span(self, kind: str, begin: int, end: int, now: bool) -> tuple[int, int] | None:
        """What may be read for `[begin, end)`, now or at leisure; None for too many rows."""
        if self._overview is None:
            return 0, self.end - self.begin
        if kind in _WHOLE:
            return (0, self.end - self.begin) if now else None
        most = MOST_ROWS if now else min(QUICK_ROWS, MOST_ROWS)
        for span in around(begin, end, self.end - self.begin):
            rows = sum(many for _, many in self._overview.running_rows(*span))
            if rows <= most and span[0] < span[1]:
                return span
        return None

    def _read(self, key: str, begin: int, end: int) -> Heights:
        if self._overview is None or key.partition(":")[0] in _WHOLE:
            return self._read_all(key)
        kind, _, rest = key.partition(":")
        lanes = self._reader.read(kind, rest, begin, end)
        self._near[_group(key)] = (begin, end, lanes)
        return lanes.get(key) or self._reader.unknown(begin, end)

    def _read_all(self, key: str) -> Heights:
        kind, _, rest = key.partition(":")
        self._lanes.update(self._reader.read(kind, rest, 0, self.end - self.begin))
        return self._lanes.setdefault(key, self._reader.unknown(0, self.end - self.begin))

    def _far(self, kind: str) -> Sums:
        assert self._overview is not None
        if kind in self._sums and self._sums[kind].failed:
            self._sums.pop(kind).ready  # noqa: B018  raises
        if kind not in self._sums:
            self._sums[kind] = Sums(kind, self._reader, self._cpus, self._overview)
        return self._sums[kind]

    def _around(self, key: str, ts: int) -> tuple[Heights, int, int]:
        """A lane that knows the step at `ts`, with its edges if possible, and where it is known."""
        kind, duration = key.partition(":")[0], self.end - self.begin
        span = duration if self._overview is None or kind in _WHOLE else 1 << 20
        found = None
        while True:
            begin, end = self._inside(ts - span), self._inside(ts + span)
            lane = self._held(key, begin, end)
            if lane is None:
                wide = self._span(kind, begin, end, now=True)
                if wide is None and found is not None:
                    return found
                lane = self._read(key, *(wide or (begin, end)))
            found = lane, begin, end
            assert isinstance(lane, Steps)
            since, _, until = lane.at(ts)
            if (since > begin or begin == 0) and (until is not None or end == duration):
                return found
            span *= 8

    def _handlers(self, cpu: int, begin: int, end: int) -> str:
        """Which interrupts those were, the longest first."""
        ts = pl.col("ts") - self.begin
        rows = (
            self.trace.part("irqs", self.begin + begin, self.begin + end)
            .filter(pl.col("cpu") == cpu, ts < end, ts + pl.col("dur") > begin, pl.col("dur") > 0)
            .sort("dur", descending=True)
            .select(pl.col("kind").cast(pl.String), "id")
            .unique(maintain_order=True)
            .head(4)
            .collect()
        )
        named = [
            softirq(number) if kind == "soft" else f"interrupt {number}"
            for kind, number in rows.iter_rows()
        ]
        return "handles " + ", ".join(named)


def _group(key: str) -> str:
    """Lanes of one kind are read together, but that of all CPUs, which is read by itself."""
    kind, _, rest = key.partition(":")
    return f"{kind}:all" if rest == "all" else kind
