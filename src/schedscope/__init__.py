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
    from schedscope.analysis.affinity import affinity
    from schedscope.analysis.antagonists import antagonists
    from schedscope.analysis.check import check
    from schedscope.analysis.comparison import compare
    from schedscope.analysis.cpu_efficiency import cpu_efficiency
    from schedscope.analysis.cpu_returns import cpu_returns
    from schedscope.analysis.critical_path import critical_path
    from schedscope.analysis.culprits import culprits
    from schedscope.analysis.definitions import as_defined, definitions
    from schedscope.analysis.diagnosis import diagnosis
    from schedscope.analysis.fairness import fairness, jain_index
    from schedscope.analysis.interactivity import (
        interactivity,
        interactivity_sentences,
        interactivity_series,
    )
    from schedscope.analysis.isolation import isolation_leaks, runs_outside_affinity
    from schedscope.analysis.lag import lag
    from schedscope.analysis.matching import match_threads
    from schedscope.analysis.migration import (
        migration_matrix,
        migration_summary,
        migrations,
        ping_pong,
    )
    from schedscope.analysis.migration_cause import migration_agreement
    from schedscope.analysis.ministat import ministat
    from schedscope.analysis.ministat_text import ministat_text
    from schedscope.analysis.off_cpu import off_cpu
    from schedscope.analysis.process_efficiency import preemption_loss, process_efficiency
    from schedscope.analysis.queue_depth import (
        queue_depth,
        queue_depth_parts,
        queue_depth_summary,
        queue_load_agreement,
    )
    from schedscope.analysis.residency import residency
    from schedscope.analysis.run_lengths import run_lengths
    from schedscope.analysis.runqueue_latency import runqueue_latency
    from schedscope.analysis.starvation import starvation, starvation_summary
    from schedscope.analysis.starvation_timeline import starvation_timeline
    from schedscope.analysis.survival import survival
    from schedscope.analysis.virtual_lag import (
        virtual_lag,
        virtual_lag_sentences,
        virtual_lag_series,
    )
    from schedscope.analysis.wait_distribution import wait_distribution
    from schedscope.analysis.wakers import wakers
    from schedscope.analysis.weights import weight_notes, weights
    from schedscope.analysis.work_conservation import idle_episodes, wasted_time
    from schedscope.analysis.worst_waits import worst_waits
    from schedscope.errors import (
        FormatError,
        InternalError,
        MissingEventsError,
        SchedscopeError,
        StorageError,
        UsageError,
    )
    from schedscope.exports.write import export
    from schedscope.plot.affinity import plot_cpu_returns, plot_residency
    from schedscope.plot.antagonists import plot_antagonists
    from schedscope.plot.comparison import plot_comparison, plot_wait_distribution
    from schedscope.plot.cpu_efficiency import plot_cpu_efficiency
    from schedscope.plot.critical_path import plot_critical_path
    from schedscope.plot.fairness import plot_fairness, plot_lag
    from schedscope.plot.interactivity import plot_interactivity
    from schedscope.plot.migration import plot_migration_matrix, plot_migration_rates
    from schedscope.plot.off_cpu import plot_off_cpu
    from schedscope.plot.process_efficiency import plot_process_efficiency
    from schedscope.plot.queue_depth import plot_queue_depth
    from schedscope.plot.run_lengths import plot_run_lengths
    from schedscope.plot.runqueue_latency import plot_runqueue_latency
    from schedscope.plot.starvation import plot_starvation
    from schedscope.plot.survival import plot_survival
    from schedscope.plot.virtual_lag import plot_virtual_lag
    from schedscope.plot.wakers import plot_wakers
    from schedscope.plot.work_conservation import plot_idle_episodes, plot_wasted_time
    from schedscope.plot.worst_waits import plot_worst_waits
    from schedscope.present.readable import readable
    from schedscope.simulator.fidelity import fidelity
    from schedscope.simulator.outcome import simulate_all
    from schedscope.simulator.policy import Policy, policies, tunables
    from schedscope.simulator.run import internals, simulate
    from schedscope.timelines.page import timeline_html
    from schedscope.timelines.widget import timeline
    from schedscope.trace import Trace, convert, open, read_tables

# Public name -> the module that defines it. A name added here is added to the
# imports for type checkers above, too (tests/test_layers.py compares them).
_HOMES = {
    "FormatError": "schedscope.errors",
    "InternalError": "schedscope.errors",
    "MissingEventsError": "schedscope.errors",
    "Policy": "schedscope.simulator.policy",
    "SchedscopeError": "schedscope.errors",
    "StorageError": "schedscope.errors",
    "Trace": "schedscope.trace",
    "UsageError": "schedscope.errors",
    "affinity": "schedscope.analysis.affinity",
    "antagonists": "schedscope.analysis.antagonists",
    "as_defined": "schedscope.analysis.definitions",
    "check": "schedscope.analysis.check",
    "compare": "schedscope.analysis.comparison",
    "convert": "schedscope.trace",
    "cpu_efficiency": "schedscope.analysis.cpu_efficiency",
    "cpu_returns": "schedscope.analysis.cpu_returns",
    "critical_path": "schedscope.analysis.critical_path",
    "culprits": "schedscope.analysis.culprits",
    "definitions": "schedscope.analysis.definitions",
    "diagnosis": "schedscope.analysis.diagnosis",
    "export": "schedscope.exports.write",
    "fairness": "schedscope.analysis.fairness",
    "fidelity": "schedscope.simulator.fidelity",
    "idle_episodes": "schedscope.analysis.work_conservation",
    "interactivity": "schedscope.analysis.interactivity",
    "interactivity_sentences": "schedscope.analysis.interactivity",
    "interactivity_series": "schedscope.analysis.interactivity",
    "internals": "schedscope.simulator.run",
    "isolation_leaks": "schedscope.analysis.isolation",
    "jain_index": "schedscope.analysis.fairness",
    "lag": "schedscope.analysis.lag",
    "match_threads": "schedscope.analysis.matching",
    "migration_agreement": "schedscope.analysis.migration_cause",
    "migration_matrix": "schedscope.analysis.migration",
    "migration_summary": "schedscope.analysis.migration",
    "migrations": "schedscope.analysis.migration",
    "ministat": "schedscope.analysis.ministat",
    "ministat_text": "schedscope.analysis.ministat_text",
    "off_cpu": "schedscope.analysis.off_cpu",
    "open": "schedscope.trace",
    "ping_pong": "schedscope.analysis.migration",
    "plot_antagonists": "schedscope.plot.antagonists",
    "plot_comparison": "schedscope.plot.comparison",
    "plot_cpu_efficiency": "schedscope.plot.cpu_efficiency",
    "plot_cpu_returns": "schedscope.plot.affinity",
    "plot_critical_path": "schedscope.plot.critical_path",
    "plot_fairness": "schedscope.plot.fairness",
    "plot_idle_episodes": "schedscope.plot.work_conservation",
    "plot_interactivity": "schedscope.plot.interactivity",
    "plot_lag": "schedscope.plot.fairness",
    "plot_migration_matrix": "schedscope.plot.migration",
    "plot_migration_rates": "schedscope.plot.migration",
    "plot_off_cpu": "schedscope.plot.off_cpu",
    "plot_process_efficiency": "schedscope.plot.process_efficiency",
    "plot_queue_depth": "schedscope.plot.queue_depth",
    "plot_residency": "schedscope.plot.affinity",
    "plot_run_lengths": "schedscope.plot.run_lengths",
    "plot_runqueue_latency": "schedscope.plot.runqueue_latency",
    "plot_starvation": "schedscope.plot.starvation",
    "plot_survival": "schedscope.plot.survival",
    "plot_virtual_lag": "schedscope.plot.virtual_lag",
    "plot_wait_distribution": "schedscope.plot.comparison",
    "plot_wakers": "schedscope.plot.wakers",
    "plot_wasted_time": "schedscope.plot.work_conservation",
    "plot_worst_waits": "schedscope.plot.worst_waits",
    "policies": "schedscope.simulator.policy",
    "preemption_loss": "schedscope.analysis.process_efficiency",
    "process_efficiency": "schedscope.analysis.process_efficiency",
    "queue_depth": "schedscope.analysis.queue_depth",
    "queue_depth_parts": "schedscope.analysis.queue_depth",
    "queue_depth_summary": "schedscope.analysis.queue_depth",
    "queue_load_agreement": "schedscope.analysis.queue_depth",
    "read_tables": "schedscope.trace",
    "readable": "schedscope.present.readable",
    "residency": "schedscope.analysis.residency",
    "run_lengths": "schedscope.analysis.run_lengths",
    "runqueue_latency": "schedscope.analysis.runqueue_latency",
    "runs_outside_affinity": "schedscope.analysis.isolation",
    "simulate": "schedscope.simulator.run",
    "simulate_all": "schedscope.simulator.outcome",
    "starvation": "schedscope.analysis.starvation",
    "starvation_summary": "schedscope.analysis.starvation",
    "starvation_timeline": "schedscope.analysis.starvation_timeline",
    "survival": "schedscope.analysis.survival",
    "timeline": "schedscope.timelines.widget",
    "timeline_html": "schedscope.timelines.page",
    "tunables": "schedscope.simulator.policy",
    "virtual_lag": "schedscope.analysis.virtual_lag",
    "virtual_lag_sentences": "schedscope.analysis.virtual_lag",
    "virtual_lag_series": "schedscope.analysis.virtual_lag",
    "wait_distribution": "schedscope.analysis.wait_distribution",
    "wakers": "schedscope.analysis.wakers",
    "wasted_time": "schedscope.analysis.work_conservation",
    "weight_notes": "schedscope.analysis.weights",
    "weights": "schedscope.analysis.weights",
    "workload": "schedscope",
    "worst_waits": "schedscope.analysis.worst_waits",
}

__all__ = [
    "FormatError",
    "InternalError",
    "MissingEventsError",
    "Policy",
    "SchedscopeError",
    "StorageError",
    "Trace",
    "UsageError",
    "affinity",
    "antagonists",
    "as_defined",
    "check",
    "compare",
    "convert",
    "cpu_efficiency",
    "cpu_returns",
    "critical_path",
    "culprits",
    "definitions",
    "diagnosis",
    "export",
    "fairness",
    "fidelity",
    "idle_episodes",
    "interactivity",
    "interactivity_sentences",
    "interactivity_series",
    "internals",
    "isolation_leaks",
    "jain_index",
    "lag",
    "match_threads",
    "migration_agreement",
    "migration_matrix",
    "migration_summary",
    "migrations",
    "ministat",
    "ministat_text",
    "off_cpu",
    "open",
    "ping_pong",
    "plot_antagonists",
    "plot_comparison",
    "plot_cpu_efficiency",
    "plot_cpu_returns",
    "plot_critical_path",
    "plot_fairness",
    "plot_idle_episodes",
    "plot_interactivity",
    "plot_lag",
    "plot_migration_matrix",
    "plot_migration_rates",
    "plot_off_cpu",
    "plot_process_efficiency",
    "plot_queue_depth",
    "plot_residency",
    "plot_run_lengths",
    "plot_runqueue_latency",
    "plot_starvation",
    "plot_survival",
    "plot_virtual_lag",
    "plot_wait_distribution",
    "plot_wakers",
    "plot_wasted_time",
    "plot_worst_waits",
    "policies",
    "preemption_loss",
    "process_efficiency",
    "queue_depth",
    "queue_depth_parts",
    "queue_depth_summary",
    "queue_load_agreement",
    "read_tables",
    "readable",
    "residency",
    "run_lengths",
    "runqueue_latency",
    "runs_outside_affinity",
    "simulate",
    "simulate_all",
    "starvation",
    "starvation_summary",
    "starvation_timeline",
    "survival",
    "timeline",
    "timeline_html",
    "tunables",
    "virtual_lag",
    "virtual_lag_sentences",
    "virtual_lag_series",
    "wait_distribution",
    "wakers",
    "wasted_time",
    "weight_notes",
    "weights",
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
