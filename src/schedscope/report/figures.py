"""The report's figures as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from schedscope.analysis._base.memo import once
from schedscope.analysis.cpu_efficiency import cpu_efficiency
from schedscope.analysis.fairness import fairness, jain_of
from schedscope.analysis.faults import EPISODES
from schedscope.analysis.migration import migration_matrix
from schedscope.analysis.residency import residency
from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.starvation import starvation
from schedscope.analysis.starvation_timeline import starvation_timeline
from schedscope.analysis.survival import survival
from schedscope.analysis.work_conservation import wasted_time
from schedscope.analysis.worst_waits import worst_waits
from schedscope.errors import StorageError
from schedscope.plot.affinity import plot_residency
from schedscope.plot.cpu_efficiency import plot_cpu_efficiency
from schedscope.plot.fairness import plot_fairness
from schedscope.plot.migration import plot_migration_matrix
from schedscope.plot.runqueue_latency import plot_runqueue_latency
from schedscope.plot.starvation import plot_starvation
from schedscope.plot.survival import plot_survival
from schedscope.plot.work_conservation import plot_wasted_time
from schedscope.plot.worst_waits import plot_worst_waits
from schedscope.report.machine import depth
from schedscope.report.summary import WORST
from schedscope.report.waiting import THRESHOLD, bucket_for
from schedscope.trace import Trace


def write_figures(trace: Trace, folder: Path) -> list[Path]:
    """Write one PNG per figure of the page into `folder`; returns the paths."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, axes in _figures(trace).items():
            path = folder / f"{name}.png"
            assert isinstance(axes.figure, Figure)
            axes.figure.savefig(path, dpi=144)
            written.append(path)
    except OSError as error:
        raise StorageError(f"cannot write figures to {folder}: {error.strerror}") from error
    return written


def _figures(trace: Trace) -> dict[str, Axes]:
    """By name; only those that the page has, too."""
    origin = trace.origin
    over_time = runqueue_latency(trace, every=bucket_for(trace.duration))
    figures = {
        "latency-by-comm": plot_runqueue_latency(once(runqueue_latency, trace, by="comm"), top=15),
        "latency-over-time": plot_runqueue_latency(over_time, origin=origin),
        "latency-survival": plot_survival(survival(trace, by="cause")),
        "worst-waits": plot_worst_waits(once(worst_waits, trace, n=WORST), origin=origin),
        "cpu-time": plot_cpu_efficiency(once(cpu_efficiency, trace)),
        "queue-depth": depth(trace),
        "residency": plot_residency(residency(trace, by="comm"), top=15),
    }
    starved = once(starvation, trace, threshold=THRESHOLD, top=EPISODES)
    if starved.height:
        shown = starvation_timeline(trace, starved, starved["episode"][0])
        figures["starvation"] = plot_starvation(shown, origin=origin)
    waited = once(wasted_time, trace, by="comm")
    if (waited["avoidable"] > 0).any():
        figures["idle"] = plot_wasted_time(waited, top=15)
    matrix = migration_matrix(trace)
    if matrix["n"].sum():
        figures["migrations"] = plot_migration_matrix(matrix)
    shares = once(fairness, trace)
    if jain_of(shares)["jain"].count():
        figures["fairness"] = plot_fairness(shares, top=12)
    return figures
