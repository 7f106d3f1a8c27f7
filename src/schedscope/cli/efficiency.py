"""`schedscope efficiency`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.errors import UsageError
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope efficiency`."""
    _options.add_input(parser)
    _options.add_cpu_or_all(parser)
    _options.add_top_cpus(parser, "busy time")
    _options.add_selection(parser, what="this CPU (--cpu), since rows are about CPUs")
    _options.add_format(parser)


LESS_BUSY = ("more CPU", ", less busy")


def run(args: argparse.Namespace) -> Answer:
    """A row per CPU, or one."""
    import polars as pl

    from schedscope.analysis.efficiency import efficiency

    _options.check_top(args)
    if args.by == "all" and args.cpu:
        raise UsageError("--by all with --cpu", "one of them", "leave one out")
    if _options.selects_threads(args):
        raise UsageError(
            "efficiency of selected threads",
            "CPUs: that is what its rows are about",
            "`schedscope affinity --residency cpu` shows the time of threads on each CPU,"
            " `schedscope slowdown` their CPU time",
        )
    trace = _options.open_input(args)
    frame = efficiency(trace, by=args.by)
    if args.cpu:
        frame = frame.filter(pl.col("cpu").is_in(_options.known_cpus(args, trace)))
    shown = _options.top_cpus(args, frame, "busy")
    names = [*([] if args.by == "all" else ["cpu"]), "busy_frac", "busy", "idle", "unknown"]
    names += ["switches", "switches_hz", "involuntary_frac_min", "involuntary_frac_max"]
    narrow = "switches busy idle unknown irq_hard irq_soft"
    return Answer(
        shown,
        choose(frame, [*names, "irq_hard?", "irq_soft?"], narrow=narrow),
        about=headline.about(trace),
        head=[*headline.headline(trace), ""],
        notes=_notes(frame),
        rows_in_all=frame.height,
        rest=LESS_BUSY,
    )


def _notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    ambiguous = int(frame["n_ambiguous"].sum())
    if ambiguous:
        switches = units.several(ambiguous, "ambiguous switch", "ambiguous switches")
        notes.append(
            f"{switches}: preemption or yield, the trace does not say which; record yields as well"
        )
    if frame["irq_hard"].is_null().all():
        notes.append("the trace has no interrupts: the time in their handlers is unknown")
    return notes
