"""The report's figures as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from schedscope.analysis.runqueue_latency import runqueue_latency
from schedscope.analysis.survival import survival
from schedscope.analysis.worst_waits import worst_waits
from schedscope.errors import StorageError
from schedscope.plot.runqueue_latency import plot_runqueue_latency
from schedscope.plot.survival import plot_survival
from schedscope.plot.worst_waits import plot_worst_waits
from schedscope.report.waiting import bucket_for
from schedscope.trace import Trace


def write_figures(trace: Trace, folder: Path) -> list[Path]:
    """Write one PNG per question into `folder`; returns the paths."""
    origin = trace.origin
    over_time = runqueue_latency(trace, every=bucket_for(trace.duration))
    figures: dict[str, Axes] = {
        "latency-by-comm": plot_runqueue_latency(runqueue_latency(trace, by="comm"), top=15),
        "latency-over-time": plot_runqueue_latency(over_time, origin=origin),
        "latency-survival": plot_survival(survival(trace, by="cause")),
        "worst-waits": plot_worst_waits(worst_waits(trace, 15), origin=origin),
    }
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, axes in figures.items():
            path = folder / f"{name}.png"
            assert isinstance(axes.figure, Figure)
            axes.figure.savefig(path, dpi=144)
            written.append(path)
    except OSError as error:
        raise StorageError(f"cannot write figures to {folder}: {error.strerror}") from error
    return written
