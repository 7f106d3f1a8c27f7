"""What all figures share: colours, axes with units, spacing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from schedscope import units
from schedscope.errors import UsageError

# Distinct in the three common kinds of colour blindness and in grey print:
# Okabe and Ito, "Color universal design" (2008), without the yellow that
# vanishes on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
INK = "#222222"
FAINT = "#d9d9d9"
_SHORTEST = 0.006
"""Of the axis: a shorter part of a bar is hard to see."""

CAUSE_COLORS = {
    "wake": COLORS[0],
    "preempt": COLORS[1],
    "yield": COLORS[4],
    "new": COLORS[2],
    "unknown": COLORS[6],
}

# Typed as Any: only the newest matplotlib declares the names as a Literal.
_RC: dict[Any, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    # Seconds since boot in full, rather than "+1.9e4" in a corner.
    "axes.formatter.useoffset": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "legend.frameon": False,
    # A thread named $x$ is shown under exactly that name.
    "text.parse_math": False,
    "svg.fonttype": "path",
    "savefig.dpi": 144,
}


@contextmanager
def canvas(ax: Axes | None = None, width: float = 8, height: float = 4.5) -> Iterator[Axes]:
    """`ax`, or new axes, drawn in the house style; the caller's settings stay as they are."""
    with _style():
        yield ax or _figure(width, height).add_subplot()


@contextmanager
def panels(
    columns: int, width: float = 9, height: float = 3.6, *, sharey: bool = True
) -> Iterator[list[Axes]]:
    """New axes side by side in the house style, on one scale unless `sharey` is false."""
    with _style():
        yield list(_figure(width, height).subplots(1, columns, sharey=sharey, squeeze=False)[0])


@contextmanager
def _style() -> Iterator[None]:
    if _in_notebook():
        # Loads the notebook's backend now: that switches on interactive mode,
        # which the context below would switch off again on its way out.
        from matplotlib import pyplot

        pyplot.draw_if_interactive()  # type: ignore[no-untyped-call]
    with mpl.rc_context(_RC):
        yield


def _in_notebook() -> bool:
    """Is this process a notebook's kernel? Having its package loaded is not enough."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and bool(kernel.IPKernelApp.initialized())


def _figure(width: float, height: float) -> Figure:
    if _in_notebook() or mpl.is_interactive():
        # A notebook shows pyplot's figures at the end of the cell.
        from matplotlib import pyplot

        return pyplot.figure(figsize=(width, height), layout="constrained")
    # Elsewhere pyplot would keep every figure alive and look for a display.
    return Figure(figsize=(width, height), layout="constrained")


def nothing(axes: Axes, text: str) -> None:
    """Say that there is nothing to draw, instead of scales of nothing."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


def visible(labels: Iterable[object]) -> list[str]:
    """Labels as a figure can show them: threads choose their own names."""
    return [units.printable(str(label), keep="\n") for label in labels]


def time_axis(axis: Axis, *, log: bool = False) -> None:
    """Label an axis of nanoseconds in ns, µs, ms and s."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    if log:
        low, high = sorted(axis.get_data_interval())
        # Within a decade or two, labels at powers of ten alone would be one or none.
        few = low > 0 and high < 100 * low
        if few and high < 2 * low:
            set_limits = axis.axes.set_xlim if isinstance(axis, XAxis) else axis.axes.set_ylim
            set_limits(low / 2, high * 2)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=12))
        axis.set_minor_formatter(NullFormatter())


def keep_visible(bars: BarContainer, whole: float) -> None:
    """Draw parts of stacked bars that are too short for the eye as wide as a line.

    `whole` is the length of the axis. Parts of length 0 are not drawn.
    """
    for bar in bars.patches:
        if 0 < bar.get_width() < _SHORTEST * whole:
            bar.set_edgecolor(bar.get_facecolor())
            bar.set_linewidth(1.5)
            bar.set_zorder(bar.get_zorder() + 0.1)


def require(frame: object, needed: tuple[str, ...], maker: str) -> None:
    """Raise `UsageError` unless a frame has the columns that `maker` returns."""
    if not isinstance(frame, pl.DataFrame):
        raise UsageError(f"a figure of a {type(frame).__name__}", f"the frame that {maker} returns")
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise UsageError(
            f"the frame has no column {', '.join(missing)}",
            f"the frame that {maker} returns",
            f"its columns are {', '.join(frame.columns)}",
        )


def short(ns: float) -> str:
    """A duration for an axis: without meaningless digits."""
    number, _, unit = units.duration(ns).partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return "0" if ns == 0 else f"{number} {unit}"
