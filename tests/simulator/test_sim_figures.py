"""Figures of simulations, and the table that `--policy all` prints."""

from __future__ import annotations

import csv
import io

import pytest

from schedscope import workload as w
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.runs import figures
from schedscope.simulator.runs.run import simulate


def mixed_classes() -> w.Workload:
    b = w.Builder()
    for i in range(3):
        b.thread(f"hog-{i}").run("20ms")
    b.thread("rt", sched="fifo", rt_prio=5, start="1ms").run("1ms").sleep("3ms").repeat(4)
    return b.workload()


def test_few_policies_are_curves_and_many_are_rows() -> None:
    load = mixed_classes()
    names = ["fifo", "rr", "srtf", "ule-14", "4bsd", "o1", "bfs", "eevdf-6.17"]
    traces = {name: simulate(load, policy=name, cpus=2) for name in names}
    few = figures.policies({name: traces[name] for name in names[:3]})
    assert [t.get_text() for t in few.get_legend().get_texts()] == names[:3]  # type: ignore[union-attr]
    assert few.get_yscale() == "log"
    many = figures.policies(traces)
    rows = [label.get_text() for label in many.get_yticklabels()]
    assert sorted(rows) == sorted(names)
    # The best p99 is on top, which is the last row of an axis that counts upwards.
    p99 = dict(zip(rows, many.collections[2].get_offsets()[:, 0], strict=True))  # type: ignore[index]
    assert list(p99.values()) == sorted(p99.values(), reverse=True)


def test_figure_without_waits_says_so() -> None:
    ax = figures.policies({"fifo": simulate(w.hogs(1), policy="fifo", cpus=1)})
    assert "no wait" in ax.texts[0].get_text()


@pytest.mark.parametrize(
    ("policy", "series"),
    [
        ("eevdf-6.17", ["vruntime", "deadline", "lag"]),
        ("ule-14", ["score", "priority", "queue_index"]),
        ("4bsd", ["priority", "estcpu"]),
        ("o1", ["sleep_avg", "bonus", "priority"]),
    ],
)
def test_policy_series_is_drawn_below_its_timeline(policy: str, series: list[str]) -> None:
    trace = simulate(w.nice_hogs(), policy=policy, cpus=2, record=True, until="400ms")
    lanes = figures.policy_series(trace)
    panels = lanes.get_figure(root=True).axes  # type: ignore[union-attr]
    assert [panel.get_ylabel() for panel in panels] == ["", *series]
    # All of the time of both CPUs is drawn: with four hogs no CPU is idle.
    drawn = sum(path.get_extents().width for c in lanes.collections for path in c.get_paths())
    assert drawn == pytest.approx(2 * trace.duration)
    legend = [text.get_text() for text in lanes.get_legend().get_texts()]  # type: ignore[union-attr]
    assert legend == ["nice0", "nice5", "nice10", "nice19"]
    one = figures.policy_series(trace, series[0], threads=["nice5"])
    assert len(one.get_figure(root=True).axes) == 2  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="series"):
        figures.policy_series(trace, "mood")
    with pytest.raises(UsageError, match="thread"):
        figures.policy_series(trace, series[0], threads=["nobody"])


def test_threads_of_one_name_have_separate_curves() -> None:
    b = w.Builder()
    for i in range(9):
        b.thread("worker", tid=100 + i).run(f"{10 + i}ms")
    b.thread("long and alone").run("90ms")
    trace = simulate(b.workload(), policy="o1", cpus=2, record=True)
    lanes = figures.policy_series(trace)
    figure = lanes.get_figure(root=True)
    assert figure is not None
    shown = [f"worker {100 + i}" for i in range(3, 9)] + ["long and alone"]
    texts = lanes.get_legend().get_texts()  # type: ignore[union-attr]
    assert [text.get_text() for text in texts] == [*shown, "others"]
    for panel in figure.axes[1:]:
        assert len(panel.lines) == len(shown)
    # The legend is inside the figure, between title and lanes.
    figure.canvas.draw()
    box = lanes.get_legend().get_window_extent()  # type: ignore[union-attr]
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    title = next(
        t for t in lanes.get_children() if getattr(t, "get_text", str)() == "o1: policy series"
    )
    assert box.y1 <= title.get_window_extent().y0 + 1
    some = figures.policy_series(trace, threads=["worker 104", "long and alone"])
    assert len(some.get_figure(root=True).axes[1].lines) == 2  # type: ignore[union-attr]


def test_zero_waits_are_not_drawn_as_a_microsecond() -> None:
    load = mixed_classes()
    names = ["fifo", "rr", "srtf", "ule-14", "4bsd", "o1", "bfs", "eevdf-6.17"]
    ax = figures.policies({name: simulate(load, policy=name, cpus=2) for name in names})
    label = ax.xaxis.get_major_formatter()
    assert [label(1_000, 0), label(10_000, 0)] == ["≤ 1 µs", "10 µs"]


def test_one_table_has_each_policy_and_class(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    saved = tmp_path / "m.workload"
    mixed_classes().save(saved)
    figure = tmp_path / "f.svg"
    command = ["simulate", str(saved), "--cpus", "2", "--policy", "fifo,rr"]
    assert main([*command, "--figure", str(figure), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(r["policy"], r["sched_class"]) for r in rows] == [
        (name, sched) for name in ("fifo", "rr") for sched in ("", "fair", "realtime")
    ]
    fifo = {r["sched_class"]: r for r in rows[:3]}
    assert int(fifo[""]["n_waits"]) == sum(int(fifo[c]["n_waits"]) for c in ("fair", "realtime"))
    assert fifo["realtime"]["wait_max"] == "0"
    assert fifo["fair"]["completion"] == ""
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-6:]] == [
        "fifo", "fair", "realtime", "rr", "fair", "realtime",
    ]  # fmt: skip
    out = tmp_path / "view.svg"
    assert main([*command[:-1], "o1", "--record", "--figure", str(out)]) == 0
    assert out.stat().st_size > 10_000
    # One clip path for each panel: the lanes and the three series of o1.
    assert out.read_text().count("<clipPath") == 4


def test_the_extraction_is_reported(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = str(tmp_path / "a.sched")
    assert main(["simulate", "requests:3,requests=20", "--policy", "rr", "-o", out]) == 0
    capsys.readouterr()
    assert main(["simulate", out, "--policy", "rr"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  kept"))
    assert [line.split()[0] for line in lines[first : first + 3]] == ["kept", "cut", "guessed"]
    assert "wakeups by threads" in lines[first]
