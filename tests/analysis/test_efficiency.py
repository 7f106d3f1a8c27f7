"""CPU time, switches, run lengths, elapsed against CPU time, and time lost to preemption."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from ledgers import played
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from streams import ANY_STREAM
from worlds import World

import schedscope as ss
from schedscope import _native, cli
from schedscope.parsers.schema import TABLES
from schedscope.simulator.generators import hogs
from schedscope.simulator.run import simulate

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [
    "freebsd-ule-synthetic.capture",
    "freebsd-4bsd-synthetic.capture",
    "linux-ftrace-lossy.capture",
    "linux-ftrace-mixed.capture",
    "linux-trace-cmd-yield.dat",
    "perf-sched.data",
]

# CPU 0: a runs 100-400, is preempted inside the kernel by b, which runs 400-600 and
# leaves plain R for a; a runs 600-700 and sleeps; idle from then on. CPU 1: known from 300 on.
WORLD = """
    100 cpu0: idle -> a
    200 cpu0: waking b on 0 by a
    200 cpu0: enqueued b on 0 by a
    300 cpu1: z S -> idle
    400 cpu0: a R+ -> b
    600 cpu0: b R -> a
    700 cpu0: a S -> b
    800 cpu0: b S -> idle
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(100, 1100), source={"name": "round"})


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


# -- runs -----------------------------------------------------------------------------


def test_runs_of_each_thread(trace: ss.Trace) -> None:
    frame = ss.run_lengths(trace, by="comm", quantiles=[0.5, 1])
    assert frame.rows() == [
        ("a", 2, 0, 200.0, 100, 300, 300, 400, 0),
        ("b", 2, 0, 150.0, 100, 200, 200, 300, 0),
    ]
    assert frame.columns == [
        "comm", "n", "n_censored", "mean", "p50", "p100", "max", "total", "total_censored",
    ]  # fmt: skip
    ends = ss.run_lengths(trace, by="end", where=pl.col("comm") == "a")
    assert ends.select("end", "n", "total").rows() == [("preempted", 1, 300), ("switched", 1, 100)]


def test_a_run_of_which_an_end_was_not_seen_is_censored() -> None:
    """a: found running at 50 by its wakeup of b, cut by a loss; b: lasts beyond the window."""
    trace = played(
        """
        10 cpu1: idle -> z
        50 cpu0: waking b on 1 by a during a
        60 loss cpu0 until 70 overrun
        80 cpu1: z S -> b
        """,
        window=(10, 100),
    )
    frame = ss.run_lengths(trace, by="comm")
    assert frame.select("comm", "n", "n_censored", "max", "total_censored").rows() == [
        ("z", 1, 0, 70, 0),
        ("b", 0, 1, None, 20),
        ("a", 0, 1, None, 10),
    ]


def test_a_run_that_was_found_is_censored_though_its_end_was_seen() -> None:
    trace = played(
        """
        10 cpu1: idle -> z
        50 cpu0: waking b on 1 by a during a
        60 cpu0: a S -> idle
        """,
        window=(10, 100),
    )
    frame = ss.run_lengths(trace, by="comm", where=pl.col("comm") == "a")
    assert frame.select("n", "n_censored", "total_censored").rows() == [(0, 1, 10)]


def test_a_run_found_after_lost_events_is_censored() -> None:
    """No switch at 50: the thread was running when CPU 0 was seen again, so 50 to 80 is cut."""
    columns = {
        "ts": [0, 10, 50, 80],
        "dur": [10, 20, 30, 20],
        "utid": [1] * 4,
        "state": ["running"] * 4,
        "cpu": [0] * 4,
        "end": ["switched", "lost", "switched", "window"],
    }
    switches = pl.DataFrame({"ts": [0, 10, 80], "cpu": [0] * 3, "next_utid": [1] * 3})
    losses = pl.DataFrame(
        {"ts_begin": [30], "ts_end": [50], "cpu": [0], "count": [3], "reason": ["overrun"]},
        schema_overrides={"cpu": pl.UInt16, "count": pl.UInt64},
    )
    trace = ss.Trace.from_tables(
        {"states": pl.DataFrame(columns), "switches": switches, "losses": losses},
        {"ncpu": 1, "window": [0, 100], "reconstruction": {"contradictions": 0}},
    )
    row = ss.run_lengths(trace, quantiles=[0.5]).row(0, named=True)
    assert row == {
        "n": 1, "n_censored": 3, "mean": 10, "p50": 10, "max": 10, "total": 10,
        "total_censored": 70,
    }  # fmt: skip


def test_a_cut_in_time_censors_the_runs_across_it(trace: ss.Trace) -> None:
    """What is left from 350 to 650: a 350-400 and 600-650, b 400-600."""
    cut = trace.between("250ns", "550ns")
    frame = ss.run_lengths(cut, by="comm")
    assert frame.select("comm", "n", "n_censored", "total", "total_censored").rows() == [
        ("b", 1, 0, 200, 0),
        ("a", 0, 2, 0, 100),
    ]
    row = ss.efficiency(cut).row(0, named=True)
    assert (row["busy"], row["idle"], row["unknown"], row["switches"]) == (300, 0, 0, 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.sampled_from([0.1, 0.5, 0.9, 1]))
def test_quantiles_of_runs_are_exact(lengths: list[int], q: float) -> None:
    """Against counting: the shortest run that at least that share does not exceed."""
    ts = [sum(lengths[:i]) for i in range(len(lengths))]
    columns = {"ts": ts, "dur": lengths, "utid": 1, "state": "running", "cpu": 0, "end": "switched"}
    states = pl.DataFrame(columns)
    switches = pl.DataFrame({"ts": ts, "cpu": 0, "next_utid": 1})
    trace = ss.Trace.from_tables(
        {"states": states, "switches": switches}, {"ncpu": 1, "window": [0, sum(lengths)]}
    )
    row = ss.run_lengths(trace, quantiles=[q]).row(0, named=True)
    share = Fraction(str(q))
    want = min(x for x in lengths if sum(y <= x for y in lengths) >= share * len(lengths))
    assert row[f"p{100 * q:g}"] == want
    assert (row["n"], row["max"], row["total"]) == (len(lengths), max(lengths), sum(lengths))


# -- processes ------------------------------------------------------------------------


def test_elapsed_time_against_cpu_time(trace: ss.Trace) -> None:
    """a ran 400 of its 1000 ns and waited 200 after its preemption; b ran 300, waited 200 + 100."""
    frame = ss.slowdown(trace, by="comm", where=pl.col("comm").is_in(["a", "b"]))
    rows = {row["comm"]: row for row in frame.iter_rows(named=True)}
    assert [rows["a"][c] for c in ("wall", "cpu", "waiting", "preempted")] == [1000, 400, 200, 200]
    assert (rows["a"]["ratio"], rows["a"]["slowdown"]) == (2.5, 1.5)
    assert [rows["b"][c] for c in ("wall", "cpu", "waiting", "preempted")] == [900, 300, 300, 100]
    assert (rows["b"]["ratio"], rows["b"]["slowdown"]) == (3.0, 2.0)
    both = ss.slowdown(trace, by=[], where=pl.col("comm").is_in(["a", "b"]))
    # Two threads could have used both CPUs: 1000 * 2 / 700.
    row = both.row(0, named=True)
    assert (row["threads"], row["wall"], row["cpu"]) == (2, 1000, 700)
    assert row["ratio"] == pytest.approx(2000 / 700)
    assert row["n_censored"] == 2


@pytest.mark.parametrize(
    ("policy", "cpus", "n", "ratio"),
    [("4bsd", 4, 3, 1.0), ("fifo", 1, 2, 1.0), ("fifo", 2, 3, 4 / 3)],
)
def test_the_ratio_of_hogs(policy: str, cpus: int, n: int, ratio: float) -> None:
    """1 while each has a CPU; with FIFO, where nobody moves, ceil(N / CPUs) * CPUs / N."""
    trace = simulate(hogs(n, time="100ms"), policy=policy, cpus=cpus)
    row = ss.slowdown(trace, by=[]).row(0, named=True)
    assert row["threads"] == n
    assert row["cpu"] == n * 100_000_000
    assert row["ratio"] == pytest.approx(ratio, rel=0.01)
    frame = ss.efficiency(trace)
    assert frame["busy"].sum() == row["cpu"]
    assert frame["n_ambiguous"].sum() == 0


def test_time_lost_by_class(trace: ss.Trace) -> None:
    """a lost 400-600 to b; b lost 600-700 to a, which may have been a yield."""
    classes = {"a": "fair", "b": "realtime"}
    threads = trace.threads.collect().with_columns(
        sched_class=pl.col("comm")
        .replace_strict(classes, default=None)
        .cast(TABLES["threads"].schema["sched_class"])
    )
    tables = {name: getattr(trace, name) for name in ("states", "switches", "waits")}
    classed = ss.Trace.from_tables(tables | {"threads": threads}, trace.info)
    frame = ss.preemption_loss(classed)
    assert frame.drop("lost_frac").rows() == [
        ("fair", "realtime", 1, 0, 0, 0, 200, 200),
        ("realtime", "fair", 1, 0, 1, 0, 100, 100),
    ]
    assert frame["lost_frac"].to_list() == pytest.approx([2 / 3, 1 / 3])
    mine = ss.preemption_loss(classed, where=(pl.col("comm") == "a") & (pl.col("cpu") == 0))
    assert mine.select("lost", "lost_frac").rows() == [(200, 1.0)]
    assert ss.preemption_loss(classed, where=pl.col("cpu") == 1).is_empty()


def test_a_preemption_without_its_switch_out_is_ambiguous() -> None:
    """The wait begins at 10, where no switch away from the thread was recorded."""
    waits = pl.DataFrame(
        {"utid": [1], "cause": ["preempt"], "ts_ready": [10], "ts_run": [30], "prev_cpu": [0],
         "queue_cpu": [0], "cpu": [0], "wait": [20], "censored": ["none"]}
    )  # fmt: skip
    switches = pl.DataFrame(
        {"ts": [5], "cpu": [0], "prev_utid": [0], "prev_state": ["runnable"], "preempted": [None],
         "next_utid": [1]},
        schema_overrides={"preempted": pl.Boolean},
    )  # fmt: skip
    threads = pl.DataFrame({"utid": [0, 1], "tid": [0, 7], "comm": ["idle", "a"]})
    threads = threads.with_columns(sched_class=pl.Series(["idle", "fair"]))
    tables = {"waits": waits, "switches": switches, "threads": threads}
    trace = ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 100]})
    row = ss.preemption_loss(trace).row(0, named=True)
    assert (row["n"], row["n_ambiguous"], row["n_excluded"], row["lost"]) == (1, 1, 0, 20)


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


@pytest.mark.parametrize("name", ["linux-ftrace-mixed.capture", "perf-sched.data"])
def test_preemptions_of_long_traces_are_summed_up_in_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits and switches are read some at a time; borders lie between any of them."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    whole = ss.preemption_loss(trace)
    assert whole["n"].sum() > 20
    for rows in (61, 640):
        monkeypatch.setattr("schedscope.analysis._base.batches.BATCH", rows)
        assert_frame_equal(ss.preemption_loss(trace), whole)
    for name in ("run_lengths", "slowdown"):
        assert getattr(ss.plot, name)(getattr(ss, name)(trace)) is not None


def test_preemptions_whose_wait_began_before_the_window_are_counted(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path).between(0.5, 1)
    cut = trace.waits.filter(pl.col("cause") == "preempt", pl.col("ts_ready").is_null())
    frame = ss.preemption_loss(trace)
    assert 0 < cut.collect().height == frame["n_excluded"].sum()
    # Nothing else is known of them.
    [row] = frame.filter(pl.col("n_excluded") > 0, pl.col("sched_class") == "fair").to_dicts()
    assert row["by_class"] is None
    assert (row["n"], row["n_censored"], row["n_ambiguous"], row["lost"]) == (0, 0, 0, 0)


def test_impossible_questions_are_refused(trace: ss.Trace) -> None:
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


def test_the_command_as_people_read_it(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_commands_for_programs(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_the_commands_refuse(
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
