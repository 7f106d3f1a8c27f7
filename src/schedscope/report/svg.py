"""Figures as inline SVG that follows the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from schedscope.plot.style import FAINT, INK

# Text stays text: it can be selected and searched, and is a tenth of the size.
# The salt makes identifiers, and so the page, the same on every run.
_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "schedscope"}


def inline_svg(axes: Axes, title: str) -> str:
    """The figure of `axes` as an SVG element; `title` is what a screen reader says."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    text = io.StringIO()
    with mpl.rc_context(_RC):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # The page scales it: width and height would fix it to points.
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    # Matplotlib's default for text without a colour of its own.
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" fill="currentColor" ', 1)
