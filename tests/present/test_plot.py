"""Figures draw the values of the frame, can be rendered, and refuse other frames."""

from __future__ import annotations

import io

import polars as pl
import pytest
from ledgers import ledger
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import schedscope as ss

WORLD = """
    web  wake    100 -> 110  cpu0
    web  wake    200 -> 230  cpu1
    web  preempt 300 -> 320  cpu0
    db   wake    400 -> 500  cpu1
    db   preempt 600 -> open cpu1
    new  new     700 -> 700  cpu1
    db   unknown ?   -> 250  cpu1
"""


def rendered(axes: Axes) -> bytes:
    buffer = io.BytesIO()
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def texts(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_latency_plot_has_a_row_for_each_group() -> None:
    axes = ss.plot.latency(ss.latency(ledger(WORLD), by="comm"))
    assert texts(axes) == ["db  (1)", "web  (3)", "new  (1)"]
    markers = {(line.get_marker(), *map(float, line.get_xdata())) for line in axes.lines}
    assert ("|", 30.0) in markers  # web's maximum
    assert (">", 400.0) in markers  # db's open wait, longer than its 100
    assert rendered(axes).startswith(b"\x89PNG")


def test_latency_plot_names_the_groups_left_out() -> None:
    axes = ss.plot.latency(ss.latency(ledger(WORLD), by="comm"), top=1)
    assert "the first 1 of 3" in axes.get_title(loc="left")


def test_empty_bucket_breaks_the_line_over_time() -> None:
    frame = ss.latency(ledger(WORLD), every=100)
    axes = ss.plot.latency(frame.filter(pl.col("ts") != 300))
    median = axes.lines[0].get_ydata()
    assert list(median)[:2] == [10.0, 30.0]
    assert median[2] != median[2]  # NaN
    rendered(axes)


def test_short_last_bucket_is_not_drawn() -> None:
    """The window ends soon after the last bucket begins."""
    waits = [
        f"web wake {100 * b + 5 * i} -> {100 * b + 5 * i + 9} cpu0"
        for b in range(4)
        for i in range(8)
    ]
    frame = ss.latency(ledger("\n".join([*waits, "web wake 402 -> 403 cpu0"])), every=100)
    assert frame["n"].to_list() == [8, 8, 8, 8, 1]
    axes = ss.plot.latency(frame)
    assert list(axes.lines[0].get_ydata()) == [9.0] * 4


def test_survival_is_drawn_from_one_down_to_the_last_step() -> None:
    frame = ss.survival(ledger(WORLD))
    axes = ss.plot.survival(frame)
    drawn = axes.lines[0].get_ydata()
    assert drawn[0] == 1.0
    assert min(drawn) > 0  # a log axis has no zero
    assert axes.get_xscale() == axes.get_yscale() == "log"
    rendered(axes)


def test_survival_by_group_names_what_is_left_out() -> None:
    frame = ss.survival(ledger(WORLD), by="comm")
    axes = ss.plot.survival(frame, top=2)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["web (3)", "db (1)"]
    assert "1 smaller groups not drawn" in axes.get_title(loc="left")


def test_worst_waits_are_drawn_at_their_time() -> None:
    frame = ss.worst_waits(ledger(WORLD), 2)
    assert frame.select("comm", "wait", "censored").rows() == [
        ("db", 400, "right"),
        ("db", 100, "none"),
    ]
    axes = ss.plot.worst_waits(frame)
    first, second = axes.patches[:2]
    assert (first.get_x(), first.get_width()) == pytest.approx((600e-9, 400e-9))  # type: ignore[attr-defined]
    assert (second.get_x(), second.get_width()) == pytest.approx((400e-9, 100e-9))  # type: ignore[attr-defined]
    assert [text.get_text() for text in axes.texts] == ["≥ 400 ns", "100 ns"]
    rendered(axes)


@pytest.mark.parametrize("plot", [ss.plot.latency, ss.plot.survival, ss.plot.worst_waits])
def test_another_frame_is_refused_with_the_expected_function(plot: object) -> None:
    """The error names the analysis whose frame is expected."""
    with pytest.raises(ss.UsageError, match="the frame that schedscope"):
        plot(pl.DataFrame({"x": [1]}))  # type: ignore[operator]


def test_an_empty_trace_can_be_drawn() -> None:
    trace = ledger("")
    rendered(ss.plot.latency(ss.latency(trace, by="comm")))
    rendered(ss.plot.latency(ss.latency(trace, every="1ms")))
    rendered(ss.plot.survival(ss.survival(trace)))
    rendered(ss.plot.survival(ss.survival(trace, by="comm")))
    rendered(ss.plot.worst_waits(ss.worst_waits(trace)))


@pytest.mark.parametrize("waits", [(12_000, 12_001), (12_000, 17_000), (12_000, 700_000)])
def test_scale_has_distinct_labels_for_similar_waits(waits: tuple[int, int]) -> None:
    """Between powers of ten there was no label, and neighbouring labels were all equal."""
    rows = "".join(
        f"    a wake {i}000000 -> {i}{wait:06} cpu0\n" for i, wait in enumerate(waits, 1)
    )
    axes = ss.plot.latency(ss.latency(ledger(rows), by="comm"))
    rendered(axes)
    low, high = axes.get_xlim()
    labels = [
        label.get_text()
        for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= tick <= high
    ]
    assert len(labels) >= 2
    assert len(set(labels)) == len(labels)


def test_empty_figure_has_a_text_and_no_scale() -> None:
    trace = ledger(WORLD)
    for axes, said in (
        (ss.plot.off_cpu(ss.off_cpu(trace)), "no off-CPU time"),
        (
            ss.plot.migration_rates(ss.migration_summary(trace, "cause", every="1us").clear()),
            "none",
        ),
    ):
        rendered(axes)
        assert [text.get_text() for text in axes.texts] == [said]
        assert not len(axes.get_xticks())


def test_panels_share_their_scale() -> None:
    from schedscope.plot.style import panels

    with panels(2) as (left, right):
        ss.plot.survival(ss.survival(ledger(WORLD), by="cause"), ax=left)
        right.plot([0, 1], [0, 5])
    assert left.get_ylim() == right.get_ylim()
    assert rendered(left).startswith(b"\x89PNG")


def test_a_cause_has_one_colour_everywhere() -> None:
    from schedscope.plot.style import CAUSE_COLORS

    axes = ss.plot.survival(ss.survival(ledger(WORLD), by="cause"))
    drawn = {str(line.get_label()).split(" ")[0]: line.get_color() for line in axes.lines}
    assert drawn["preempt"] == CAUSE_COLORS["preempt"]
    assert drawn["wake"] == CAUSE_COLORS["wake"]


def test_matplotlib_settings_of_the_caller_are_unchanged() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    ss.plot.survival(ss.survival(ledger(WORLD)))
    assert dict(mpl.rcParams) == before


def test_small_part_of_a_stack_is_visible() -> None:
    """0.1 % of a bar would be less than a pixel, or hidden by the white of its edge."""
    frame = pl.DataFrame(
        {"cpu": [0], "busy": [9990], "idle": [10], "unknown": [0], "switches": [1]}
    ).with_columns(switches_hz=1.0, involuntary_frac_min=None, involuntary_frac_max=None)
    axes = ss.plot.efficiency(frame)
    busy, idle, unknown = (group.patches[0] for group in axes.containers[:3])  # type: ignore[attr-defined]
    assert idle.get_width() == pytest.approx(0.1)
    assert idle.get_edgecolor() == idle.get_facecolor()
    assert idle.get_linewidth() > 1
    assert idle.get_zorder() > busy.get_zorder()
    assert unknown.get_width() == 0
    assert unknown.get_zorder() == busy.get_zorder()


@pytest.mark.parametrize("ratios", [[1.0], [1.64, 1.0, 0.83], [1.01, 1.0], [3.3, 1, 0.2], [900, 1]])
def test_ratio_axis_has_labels_for_similar_hosts(ratios: list[float]) -> None:
    nothing = [None] * len(ratios)
    frame = pl.DataFrame(
        {
            "host": [f"h{i}" for i in range(len(ratios))],
            "measure": ["p99"] * len(ratios),
            "ratio": [float(ratio) for ratio in ratios],
            "lower": pl.Series(nothing, dtype=pl.Float64),
            "upper": pl.Series(nothing, dtype=pl.Float64),
            "verdict": pl.Series(nothing, dtype=pl.String),
        }
    )
    axes = ss.plot.fleet_hosts(frame)
    assert rendered(axes)
    low, high = axes.get_ylim()
    named = [float(tick) for tick in axes.get_yticks() if low <= tick <= high]
    assert 3 <= len(named) <= 12
    assert all(tick == int(tick) for tick in axes.get_xticks())
