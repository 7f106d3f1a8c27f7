"""Which threads wake which, as a graph: threads on a ring, wakeups as arrows."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter, NullLocator

from schedscope import units
from schedscope.plot.style import INK, canvas, require, short

_NEEDED = ("waker_kind", "n", "mean", "n_censored", "n_excluded")


def wakers(frame: pl.DataFrame, *, top: int = 16, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.wakers` returned: the `top` most frequent edges.

    Threads (or names, or processes) stand on a ring, those that wake each other most side by
    side; an arrow from waker to wakee is wider for more wakeups, with their
    number beside it, and darker for a longer mean wait.
    """
    require(frame, _NEEDED, "schedscope.wakers")
    edges = [
        (_waker(row), _name(row), row["n"] + row["n_censored"] + row["n_excluded"], row["mean"])
        for row in frame.head(top).iter_rows(named=True)
    ]
    order = _ring(edges)
    angle = {
        name: math.pi / 2 - 2 * math.pi * i / max(len(order), 1) for i, name in enumerate(order)
    }
    at = {name: (math.cos(a), math.sin(a)) for name, a in angle.items()}
    means = [max(mean, 1) for *_, mean in edges if mean is not None] or [1, 10]
    norm = LogNorm(min(means), max(max(means), 1.01 * min(means)))
    # Without its start, which vanishes on white.
    whole = colormaps["YlOrRd"]
    shades = LinearSegmentedColormap.from_list("waits", [whole(0.3 + 0.07 * i) for i in range(11)])
    most = max([1, *(n for _, _, n, _ in edges)])
    with canvas(ax, width=9, height=7.4) as axes:
        for source, target, n, mean in edges:
            color = shades(float(norm(max(mean, 1)))) if mean is not None else INK
            width = 0.8 + 4.2 * math.sqrt(n / most)
            _arrow(axes, at[source], at[target], width, color, units.count(n))
        for name, (x, y) in at.items():
            axes.plot(x, y, "o", color=INK, markersize=7, zorder=3)
            side = "left" if x > 0.05 else "right" if x < -0.05 else "center"
            axes.annotate(
                name, (x, y), xytext=(12 * x, 14 * y), textcoords="offset points", ha=side,
                va="center" if abs(y) < 0.9 else "bottom" if y > 0 else "top", fontsize=9, zorder=4,
            )  # fmt: skip
        axes.set_xlim(-1.75, 1.75)
        axes.set_ylim(-1.3, 1.3)
        axes.set_axis_off()
        hidden = len(frame) - len(edges)
        more = f" ({units.count(hidden)} rarer pairs not drawn)" if hidden > 0 else ""
        axes.set_title(f"Who wakes whom, and how often{more}", loc="left")
        if edges:
            shown = ScalarMappable(norm, shades)
            figure: Any = axes.figure
            bar = figure.colorbar(shown, ax=axes, shrink=0.5, aspect=30, location="bottom", pad=0)
            bar.set_label("mean wait of the woken thread")
            bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
            bar.ax.xaxis.set_minor_locator(NullLocator())
    return axes


def _arrow(
    axes: Axes,
    a: tuple[float, float],
    b: tuple[float, float],
    width: float,
    color: Any,
    text: str,
) -> None:
    if a == b:
        # To itself (another thread of that name): a loop towards the middle.
        x, y = a
        width = min(width, 2.2)  # a wide arrow would hide its own bend
        begin, end = (x + 0.06 * y, y - 0.06 * x), (x - 0.06 * y, y + 0.06 * x)
        style, middle = "arc3,rad=-2.2", (0.84 * x, 0.84 * y)
    else:
        begin, end, style = a, b, "arc3,rad=0.16"
        # A quadratic curve: its middle is half way to the control point, off to one side.
        dx, dy = b[0] - a[0], b[1] - a[1]
        middle = ((a[0] + b[0]) / 2 + 0.08 * dy, (a[1] + b[1]) / 2 - 0.08 * dx)
        # Nearer the start, where both directions of a pair are apart.
        middle = (0.75 * middle[0] + 0.25 * a[0], 0.75 * middle[1] + 0.25 * a[1])
    axes.add_patch(
        FancyArrowPatch(
            begin, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=10 + 2 * width,
            linewidth=width, color=color, shrinkA=6, shrinkB=6, zorder=2,
        )
    )  # fmt: skip
    axes.text(
        *middle, text, fontsize=7.5, ha="center", va="center", color=INK, zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
    )  # fmt: skip


def _ring(edges: list[tuple[str, str, int, float | None]]) -> list[str]:
    """Names in an order that keeps those with many wakeups in common next to each other."""
    weight: dict[frozenset[str], int] = {}
    for source, target, n, _ in edges:
        pair = frozenset((source, target))
        weight[pair] = weight.get(pair, 0) + n
    rest = list(dict.fromkeys(name for source, target, *_ in edges for name in (source, target)))
    order: list[str] = []
    while rest:
        if not order:
            order.append(rest.pop(0))
            continue
        # After the last name comes the one with most wakeups in common with it, else with any
        # placed one.
        best = max(
            rest,
            key=lambda name: (
                weight.get(frozenset((order[-1], name)), 0),
                sum(weight.get(frozenset((other, name)), 0) for other in order),
                -rest.index(name),
            ),
        )
        rest.remove(best)
        order.append(best)
    return order


def _waker(row: dict[str, Any]) -> str:
    if row["waker_kind"] == "thread":
        return _name(row, "waker_")
    if row["waker_kind"] == "interrupt":
        return f"({row['interrupt']})"
    return "(interrupt, CPU idle)" if row["waker_kind"] == "idle" else "(unknown)"


def _name(row: dict[str, Any], prefix: str = "") -> str:
    names = [row.get(f"{prefix}{key}") for key in ("comm", "tid")]
    if all(name is None for name in names):
        names = [row.get(f"{prefix}process_name") or "process", row.get(f"{prefix}pid")]
    return " ".join(units.printable(str(name)) for name in names if name is not None)
