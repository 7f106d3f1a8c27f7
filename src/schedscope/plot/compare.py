"""What is different between settings: effects with their intervals, and distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, PercentFormatter

from schedscope.plot.style import COLORS, INK, canvas, require, time_axis, visible

if TYPE_CHECKING:
    from matplotlib.axis import Axis

_GREY = "#8a8a8a"
_DRAWN = {
    "less": (COLORS[0], "less in {}"),
    "more": (COLORS[1], "more in {}"),
    "within noise": (_GREY, "within the noise"),
    "unclear": (_GREY, "unclear: events are missing"),
}
_UNPROVEN = ("within noise", "unclear")
_COLUMNS = ("setting", "thread", "role", "measure", "a", "difference", "noise", "verdict")


def compare(
    frame: pl.DataFrame,
    *,
    setting: str | None = None,
    top: int = 24,
    limit: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what `schedscope.compare` returned as a forest plot: a line per row, its interval.

    Differences are relative to the first setting, so that all measures share the axis. Drawn are
    only rows that were tested and are not 0 in the first setting: those about all threads first,
    then those of the groups whose differences stand out most from their noise, at most `top`.
    Intervals that reach beyond the axis end in an arrow, and differences beyond it are given as
    numbers; `limit` sets its ends (0.5: from -50 % to 50 %). `setting`: which one of several to
    draw (the first in the frame).
    """
    require(frame, _COLUMNS, "schedscope.compare")
    names = frame["setting"].unique(maintain_order=True).to_list()
    setting = setting or (names[0] if names else "B")
    rows = (
        frame.filter(
            pl.col("setting") == setting,
            pl.col("noise").is_not_null(),
            pl.col("a") != 0,
            (pl.col("noise") > 0) | (pl.col("difference") != 0),
        )
        .with_columns(
            x=pl.col("difference") / pl.col("a"),
            half=pl.col("noise") / pl.col("a").abs(),
            whole=pl.col("thread").is_null(),
        )
        .with_columns(strength=pl.col("difference").abs() / pl.col("noise"))
    )
    # Choose the rows that stand out; then keep each group's measures together, in their order.
    room = max(top - int(rows["whole"].sum()), 0)
    parts = rows.filter(~pl.col("whole")).with_row_index("order").top_k(room, by="strength")
    rows = pl.concat([rows.filter("whole").head(top), parts.sort("order").drop("order")])
    with canvas(ax, width=9, height=1.6 + 0.27 * max(rows.height, 3)) as axes:
        ends = _ends(rows, limit)
        for i, row in enumerate(rows.iter_rows(named=True)):
            _line(axes, rows.height - 1 - i, row, ends)
        labels = [_label(row) for row in rows.iter_rows(named=True)]
        axes.set_yticks(range(rows.height), visible(labels[::-1]))
        axes.tick_params(axis="y", length=0, pad=9)
        axes.spines["left"].set_visible(False)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xlim(*ends)
        axes.set_ylim(-0.7, max(rows.height, 1) - 0.3)
        axes.xaxis.set_major_formatter(
            PercentFormatter(1, decimals=0 if ends[1] > 0.08 else 1, symbol=" %")
        )
        axes.set_xlabel(f"difference of {setting} from the first setting")
        basis = frame["basis"][0] if frame.height and "basis" in frame.columns else "runs"
        what = "repeated runs" if basis == "runs" else "one run each: noise between runs unknown"
        axes.set_title(f"Differences of {setting} ({what})", pad=26)
        axes.legend(
            handles=[
                Line2D([], [], color=color, marker="o", label=text.format(setting))
                for color, text in _DRAWN.values()
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
        )
        if not rows.height:
            axes.text(0, 0.5, "nothing could be tested", ha="center", color=INK)
    return axes


def _ends(rows: pl.DataFrame, limit: float | None) -> tuple[float, float]:
    """Axis limits with room for every proven difference and most others, without much empty
    space.
    """
    if limit is not None:
        return -limit, limit
    proven = rows.filter(~pl.col("verdict").is_in(_UNPROVEN))
    far = [abs(x) + half for x, half in proven.select("x", "half").iter_rows()]
    usual = rows.select((pl.col("x").abs() + pl.col("half")).quantile(0.6)).item() or 0.1
    end = max([*far, min(usual, 1.0), 0.02]) * 1.08
    # No difference is below -100 %; those of several times as much are printed as numbers.
    return -min(end, 1.25), min(end, 2.5)


def _line(axes: Axes, y: int, row: dict[str, object], ends: tuple[float, float]) -> None:
    x, half = float(row["x"]), float(row["half"])  # type: ignore[arg-type]
    left, right = ends
    color, _ = _DRAWN[str(row["verdict"])]
    low, high = max(x - half, left), min(x + half, right)
    if low < high:
        axes.plot([low, high], [y, y], color=color, linewidth=2, solid_capstyle="butt")
    for cut, at, marker in ((x - half < left, left, "<"), (x + half > right, right, ">")):
        if cut:
            axes.plot([at], [y], marker, color=color, markersize=6, clip_on=False)
    if left <= x <= right:
        fill = "white" if row["verdict"] in _UNPROVEN else color
        axes.plot([x], [y], "o", color=color, markerfacecolor=fill, markersize=6, zorder=3)
    else:
        at, side = (left, "left") if x < left else (right, "right")
        text = f"  {100 * x:+.0f} % ± {100 * half:.0f}  "
        axes.text(at, y + 0.12, text, ha=side, va="bottom", fontsize=8, color=color)


def _label(row: dict[str, object]) -> str:
    if row["thread"] is None:
        who = "all threads"
    else:
        who = str(row["thread"])
        if row["role"] in ("thread", "hog", "sleeper"):
            who += f" ({row['role']})"
    # Matplotlib would read dollar signs as mathematics.
    return f"{who}  ·  {row['measure']}".replace("$", r"\$")


def wait_distribution(frame: pl.DataFrame, *, tail: bool = False, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.wait_distribution` returned: a curve for each run, a colour a setting.

    With `tail` the share of waits that are *longer* on a logarithmic axis, which shows the
    rarest ones; else the share that are not.
    """
    require(frame, ("setting", "run", "wait", "frac", "n"), "schedscope.wait_distribution")
    with canvas(ax) as axes:
        names = frame["setting"].unique(maintain_order=True).to_list()
        repeated = frame.select("setting", "run").n_unique() > len(names)
        least = 1.0
        for number, name in enumerate(names):
            mine = frame.filter(pl.col("setting") == name)
            color = COLORS[number % len(COLORS)]
            for i, (_, run) in enumerate(mine.group_by("run", maintain_order=True)):
                # A logarithmic axis cannot show a wait of 0.
                x = run["wait"].clip(lower_bound=1).to_numpy()
                y = run["frac"].to_numpy()
                if tail:
                    least = min(least, 1 / int(run["n"][0]))
                    y = 1 - y
                    x, y = x[:-1], y[:-1]
                label = f"{name} ({_runs(mine)})" if repeated else name
                label = None if i else label
                axes.step(x, y, where="post", color=color, alpha=0.85, linewidth=1.4, label=label)
        axes.set_xscale("log")
        time_axis(axes.xaxis, log=True)
        axes.set_xlabel("wait for a CPU")
        if tail:
            axes.set_yscale("log")
            axes.set_ylim(max(least, 1e-6) / 1.5, 1.2)
            _shares(axes.yaxis)
            axes.set_ylabel("waits that are longer")
        else:
            axes.set_ylim(0, 1.02)
            axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
            axes.set_ylabel("waits that are not longer")
        axes.set_title("Distribution of waits" + ", run by run" * repeated)
        if names:
            axes.legend(loc="lower left" if tail else "upper left")
    return axes


def _runs(mine: pl.DataFrame) -> str:
    n = mine["run"].n_unique()
    return f"{n} run{'s' * (n != 1)}"


def _shares(axis: Axis) -> None:
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=True))
    axis.set_major_formatter(
        FuncFormatter(lambda y, _: f"{100 * y:.{max(0, -math.floor(math.log10(100 * y)))}f} %")
    )
