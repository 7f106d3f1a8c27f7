"""The section about a change that was asked for: recorded, replayed, and with the change."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import polars as pl

from schedscope.present.html_table import html_table
from schedscope.present.whatif_table import whatif_table
from schedscope.report.section import Section, prose
from schedscope.simulator.change import change
from schedscope.simulator.whatif import answer, nearest_way
from schedscope.simulator.whatif_notes import whatif_notes
from schedscope.trace import Trace

_SERVICES = 12


def changed(trace: Trace, asked: Mapping[str, Any], words: str) -> Section:
    """What `whatif` answers; `asked` is the change, `words` the options that ask for it."""
    way = nearest_way(trace, None)
    wanted = change(way, **asked)
    frame = answer(way, wanted)
    by = frame.columns[0]
    services = frame[by].unique(maintain_order=True).head(_SERVICES)
    shown, columns = whatif_table(frame.filter(pl.col(by).is_in(services.implode())))
    said = "".join(f"<li>{prose(text)}</li>" for text in whatif_notes(trace, frame))
    return Section(
        "whatif",
        f"What if: {', '.join(wanted.words)}?",
        "The trace is replayed as it was configured, which must come out as it was recorded, and"
        " with the change. In brackets is the range in which 9 of 10 recordings should lie. By how"
        " much the first replay is off says how far the answer can be trusted: up to 1.25 times it"
        " is good, up to twice doubtful, and beyond that there is none. The replay is that of"
        f" <code>{escape(way.policy)}</code>.",
        html_table(shown, columns, "whatif") + f"<ul>{said}</ul>",
        (f"whatif {words}",),
    )
