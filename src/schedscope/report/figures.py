"""The report's figures as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from schedscope import outputs, plot
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.efficiency import efficiency
from schedscope.analysis.fairness import fairness, jain_of
from schedscope.analysis.findings.starved import EPISODES
from schedscope.analysis.latency import latency
from schedscope.analysis.migration.migrations import migration_matrix
from schedscope.analysis.residency import residency
from schedscope.analysis.starvation.starvation import starvation
from schedscope.analysis.starvation.timeline import starvation_timeline
from schedscope.analysis.survival.survival import survival
from schedscope.analysis.work_conservation import work_conservation
from schedscope.analysis.worst_waits import worst_waits
from schedscope.errors import StorageError
from schedscope.report.machine import depth
from schedscope.report.subject import Subject
from schedscope.report.summary import WORST
from schedscope.report.waiting import THRESHOLD, bucket_for


def write_figures(subject: Subject, folder: Path) -> list[Path]:
    """Write one PNG per figure of the page into `folder`; returns the paths."""
    written = []
    try:
        outputs.make_folder(folder, subject.trace.sources)
        for name, axes in _figures(subject).items():
            path = folder / f"{name}.png"
            assert isinstance(axes.figure, Figure)
            with outputs.whole(path, subject.trace.sources) as made:
                axes.figure.savefig(made, dpi=144)
            written.append(path)
    except OSError as error:
        raise StorageError(f"cannot write figures to {folder}: {error.strerror}") from error
    return written


def _figures(subject: Subject) -> dict[str, Axes]:
    """By name; only those that the page has, too."""
    trace, where = subject.trace, subject.where
    origin = trace.origin
    over_time = latency(trace, every=bucket_for(trace.duration), where=where)
    figures = {
        "latency-by-comm": plot.latency(subject.ask(latency, by="comm"), top=15),
        "latency-over-time": plot.latency(over_time, origin=origin),
        "latency-survival": plot.survival(survival(trace, by="cause", where=where)),
        "worst-waits": plot.worst_waits(subject.ask(worst_waits, n=WORST), origin=origin),
        "cpu-time": plot.efficiency(once(efficiency, trace)),
        **({"queue-depth": depth(trace)} if has(trace, "competitors") else {}),
        "residency": plot.residency(residency(trace, by="comm", where=where), top=15),
    }
    starved = subject.ask(starvation, threshold=THRESHOLD, top=EPISODES)
    if starved.height:
        shown = starvation_timeline(trace, starved, starved["episode"][0])
        figures["starvation"] = plot.starvation(shown, origin=origin)
    waited = subject.ask(work_conservation, by="comm")
    if (waited["avoidable"] > 0).any():
        figures["idle"] = plot.work_conservation(waited, top=15)
    matrix = migration_matrix(trace, where=where)
    if matrix["n"].sum():
        figures["migrations"] = plot.migration_matrix(matrix)
    if not has(trace, "competitors"):
        return figures
    shares = subject.ask(fairness)
    if jain_of(shares)["jain"].count():
        figures["fairness"] = plot.fairness(shares, top=12)
    return figures
