"""schedscope: capture, analyse and replay CPU-scheduler traces.

    import schedscope as ss
    trace = ss.open("web.capture")
    ss.runqueue_latency(trace, by="comm")

Everything here is loaded when first used: `import schedscope` itself touches
neither Polars nor the native engine, so that the command line answers at once
and hosts without Polars can still capture.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedscope import workload
    from schedscope.analysis.antagonists import antagonists
    from schedscope.analysis.check import check
    from schedscope.analysis.critical_path import critical_path
    from schedscope.analysis.definitions import as_defined, definitions
    from schedscope.analysis.queue_depth import (
        queue_depth,
        queue_depth_summary,
        queue_load_agreement,
    )
    from schedscope.analysis.runqueue_latency import runqueue_latency
    from schedscope.analysis.survival import survival
    from schedscope.analysis.wakers import wakers
    from schedscope.analysis.work_conservation import idle_episodes, wasted_time
    from schedscope.analysis.worst_waits import worst_waits
    from schedscope.errors import (
        FormatError,
        MissingEventsError,
        SchedscopeError,
        StorageError,
        UsageError,
    )
    from schedscope.exports.write import export
    from schedscope.plot.antagonists import plot_antagonists
    from schedscope.plot.critical_path import plot_critical_path
    from schedscope.plot.queue_depth import plot_queue_depth
    from schedscope.plot.runqueue_latency import plot_runqueue_latency
    from schedscope.plot.survival import plot_survival
    from schedscope.plot.wakers import plot_wakers
    from schedscope.plot.work_conservation import plot_idle_episodes, plot_wasted_time
    from schedscope.plot.worst_waits import plot_worst_waits
    from schedscope.simulator.fidelity import fidelity
    from schedscope.simulator.outcome import simulate_all
    from schedscope.simulator.policy import Policy, policies, tunables
    from schedscope.simulator.run import internals, simulate
    from schedscope.trace import Trace, convert, open

# Public name -> the module that defines it. A name added here is added to the
# imports for type checkers above, too (tests/test_layers.py compares them).
_HOMES = {
    "FormatError": "schedscope.errors",
    "MissingEventsError": "schedscope.errors",
    "Policy": "schedscope.simulator.policy",
    "SchedscopeError": "schedscope.errors",
    "StorageError": "schedscope.errors",
    "Trace": "schedscope.trace",
    "UsageError": "schedscope.errors",
    "antagonists": "schedscope.analysis.antagonists",
    "as_defined": "schedscope.analysis.definitions",
    "check": "schedscope.analysis.check",
    "convert": "schedscope.trace",
    "critical_path": "schedscope.analysis.critical_path",
    "definitions": "schedscope.analysis.definitions",
    "export": "schedscope.exports.write",
    "fidelity": "schedscope.simulator.fidelity",
    "idle_episodes": "schedscope.analysis.work_conservation",
    "internals": "schedscope.simulator.run",
    "open": "schedscope.trace",
    "plot_antagonists": "schedscope.plot.antagonists",
    "plot_critical_path": "schedscope.plot.critical_path",
    "plot_idle_episodes": "schedscope.plot.work_conservation",
    "plot_queue_depth": "schedscope.plot.queue_depth",
    "plot_runqueue_latency": "schedscope.plot.runqueue_latency",
    "plot_survival": "schedscope.plot.survival",
    "plot_wakers": "schedscope.plot.wakers",
    "plot_wasted_time": "schedscope.plot.work_conservation",
    "plot_worst_waits": "schedscope.plot.worst_waits",
    "policies": "schedscope.simulator.policy",
    "queue_depth": "schedscope.analysis.queue_depth",
    "queue_depth_summary": "schedscope.analysis.queue_depth",
    "queue_load_agreement": "schedscope.analysis.queue_depth",
    "runqueue_latency": "schedscope.analysis.runqueue_latency",
    "simulate": "schedscope.simulator.run",
    "simulate_all": "schedscope.simulator.outcome",
    "survival": "schedscope.analysis.survival",
    "tunables": "schedscope.simulator.policy",
    "wakers": "schedscope.analysis.wakers",
    "wasted_time": "schedscope.analysis.work_conservation",
    "workload": "schedscope",
    "worst_waits": "schedscope.analysis.worst_waits",
}

__all__ = [
    "FormatError",
    "MissingEventsError",
    "Policy",
    "SchedscopeError",
    "StorageError",
    "Trace",
    "UsageError",
    "antagonists",
    "as_defined",
    "check",
    "convert",
    "critical_path",
    "definitions",
    "export",
    "fidelity",
    "idle_episodes",
    "internals",
    "open",
    "plot_antagonists",
    "plot_critical_path",
    "plot_idle_episodes",
    "plot_queue_depth",
    "plot_runqueue_latency",
    "plot_survival",
    "plot_wakers",
    "plot_wasted_time",
    "plot_worst_waits",
    "policies",
    "queue_depth",
    "queue_depth_summary",
    "queue_load_agreement",
    "runqueue_latency",
    "simulate",
    "simulate_all",
    "survival",
    "tunables",
    "wakers",
    "wasted_time",
    "workload",
    "worst_waits",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'schedscope' has no attribute {name!r}")
    if home == __name__:  # a module of ours, not a name in one
        return import_module(f"{home}.{name}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
