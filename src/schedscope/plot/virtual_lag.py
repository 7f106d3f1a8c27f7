"""Lag by a scheduler's own rules over time: a line per thread."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from schedscope import units
from schedscope.plot.style import COLORS, INK, canvas, require, time_axis

_COLUMNS = ("ts", "utid", "comm", "tid", "turn", "lag")
# Above this many turns a line shows the highest and the lowest of each of as many columns.
_PIXELS = 2000


def virtual_lag(
    frame: pl.DataFrame, *, top: int = 5, origin: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw what `schedscope.virtual_lag_series` returned: lag over time in s, a line per thread.

    Above zero the thread is behind and EEVDF would let it run; below it has had more than its
    share. Drawn are the `top` threads whose lag was ever furthest from zero. A line stops where the
    thread leaves its queue, and begins where it joins one. Time counts from `origin` (ns).
    """
    require(frame, _COLUMNS, "schedscope.virtual_lag_series")
    ranked = (
        frame.group_by("utid")
        .agg(far=pl.col("lag").abs().max(), comm=pl.col("comm").last(), tid=pl.col("tid").last())
        .sort("far", "utid", descending=[True, False])
    )
    chosen = ranked.head(top)
    with canvas(ax, height=4.6) as axes:
        axes.axhline(0, color=INK, linewidth=1)
        for number, row in enumerate(chosen.iter_rows(named=True)):
            own = _thinned(frame.filter(pl.col("utid") == row["utid"]))
            leaves = (own["turn"].cast(pl.String) == "left").to_numpy()
            # A gap after each row at which it left.
            at = np.repeat((own["ts"].to_numpy() - origin) / 1e9, 1 + leaves)
            lag = np.repeat(own["lag"].to_numpy().astype(float), 1 + leaves)
            lag[np.cumsum(1 + leaves)[leaves] - 1] = np.nan
            label = f"{units.printable(row['comm'] or '') or '(no name)'} {row['tid'] or ''}"
            color = COLORS[number % len(COLORS)]
            axes.plot(at, lag, color=color, linewidth=1.1, marker=".", markersize=2.5, label=label)
        time_axis(axes.yaxis)
        axes.set_xlabel("time in s")
        hidden = ranked.height - chosen.height
        more = f" ({hidden} with smaller lag not drawn)" if hidden else ""
        axes.set_title(f"Lag by the scheduler's own arithmetic{more}")
        for text, y, side in (("positive lag: eligible", 0.985, "top"), ("ahead", 0.015, "bottom")):
            axes.annotate(
                text,
                (0, y),
                xycoords="axes fraction",
                xytext=(5, 0),
                textcoords="offset points",
                va=side,
                color="#777777",
                fontsize=9,
            )
        if chosen.height:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return axes


def _thinned(own: pl.DataFrame) -> pl.DataFrame:
    """With very many turns, the extremes per column of the picture."""
    if own.height <= 4 * _PIXELS:
        return own
    span = max(int(own["ts"][-1] - own["ts"][0]), 1)
    columns = (pl.col("ts") - pl.col("ts").min()) * _PIXELS // span
    numbered = own.with_row_index("row").with_columns(column=columns)
    kept = numbered.group_by("column").agg(
        pl.col("row").sort_by("lag").first().alias("low"),
        pl.col("row").sort_by("lag").last().alias("high"),
    )
    rows = pl.concat([kept["low"], kept["high"]]).unique().sort()
    return own[rows]
