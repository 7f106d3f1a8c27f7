"""A section of the page: one question, what a newcomer has to know, tables and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import polars as pl
from matplotlib.axes import Axes

from schedscope.cli._output import Column, cells
from schedscope.report.svg import inline_svg


@dataclass(frozen=True)
class Section:
    """One question: its name in links, its heading, the introduction and the answer as HTML.

    `commands` print its tables, to be called with the input behind.
    """

    anchor: str
    title: str
    intro: str
    body: str
    commands: Sequence[str] = ()

    def html(self) -> str:
        """The section as it stands in the page."""
        how = ""
        if self.commands:
            listed = " · ".join(
                f"<code>schedscope {escape(command)}</code>" for command in self.commands
            )
            how = f"<p class=how>In a terminal: {listed}</p>"
        return (
            f'<section id="{self.anchor}"><h2>{escape(self.title)}</h2>'
            f"<p class=intro>{self.intro}</p>{self.body}{how}</section>\n"
        )


def prose(text: str) -> str:
    """A sentence as HTML; numbers stay on a line with their units."""
    return re.sub(r"(\d) (?=(?:[nµm]?s|%|CPUs?)\b|%)", "\\1\u00a0", escape(text))


def figure(axes: Axes, title: str, anchor: str = "", *, square: bool = False) -> str:
    """A figure; `title` is for those who do not see it, `anchor` its name in links."""
    name = f' id="{anchor}-figure"' if anchor else ""
    kind = " class=square" if square else ""
    return f"<figure{name}{kind}>{inline_svg(axes, title)}</figure>"


def table(frame: pl.DataFrame, columns: Sequence[Column], anchor: str = "") -> str:
    """A table of those `columns` that the frame has; numbers stand right, with their units."""
    columns = [column for column in columns if column.name in frame.columns]
    texts = [cells(frame, column) for column in columns]
    sides = [_side(column) for column in columns]
    head = "".join(
        f"<th{side}>{escape(column.title)}</th>"
        for side, column in zip(sides, columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{side}>{escape(text.strip())}</td>" for side, text in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in zip(*texts, strict=True)
    )
    name = f' id="{anchor}-table"' if anchor else ""
    return (
        f"<div class=table{name}><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _side(column: Column) -> str:
    if column.kind != "text":
        return " class=n"
    return " class=long" if column.name in ("story", "text") else ""
