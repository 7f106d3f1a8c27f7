"""The section about a change that was asked for: recorded, replayed, and with the change."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import polars as pl

from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.present.html_table import html_table
from schedscope.present.whatif_table import whatif_table
from schedscope.report.section import Section, prose
from schedscope.report.subject import Subject
from schedscope.simulator.changes.alternatives import alternatives
from schedscope.simulator.changes.change import change
from schedscope.simulator.changes.notes import whatif_notes
from schedscope.simulator.changes.whatif import answer
from schedscope.simulator.runs.nearest_way import nearest_way
from schedscope.simulator.runs.services import services

_SERVICES = 12


def changed(subject: Subject, asked: Mapping[str, Any], words: str) -> Section:
    """What `whatif` answers; `asked` is the change, `words` the options that ask for it.

    All threads are replayed, since the change may be to others; those of the subject come first.
    """
    trace = subject.trace
    way = nearest_way(trace, None)
    wanted = change(way, **asked)
    frame = answer(way, wanted, other=alternatives(way, asked))
    by = frame.columns[0]
    every = frame[by].unique(maintain_order=True)
    mine = every
    if subject.where is not None:
        chosen = chosen_threads(trace, subject.where)
        known = services(trace, by).filter(pl.col("utid").cast(pl.UInt32).is_in(chosen.implode()))
        mine = every.filter(every.is_in(known["service"].implode()))
    first = pl.concat([mine, every.filter(~every.is_in(mine.implode()))]).head(_SERVICES)
    rows = frame.filter(pl.col(by).is_in(first.implode()))
    order = pl.col(by).replace_strict(first, range(len(first)), return_dtype=pl.Int64)
    shown, columns = whatif_table(rows.sort(order, maintain_order=True))
    said = "".join(f"<li>{prose(text)}</li>" for text in whatif_notes(trace, frame))
    return Section(
        "whatif",
        f"What if: {', '.join(wanted.words)}?",
        "The trace is replayed twice: as it was configured, which should reproduce the recording,"
        " and with the change. 9 of 10 recordings should lie in the range in brackets while others"
        " take as much CPU time as here. The error of the first replay shows how far a figure can"
        " be trusted: up to a factor of 1.25 it is"
        " good, up to 2 doubtful (marked ?), and beyond that there is none. Simulated with"
        f" <code>{escape(way.policy)}</code>."
        + (" The selected threads come first." if subject.where is not None else ""),
        html_table(shown, columns, "whatif") + f"<ul>{said}</ul>",
        (f"whatif {words}",),
    )
