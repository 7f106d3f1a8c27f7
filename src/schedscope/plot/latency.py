"""Latency by group as a ladder of quantiles; latency over time as a fan."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from schedscope.plot.style import COLORS, FAINT, INK, canvas, require, short, time_axis, visible

_FIXED = ("n", "n_censored", "n_excluded", "total", "mean", "max", "max_censored", "ts_max")


def latency(frame: pl.DataFrame, *, top: int = 20, origin: int = 0, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.latency` returned.

    By group: a line for each, from the smallest quantile to the maximum, with a dot for each
    quantile, and an arrow where the longest wait may have been longer, as far as it may have been;
    at most `top` groups.

    With time buckets: the quantiles over time, in seconds after `origin`. Of several groups the
    largest is drawn. The last bucket is left out if the window ends soon after its start.
    """
    require(frame, _FIXED, "schedscope.latency")
    quantiles = [name for name in frame.columns if _is_quantile(name)]
    require(frame, tuple(quantiles[:1] or ["p50"]), "schedscope.latency")
    names = [c for c in frame.columns if c not in _FIXED and c != "ts" and not _is_figure(c)]
    if "ts" in frame.columns:
        return _over_time(frame, names, quantiles, origin, ax)
    return _ladder(frame.head(top), names, quantiles, frame.height - top, ax)


def _is_quantile(name: str) -> bool:
    return name.startswith("p") and name[1:].replace(".", "", 1).isdigit()


def _is_figure(name: str) -> bool:
    return _is_quantile(name) or name.endswith("_high") or name == "coverage"


def _ladder(
    frame: pl.DataFrame, names: list[str], quantiles: list[str], hidden: int, ax: Axes | None
) -> Axes:
    with canvas(ax, height=1.6 + 0.28 * max(frame.height, 1)) as axes:
        labels = []
        for y, row in enumerate(frame.iter_rows(named=True)):
            label = " · ".join("-" if row[name] is None else str(row[name]) for name in names)
            labels.append(f"{label or 'all waits'}  ({row['n']:,})")
            points = [(name, max(row[name], 1)) for name in quantiles if row[name] is not None]
            longest = row["max"]
            if points and longest is not None:
                span = [points[0][1], max(longest, 1)]
                axes.plot(span, [y, y], color=FAINT, linewidth=5, solid_capstyle="round", zorder=1)
                axes.plot(span[1], y, "|", color=INK, markersize=11, markeredgewidth=2, zorder=3)
            for (_, value), color in zip(points, COLORS, strict=False):
                if value == longest:  # too few waits for it to differ from the maximum
                    continue
                axes.plot(value, y, "o", color=color, markersize=6, zorder=2)
            at_most = row.get("max_high", longest)
            if longest is not None and at_most != longest:
                axes.plot(max(at_most or longest, 1), y, ">", color=INK, markersize=7, zorder=3)
        for name, color in zip(quantiles, COLORS, strict=False):
            axes.plot([], [], "o", color=color, label=name)
        axes.plot([], [], "|", color=INK, markersize=11, markeredgewidth=2, label="max")
        if any(marker.get_marker() == ">" for marker in axes.lines):
            axes.plot([], [], ">", color=INK, label="or longer")
        axes.set_xscale("log")
        time_axis(axes.xaxis, log=True)
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("wait for a CPU")
        more = f", the first {frame.height} of {frame.height + hidden}" if hidden > 0 else ""
        by = f" by {', '.join(names)}" if names else ""
        axes.set_title(f"Runqueue latency{by}{more}", pad=28)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), ncols=7, handletextpad=0.1, columnspacing=1.2
        )
    return axes


def _over_time(
    frame: pl.DataFrame, names: list[str], quantiles: list[str], origin: int, ax: Axes | None
) -> Axes:
    label = ""
    if names:
        first = frame.group_by(names).agg(pl.col("total").sum()).sort("total").row(-1)[:-1]
        chosen = [pl.col(name).eq_missing(pl.lit(v)) for name, v in zip(names, first, strict=True)]
        frame = frame.filter(pl.all_horizontal(chosen))
        label = f" of {' · '.join(map(str, first))}"
    with canvas(ax) as axes:
        step = frame["ts"].diff().min()
        # In buckets of some fifty waits p99 is the maximum again.
        usual = float(frame["n"].median() or 0)  # type: ignore[arg-type]
        if frame.height > 2 and frame["n"][-1] < usual / 5:
            # The window ends soon after it begins; its few waits would be drawn as a drop.
            frame = frame.head(-1)
        # A bucket without waits breaks the lines instead of being bridged.
        if isinstance(step, int) and frame.height:
            every = pl.int_range(frame["ts"][0], frame["ts"][-1] + step, step, eager=True)
            frame = pl.DataFrame({"ts": every}).join(frame, on="ts", how="left")
            middle = (frame["ts"] - origin + step / 2) / 1e9
        else:
            middle = (frame["ts"] - origin) / 1e9
        for name, color in zip(quantiles, COLORS, strict=False):
            if usual * (100 - float(name[1:])) < 100:
                continue
            axes.plot(middle, frame[name].clip(1), color=color, linewidth=1.6, label=name)
        # Drawn below the others: with few waits in a bucket the lines coincide.
        axes.plot(middle, frame["max"].clip(1), color="#aaaaaa", lw=4, zorder=1.5, label="max")
        axes.set_yscale("log")
        time_axis(axes.yaxis, log=True)
        axes.set_xlabel("time in s")
        axes.set_ylabel("wait for a CPU")
        bucket = f", buckets of {short(step)}" if isinstance(step, int) else ""
        axes.set_title(f"Runqueue latency{label} over time{bucket}", pad=28)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=7, columnspacing=1.2)
    return axes
