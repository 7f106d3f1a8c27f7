"""Figures: `plot.X(frame)` draws the frame that `schedscope.X(trace)` returned."""

from schedscope.extras import missing as _missing

try:
    import matplotlib  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise _missing("matplotlib") from error

from schedscope.plot.affinity import cpu_returns, residency
from schedscope.plot.compare import compare, wait_distribution
from schedscope.plot.critical_path import critical_path
from schedscope.plot.efficiency import efficiency
from schedscope.plot.fairness import fairness, lag
from schedscope.plot.fleet import fleet_groups, fleet_hosts
from schedscope.plot.interactivity import interactivity
from schedscope.plot.interference import interference
from schedscope.plot.latency import latency
from schedscope.plot.migrations import migration_matrix, migration_rates
from schedscope.plot.off_cpu import off_cpu
from schedscope.plot.queue_depth import queue_depth
from schedscope.plot.requests import requests
from schedscope.plot.run_lengths import run_lengths
from schedscope.plot.slowdown import slowdown
from schedscope.plot.starvation import starvation
from schedscope.plot.survival import survival
from schedscope.plot.virtual_lag import virtual_lag
from schedscope.plot.wakers import wakers
from schedscope.plot.work_conservation import idle_episodes, work_conservation
from schedscope.plot.worst_waits import worst_waits

__all__ = [
    "compare",
    "cpu_returns",
    "critical_path",
    "efficiency",
    "fairness",
    "fleet_groups",
    "fleet_hosts",
    "idle_episodes",
    "interactivity",
    "interference",
    "lag",
    "latency",
    "migration_matrix",
    "migration_rates",
    "off_cpu",
    "queue_depth",
    "requests",
    "residency",
    "run_lengths",
    "slowdown",
    "starvation",
    "survival",
    "virtual_lag",
    "wait_distribution",
    "wakers",
    "work_conservation",
    "worst_waits",
]
