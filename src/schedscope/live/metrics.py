"""What `schedscope top --metrics` exports to Prometheus: waits per service, and unknown time.

Everything is summed up since the start, so that the reader takes differences over whatever time it
likes. A service that neither ran nor waited for an hour is dropped: containers come and go.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.threads.of_threads import threads_with
from schedscope.analysis.threads.services import service_of
from schedscope.live.waiting import MOST_UNKNOWN, Waiting, busy_and_unknown, lost_events

if TYPE_CHECKING:
    from schedscope.live.recorder import Interval

EDGES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Upper limits of the histograms' ranges, in seconds."""

FORGET = 3600
"""Seconds after which a service that does nothing is dropped."""

_S = 1e-9


@dataclass
class _Service:
    """What threads of a service did since the start, in ns."""

    waiting: int = 0
    running: int = 0
    throttled: int = 0
    runnable: float = 0
    wait_sum: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    seen: float = 0


class Metrics:
    """A collector of `prometheus_client`, to which intervals are added one after the other."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._waiting = Waiting()
        self._services: dict[str, _Service] = {}
        self._throttled: dict[str, int] | None = None
        self._observed = self._unobserved = self._lost = 0
        self._families: list[Any] = []

    def add(
        self, interval: Interval, costs: dict[str, float], where: pl.Expr | None = None
    ) -> None:
        """What happened in the interval; `costs`: CPU seconds since the start, by whose they are.

        `where` selects threads. Of an interval of which more than half is unknown nothing is
        counted but that.
        """
        frame = self._waiting.table(interval, "service", where)
        busy, unknown = busy_and_unknown(interval)
        length = max(1, interval.end - interval.begin)
        self._unobserved += interval.gap or 0
        self._lost += lost_events(interval)
        if unknown <= MOST_UNKNOWN:
            self._observed += length
            self._count(interval, frame, length, where)
        else:
            self._unobserved += length
        self._throttle(interval)
        self._forget()
        # The server's thread sees the old ones or the new ones.
        self._families = list(self._made(interval, busy, unknown, costs))

    def collect(self) -> list[Any]:
        """What `prometheus_client` serves."""
        return self._families

    def _service(self, name: str | None) -> _Service:
        service = self._services.setdefault(name or "", _Service())
        service.seen = time.monotonic()
        return service

    def _count(
        self, interval: Interval, frame: pl.DataFrame, length: int, where: pl.Expr | None
    ) -> None:
        for service in self._services.values():
            service.runnable = 0
        for row in frame.iter_rows(named=True):
            service = self._service(row["service"])
            service.waiting += row["waiting"]
            service.running += row["running"]
            service.runnable = row["waiting"] / length
        threads = threads_with(interval.trace, ["service"], where)
        if where is not None:
            threads = threads.filter(where)
        wait = pl.col("ts_end") - pl.col("ts_ready")
        lengths = (
            self._waiting.waits.lazy()
            .filter(pl.col("ended"))
            .join(threads.select("utid", "service"), on="utid")
            .group_by("service")
            .agg(
                wait.sum().alias("sum"),
                pl.len().alias("all"),
                *((wait <= round(edge * 1e9)).sum().alias(str(edge)) for edge in EDGES),
            )
            .collect()
        )
        for name, total, count, *within in lengths.iter_rows():
            service = self._service(name)
            service.wait_sum += total
            service.counts = [a + b for a, b in zip(service.counts, [*within, count], strict=True)]

    def _throttle(self, interval: Interval) -> None:
        """The kernel's own count, of groups that were there at the interval before, too."""
        before = self._throttled
        self._throttled = interval.throttled
        if before is None:
            return
        for group, total in interval.throttled.items():
            if (more := total - before.get(group, total)) > 0:
                self._service(service_of(group)).throttled += more

    def _forget(self) -> None:
        now = time.monotonic()
        self._services = {
            name: one for name, one in self._services.items() if now - one.seen < FORGET
        }

    def _made(
        self, interval: Interval, busy: float, unknown: float, costs: dict[str, float]
    ) -> Iterator[Any]:
        from prometheus_client import core

        def of_services(
            kind: type[Any], name: str, text: str, value: str, factor: float = _S
        ) -> Any:
            family = kind(f"schedscope_{name}", text, labels=["service"])
            for service, one in sorted(self._services.items()):
                family.add_metric([service], getattr(one, value) * factor)
            return family

        waits = core.HistogramMetricFamily(
            "schedscope_wait_seconds", "Waits for a CPU that ended.", labels=["service"]
        )
        limits = [*map(str, EDGES), "+Inf"]
        for service, one in sorted(self._services.items()):
            buckets = list(zip(limits, one.counts, strict=True))
            waits.add_metric([service], buckets, one.wait_sum * _S)
        yield waits
        counter, gauge = core.CounterMetricFamily, core.GaugeMetricFamily
        yield of_services(counter, "waiting_seconds", "Time that threads waited.", "waiting")
        yield of_services(counter, "running_seconds", "Time that threads ran.", "running")
        text = "Time that CPU quotas held threads back, as the kernel counts it."
        yield of_services(counter, "throttled_seconds", text, "throttled")
        text = "Threads that waited at a time, in the last interval."
        yield of_services(gauge, "runnable_threads", text, "runnable", 1.0)
        yield gauge("schedscope_busy_ratio", "Share of the CPUs' time in which threads ran.", busy)
        text = "Share of the CPUs' time that the recording does not explain."
        yield gauge("schedscope_unknown_ratio", text, unknown)
        yield gauge("schedscope_cpus", "CPUs of this host.", interval.trace.ncpu)
        text = "Time that was counted."
        yield counter("schedscope_observed_seconds", text, self._observed * _S)
        text = "Time of which nothing was counted, to keep the cost down or because it was lost."
        yield counter("schedscope_unobserved_seconds", text, self._unobserved * _S)
        yield counter("schedscope_lost_events", "Events that the recorder lost.", self._lost)
        cost = counter(
            "schedscope_cpu_seconds", "CPU time of the recorder and of its reader.", labels=["part"]
        )
        for part, seconds in costs.items():
            cost.add_metric([part], seconds)
        yield cost


def grafana() -> Any:
    """A Grafana board of these metrics, a JSON document to import."""
    return json.loads(files("schedscope.live").joinpath("grafana.json").read_text(encoding="utf-8"))
