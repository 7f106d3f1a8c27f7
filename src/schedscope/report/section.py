"""A section of the page: one question, what a newcomer needs to know, tables and figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.axes import Axes

from schedscope.report.svg import inline_svg


@dataclass(frozen=True)
class Section:
    """One question: its name in links, its heading, the introduction and the answer as HTML.

    `commands` print its tables: those of `schedscope`, without the input.
    """

    anchor: str
    title: str
    intro: str
    body: str
    commands: Sequence[str] = ()

    def html(self, name: str) -> str:
        """The section as it stands in the page about the input of that name."""
        how = ""
        if self.commands:
            listed = " · ".join(call(command, name) for command in self.commands)
            how = f"<p class=how>In a terminal: {listed}</p>"
        return (
            f'<section id="{self.anchor}"><h2>{escape(self.title)}</h2>'
            f"<p class=intro>{self.intro}</p>{self.body}{how}</section>\n"
        )


def call(command: str, name: str) -> str:
    """How to call a command of `schedscope` about the input of that name."""
    return f"<code>schedscope {escape(command)} {escape(shlex.quote(name))}</code>"


def prose(text: str) -> str:
    """A sentence as HTML; numbers stay on a line with their units."""
    return re.sub(r"(\d) (?=(?:[nµm]?s|%|CPUs?)\b|%)", "\\1\u00a0", escape(text))


def figure(axes: Axes, title: str, anchor: str = "", *, square: bool = False) -> str:
    """A figure; `title` is for those who do not see it, `anchor` its name in links."""
    name = f' id="{anchor}-figure"' if anchor else ""
    kind = " class=square" if square else ""
    return f"<figure{name}{kind}>{inline_svg(axes, title)}</figure>"
