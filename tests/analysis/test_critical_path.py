"""`critical_path`: backwards through wakeups in round numbers; every nanosecond is in one step."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played, utid
from matplotlib.figure import Figure

import schedscope as ss
from schedscope import cli
from schedscope.analysis import critical_path as in_parts
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import hackbench, make

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000

# A client asks a server at 100 and sleeps; the server waits for its CPU behind a hog until 150,
# works, is preempted from 200 to 250, and answers at 300. The client was asleep meanwhile.
# At 420 it sleeps until a timer at 500.
WORLD = """
    0   cpu0: x S -> client
    0   cpu1: y S -> hog
    0   cpu0: waking server on 1 by client
    0   cpu1: waking hog2 on 1 by hog
    10  cpu1: hog R+ -> server
    20  cpu1: server S -> hog
    100 cpu0: waking server on 1 by client
    105 cpu1: enqueued server on 1 by hog
    110 cpu0: client S -> idle
    150 cpu1: hog R+ -> server
    200 cpu1: server R+ -> hog
    250 cpu1: hog S -> server
    300 cpu1: waking client on 0 by server
    304 cpu0: enqueued client on 0 during idle0
    310 cpu0: idle -> client
    320 cpu1: server S -> idle
    420 cpu0: client S -> idle
    500 cpu0: waking client on 0 during idle0
    502 cpu0: enqueued client on 0 during idle0
    505 cpu0: idle -> client
    600 cpu0: client S -> idle
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(0, 600), source={"name": "round"})


def test_wakeup_without_a_wait_is_a_step() -> None:
    """A timer wakes `work`, which makes `child`, all at one instant, as in a simulation."""
    trace = played(
        """
        0   cpu0: work S -> idle
        0   cpu1: x S -> idle
        100 cpu0: waking work on 0 during idle0
        100 cpu0: enqueued work on 0 during idle0
        100 cpu0: idle -> work
        300 cpu0: new child on 1 by work
        300 cpu1: idle -> child
        400 cpu0: work S -> idle
        """,
        window=(0, 500),
    )
    path = ss.critical_path(trace, utid=utid(trace, "child"))
    assert path.select("ts", "dur", "kind", "comm", "ended").rows() == [
        (0, 100, "sleep", "work", "woken"),
        (100, 200, "run", "work", "woke"),
        (300, 200, "run", "child", "end"),
    ]


def between(trace: ss.Trace, begin: int | None, end: int | None, who: int) -> pl.DataFrame:
    """The path between two instants."""
    since, until = (None if ts is None else f"{ts - trace.origin}ns" for ts in (begin, end))
    return ss.critical_path(trace, since, until, utid=who)


def steps(trace: ss.Trace, begin: int | None, end: int | None, comm: str) -> list[str]:
    """`50..60 run a@0 woke b`."""
    return [
        f"{r['ts']}..{r['ts'] + r['dur']} {r['kind']} {r['comm']}"
        + (f"@{r['cpu']}" if r["cpu"] is not None else "")
        + f" {r['ended']}"
        + (f" {r['other_comm']}" if r["other_comm"] else "")
        for r in between(trace, begin, end, utid(trace, comm)).to_dicts()
    ]


def test_back_through_the_wakeups(trace: ss.Trace) -> None:
    assert steps(trace, 50, 600, "client") == [
        "50..100 run client@0 woke server",
        "100..105 wake server@1 enqueued",
        "105..150 wait server@1 ran",
        "150..200 run server@1 preempted",
        "200..250 wait server@1 ran",
        "250..300 run server@1 woke client",
        "300..304 wake client@0 enqueued",
        "304..310 wait client@0 ran",
        "310..420 run client@0 slept",
        "420..500 sleep client woken",
        "500..502 wake client@0 enqueued",
        "502..505 wait client@0 ran",
        "505..600 run client@0 end",
    ]


def test_path_may_end_in_any_state(trace: ss.Trace) -> None:
    """The path may end in a sleep, before an enqueue, in a wait or in a run."""
    assert steps(trace, 400, 450, "client") == [
        "400..420 run client@0 slept", "420..450 sleep client end",
    ]  # fmt: skip
    assert steps(trace, 90, 103, "server") == [
        "90..100 run client@0 woke server", "100..103 wake server@1 end",
    ]  # fmt: skip
    assert steps(trace, 102, 120, "server") == [
        "102..105 wake server@1 enqueued", "105..120 wait server@1 end",
    ]  # fmt: skip
    assert steps(trace, 155, 160, "server") == ["155..160 run server@1 end"]


def test_path_stops_at_an_unrecorded_wakeup() -> None:
    """Its wakeup was not recorded, so what it waited for is unknown."""
    trace = played(
        """
        0   cpu0: x S -> a
        50  cpu0: a S -> idle
        90  cpu0: idle -> a
        """,
        ncpu=1, window=(0, 100),
    )  # fmt: skip
    assert steps(trace, None, None, "a") == ["0..90 unknown a unknown", "90..100 run a@0 end"]
    # When that sleep ended is unknown, too.
    assert steps(trace, 0, 60, "a") == ["0..60 unknown a unknown"]
    assert steps(trace, 0, 50, "a") == ["0..50 run a@0 end"]


def test_path_stops_at_a_loss() -> None:
    trace = played(
        """
        0   cpu0: x S -> a
        40  loss cpu0 until 60
        70  cpu0: a S -> idle
        """,
        ncpu=1, window=(0, 100),
    )  # fmt: skip
    assert steps(trace, 0, 65, "a") == ["0..65 unknown a unknown"]


def test_a_queue_change_is_a_step_and_a_fork_an_edge() -> None:
    trace = played(
        """
        0   cpu0: x S -> a
        0   cpu1: y S -> b
        50  cpu0: new c on 0 by a
        80  cpu0: migrate c 0 -> 1
        90  cpu1: b S -> c
        """,
        window=(0, 100),
    )
    assert steps(trace, None, None, "c") == [
        "0..50 run a@0 woke c",
        "50..80 wait c@0 moved",
        "80..90 wait c@1 ran",
        "90..100 run c@1 end",
    ]


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    for thread in (0, 99):
        with pytest.raises(ss.UsageError, match=f"utid={thread}"):
            ss.critical_path(trace, utid=thread)
    for since, until in (("300ns", "300ns"), (-1e-9, "20ns"), (0, "601ns")):
        with pytest.raises(ss.UsageError, match=f"since={since!r}, until={until!r}"):
            ss.critical_path(trace, since, until, utid=utid(trace, "client"))


# -- the sums -----------------------------------------------------------------------------


def check(trace: ss.Trace, begin: int, end: int, who: int) -> pl.DataFrame:
    """Steps adjoin from start to end; a run step is a run of `states` on one CPU."""
    frame = between(trace, begin, end, who)
    assert frame["ts"][0] == begin
    assert frame["dur"].sum() == end - begin
    assert (frame["dur"] > 0).all()
    assert ((frame["ts"] + frame["dur"])[:-1] == frame["ts"][1:]).all()
    assert "unknown" not in frame["kind"].cast(pl.String)[1:].to_list()
    runs = frame.filter(pl.col("kind") == "run")
    states = trace.states.filter(pl.col("state").cast(pl.String) == "running").collect()
    inside = runs.join(states, on=["utid", "cpu"], suffix="_state").filter(
        (pl.col("ts_state") <= pl.col("ts"))
        & (pl.col("ts") + pl.col("dur") <= pl.col("ts_state") + pl.col("dur_state"))
    )
    assert inside.height == runs.height
    return frame


@pytest.mark.parametrize(
    "name",
    ["linux-ftrace-lossy.capture", "linux-trace-cmd-yield.dat", "freebsd-ule-synthetic.capture",
     "freebsd-4bsd-synthetic.capture", "perfetto-compact.pftrace"],
)  # fmt: skip
def test_durations_of_steps_add_up_to_the_interval(name: str, tmp_path: Path) -> None:
    """For every thread of a recording, up to its exit and up to the middle of the window."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    begin, end = trace.window
    alive = trace.states.filter(pl.col("utid") >= trace.ncpu).select("utid").unique().collect()
    kinds: set[str] = set()
    for who in sorted(alive["utid"])[:60]:
        check(trace, begin, (begin + end) // 2, who)
        path = ss.critical_path(trace, utid=who)
        kinds |= set(path["kind"].cast(pl.String))
    assert {"run", "wait", "unknown"} <= kinds


@given(st.integers(1, 3), st.integers(1, 50), st.sampled_from(["fifo", "eevdf-6.12", "ule-14"]))
def test_path_of_a_simulated_trace_has_no_unknown_step(ncpu: int, seed: int, policy: str) -> None:
    """A simulation is complete, and several events may share an instant."""
    trace = ss.simulate(make(3, tasks=5, run="5ms", seed=seed), policy=policy, cpus=ncpu)
    begin, end = trace.window
    for who in (ncpu, ncpu + 2):
        alive = trace.states.filter(utid=who).select((pl.col("ts") + pl.col("dur")).max())
        check(trace, begin, min(end, alive.collect().item()), who)


def test_a_chain_of_known_work() -> None:
    """Three stages of 2, 3 and 4 ms: the path is their sum, without a wait."""
    b = Builder()
    first, second, third = b.thread("first"), b.thread("second"), b.thread("third")
    first.run("2ms").signal(second)
    second.wait_for(first).run("3ms").signal(third)
    third.wait_for(second).run("4ms")
    trace = ss.simulate(b.workload(), policy="fifo", cpus=3)
    assert steps(trace, 0, 9 * MS, "third") == [
        "0..2000000 run first@0 woke second",
        "2000000..5000000 run second@0 woke third",
        "5000000..9000000 run third@0 end",
    ]


def test_path_through_many_wakeups_ends(tmp_path: Path) -> None:
    trace = ss.simulate(hackbench(1, fan=4, loops=20), policy="rr", cpus=2)
    for who in range(2, 10):
        ss.critical_path(trace, utid=who)


# -- the command and the figure -----------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_the_command(sched: str, trace: ss.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["critical-path", sched, "--utid", str(utid(trace, "client"))]
    assert cli.main([*words, "--top", "2", "--since", "50ns", "--until", "600ns"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "0.000000 s to 0.000001 s: 550 ns in 13 steps",
        "run 355 ns (64.5 %), wait 104 ns (18.9 %), wake 11 ns (2.0 %), sleep 80 ns (14.5 %)",
        "",
        "at duration kind comm tid CPU ended",
        "0.000001 s 3 ns wait client 103 0 got the CPU",
        "0.000001 s 95 ns run client 103 0 end of the path",
        "(11 earlier steps; use a larger --top)",
    ]
    longest = ss.worst_waits(trace, 1, where=pl.col("censored") == "none").row(0, named=True)
    assert cli.main(["critical-path", sched, "--worst", "1", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    last = document["rows"][-1]
    assert (document["utid"], last["kind"]) == (longest["utid"], "wait")
    assert last["ts"] + last["dur"] == longest["ts_run"]
    # The longest wait of chosen threads.
    words_of = ["critical-path", sched, "--worst", "1", "--comm", "client", "--format", "json"]
    assert cli.main(words_of) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["utid"] == utid(trace, "client") != longest["utid"]
    assert cli.main([*words, "--comm", "client"]) == 2
    assert "--comm client with one thread; expected --worst N" in capsys.readouterr().err
    assert cli.main(["wake-chain", sched, "--worst", "1", "--comm", "nobody"]) == 2
    assert "no thread of" in capsys.readouterr().err
    assert cli.main(["critical-path", sched, "--worst", "10000"]) == 2
    assert "the number of measured waits" in capsys.readouterr().err
    assert cli.main(["critical-path", sched, "--worst", "1", "--until", "1ns"]) == 2
    assert "no wait was measured from start to end" in capsys.readouterr().err
    assert cli.main([*words, "--by", "kind", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "kind,n,dur,share"
    assert cli.main([*words, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum(row["dur"] for row in document["rows"]) == document["total"] == 600
    tid = str(100 + utid(trace, "client"))
    assert cli.main(["critical-path", sched, "--tid", tid, "--by", "thread"]) == 0
    assert "client" in capsys.readouterr().out


def test_long_path_is_cut_in_text_output_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "linux-ftrace-mixed.capture"
    words = ["critical-path", str(fixture), "--cache", str(tmp_path), "--utid", "102"]
    assert cli.main([*words, "--format", "csv"]) == 0
    steps = len(capsys.readouterr().out.splitlines()) - 1
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"({steps - 20:,} earlier steps; use a larger --top)"


@pytest.mark.parametrize("name", ["linux-ftrace-mixed.capture", "linux-ftrace-lossy.capture"])
def test_path_does_not_depend_on_the_size_of_batches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for the whole trace and for an interval."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    threads = trace.threads.filter(pl.col("utid") >= trace.ncpu).collect()["utid"]
    seen = trace.states.select("utid").unique().collect()["utid"]
    chosen = threads.filter(threads.is_in(seen.implode()))
    cuts: list[tuple[float, float] | tuple[()]] = [(), (trace.duration / 5e9, trace.duration / 2e9)]

    def paths() -> list[pl.DataFrame]:
        return [
            ss.critical_path(trace, *cut, utid=utid)
            for utid in chosen.gather_every(max(1, chosen.len() // 6))
            for cut in cuts
        ]

    whole = paths()
    monkeypatch.setattr(in_parts, "_HELD", 0)
    monkeypatch.setattr(in_parts, "_ROWS", 200)
    for one, other in zip(whole, paths(), strict=True):
        assert one.equals(other)
    assert sum(map(len, whole)) > 200


@pytest.mark.parametrize(
    "words", [[], ["--tid", "7"], ["--utid", "0"], ["--tid", "103", "--top", "0"]]
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["critical-path", sched, *words]) == 2
    assert capsys.readouterr().out == ""


def test_the_figure(trace: ss.Trace) -> None:
    path = ss.critical_path(trace, utid=utid(trace, "client"))
    axes = ss.plot.critical_path(path)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["client 103", "server 106"]
    assert "600 ns in" in axes.get_title(loc="left")
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")
    assert len(ss.plot.critical_path(path, top=1).get_yticklabels()) == 1
    with pytest.raises(ss.UsageError, match=r"schedscope\.critical_path"):
        ss.plot.critical_path(ss.wakers(trace))
