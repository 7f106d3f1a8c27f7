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
    from schedscope.analysis.affinity import (
        affinity,
        cpu_returns,
        isolation_leaks,
        residency,
        runs_outside_affinity,
    )
    from schedscope.analysis.check import check
    from schedscope.analysis.definitions import as_defined, definitions
    from schedscope.analysis.interactivity import (
        interactivity,
        interactivity_sentences,
        interactivity_series,
    )
    from schedscope.analysis.migration import (
        migration_matrix,
        migration_summary,
        migrations,
        ping_pong,
    )
    from schedscope.analysis.migration_cause import migration_agreement
    from schedscope.analysis.queue_depth import (
        queue_depth,
        queue_depth_summary,
        queue_load_agreement,
    )
    from schedscope.analysis.runqueue_latency import runqueue_latency
    from schedscope.analysis.survival import survival
    from schedscope.analysis.worst_waits import worst_waits
    from schedscope.errors import (
        FormatError,
        MissingEventsError,
        SchedscopeError,
        StorageError,
        UsageError,
    )
    from schedscope.exports.write import export
    from schedscope.plot.affinity import plot_cpu_returns, plot_residency
    from schedscope.plot.interactivity import plot_interactivity
    from schedscope.plot.migration import plot_migration_matrix, plot_migration_rates
    from schedscope.plot.queue_depth import plot_queue_depth
    from schedscope.plot.runqueue_latency import plot_runqueue_latency
    from schedscope.plot.survival import plot_survival
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
    "affinity": "schedscope.analysis.affinity",
    "as_defined": "schedscope.analysis.definitions",
    "check": "schedscope.analysis.check",
    "convert": "schedscope.trace",
    "cpu_returns": "schedscope.analysis.affinity",
    "definitions": "schedscope.analysis.definitions",
    "export": "schedscope.exports.write",
    "fidelity": "schedscope.simulator.fidelity",
    "interactivity": "schedscope.analysis.interactivity",
    "interactivity_sentences": "schedscope.analysis.interactivity",
    "interactivity_series": "schedscope.analysis.interactivity",
    "internals": "schedscope.simulator.run",
    "isolation_leaks": "schedscope.analysis.affinity",
    "migration_agreement": "schedscope.analysis.migration_cause",
    "migration_matrix": "schedscope.analysis.migration",
    "migration_summary": "schedscope.analysis.migration",
    "migrations": "schedscope.analysis.migration",
    "open": "schedscope.trace",
    "ping_pong": "schedscope.analysis.migration",
    "plot_cpu_returns": "schedscope.plot.affinity",
    "plot_interactivity": "schedscope.plot.interactivity",
    "plot_migration_matrix": "schedscope.plot.migration",
    "plot_migration_rates": "schedscope.plot.migration",
    "plot_queue_depth": "schedscope.plot.queue_depth",
    "plot_residency": "schedscope.plot.affinity",
    "plot_runqueue_latency": "schedscope.plot.runqueue_latency",
    "plot_survival": "schedscope.plot.survival",
    "plot_worst_waits": "schedscope.plot.worst_waits",
    "policies": "schedscope.simulator.policy",
    "queue_depth": "schedscope.analysis.queue_depth",
    "queue_depth_summary": "schedscope.analysis.queue_depth",
    "queue_load_agreement": "schedscope.analysis.queue_depth",
    "residency": "schedscope.analysis.affinity",
    "runqueue_latency": "schedscope.analysis.runqueue_latency",
    "runs_outside_affinity": "schedscope.analysis.affinity",
    "simulate": "schedscope.simulator.run",
    "simulate_all": "schedscope.simulator.outcome",
    "survival": "schedscope.analysis.survival",
    "tunables": "schedscope.simulator.policy",
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
    "affinity",
    "as_defined",
    "check",
    "convert",
    "cpu_returns",
    "definitions",
    "export",
    "fidelity",
    "interactivity",
    "interactivity_sentences",
    "interactivity_series",
    "internals",
    "isolation_leaks",
    "migration_agreement",
    "migration_matrix",
    "migration_summary",
    "migrations",
    "open",
    "ping_pong",
    "plot_cpu_returns",
    "plot_interactivity",
    "plot_migration_matrix",
    "plot_migration_rates",
    "plot_queue_depth",
    "plot_residency",
    "plot_runqueue_latency",
    "plot_survival",
    "plot_worst_waits",
    "policies",
    "queue_depth",
    "queue_depth_summary",
    "queue_load_agreement",
    "residency",
    "runqueue_latency",
    "runs_outside_affinity",
    "simulate",
    "simulate_all",
    "survival",
    "tunables",
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
