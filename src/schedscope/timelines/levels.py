"""Lanes with a height: queue depth, interrupts, quotas and switches, summed over any stretch."""

from __future__ import annotations

import sys
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from schedscope.analysis._base.memberships import memberships
from schedscope.analysis._base.softirqs import softirq
from schedscope.analysis._base.throttling import within
from schedscope.errors import UsageError
from schedscope.timelines.lanes import MOST_ROWS, ROOM, around
from schedscope.timelines.level_sums import Sums
from schedscope.timelines.steps import UNKNOWN, Heights, Ints, Reader, Steps, throttled
from schedscope.units import duration, printable

if TYPE_CHECKING:
    from schedscope.overview import Overview
    from schedscope.trace import Trace

KINDS = {
    "depth": "queue depth",
    "irq": "interrupts",
    "quota": "held back by its CPU quota",
    "rate": "switches per second",
    "lag": "behind what EEVDF would have given it",
}


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

    They are named `depth:N`, `depth:all`, `irq:N`, `quota:N`, `rate:N`, `rate:all` and `lag:N`; N
    is a CPU, of `quota` the place among the control groups that a quota held back, and of `lag` a
    thread. Of a long trace, which
    has an `overview`, rows are read of what is shown, if those are not too many; else there are
    sums over the overview's stretches.
    """

    def __init__(self, trace: Trace, cpus: list[int], overview: Overview | None = None) -> None:
        """Take nothing from the trace yet."""
        self.trace, self._cpus, self._overview = trace, cpus, overview
        self.begin, self.end = trace.window
        self._reader = Reader(trace, cpus)
        self._lanes: dict[str, Heights] = {}
        self._near: dict[str, tuple[int, int, dict[str, Heights]]] = {}
        self._sums: dict[str, Sums] = {}
        self._limited: bool | None = None

    @staticmethod
    def names(key: Any) -> bool:
        """Is this the name of such a lane?"""
        kind, _, rest = str(key).partition(":")
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
            quotas = [f"quota:{n}" for n in range(len(groups))] if self._quotas_fit() else []
            name = "control groups held back by a CPU quota"
            found.append((name if quotas else f"{name}: of a part only (--since, --until)", quotas))
        return [
            {"name": name, "lanes": keys, "titles": [self.title(key) for key in keys]}
            for name, keys in found
        ]

    def title(self, key: str) -> str:
        """What stands beside the lane."""
        kind, _, rest = key.partition(":")
        if kind == "quota":
            return f"quota {printable(throttled(self.trace)[int(rest)]['cgroup'])}"
        what = {"depth": "queue", "irq": "interrupts", "rate": "switches"}[kind]
        return f"{what}, all CPUs" if rest == "all" else f"{what}, CPU {rest}"

    def picture(self, key: str, first: int, bins: int, scale: int) -> Height:
        """A lane over `bins` pixels of `scale` ns from number `first` on.

        Raises `UsageError` for a lane that the trace does not have, and what went wrong while a
        long trace was read.
        """
        kind = self._check(key)
        begin, end = self._inside(first * scale), self._inside((first + bins) * scale)
        near = self._held(key, begin, end, MOST_ROWS)
        if near is None:
            assert self._overview is not None
            width, sums = self._overview.width, self._far(kind)
            if not sums.ready:
                return Height(None, None, {"refining": True})
            if (found := sums.binned(key, first, bins, scale)) is not None:
                return Height(found, sums.top(key), {})
            low, high = begin // width, -(-end // width)
            more = {"first": low, "bins": high - low, "scale": width}
            return Height(sums.binned(key, low, high - low, width), sums.top(key), more)
        edges = (np.arange(first, first + bins + 1, dtype=np.int64) * scale).clip(
            0, self.end - self.begin
        )
        top = near.top if isinstance(near, Steps) else None
        if kind == "depth" and self._overview is not None and self._far(kind).ready:
            top = self._sums[kind].top(key)
        return Height(near.binned(edges), top, {})

    def at(self, key: str, ts: int) -> dict[str, Any]:
        """The step of lane `key` at `ts`, in words."""
        kind, _, rest = self._check(key), *key.partition(":")[1:]
        answer: dict[str, Any] = {"lane": key, "at": ts, "state": None, "tables": []}
        if kind == "rate" or not 0 <= ts < self.end - self.begin:
            return answer
        lane, since, until = self._around(key, ts)
        assert isinstance(lane, Steps)
        begin, value, end = lane.at(ts)
        # Where too many rows would have to be read it may go on beyond what was.
        cut = (begin <= since and since > 0) or (end is None and until < self.end - self.begin)
        end = until if end is None else end
        if value == UNKNOWN:
            return answer
        text = {
            "depth": f"{value} {'thread wants' if value == 1 else 'threads want'} to run here",
            "irq": "interrupts are handled" if value else "no interrupt",
            "quota": "held back by its quota" if value else "not held back",
            "lag": f"{duration(value * 1000)} behind" if value else "not behind",
        }[kind]
        if kind == "irq" and value:
            text = self._handlers(int(rest), begin, end)
        more = {"begin": begin, "end": end, "text": text, "least": cut}
        return {**answer, "state": "level", **more}

    # ---- reading ----

    def _check(self, key: str) -> str:
        kind, _, rest = key.partition(":")
        own: Container[int] = self._cpus
        if kind == "quota":
            own = range(len(throttled(self.trace)))
            if int(rest) in own and not self._quotas_fit():
                raise UsageError(
                    f"lane {key!r:.40} of threads with more than {ROOM:,} intervals",
                    "a part of the trace",
                    "open one with --since and --until",
                )
        elif kind == "lag" and self._overview is None:
            own = self.trace.threads.select("utid").collect()["utid"].to_list()
        elif kind == "lag":
            own = ()  # a replay of all of a long trace
        if rest != "all" and int(rest) not in own:
            raise UsageError(f"lane {key!r:.40}", "a lane that this trace has")
        return kind

    def _quotas_fit(self) -> bool:
        """May the intervals of all threads with a quota be held? Their periods are compared."""
        if self._overview is None:
            return True
        if self._limited is None:
            paths = [str(group["cgroup"]) for group in throttled(self.trace)]
            threads = self.trace.threads.select("utid", "cgroup").drop_nulls().collect().rows()
            utids = {utid for utid, own in threads if any(within(own, path) for path in paths)}
            utids |= set(memberships(self.trace)["utid"])
            rows = sum(map(self._overview.rows_of, utids))
            self._limited = rows <= ROOM
        return self._limited

    def _inside(self, ts: int) -> int:
        return min(max(0, ts), self.end - self.begin)

    def _held(self, key: str, begin: int, end: int, most: int) -> Heights | None:
        """A lane that knows what is in `[begin, end)`; None if more rows must be read for it."""
        kind, _, rest = key.partition(":")
        duration = self.end - self.begin
        if self._overview is None or kind == "quota":
            if key not in self._lanes:
                self._lanes.update(self._reader.read(kind, rest, 0, duration))
            return self._lanes.get(key) or self._reader.unknown(0, duration)
        group = f"{kind}:all" if rest == "all" else kind
        if group in self._near:
            since, until, lanes = self._near[group]
            if since <= begin and end <= until:
                return lanes.get(key) or self._reader.unknown(since, until)
        for span in around(begin, end, duration):
            rows = sum(many for _, many in self._overview.running_rows(*span))
            if rows <= most and span[0] < span[1]:
                lanes = self._reader.read(kind, rest, *span)
                self._near[group] = (*span, lanes)
                return lanes.get(key) or self._reader.unknown(*span)
        return None

    def _far(self, kind: str) -> Sums:
        assert self._overview is not None
        if kind in self._sums and self._sums[kind].failed:
            self._sums.pop(kind).ready  # noqa: B018  raises
        if kind not in self._sums:
            self._sums[kind] = Sums(kind, self._reader, self._overview)
        return self._sums[kind]

    def _around(self, key: str, ts: int) -> tuple[Heights, int, int]:
        """A lane that knows the step at `ts`, with its edges if possible, and where it is known."""
        duration = self.end - self.begin
        span = duration if self._overview is None or key.startswith("quota:") else 1 << 20
        found = None
        while True:
            begin, end = self._inside(ts - span), self._inside(ts + span)
            lane = self._held(key, begin, end, MOST_ROWS if found else sys.maxsize)
            if lane is None:
                assert found is not None
                return found
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
            self.trace._part("irqs", self.begin + begin, self.begin + end)
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
