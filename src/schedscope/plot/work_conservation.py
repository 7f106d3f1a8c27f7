"""CPU time that idled while threads waited: per CPU, and when it happened."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from schedscope import units
from schedscope.errors import UsageError
from schedscope.plot.style import COLORS, FAINT, canvas, keep_visible, require, time_axis, visible

_REASONS: dict[str | None, tuple[str, str]] = {
    "placed": ("placed on a busy CPU", COLORS[0]),
    "preempted": ("preempted beside an idle CPU", COLORS[1]),
    "not_pulled": ("not pulled by a CPU that went idle", COLORS[4]),
    "unknown": ("start not recorded", COLORS[6]),
    None: ("several on the queue of an idle CPU", COLORS[2]),
}
_CPU = ("cpu", "idle", "unknown", "dispatch", "available")
_THREAD = ("waiting", "avoidable", "avoidable_frac")
_EPISODE = ("episode", "ts", "dur", "wasted", "idle_cpus", "comm", "tid", "cpu", "waited", "cause")


def work_conservation(frame: pl.DataFrame, *, top: int = 24, ax: Axes | None = None) -> Axes:
    """Draw what `schedscope.work_conservation` returned by CPUs or threads: a bar per row.

    A CPU's bar is its idle time in three parts: while a thread that may run there waited elsewhere,
    while the CPU was about to run a thread of its own queue, and with no thread to run. A thread's
    bar is its waiting in two parts: while a CPU that it may use idled, and the rest. At most `top`
    bars are drawn, those with the most to gain; threads with nothing to gain are left out if others
    have something.
    """
    if "spare" in frame.columns:
        require(frame, _CPU, 'schedscope.work_conservation(trace, by="cpu")')
        known = frame.drop_nulls("cpu")
        names = [f"CPU {cpu}" for cpu in known["cpu"]]
        parts = {
            "idle while a thread waited elsewhere": (known["available"], COLORS[1]),
            "idle with a thread on its own queue": (known["dispatch"], COLORS[5]),
            "idle with no thread to run": (
                known["idle"] - known["available"] - known["dispatch"],
                FAINT,
            ),
        }
        title = "Idle time of each CPU"
    elif "avoidable" in frame.columns:
        require(frame, _THREAD, 'schedscope.work_conservation(trace, by="comm")')
        known = frame
        keys = [name for name in ("comm", "tid", "pid") if name in frame.columns][:2]
        names = [
            " ".join(units.printable(str(v)) for v in row if v is not None)
            for row in frame.select(keys).iter_rows()
        ]
        parts = {
            "while a usable CPU was idle": (known["avoidable"], COLORS[1]),
            "while no usable CPU was idle": (known["waiting"] - known["avoidable"], FAINT),
        }
        title = "Time that threads waited for a CPU"
    else:
        raise UsageError(
            "the frame has neither a row per CPU nor a row per thread",
            'the frame of schedscope.work_conservation(trace, by="cpu") or by="comm"',
            f"its columns are {', '.join(frame.columns)}",
        )
    first = next(iter(parts.values()))[0].to_list()
    ranked = sorted(range(len(names)), key=lambda i: -first[i])[:top]
    if "avoidable" in frame.columns:
        ranked = [i for i in ranked if first[i] > 0] or ranked
    chosen = sorted(ranked) if "spare" in frame.columns else ranked
    hidden = len(names) - len(chosen)
    with canvas(ax, height=1.9 + 0.3 * max(len(chosen), 1)) as axes:
        left = [0] * len(chosen)
        wholes = [sum(values[i] for values, _ in parts.values()) for i in chosen]
        longest = max(wholes, default=0)
        for label, (values, color) in parts.items():
            lengths = [values[i] for i in chosen]
            bars = axes.barh(
                range(len(chosen)), lengths, left=left, height=0.7, color=color, label=label
            )
            keep_visible(bars, longest)
            left = [a + b for a, b in zip(left, lengths, strict=True)]
        for y, (i, whole) in enumerate(zip(chosen, wholes, strict=True)):
            if first[i]:
                axes.annotate(
                    units.duration(first[i]), (whole, y), xytext=(5, 0),
                    textcoords="offset points", va="center", fontsize=8, color=COLORS[1],
                )  # fmt: skip
        axes.set_yticks(range(len(chosen)), [names[i] for i in chosen])
        axes.set_ylim(len(chosen) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlim(0, 1.12 * max(longest, 1))
        time_axis(axes.xaxis)
        more = f" ({hidden} more not drawn)" if hidden else ""
        axes.set_title(title + more, pad=12 + 16 * -(-len(parts) // 2))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, columnspacing=1.2)
    return axes


def idle_episodes(
    frame: pl.DataFrame, *, top: int = 20, origin: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw what `schedscope.idle_episodes` returned: a bar per episode, from start to end.

    The most wasted is on top. A bar has the colour of the cause of the longest wait in the episode;
    that wait and the CPUs that idled are named beside it. Time is in seconds after `origin`.
    """
    require(frame, _EPISODE, "schedscope.idle_episodes")
    firsts = frame.unique("episode", keep="first", maintain_order=True)
    several = dict(frame.group_by("episode").len().iter_rows())
    hidden = max(firsts.height - top, 0)
    with canvas(ax, width=9, height=1.9 + 0.34 * max(min(firsts.height, top), 1)) as axes:
        labels, seen = [], []
        rows = firsts.head(top).to_dicts()
        begins = [(row["ts"] - origin) / 1e9 for row in rows]
        ends = [(row["ts"] + row["dur"] - origin) / 1e9 for row in rows]
        span = max(ends) - min(begins) if rows else 0.0
        for y, row in enumerate(rows):
            color = _REASONS[row["cause"]][1]
            begin, length = (row["ts"] - origin) / 1e9, row["dur"] / 1e9
            axes.barh(y, length, left=begin, height=0.62, color=color)
            if length < 0.01 * span:
                axes.plot(begin, y, "|", color=color, markersize=9, markeredgewidth=1.4)
            more = several[row["episode"]] - 1
            where = "no known queue" if row["cpu"] is None else f"CPU {row['cpu']}"
            who = (
                f"{units.printable(row['comm'])} on {where}"
                if row["utid"] is not None
                else "several"
            )
            text = (
                who
                + (f" and {more} more" if more else "")
                + f"; CPU {row['idle_cpus']} idle {units.duration(row['wasted'])}"
            )
            axes.annotate(
                text, (begin + length, y), xytext=(8, 0), textcoords="offset points",
                va="center", fontsize=8,
            )  # fmt: skip
            labels.append(units.duration(row["dur"]))
            if row["cause"] not in seen:
                seen.append(row["cause"])
        axes.set_yticks(range(len(labels)), visible(labels))
        axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
        if not rows:
            axes.text(0.5, 0, "no episodes", ha="center", va="center")
        else:
            # Room for the words beside the bars.
            limits = (min(begins) - 0.02 * span, max(ends) + 0.75 * span)
            axes.set_xlim(limits)
            # Beyond the last episode there are only labels, and no ticks.
            last = max(ends) + 0.02 * span
            axes.set_xticks([tick for tick in axes.get_xticks() if limits[0] <= tick <= last])
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time in s")
        more_text = f" ({hidden} more not drawn)" if hidden else ""
        axes.set_title(
            f"When CPUs idled while threads waited{more_text}", pad=12 + 16 * -(-len(seen) // 2)
        )
        if seen:
            axes.legend(
                handles=[Patch(color=_REASONS[c][1], label=_REASONS[c][0]) for c in seen],
                loc="lower left",
                bbox_to_anchor=(0, 1),
                ncols=2,
                columnspacing=1.2,
            )
    return axes
