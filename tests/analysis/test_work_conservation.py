"""`work_conservation`, `idle_episodes`: traces in round numbers, and a count at every instant."""

from __future__ import annotations

import io
import json
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from ledgers import played
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from small_worlds import MASKS, Interval, allowed, of_states, small_worlds

import schedscope as ss
from schedscope import cli, units

FIXTURES = Path(__file__).parents[2] / "fixtures"


def machine(trace: ss.Trace) -> dict[str, Any]:
    return ss.work_conservation(trace).row(0, named=True)


# -- against a count at every instant --------------------------------------------------


def approached_at(rows: list[Interval], t: int) -> set[int | None]:
    """CPUs that are unknown at `t` and whose next known state is running."""
    unknown = [(r[2], r[1]) for r in rows if r[3] == "unknown" and r[0] <= t < r[1] < 20]
    return {row[4] for row in rows if row[3] == "running" and (row[2], row[0]) in unknown}


def wasted_at(rows: list[Interval], masks: dict[int, str], t: int) -> int:
    """The definition, literally: try every assignment of idle CPUs to waiting threads."""
    here = [row for row in rows if row[0] <= t < row[1]]
    idle = {row[4] for row in here if row[3] == "running" and row[2] < 3}
    busy = {row[4] for row in here if row[3] == "running" and row[2] >= 3}
    unseen = {0, 1, 2} - idle - busy
    waiting = [row for row in here if row[3] == "runnable"]
    pinned = {row[4] for row in waiting if masks.get(row[2]) == "2"}
    movable = [row for row in waiting if masks.get(row[2]) != "2"]
    # An idle or possibly idle CPU picks a thread of its own queue, a pinned one first.
    picks = [c for c in idle | unseen if c not in pinned and any(r[4] == c for r in movable)]
    unsure = approached_at(rows, t) - {row[4] for row in waiting}
    free = list(idle - pinned - unsure) + [c for c in picks if c in unseen]
    best = 0
    slots: list[int | None] = [*free, *[None] * len(movable)]  # type: ignore[list-item]
    for seats in set(permutations(slots, len(movable))):
        ok = [
            c is not None and c in allowed(masks.get(row[2]))
            for c, row in zip(seats, movable, strict=True)
        ]
        best = max(best, sum(ok))
    return best - len(picks)


@given(small_worlds())
def test_avoidable_idle_time_equals_a_naive_computation(
    world: tuple[list[Interval], dict[int, str]],
) -> None:
    rows, _ = world
    found = machine(of_states(rows, (1, 20)))
    assert found["wasted"] == sum(wasted_at(rows, {}, t) for t in range(1, 20))


@given(small_worlds(masks=True))
def test_different_masks_are_solved_as_a_matching(
    world: tuple[list[Interval], dict[int, str]],
) -> None:
    """Against every assignment of CPUs to threads."""
    rows, masks = world
    each = [wasted_at(rows, masks, t) for t in range(1, 20)]
    found = machine(of_states(rows, (1, 20), masks=masks))
    assert found["wasted"] == sum(each)
    assert found["wasted_any"] == sum(n > 0 for n in each)


@given(small_worlds(masks=True))
def test_tables_equal_a_naive_computation(
    world: tuple[list[Interval], dict[int, str]],
) -> None:
    """By CPU and by thread, literally; and all avoidable time is in episodes."""
    rows, masks = world
    trace = of_states(rows, (0, 20), masks=masks)
    spare_time = dict.fromkeys(range(3), 0)
    avoidable = dict.fromkeys(MASKS, 0)
    for t in range(20):
        here = [row for row in rows if row[0] <= t < row[1]]
        idle = {row[4] for row in here if row[3] == "running" and row[2] < 3}
        unseen = {0, 1, 2} - {row[4] for row in here if row[3] == "running"}
        waiting = [row for row in here if row[3] == "runnable"]
        pinned = {row[4] for row in waiting if masks.get(row[2]) == "2"}
        queues = {row[4] for row in waiting}
        spare = idle - queues - approached_at(rows, t)
        for cpu in spare:
            spare_time[cpu] += 1  # type: ignore[index]
        for row in waiting:
            picked = row[4] in (idle | unseen) - pinned
            if masks.get(row[2]) != "2" and not picked and spare & allowed(masks.get(row[2])):
                avoidable[row[2]] += 1
    found = ss.work_conservation(trace, by="cpu").drop_nulls("cpu")
    assert dict(found.select("cpu", "spare").iter_rows()) == spare_time
    assert (found["available"] <= found["spare"]).all()
    threads = dict(ss.work_conservation(trace, by="thread").select("utid", "avoidable").iter_rows())
    assert threads == {u: n for u, n in avoidable.items() if u in threads}
    assert sum(threads.values()) == sum(avoidable.values())
    episodes = ss.idle_episodes(trace, longer_than=0, top=None).unique("episode")
    assert episodes["wasted"].sum() <= machine(trace)["wasted"]
    assert not any(episodes["dur"] > machine(trace)["wasted_any"])
    listed = ss.idle_episodes(trace, longer_than=0, top=None)
    assert listed["waited"].sum() == sum(avoidable.values())


# -- hand-made -------------------------------------------------------------------------

# a runs on CPU 0 throughout. b is woken on CPU 0 at 100 while CPU 1 is idle: badly placed. At 300
# CPU 1 runs c for 400; b waits on, with no idle CPU. At 700 CPU 1 is idle again and does not pull
# b, which finally runs at 900.
WORLD = """
    0   cpu0: idle -> a
    0   cpu1: x S -> idle
    100 cpu0: waking b on 0 by a
    100 cpu0: enqueued b on 0 by a
    300 cpu1: waking c on 1 by a
    300 cpu1: enqueued c on 1 by a
    310 cpu1: idle -> c
    700 cpu1: c S -> idle
    900 cpu0: a S -> b
"""


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(0, 1000), source={"name": "round"})


def test_machine_row_sums_the_cpus(trace: ss.Trace) -> None:
    """100..300 and 700..900; from 300 to 310 CPU 1 is idle with c on its queue."""
    assert machine(trace) == {
        "capacity": 2000,
        "idle": 610,
        "unknown": 0,
        "dispatch": 10,
        "wasted": 400,
        "wasted_high": 400,
        "wasted_frac": 0.2,
        "wasted_frac_high": 0.2,
        "wasted_idle_frac": 400 / 610,
        "wasted_idle_frac_high": 400 / 610,
        "wasted_any": 400,
        "longest": 200,
        "ts_longest": 100,
        "unplaced": 0,
        "waiting": 810,
        "throttled": None,
        "throttled_high": None,
        "pinned": 0,
        "n_pinned": 0,
        "n": 2,
        "n_censored": 0,
        "n_excluded": 1,
    }


def test_work_conservation_groups_by_cpu_and_by_thread(trace: ss.Trace) -> None:
    assert ss.work_conservation(trace, by="cpu").rows() == [
        (0, 0, 0, 0, 0, 0, 0, 800, None, None, 400, 400),
        (1, 610, 0, 10, 600, 400, 400, 10, None, None, 0, 0),
    ]
    assert ss.work_conservation(trace, by="comm").rows() == [
        ("b", 800, None, None, 400, 400, 0.5, 0.5, 1),
        ("c", 10, None, None, 0, 0, 0.0, 0.0, 0),
    ]
    only = ss.work_conservation(trace, by="comm", where=pl.col("comm") == "c")
    assert only["comm"].to_list() == ["c"]


def test_episodes_report_thread_cpu_and_reason(trace: ss.Trace) -> None:
    """The wait was badly placed, in both of its episodes."""
    frame = ss.idle_episodes(trace, longer_than=0)
    assert frame.drop("tid", "utid").rows() == [
        (1, 100, 200, 200, "1", 200, "b", 0, 200, "placed"),
        (2, 700, 200, 200, "1", 200, "b", 0, 200, "placed"),
    ]
    assert ss.idle_episodes(trace, longer_than=201).height == 0
    assert ss.idle_episodes(trace, longer_than=0, top=1)["episode"].to_list() == [1]
    assert ss.idle_episodes(trace, longer_than=0, where=pl.col("comm") == "c").height == 0


def test_shortest_waiters_of_an_episode_are_summed() -> None:
    """CPU 1 idles from 100 on, while a runs and b, c and d wait for CPU 0."""
    trace = played(
        """
        0   cpu0: idle -> a
        0   cpu1: x S -> idle
        100 cpu0: enqueued b on 0 by a
        110 cpu0: enqueued c on 0 by a
        120 cpu0: enqueued d on 0 by a
        300 cpu0: a S -> b
        """,
        window=(0, 300),
    )
    every = ss.idle_episodes(trace, longer_than=0)
    assert every.select("comm", "waited").rows() == [("b", 200), ("c", 190), ("d", 180)]
    one = ss.idle_episodes(trace, longer_than=0, waiters=1)
    assert one[0].equals(every[0])
    assert one[1].drop("utid").rows() == [(1, 100, 200, 200, "1", 200, None, None, None, 370, None)]
    some = ss.idle_episodes(trace, longer_than=0, waiters=1, where=pl.col("comm") != "b")
    assert some.select("comm", "waited").rows() == [("c", 190), (None, 180)]
    with pytest.raises(ss.UsageError, match="waiters=0"):
        ss.idle_episodes(trace, waiters=0)


def test_the_longest_waiters_and_the_sum_of_all_others_are_those_of_the_whole_list() -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-pool.capture")
    whole = ss.idle_episodes(trace, longer_than=0, waiters=None)
    few = ss.idle_episodes(trace, longer_than=0, waiters=3)
    rank = pl.int_range(pl.len()).over("episode")
    assert_frame_equal(
        few.filter(pl.col("utid").is_not_null()),
        whole.filter((rank < 3) & pl.col("utid").is_not_null()),
    )
    beyond = whole.filter(rank >= 3).group_by("episode", maintain_order=True)
    others = few.filter(pl.col("utid").is_null() & pl.col("waited").is_not_null())
    assert others.height > 0
    assert_frame_equal(others.select("episode", "waited"), beyond.agg(pl.col("waited").sum()))
    # With some of the waiters left out of the rows, the remainder is the others.
    everybody = ss.idle_episodes(trace, longer_than=0, waiters=3, where=pl.lit(True))
    assert_frame_equal(everybody, few)


def test_episode_without_a_known_waiter_is_listed() -> None:
    """b and d wait on CPU 0 while both CPUs are idle; CPU 1 could take either."""
    trace = played(
        """
        0   cpu0: x S -> idle
        0   cpu1: y S -> idle
        100 cpu0: enqueued b on 0 by idle
        100 cpu0: enqueued d on 0 by idle
        300 cpu0: idle -> b
        300 cpu1: idle -> d
        400 cpu0: b S -> x
        """,
        window=(0, 400),
    )
    assert machine(trace)["wasted"] == 200
    frame = ss.idle_episodes(trace, longer_than=0)
    assert frame.rows() == [(1, 100, 200, 200, "1", 200, None, None, None, None, None, None)]
    assert ss.idle_episodes(trace, longer_than=0, where=pl.col("comm") == "b").height == 0
    axes = ss.plot.idle_episodes(frame)
    assert axes.texts[0].get_text() == "several; CPU 1 idle 200 ns"


def test_episodes_distinguish_preempted_from_not_pulled() -> None:
    """b is preempted at 100 while CPU 1 is idle; d waits since 20 when CPU 1 becomes idle at 50."""
    frame = ss.idle_episodes(
        played(
            """
            0   cpu0: idle -> b
            0   cpu1: idle -> x
            20  cpu0: enqueued d on 0 by b
            50  cpu1: x S -> idle
            100 cpu0: b R+ -> a
            200 cpu0: a S -> b
            300 cpu0: b S -> d
            """,
            window=(0, 400),
        ),
        longer_than=0,
    )
    assert frame.select("comm", "waited", "cause").rows() == [
        ("d", 250, "not_pulled"),
        ("b", 100, "preempted"),
    ]


def test_pinned_threads_are_counted_separately() -> None:
    rows: list[Interval] = [
        (0, 100, 20, "running", 0),
        (0, 100, 1, "running", 1),
        (0, 100, 21, "running", 2),
        (10, 60, 10, "runnable", 0),
    ]
    free = machine(of_states(rows, (0, 100)))
    assert (free["wasted"], free["pinned"], free["n_pinned"]) == (50, 0, 0)
    pinned = machine(of_states(rows, (0, 100), masks={10: "0"}))
    assert (pinned["wasted"], pinned["pinned"], pinned["n_pinned"]) == (0, 50, 1)
    elsewhere = machine(of_states(rows, (0, 100), masks={10: "0,2"}))
    assert (elsewhere["wasted"], elsewhere["pinned"]) == (0, 0)


def test_thread_with_a_changed_mask_has_no_avoidable_wait() -> None:
    """It ran on CPU 0, which its mask excludes: whether it could use CPU 1 is unknown."""
    rows: list[Interval] = [
        (0, 60, 20, "running", 0),
        (0, 100, 1, "running", 1),
        (0, 100, 21, "running", 2),
        (10, 60, 10, "runnable", 0),
        (60, 100, 10, "running", 0),
    ]
    found = machine(of_states(rows, (0, 100), masks={10: "1-2"}))
    assert (found["wasted"], found["pinned"], found["n_pinned"]) == (0, 50, 1)
    held = machine(of_states(rows, (0, 100), masks={10: "0-1"}))
    assert (held["wasted"], held["pinned"]) == (50, 0)


def test_unknown_time_is_not_idle() -> None:
    """CPU 1 is known to be idle only from 40 on; time before that is not counted."""
    rows: list[Interval] = [
        (0, 100, 20, "running", 0),
        (40, 100, 1, "running", 1),
        (0, 100, 21, "running", 2),
        (10, 60, 10, "runnable", 0),
    ]
    found = machine(of_states(rows, (0, 100)))
    assert (found["wasted"], found["idle"], found["unknown"]) == (20, 60, 40)


def test_empty_trace_has_no_avoidable_idle_time() -> None:
    trace = of_states([], (0, 0))
    assert machine(trace)["wasted"] == 0
    assert ss.idle_episodes(trace).height == 0
    assert ss.work_conservation(trace, by="thread").height == 0
    assert ss.work_conservation(trace, by="cpu").height == 3


def test_invalid_arguments_are_refused(trace: ss.Trace) -> None:
    with pytest.raises(ss.UsageError, match="by='core'"):
        ss.work_conservation(trace, by="core")  # type: ignore[arg-type]
    with pytest.raises(ss.UsageError, match="where with by='cpu'"):
        ss.work_conservation(trace, by="cpu", where=pl.col("comm") == "b")
    with pytest.raises(ss.UsageError, match="longer_than=-1"):
        ss.idle_episodes(trace, longer_than=-1)
    with pytest.raises(ss.UsageError, match="top=0"):
        ss.idle_episodes(trace, top=0)
    broken = of_states([(0, 5, 10, "runnable", 0)], (0, 5), masks={10: "0-x"})
    with pytest.raises(ss.FormatError, match="'0-x'"):
        ss.work_conservation(broken)


# -- simulated and recorded ------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "bfs", "rr", "4bsd", "scx-simple"])
@pytest.mark.parametrize("workload", ["make", "web", "bursts"])
def test_work_conserving_policy_has_no_avoidable_idle_time(policy: str, workload: str) -> None:
    """One queue for all CPUs, and switches cost nothing."""
    from schedscope.simulator.workloads.generators import make, periodic, requests

    work = {
        "make": lambda: make(6, tasks=20, run="20ms"),
        "web": lambda: requests(6),
        "bursts": lambda: periodic(40),
    }[workload]()
    found = machine(ss.simulate(work, policy=policy, cpus=3))
    assert found["waiting"] > 0
    assert found["wasted"] == found["dispatch"] == 0


def test_per_cpu_queues_have_avoidable_idle_time() -> None:
    """The property above can fail: per-CPU queues are not work-conserving."""
    from schedscope.simulator.workloads.generators import make

    assert machine(ss.simulate(make(12), policy="eevdf-6.12", cpus=4))["wasted"] > 0


@pytest.mark.parametrize(
    "name",
    ["freebsd-ule-synthetic.capture", "perfetto-compact.pftrace", "linux-ftrace-lossy.capture"],
)
def test_avoidable_idle_time_of_recordings_is_consistent(name: str, tmp_path: Path) -> None:
    """Relations that hold for every trace; SchedViz's rule finds at least as much time."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    found = machine(trace)
    cpus = ss.work_conservation(trace, by="cpu").drop_nulls("cpu")
    assert cpus["idle"].sum() == found["idle"]
    assert cpus["unknown"].sum() == found["unknown"]
    assert cpus["spare"].sum() + found["dispatch"] == found["idle"]
    assert found["wasted_any"] <= found["wasted"] <= cpus["available"].sum()
    threads = ss.work_conservation(trace, by="thread")
    assert threads["waiting"].sum() == found["waiting"]
    episodes = ss.idle_episodes(trace, longer_than=0, top=None).unique("episode")
    assert episodes["wasted"].sum() <= found["wasted"]
    assert idle_while_overloaded(trace) >= found["wasted_any"] - found["unplaced"]


def idle_while_overloaded(trace: ss.Trace) -> int:
    """Time in which a CPU is idle while another has two or more threads, running one included.

    Or one that waits for an unknown CPU: SchedViz has no unknown time, so this is more.
    """
    depth = ss.queue_depth(trace).drop_nulls("cpu")
    times = sorted({*depth["ts"].to_list(), trace.window[1]})
    steps = {cpu: part for (cpu,), part in depth.partition_by("cpu", as_dict=True).items()}
    frame = pl.DataFrame({"ts": times[:-1], "dur": [b - a for a, b in pairwise(times)]})
    for cpu, part in steps.items():
        here = part.select("ts", **{f"w{cpu}": "waiting", f"r{cpu}": "running"})
        frame = frame.join_asof(here, on="ts")
    idle = pl.any_horizontal(*((pl.col(f"r{c}") == 0) & (pl.col(f"w{c}") == 0) for c in steps))
    overloaded = pl.any_horizontal(
        *(pl.col(f"w{c}") + pl.col(f"r{c}").fill_null(0) >= 2 for c in steps)
    )
    return int(frame.filter(idle & overloaded)["dur"].sum())


# -- the command and the figures -------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_command_prints_its_tables(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["work-conservation", sched]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:] == [
        "avoidable idle time: 400 ns of CPU time, 20.0 % of the known time, 65.6 % of 610 ns idle",
        "not included: 10 ns dispatch delay (idle with a thread on its own queue);"
        " 1 wait whose start was not recorded",
        "",
        "CPU idle avoidable idle dispatch delay waiting avoidable wait",
        "0 0 ns 0 ns 0 ns 800 ns 400 ns",
        "1 610 ns 400 ns 10 ns 10 ns 0 ns",
    ]
    assert cli.main(["work-conservation", sched, "--episodes", "--longer-than", "1ns"]) == 0
    last = " ".join(capsys.readouterr().out.splitlines()[-1].split())
    assert last == "2 0.000001 s 200 ns 200 ns 1 b 104 0 200 ns placed"


def test_top_counts_cpus_too(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["work-conservation", sched, "--top", "1"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == "(1 more CPU, less waiting; use a larger --top)"
    )


def test_command_writes_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["work-conservation", sched, "--by", "comm", "--comm", "b", "--format", "json"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["wasted"] == 400
    assert [row["comm"] for row in document["rows"]] == ["b"]
    assert cli.main(["work-conservation", sched, "--cpu", "1", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "cpu,idle,unknown,dispatch,spare,available,available_high,waiting,throttled,throttled_high,"
        "waited,waited_high"
    )
    assert lines[1:] == ["1,610,0,10,600,400,400,10,,,0,0"]


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "cpu", "--comm", "b"],
        ["--cpu", "0", "--by", "thread"],
        ["--episodes", "--top", "0"],
        ["--episodes", "--by", "comm"],
        ["--longer-than", "1ms"],
        ["--episodes", "--longer-than", "soon"],
        ["--by", "thread", "--comm", "nobody"],
    ],
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["work-conservation", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_error_names_only_the_given_options(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["work-conservation", sched, "--cpu", "0", "--comm", "b"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("schedscope: --cpu with rows about threads; expected --episodes")
    assert "--by thread" not in err


def test_the_figures(trace: ss.Trace) -> None:
    axes = ss.plot.work_conservation(ss.work_conservation(trace, by="cpu"))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CPU 0", "CPU 1"]
    lengths = [[bar.get_width() for bar in group] for group in axes.containers]  # type: ignore[attr-defined]
    assert lengths == [[0, 400], [0, 10], [0, 200]]
    axes = ss.plot.work_conservation(ss.work_conservation(trace, by="comm"), top=1)
    assert "1 more not drawn" in axes.get_title(loc="left")
    gained = ss.work_conservation(trace, by="comm")["avoidable"].max()
    assert [text.get_text() for text in axes.texts] == [units.duration(gained)]
    axes = ss.plot.idle_episodes(ss.idle_episodes(trace, longer_than=0))
    assert max(axes.get_xticks()) < 950e-9 < axes.get_xlim()[1]  # the last one ends at 900
    assert "b on CPU 0; CPU 1 idle 200 ns" in [text.get_text() for text in axes.texts]
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")
    nothing = ss.plot.idle_episodes(ss.idle_episodes(trace))
    assert [text.get_text() for text in nothing.texts] == ["no episodes"]
    with pytest.raises(ss.UsageError, match="idle_episodes"):
        ss.plot.idle_episodes(ss.work_conservation(trace))
    with pytest.raises(ss.UsageError, match="row per CPU"):
        ss.plot.work_conservation(ss.work_conservation(trace))
