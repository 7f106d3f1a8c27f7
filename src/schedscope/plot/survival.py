"""Curves of the share of waits that last longer, on log axes."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from schedscope.plot.style import CAUSE_COLORS, COLORS, canvas, require, time_axis

_FIXED = ("wait", "n_at_risk", "n_ended", "n_censored", "survival", "lower", "upper")


def survival(frame: pl.DataFrame, *, top: int = 6, ax: Axes | None = None) -> Axes:
    """Draw the curves of `schedscope.survival`: waits on x, the share that lasts longer on y.

    Both axes are logarithmic, so that the one wait in a thousand is as visible as the median. A
    band is the pointwise confidence interval; a small vertical line marks waits cut off while still
    open. At most `top` groups are drawn, those with the most waits. A cause has the same colour in
    every figure.
    """
    require(frame, _FIXED, "schedscope.survival")
    names = [column for column in frame.columns if column not in _FIXED]
    if not names:
        curves = [("all waits", frame)]
    else:
        ordered = sorted(
            frame.partition_by(names, as_dict=True).items(),
            key=lambda item: -int(item[1]["n_ended"].sum()),
        )
        curves = [(" · ".join(map(str, key)), part) for key, part in ordered]
    with canvas(ax) as axes:
        lowest = 1.0
        for (label, curve), color in zip(curves[:top], COLORS * top, strict=False):
            color = CAUSE_COLORS[label] if names == ["cause"] else color
            n = int(curve["n_ended"].sum())
            curve = _thinned(curve.filter(pl.col("wait") > 0))
            if curve.is_empty():
                continue
            drawn = curve.filter(pl.col("survival") > 0)
            x = drawn["wait"].to_numpy()
            y = drawn["survival"].to_numpy()
            if len(y):
                lowest = min(lowest, float(y.min()))
            # The last step falls to zero, which a log axis cannot show: the
            # line goes on to the longest wait and ends there.
            x_end = np.append(x, curve["wait"][-1])
            y_end = np.append(y, y[-1] if len(y) else 1.0)
            axes.step(
                np.insert(x_end, 0, x_end[0]),
                np.insert(y_end, 0, 1.0),
                where="post",
                color=color,
                linewidth=1.6,
                label=f"{label} ({n:,})",
            )
            axes.fill_between(
                x,
                drawn["lower"].fill_null(strategy="forward").to_numpy(),
                drawn["upper"].fill_null(strategy="forward").to_numpy(),
                step="post",
                color=color,
                alpha=0.15,
                linewidth=0,
            )
            cut = drawn.filter(pl.col("n_censored") > 0)
            axes.plot(cut["wait"], cut["survival"], "|", color=color, markersize=8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(lowest / 2, 1.2)
        time_axis(axes.xaxis, log=True)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.set_xlabel("wait for a CPU")
        axes.set_ylabel("share of waits that last longer")
        hidden = len(curves) - top
        title = f"Runqueue latency by {', '.join(names)}" if names else "Runqueue latency"
        axes.set_title(title + (f" ({hidden} smaller groups not drawn)" if hidden > 0 else ""))
        if len(axes.lines):
            axes.legend(loc="lower left")
    return axes


def _thinned(curve: pl.DataFrame, per_decade: int = 200) -> pl.DataFrame:
    """Rows that differ visibly: the last one within each line width in either direction.

    A decade is some two centimetres wide. Cuts within a breadth are one mark.
    """
    if curve.height <= 4 * per_decade:
        return curve
    column = (pl.col("wait").log10() * per_decade).floor()
    row = (pl.col("survival").clip(1e-12).log10() * per_decade).floor()
    last = (column != column.shift(-1)) | (row != row.shift(-1))
    cuts = pl.col("n_censored").cast(pl.Int64)
    return (
        curve.with_columns(n_censored=cuts.cum_sum())
        .filter(last.fill_null(True))
        .with_columns(n_censored=cuts.diff().fill_null(cuts))
    )
