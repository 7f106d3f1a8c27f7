"""`wakers`: edges in round numbers, interrupts by name, and equality with the waits."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import polars as pl
import pytest
from ledgers import played
from matplotlib.figure import Figure

import schedscope as ss
from schedscope import cli
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"

# a wakes b twice (waits of 10 and 30), an interrupt wakes it once (20) and c once; a forks d.
WORLD = """
    0   cpu0: idle -> a
    0   cpu1: x S -> idle
    100 cpu0: waking b on 1 by a
    110 cpu1: idle -> b
    120 cpu1: b S -> idle
    200 cpu0: waking b on 1 by a
    230 cpu1: idle -> b
    240 cpu1: b S -> idle
    300 cpu1: waking b on 1
    320 cpu1: idle -> b
    330 cpu1: b S -> idle
    400 cpu1: waking c on 1
    500 cpu0: new d on 0 by a
    600 cpu0: a S -> d
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(0, 1000), source={"name": "round"})


def with_irqs(trace: ss.Trace, rows: list[tuple[int, int, str, int, int]]) -> ss.Trace:
    irqs = pl.DataFrame(rows, TABLES["irqs"].schema, orient="row")
    tables = {"states": trace.states, "waits": trace.waits, "threads": trace.threads, "irqs": irqs}
    return ss.Trace.from_tables(tables, trace.info)


def test_wakers_counts_each_edge(trace: ss.Trace) -> None:
    frame = ss.wakers(trace, quantiles=(0.5, 1))
    assert frame.rows() == [
        ("thread", "a", None, "b", 2, 40, 20.0, 10, 30, 30, 0, 0, 0),
        ("thread", "a", None, "d", 1, 100, 100.0, 100, 100, 100, 0, 0, 1),
        ("interrupt", None, "interrupt", "b", 1, 20, 20.0, 20, 20, 20, 0, 0, 0),
        ("interrupt", None, "interrupt", "c", 0, 0, None, None, None, None, 1, 0, 0),
    ]


def test_an_interrupt_is_named_by_its_handler(trace: ss.Trace) -> None:
    """The innermost handler on that CPU at that instant; those of other CPUs do not count."""
    handlers = [
        (290, 1, "hard", 24, 100),
        (295, 1, "soft", 1, 20),
        (399, 0, "soft", 3, 10),
        (390, 1, "soft", 9, 5),
    ]
    frame = ss.wakers(with_irqs(trace, handlers)).drop_nulls("interrupt")
    assert dict(frame.select("comm", "interrupt").iter_rows()) == {
        "b": "softirq TIMER",
        "c": "interrupt",
    }
    hard = ss.wakers(with_irqs(trace, handlers[:1])).drop_nulls("interrupt")
    assert hard["interrupt"].to_list() == ["irq 24", "interrupt"]


def test_waking_by_the_idle_thread_has_kind_idle() -> None:
    trace = played("0 cpu0: x S -> idle\n5 cpu0: waking a on 0 by idle0\n9 cpu0: idle -> a",
                   ncpu=1, window=(0, 20))  # fmt: skip
    assert ss.wakers(trace).select("waker_kind", "waker_comm").rows() == [("idle", None)]


def test_wakers_groups_by_thread_and_selects_waits(trace: ss.Trace) -> None:
    frame = ss.wakers(trace, by="thread", where=pl.col("comm") == "b")
    assert frame.select("waker_comm", "waker_utid", "comm", "tid", "n").rows() == [
        ("a", 2, "b", 104, 2),
        (None, None, "b", 104, 1),
    ]
    assert ss.wakers(trace, where=pl.col("cpu") == 0)["comm"].to_list() == ["d"]
    assert ss.wakers(trace, where=pl.col("comm") == "nobody").height == 0
    by_pid = ss.wakers(trace, by="process")
    assert by_pid["n"].sum() == 4


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="by='cpu'"):
        ss.wakers(trace, by="cpu")  # type: ignore[arg-type]
    with pytest.raises(ss.UsageError, match="quantile 0"):
        ss.wakers(trace, quantiles=[0])


@pytest.mark.parametrize(
    "name",
    ["linux-ftrace-mixed.capture", "linux-trace-cmd-yield.dat", "freebsd-ule-synthetic.capture",
     "perfetto-compact.pftrace"],
)  # fmt: skip
@pytest.mark.parametrize("by", ["comm", "thread", "process"])
def test_edges_equal_a_count_of_waits(name: str, by: str, tmp_path: Path) -> None:
    """Every wait that a wakeup started is on one edge; quantiles equal those of a plain sort."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.wakers(trace, by=by)  # type: ignore[arg-type]
    woken = trace.waits.filter(pl.col("cause").cast(pl.String).is_in(["wake", "new"])).collect()
    whole = woken.filter(censored="none")
    assert frame["n"].sum() == whole.height
    assert frame["total"].sum() == whole["wait"].sum()
    assert frame["n_censored"].sum() + frame["n_excluded"].sum() == woken.height - whole.height
    assert frame["n_new"].sum() == woken.filter(cause="new").height
    if by != "thread":
        return
    for row in frame.filter(waker_kind="thread").head(20).iter_rows(named=True):
        waits = sorted(whole.filter(waker_utid=row["waker_utid"], utid=row["utid"])["wait"])
        if waits:
            assert row["p99"] == waits[math.ceil(0.99 * len(waits)) - 1]
            assert row["p50"] == waits[math.ceil(0.5 * len(waits)) - 1]
            assert row["max"] == waits[-1]


# -- the command and the figure ---------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_the_command(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wakers", sched]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "5 waits started with a wakeup, 1 of them of new threads; 1 unfinished when last observed",
        "",
        "waker woken wakeups mean p50 p99 max total forks unfinished",
        "a b 2 20 ns 10 ns 30 ns 30 ns 40 ns 0 0",
        "a d 1 100 ns 100 ns 100 ns 100 ns 100 ns 1 0",
        "(interrupt) b 1 20 ns 20 ns 20 ns 20 ns 20 ns 0 0",
        "(interrupt) c 0 - - - - 0 ns 0 1",
    ]
    assert cli.main(["wakers", sched, "--top", "1", "--by", "thread", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"][0]["waker_tid"], document["rows_in_all"]) == (102, 4)
    assert cli.main(["wakers", sched, "--comm", "d", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["thread,a,,d,1,100,100.0,100,100,100,0,0,1"]


@pytest.mark.parametrize("words", [["--top", "0"], ["--comm", "nobody"], ["--by", "cpu"]])
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["wakers", sched, *words]) == 2
    assert capsys.readouterr().out == ""


def test_the_figure(trace: ss.Trace) -> None:
    axes = ss.plot.wakers(ss.wakers(trace), top=3)
    texts = [text.get_text() for text in axes.texts]
    assert sorted(texts) == ["(interrupt)", "1", "1", "2", "a", "b", "d"]
    assert "1 rarer pairs not drawn" in axes.get_title(loc="left")
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")
    assert ss.plot.wakers(ss.wakers(trace).clear()) is not None
    own = ss.wakers(trace).with_columns(waker_comm=pl.col("comm"), waker_kind=pl.lit("thread"))
    assert len(ss.plot.wakers(own).patches) == 4
    with pytest.raises(ss.UsageError, match=r"schedscope\.wakers"):
        ss.plot.wakers(ss.work_conservation(trace))
