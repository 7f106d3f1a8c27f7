"""Findings in a notebook: a card each, with a button that shows it in the timeline below."""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope import units
from schedscope.errors import MissingExtraError
from schedscope.present.html_table import html_headline
from schedscope.timelines.places import places

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_STYLE = """<style>
.schedscope-cards { font-size: 13px; line-height: 1.45; max-width: 60em; }
.schedscope-cards p { margin: .25em 0; }
.schedscope-cards article { border: 1px solid #8886; border-left: 4px solid #8888;
  border-radius: 4px; padding: .4em .9em; margin: .5em 0; }
.schedscope-cards .violated { border-left-color: #c22; }
.schedscope-cards .warning { border-left-color: #d80; }
.schedscope-cards header { display: flex; gap: .8em; flex-wrap: wrap; }
.schedscope-cards header span { margin-left: auto; font-variant-numeric: tabular-nums; }
.schedscope-cards code { overflow-wrap: anywhere; }
.schedscope-cards button { font: inherit; color: inherit; background: transparent; cursor: pointer;
  border: 1px solid currentColor; border-radius: 4px; padding: .1em .6em; }
</style>"""


def cards(found: pl.DataFrame, trace: Trace | None, *, buttons: bool = False) -> str:
    """Each finding in whole sentences: what, the evidence, what to try.

    With `buttons` each leads to its place in a timeline; else the command that opens it is there.
    """
    views = [""] * len(found) if trace is None else [
        place.view(trace) for place in places(trace, found)
    ]  # fmt: skip
    name = "TRACE" if trace is None else shlex.quote(units.printable(trace.name))
    items = [
        _card(row, view, name, buttons)
        for row, view in zip(found.iter_rows(named=True), views, strict=True)
    ]
    nothing = "<p>No findings: nothing that is checked takes 1 % of the CPUs' time.</p>"
    cards = "".join(items) or nothing
    return f"<div class=schedscope-cards>{_STYLE}{html_headline(trace)}{cards}</div>"


def _card(row: dict[str, Any], view: str, name: str, buttons: bool) -> str:
    def call(command: str) -> str:
        first, _, rest = command.partition(" ")
        return f"<code>{escape(f'schedscope {first} {name} {rest}'.strip())}</code>"

    level = escape(row["level"])
    parts = [
        f"<header><b>{escape(row['topic'])}</b><i>{level}</i>"
        f"<span>{units.cost(row['cost'], row['cost_high'], row['cost_frac'])}</span></header>",
        f"<p>{escape(units.printable(row['text']))}</p>",
        f"<p><b>Try:</b> {escape(row['advice'])}</p>",
    ]
    if row["whatif"]:
        parts.append(f"<p>Test it: {call(row['whatif'])}</p>")
    places = [f"The table: {call(row['command'])}"]
    if view and buttons:
        places.insert(0, f'<button type=button data-at="{escape(view)}">in the timeline</button>')
    elif view:
        places.append(call(f"view --at {shlex.quote(view)}"))
    parts.append(f"<p>{' · '.join(places)}</p>")
    return f"<article class={level}>{''.join(parts)}</article>"


def bundle(found: pl.DataFrame, trace: Trace | None) -> Any:
    """A widget with buttons, where a notebook can show one; else nothing but the cards."""
    if trace is None or not _in_a_kernel():
        return {}
    from schedscope.timelines.widget import findings_widget

    try:
        widget = findings_widget(trace, cards(found, trace, buttons=True))
    except MissingExtraError:
        return {}
    made = widget._repr_mimebundle_()
    data = made[0] if isinstance(made, tuple) else made
    return {**(data or {}), "text/html": cards(found, trace)}


def _in_a_kernel() -> bool:
    import sys

    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
