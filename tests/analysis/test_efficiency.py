"""CPU time and switches; and the commands and figures of what the page on efficiency defines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from ledgers import played
from matplotlib.figure import Figure
from small_worlds import preempted_twice
from streams import ANY_STREAM
from worlds import World

import schedscope as ss
from schedscope import _native, cli
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [
    "freebsd-ule-synthetic.capture",
    "freebsd-4bsd-synthetic.capture",
    "linux-ftrace-lossy.capture",
    "linux-ftrace-mixed.capture",
    "linux-trace-cmd-yield.dat",
    "perf-sched.data",
]


@pytest.fixture
def trace() -> ss.Trace:
    return preempted_twice()


def test_the_time_of_each_cpu_and_its_switches(trace: ss.Trace) -> None:
    """CPU 0: a 300+100, b 200+100, idle 300. CPU 1: unknown for 200 ns, idle for 800."""
    first, second = ss.efficiency(trace).iter_rows(named=True)
    assert (first["busy"], first["idle"], first["unknown"]) == (700, 300, 0)
    assert (first["busy_frac"], first["switches"], first["switches_hz"]) == (0.7, 5, 5e6)
    assert (second["busy"], second["idle"], second["unknown"]) == (0, 800, 200)
    assert (second["switches"], second["switches_hz"]) == (1, 1e9 / 800)
    # Of CPU 0's four departures two slept, one was preempted, one plain R may be a yield.
    assert (first["n_voluntary"], first["n_involuntary"], first["n_ambiguous"]) == (2, 1, 1)
    assert (first["involuntary_frac_min"], first["involuntary_frac_max"]) == (0.25, 0.5)
    assert first["irq_hard"] is None
    assert first["irq_soft"] is None


def test_the_machine_is_the_sum_of_its_cpus(trace: ss.Trace) -> None:
    """6 switches in 1,800 ns of two CPUs' time, that is 900 ns of the machine's."""
    row = ss.efficiency(trace, by="all").row(0, named=True)
    assert (row["cpu"], row["busy"], row["idle"], row["unknown"]) == (None, 700, 1100, 200)
    assert (row["switches"], row["switches_hz"]) == (6, pytest.approx(6e9 / 900))
    assert (row["n_voluntary"], row["n_involuntary"], row["n_ambiguous"]) == (3, 1, 1)


def test_a_yield_that_was_recorded_is_voluntary() -> None:
    trace = played(
        """
        0  cpu0: idle -> a
        10 cpu0: a RY -> b
        20 cpu0: b R+ -> a
        """,
        window=(0, 30),
    )
    row = ss.efficiency(trace).row(0, named=True)
    assert (row["n_voluntary"], row["n_involuntary"], row["n_ambiguous"]) == (1, 1, 0)
    assert row["involuntary_frac_min"] == row["involuntary_frac_max"] == 0.5


def test_interrupts_are_summed_within_the_window(trace: ss.Trace) -> None:
    """Where some were recorded, a CPU without has 0, not null."""
    rows = [(90, 0, "hard", 1, 20), (500, 0, "hard", 1, 5), (600, 0, "soft", 3, 7)]
    irqs = pl.DataFrame(rows, TABLES["irqs"].schema, orient="row")
    tables = {name: getattr(trace, name) for name in ("states", "switches", "threads")}
    with_irqs = ss.Trace.from_tables(tables | {"irqs": irqs}, trace.info)
    frame = ss.efficiency(with_irqs)
    assert frame.select("irq_hard", "irq_soft").rows() == [(15, 7), (0, 0)]
    assert ss.efficiency(with_irqs, by="all")["irq_hard"].item() == 15


@given(ANY_STREAM)
def test_busy_idle_and_unknown_make_up_the_window(world: World) -> None:
    """CPU by CPU as the reconstruction counted; and runs sum up to the busy time."""
    answer = _native.reconstruct(world.tables, world.ncpu, world.window)
    assert world.window is not None
    tables = world.tables | {
        name: pl.DataFrame(answer[name]) for name in ("states", "waits", "losses")
    }
    info = {"ncpu": world.ncpu, "window": list(world.window), "per_cpu": answer["per_cpu"],
            "reconstruction": answer["counters"]}  # fmt: skip
    trace = ss.Trace.from_tables(tables, info)
    frame = ss.efficiency(trace)
    counted = [(c["cpu"], c["running"], c["idle"], c["unknown"]) for c in answer["per_cpu"]]
    assert frame.select("cpu", "busy", "idle", "unknown").rows() == sorted(counted)
    assert frame["switches"].sum() == world.tables["switches"].height
    runs = ss.run_lengths(trace, by="cpu")
    assert sum(runs["total"]) + sum(runs["total_censored"]) == frame["busy"].sum()
    assert ss.slowdown(trace, by="utid")["cpu"].sum() == frame["busy"].sum()


@pytest.mark.parametrize("name", RECORDED)
def test_the_sums_of_recordings(name: str, tmp_path: Path) -> None:
    """Times as the reconstruction counted them; all tables tell one running time."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.efficiency(trace)
    assert frame.select("cpu", "busy", "idle", "unknown", "switches").rows() == [
        (c["cpu"], c["running"], c["idle"], c["unknown"], c["switches"])
        for c in sorted(trace.info["per_cpu"], key=lambda c: int(c["cpu"]))
    ]
    busy = frame["busy"].sum()
    runs = ss.run_lengths(trace, by=["comm", "end"])
    assert sum(runs["total"]) + sum(runs["total_censored"]) == busy
    groups = ss.slowdown(trace, by="comm")
    assert groups["cpu"].sum() == busy
    assert (groups["slowdown"].drop_nulls() >= 1).all()
    lost = ss.preemption_loss(trace)
    ledger = trace.waits.filter(cause="preempt").select(pl.len(), pl.col("wait").sum()).collect()
    assert lost.select(pl.col("n", "n_censored").sum().sum()).row(0)[0] <= ledger["len"].item()
    assert (lost["n"].sum() + lost["n_censored"].sum(), lost["lost"].sum()) == ledger.row(0)
    if name.startswith("freebsd"):  # which tells every time
        assert frame["n_ambiguous"].sum() == lost["n_ambiguous"].sum() == 0
    # Every CPU's departures are those of its switches' threads.
    kinds = frame.select(
        pl.sum_horizontal("n_voluntary", "n_involuntary", "n_ambiguous").sum()
    ).item()
    of_threads = trace.switches.filter(pl.col("prev_utid") >= trace.ncpu)
    assert kinds == of_threads.select(pl.len()).collect().item()
    assert frame["irq_soft"].is_null().all() == (name != "linux-trace-cmd-yield.dat")
    for question in ("run_lengths", "slowdown"):
        assert getattr(ss.plot, question)(getattr(ss, question)(trace)) is not None


def test_an_empty_trace_is_answered() -> None:
    trace = ss.Trace.from_tables({}, {"ncpu": 2, "window": [0, 0]})
    frame = ss.efficiency(trace)
    assert frame.select("busy", "idle", "unknown").rows() == [(0, 0, 0)] * 2
    assert frame["busy_frac"].to_list() == [None, None]
    assert ss.run_lengths(trace).row(0)[:3] == (0, 0, None)
    assert ss.run_lengths(trace, by="comm").is_empty()
    assert ss.slowdown(trace).is_empty()
    assert ss.slowdown(trace, by=[]).is_empty()
    assert ss.preemption_loss(trace).is_empty()


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="by='core'"):
        ss.efficiency(trace, by="core")  # type: ignore[arg-type]
    with pytest.raises(ss.UsageError, match=r"quantile 0"):
        ss.run_lengths(trace, quantiles=[0])
    with pytest.raises(ss.UsageError, match="'wait'"):
        ss.run_lengths(trace, by="wait")
    with pytest.raises(ss.UsageError, match="twice"):
        ss.slowdown(trace, by=["pid", "pid"])
    with pytest.raises(ss.UsageError, match="'cpu'"):
        ss.slowdown(trace, where=pl.col("cpu") == 0)


# -- the command and the figures ------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_command_prints_its_table(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["efficiency", sched]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[3:] == [
        "CPU busy share busy idle unknown switches switches/s involuntary min involuntary max",
        "0 70.0 % 700 ns 300 ns 0 ns 5 5,000,000 25.0 % 50.0 %",
        "1 0 % 0 ns 800 ns 200 ns 1 1,250,000 0 % 0 %",
        "1 ambiguous switch: preemption or yield, the trace does not say which;"
        " record yields as well",
        "the trace has no interrupts: the time in their handlers is unknown",
    ]


def test_commands_write_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(command: str, *words: str) -> list[dict[str, object]]:
        assert cli.main([command, sched, *words, "--format", "json"]) == 0
        found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
        return found

    assert [row["busy"] for row in rows("efficiency", "--cpu", "1")] == [0]
    assert [row["switches"] for row in rows("efficiency", "--by", "all")] == [6]
    assert [(row["comm"], row["n"]) for row in rows("run-lengths", "--top", "1")] == [("a", 2)]
    assert [row["cpu"] for row in rows("slowdown", "--by", "comm", "--comm", "b")] == [300]
    assert [row["lost"] for row in rows("preemption-loss")] == [300]
    assert [row["n"] for row in rows("run-lengths", "--by", "all", "--since", "300ns")] == [3]
    assert cli.main(["run-lengths", sched, "--by", "end", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("end,n,n_censored,mean,p50")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("efficiency", ["--top", "0"]),
        ("efficiency", ["--by", "all", "--cpu", "0"]),
        ("efficiency", ["--cpu", "7"]),
        ("run-lengths", ["--by", "wait"]),
        ("run-lengths", ["--comm", "nobody"]),
        ("slowdown", ["--by", "end"]),
        ("slowdown", ["--cpu", "0"]),
        ("preemption-loss", ["--top", "0"]),
    ],
)
def test_commands_refuse_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], command: str, words: list[str]
) -> None:
    assert cli.main([command, sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert any(word in err for word in words)
    assert "Traceback" not in err


def test_the_figures(trace: ss.Trace) -> None:
    frame = ss.efficiency(trace)
    axes = ss.plot.efficiency(frame)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CPU 0", "CPU 1"]
    assert [text.get_text() for text in axes.texts] == [
        "5,000,000/s, 25 to 50 % forced",
        "1,250,000/s, 0 % forced",
    ]
    runs = ss.plot.run_lengths(ss.run_lengths(trace, by="comm"), top=1)
    assert runs.get_title(loc="left") == "Run lengths by comm, the first 1 of 2"
    groups = ss.plot.slowdown(ss.slowdown(trace, by="comm"))
    assert [text.get_text() for text in groups.texts] == ["1.5 times", "2 times"]
    for drawn in (axes, runs, groups):
        figure = drawn.figure
        assert isinstance(figure, Figure)
        figure.savefig(io.BytesIO(), format="png")
    for name in ("run_lengths", "slowdown"):
        with pytest.raises(ss.UsageError, match=r"the frame that schedscope\."):
            getattr(ss.plot, name)(frame)
