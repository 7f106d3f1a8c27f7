"""The public names: each is stated here, once.

Type checkers read this file, and `__init__.py` finds here where a name is defined.
"""

from schedscope import plot as plot, workload as workload
from schedscope.analysis.affinity import affinity as affinity
from schedscope.analysis.check.check import check as check
from schedscope.analysis.comparison.compare import compare as compare
from schedscope.analysis.comparison.matching import match_threads as match_threads
from schedscope.analysis.cpu_returns import cpu_returns as cpu_returns
from schedscope.analysis.critical_path import critical_path as critical_path
from schedscope.analysis.definitions import as_defined as as_defined, definitions as definitions
from schedscope.analysis.dispatch_depth import dispatch_depth as dispatch_depth
from schedscope.analysis.dispatch_queues import dispatch_queues as dispatch_queues
from schedscope.analysis.dispatch_slices import dispatch_slices as dispatch_slices
from schedscope.analysis.efficiency import efficiency as efficiency
from schedscope.analysis.events import events as events
from schedscope.analysis.fairness import fairness as fairness, jain_index as jain_index
from schedscope.analysis.findings.findings import findings as findings
from schedscope.analysis.interactivity import (
    interactivity as interactivity,
    interactivity_sentences as interactivity_sentences,
    interactivity_series as interactivity_series,
)
from schedscope.analysis.interference import interference as interference
from schedscope.analysis.isolation import (
    isolation_leaks as isolation_leaks,
    runs_outside_affinity as runs_outside_affinity,
)
from schedscope.analysis.kicks import kicks as kicks
from schedscope.analysis.lag import lag as lag
from schedscope.analysis.latency import latency as latency
from schedscope.analysis.latency_histogram import latency_histogram as latency_histogram
from schedscope.analysis.migration.causes import migration_agreement as migration_agreement
from schedscope.analysis.migration.migrations import (
    migration_matrix as migration_matrix,
    migration_summary as migration_summary,
    migrations as migrations,
    ping_pong as ping_pong,
)
from schedscope.analysis.ministat.ministat import ministat as ministat
from schedscope.analysis.ministat.text import ministat_text as ministat_text
from schedscope.analysis.off_cpu import off_cpu as off_cpu
from schedscope.analysis.outliers import outliers as outliers
from schedscope.analysis.preemption_loss import preemption_loss as preemption_loss
from schedscope.analysis.queue_depth import (
    queue_depth as queue_depth,
    queue_depth_summary as queue_depth_summary,
    queue_load_agreement as queue_load_agreement,
)
from schedscope.analysis.requests.requests import requests as requests
from schedscope.analysis.residency import residency as residency
from schedscope.analysis.run_lengths import run_lengths as run_lengths
from schedscope.analysis.slowdown import slowdown as slowdown
from schedscope.analysis.starvation.episode_interference import (
    episode_interference as episode_interference,
)
from schedscope.analysis.starvation.starvation import (
    starvation as starvation,
    starvation_summary as starvation_summary,
)
from schedscope.analysis.starvation.timeline import starvation_timeline as starvation_timeline
from schedscope.analysis.survival.survival import survival as survival
from schedscope.analysis.virtual_lag import (
    virtual_lag as virtual_lag,
    virtual_lag_sentences as virtual_lag_sentences,
    virtual_lag_series as virtual_lag_series,
)
from schedscope.analysis.wait_breakdown import wait_breakdown as wait_breakdown
from schedscope.analysis.wait_distribution import wait_distribution as wait_distribution
from schedscope.analysis.wake_chain import wake_chain as wake_chain
from schedscope.analysis.wakers import wakers as wakers
from schedscope.analysis.weights import weight_notes as weight_notes, weights as weights
from schedscope.analysis.work_conservation import (
    idle_episodes as idle_episodes,
    work_conservation as work_conservation,
)
from schedscope.analysis.worst_waits import worst_waits as worst_waits
from schedscope.errors import (
    FormatError as FormatError,
    InternalError as InternalError,
    MissingEventsError as MissingEventsError,
    MissingExtraError as MissingExtraError,
    SchedscopeError as SchedscopeError,
    StorageError as StorageError,
    UsageError as UsageError,
)
from schedscope.exports.write import export as export
from schedscope.fleets.fleet import fleet as fleet
from schedscope.parsers.formats import formats as formats
from schedscope.present.readable import readable as readable
from schedscope.processes import of_processes as of_processes
from schedscope.simulator.changes.notes import whatif_notes as whatif_notes
from schedscope.simulator.changes.whatif import whatif as whatif
from schedscope.simulator.closeness.fidelity import fidelity as fidelity
from schedscope.simulator.closeness.of_runs import fidelity_of_runs as fidelity_of_runs
from schedscope.simulator.policies.policy import (
    Policy as Policy,
    policies as policies,
    tunables as tunables,
)
from schedscope.simulator.policies.scx_object import scx as scx
from schedscope.simulator.runs.run import policy_series as policy_series, simulate as simulate
from schedscope.simulator.runs.summary import simulate_all as simulate_all
from schedscope.store.opening import (
    convert as convert,
    open as open,
    read_tables as read_tables,
)
from schedscope.store.trace import Trace as Trace
from schedscope.timelines.page import timeline_html as timeline_html
from schedscope.timelines.widget import timeline as timeline

__version__: str
