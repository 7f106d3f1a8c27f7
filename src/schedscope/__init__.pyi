"""The public names: each is stated here, once.

Type checkers read this file, and `__init__.py` finds here where a name is defined.
"""

from schedscope import workload as workload
from schedscope.analysis.affinity import affinity as affinity
from schedscope.analysis.antagonists import antagonists as antagonists
from schedscope.analysis.check import check as check
from schedscope.analysis.comparison import compare as compare
from schedscope.analysis.cpu_efficiency import cpu_efficiency as cpu_efficiency
from schedscope.analysis.cpu_returns import cpu_returns as cpu_returns
from schedscope.analysis.critical_path import critical_path as critical_path
from schedscope.analysis.culprits import culprits as culprits
from schedscope.analysis.definitions import as_defined as as_defined
from schedscope.analysis.definitions import definitions as definitions
from schedscope.analysis.diagnosis import diagnosis as diagnosis
from schedscope.analysis.fairness import fairness as fairness
from schedscope.analysis.fairness import jain_index as jain_index
from schedscope.analysis.interactivity import (
    interactivity as interactivity,
)
from schedscope.analysis.interactivity import (
    interactivity_sentences as interactivity_sentences,
)
from schedscope.analysis.interactivity import (
    interactivity_series as interactivity_series,
)
from schedscope.analysis.isolation import (
    isolation_leaks as isolation_leaks,
)
from schedscope.analysis.isolation import (
    runs_outside_affinity as runs_outside_affinity,
)
from schedscope.analysis.lag import lag as lag
from schedscope.analysis.matching import match_threads as match_threads
from schedscope.analysis.migration import (
    migration_matrix as migration_matrix,
)
from schedscope.analysis.migration import (
    migration_summary as migration_summary,
)
from schedscope.analysis.migration import (
    migrations as migrations,
)
from schedscope.analysis.migration import (
    ping_pong as ping_pong,
)
from schedscope.analysis.migration_cause import migration_agreement as migration_agreement
from schedscope.analysis.ministat import ministat as ministat
from schedscope.analysis.ministat_text import ministat_text as ministat_text
from schedscope.analysis.off_cpu import off_cpu as off_cpu
from schedscope.analysis.process_efficiency import (
    preemption_loss as preemption_loss,
)
from schedscope.analysis.process_efficiency import (
    process_efficiency as process_efficiency,
)
from schedscope.analysis.queue_depth import (
    queue_depth as queue_depth,
)
from schedscope.analysis.queue_depth import (
    queue_depth_parts as queue_depth_parts,
)
from schedscope.analysis.queue_depth import (
    queue_depth_summary as queue_depth_summary,
)
from schedscope.analysis.queue_depth import (
    queue_load_agreement as queue_load_agreement,
)
from schedscope.analysis.residency import residency as residency
from schedscope.analysis.run_lengths import run_lengths as run_lengths
from schedscope.analysis.runqueue_latency import runqueue_latency as runqueue_latency
from schedscope.analysis.starvation import (
    starvation as starvation,
)
from schedscope.analysis.starvation import (
    starvation_summary as starvation_summary,
)
from schedscope.analysis.starvation_timeline import starvation_timeline as starvation_timeline
from schedscope.analysis.survival import survival as survival
from schedscope.analysis.virtual_lag import (
    virtual_lag as virtual_lag,
)
from schedscope.analysis.virtual_lag import (
    virtual_lag_sentences as virtual_lag_sentences,
)
from schedscope.analysis.virtual_lag import (
    virtual_lag_series as virtual_lag_series,
)
from schedscope.analysis.wait_distribution import wait_distribution as wait_distribution
from schedscope.analysis.wakers import wakers as wakers
from schedscope.analysis.weights import weight_notes as weight_notes
from schedscope.analysis.weights import weights as weights
from schedscope.analysis.work_conservation import (
    idle_episodes as idle_episodes,
)
from schedscope.analysis.work_conservation import (
    wasted_time as wasted_time,
)
from schedscope.analysis.worst_waits import worst_waits as worst_waits
from schedscope.errors import (
    FormatError as FormatError,
)
from schedscope.errors import (
    InternalError as InternalError,
)
from schedscope.errors import (
    MissingEventsError as MissingEventsError,
)
from schedscope.errors import (
    MissingExtraError as MissingExtraError,
)
from schedscope.errors import (
    SchedscopeError as SchedscopeError,
)
from schedscope.errors import (
    StorageError as StorageError,
)
from schedscope.errors import (
    UsageError as UsageError,
)
from schedscope.exports.write import export as export
from schedscope.parsers.formats import formats as formats
from schedscope.plot.affinity import (
    plot_cpu_returns as plot_cpu_returns,
)
from schedscope.plot.affinity import (
    plot_residency as plot_residency,
)
from schedscope.plot.antagonists import plot_antagonists as plot_antagonists
from schedscope.plot.comparison import (
    plot_comparison as plot_comparison,
)
from schedscope.plot.comparison import (
    plot_wait_distribution as plot_wait_distribution,
)
from schedscope.plot.cpu_efficiency import plot_cpu_efficiency as plot_cpu_efficiency
from schedscope.plot.critical_path import plot_critical_path as plot_critical_path
from schedscope.plot.fairness import plot_fairness as plot_fairness
from schedscope.plot.fairness import plot_lag as plot_lag
from schedscope.plot.interactivity import plot_interactivity as plot_interactivity
from schedscope.plot.migration import (
    plot_migration_matrix as plot_migration_matrix,
)
from schedscope.plot.migration import (
    plot_migration_rates as plot_migration_rates,
)
from schedscope.plot.off_cpu import plot_off_cpu as plot_off_cpu
from schedscope.plot.process_efficiency import plot_process_efficiency as plot_process_efficiency
from schedscope.plot.queue_depth import plot_queue_depth as plot_queue_depth
from schedscope.plot.run_lengths import plot_run_lengths as plot_run_lengths
from schedscope.plot.runqueue_latency import plot_runqueue_latency as plot_runqueue_latency
from schedscope.plot.starvation import plot_starvation as plot_starvation
from schedscope.plot.survival import plot_survival as plot_survival
from schedscope.plot.virtual_lag import plot_virtual_lag as plot_virtual_lag
from schedscope.plot.wakers import plot_wakers as plot_wakers
from schedscope.plot.work_conservation import (
    plot_idle_episodes as plot_idle_episodes,
)
from schedscope.plot.work_conservation import (
    plot_wasted_time as plot_wasted_time,
)
from schedscope.plot.worst_waits import plot_worst_waits as plot_worst_waits
from schedscope.present.readable import readable as readable
from schedscope.simulator.fidelity import fidelity as fidelity
from schedscope.simulator.outcome import simulate_all as simulate_all
from schedscope.simulator.policy import Policy as Policy
from schedscope.simulator.policy import policies as policies
from schedscope.simulator.policy import tunables as tunables
from schedscope.simulator.run import internals as internals
from schedscope.simulator.run import simulate as simulate
from schedscope.timelines.page import timeline_html as timeline_html
from schedscope.timelines.widget import timeline as timeline
from schedscope.trace import (
    Trace as Trace,
)
from schedscope.trace import (
    convert as convert,
)
from schedscope.trace import (
    open as open,
)
from schedscope.trace import (
    read_tables as read_tables,
)
