"""Figures as inline SVG that follows the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from schedscope.plot.style import COLORS, FAINT, INK
from schedscope.units import printable

# Text stays text: it can be selected and searched, and is a tenth of the size.
# The salt makes identifiers, and so the page, the same on every run.
_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "schedscope"}
_DIGITS = re.compile(r"(\d\.\d\d)\d+")
_PATH = re.compile(r' d="([^"]*)"')
_POINTS = re.compile(r"([ML]) (\S+) (\S+)\s*")


def inline_svg(axes: Axes, title: str) -> str:
    """The figure of `axes` as an SVG element; `title` is what a screen reader says."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    text = io.StringIO()
    with mpl.rc_context(_RC):
        if layout := figure.get_layout_engine():
            layout.execute(figure)
            figure.set_layout_engine("none")
        for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
            patch.set(facecolor="none", edgecolor="none")
        # savefig would draw twice, the first time for the layout.
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # The page scales it: width and height would fix it to points.
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # A hundredth of a point is finer than any screen, and half the page's size.
    svg = _PATH.sub(lambda path: f' d="{_short(path[1])}"', svg)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda name: name[0] if name[1] in used else "", svg)
    svg = "".join(
        part if part.startswith("<text") else _colours(part)
        for part in re.split(r"(<text\b[^>]*>)", svg)
    ).replace(INK, "var(--ink)")
    # Matplotlib's default for text without a colour of its own.
    name = escape(printable(title), quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" fill="currentColor" ', 1)


def _short(path: str) -> str:
    """The same path of straight lines to a hundredth of a point, from point to point.

    >>> _short("M 10 20.006 L 10 25.5 L 11.999 25.5 z")
    'M10 20.01v5.49h2z'
    """
    parts, x, y = [], 0, 0
    for command, right, down in _POINTS.findall(path):
        to_x, to_y = round(float(right) * 100), round(float(down) * 100)
        if command == "M":
            parts.append(f"M{_number(to_x)} {_number(to_y)}")
        elif to_x == x:
            parts.append(f"v{_number(to_y - y)}")
        elif to_y == y:
            parts.append(f"h{_number(to_x - x)}")
        else:
            parts.append(f"l{_number(to_x - x)} {_number(to_y - y)}")
        x, y = to_x, to_y
    rest = _POINTS.sub("", path).strip()
    if rest and not (rest == "z" and path.rstrip().endswith("z")):
        # Curves, of markers: they are few.
        return _DIGITS.sub(r"\1", path)
    return "".join(parts) + rest


def _number(hundredths: int) -> str:
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".")


def _colours(markup: str) -> str:
    """Background and greys follow the page. White letters stay white: they are on dark fields."""
    return (
        markup.replace(FAINT, "var(--faint)")
        .replace("#ffffff", "var(--paper)")
        .replace(COLORS[6], "var(--soft)")
    )
