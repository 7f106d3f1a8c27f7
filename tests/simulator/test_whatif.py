"""What-if: the change has the effect worked out by hand, and a bad replay is no answer."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import MissingEventsError, UsageError
from schedscope.simulator.changes.change import _slice
from schedscope.simulator.changes.ranges import APART, of_change
from schedscope.simulator.changes.verdicts import BOUND, BRIEF, REFUSED
from schedscope.simulator.changes.whatif import AsItWas, Asked, combine
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.runs.services import NOTHING
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000


@pytest.fixture(scope="module")
def hogs() -> Trace:
    """Three threads of 20 ms on one CPU, round robin at 5 ms: 60 ms in all."""
    return simulate(ss.workload.hogs(3, time="20ms"), policy="rr", cpus=1, set={"quantum": "5ms"})


def one(frame: pl.DataFrame, service: str, configuration: str) -> dict[str, int]:
    return frame.filter(pl.col(frame.columns[0]) == service, configuration=configuration).row(
        0, named=True
    )


def test_one_cpu_for_each_thread_leaves_no_waits(hogs: Trace) -> None:
    frame = ss.whatif(hogs, cpus=3, by="name")
    (service,) = frame["name"].unique()
    was, again, then = (one(frame, service, c) for c in ("recorded", "replayed", "changed"))
    assert was["waiting"] == again["waiting"] == 105 * MS  # 40 + 35 + 30
    assert (was["completion"], then["completion"]) == (60 * MS, 20 * MS)
    assert (then["waiting"], then["waiting_low"], then["waiting_high"]) == (0, 0, 0)
    assert {row["cpu_time"] for row in (was, again, then)} == {60 * MS}
    assert (then["replay_error"], then["verdict"]) == (1, "good")
    assert ss.whatif_notes(hogs, frame) == [
        "the replay of the recorded configuration is off by at most 1.00x"
    ]


def test_range_covers_the_spread_of_recordings(hogs: Trace) -> None:
    """Every replay of it is the same and exact: only the spread of recordings remains."""
    frame = ss.whatif(hogs, slice="20ms", by="name")
    (service,) = frame["name"].unique()
    again, then = (one(frame, service, c) for c in ("replayed", "changed"))
    assert again["waiting_low"] == again["waiting_high"] == again["waiting"]
    assert then["waiting"] == 60 * MS
    for key, apart in APART.items():
        factor = math.exp(1.645 * apart)
        assert then[f"{key}_low"] == pytest.approx(then[key] / factor, abs=2)
        assert then[f"{key}_high"] == pytest.approx(then[key] * factor, abs=2)


@pytest.mark.parametrize(
    ("recorded", "replayed", "off"),
    [(15 * MS, 10 * MS, 1.5), (10 * MS, 15 * MS, 1.5), (BRIEF // 4, BRIEF, 1), (None, None, 1)],
)
def test_range_of_the_p99_covers_the_replays_error(
    recorded: int | None, replayed: int | None, off: float
) -> None:
    """The total waiting time is right, which does not imply the longest waits."""
    usual = {**NOTHING, "alive": 1, "cpu_time": 1000 * MS, "n_waits": 50, "waiting": 500 * MS}
    own, again = {**usual, "wait_p99": recorded}, {**usual, "wait_p99": replayed}
    was = AsItWas({"web": 1}, {"web": own}, [{"web": again}], floor=MS)
    asked = Asked(was, [{"web": again}])
    then = one(combine([asked], "comm"), "web", "changed")
    said = "doubtful" if off > BOUND else "good"
    assert (then["replay_error"], then["verdict"], then["wait_p99_verdict"]) == (1, said, said)
    assert then["waiting_verdict"] == then["cpu_time_verdict"] == "good"
    if replayed is None:
        assert then["wait_p99_high"] is None
        return
    wide = math.exp(math.hypot(math.log(off), 1.645 * APART["wait_p99"]))
    assert then["wait_p99_high"] == pytest.approx(replayed * wide, abs=2)
    assert then["wait_p99_low"] == pytest.approx(replayed / wide, abs=2)


@pytest.mark.parametrize("figure", ["n_waits", "wait_p50", "wait_p99"])
def test_figure_far_off_is_refused_despite_correct_sums(figure: str) -> None:
    usual = {**NOTHING, "alive": 1, "cpu_time": 1000 * MS, "n_waits": 300, "waiting": 500 * MS}
    usual |= {"wait_mean": 2 * MS, "wait_p50": MS, "wait_p99": 9 * MS}
    was = AsItWas({"web": 1}, {"web": usual}, [{"web": usual | {figure: 3 * usual[figure]}}], MS)
    then = one(combine([Asked(was, [{"web": usual}])], "comm"), "web", "changed")
    assert then["verdict"] == "doubtful"
    assert (then[f"{figure}_verdict"], then[figure]) == ("refused", None)
    assert then["waiting_verdict"] == "good"
    assert then["waiting_low"] < then["waiting"] == 500 * MS < then["waiting_high"]
    if figure == "wait_p99":
        assert then["wait_p99_high"] is None


def of_quota(recorded: int | None, replayed: int, **more: Any) -> dict[str, Any]:
    """The row of a quota change with these throttled parts (ms) of 100 ms of waiting."""
    usual = {**NOTHING, "alive": 1, "cpu_time": 1000 * MS, "n_waits": 50, "waiting": 100 * MS}
    usual |= {"wait_mean": 2 * MS, "wait_p50": MS, "wait_p99": 9 * MS}
    shares = [
        {"web": {"known": 100 * MS, "behind": 0, "throttled": None if of is None else of * MS}}
        for of in (recorded, replayed)
    ]
    was = AsItWas({"web": 1}, {"web": usual}, [{"web": usual}], MS, (shares[0], shares[1]))
    asked = Asked(was, [{"web": usual}], "throttled", **more)
    return one(combine([asked], "comm"), "web", "changed")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("recorded", "replayed", "error", "verdict"),
    [
        (50, 48, 1.04, "good"),
        (60, 45, 1.375, "doubtful"),  # the remainders: 40 and 55
        (14, 81, 86 / 19, "refused"),
        (90, 97, 1.08, "good"),  # less than a tenth counts as a tenth
        (97, 60, 4, "refused"),
    ],
)
def test_quota_with_wrong_throttled_time_in_the_replay_is_refused(
    recorded: int, replayed: int, error: float, verdict: str
) -> None:
    """The totals of waiting are equal, since the errors in their parts cancel."""
    row = of_quota(recorded, replayed)
    assert (row["replay_error"], row["verdict"]) == (1, verdict)
    if max(recorded, replayed) / min(recorded, replayed) < error:
        assert row["cause_error"] == pytest.approx(error, rel=0.01)
    assert (row["cause"], row["cause_recorded"]) == ("throttled", recorded / 100)
    assert (row["waiting"] is None) == (verdict == "refused")


def test_quota_without_recorded_throttling_times_is_doubtful() -> None:
    row = of_quota(None, 50)
    assert (row["cause"], row["cause_error"], row["verdict"]) == ("throttled", None, "doubtful")


@pytest.mark.parametrize(
    ("mean", "p99", "verdict", "tail"),
    [
        (2 * MS, 9 * MS, "good", "good"),
        (1 * MS, 4 * MS, "good", "good"),  # quieter times
        (5 * MS, 9 * MS, "refused", "refused"),
        (2 * MS, 30 * MS, "doubtful", "refused"),
    ],
)
def test_prediction_is_tested_on_recorded_times_without_throttling(
    mean: int, p99: int, verdict: str, tail: str
) -> None:
    tested = {"web": {"n": 100, "mean": mean, "p99": p99}}
    row = of_quota(50, 50, tested=tested)
    assert (row["tested_on"], row["tested_mean"], row["tested_p99"]) == (100, mean, p99)
    assert (row["verdict"], row["wait_p99_verdict"]) == (verdict, tail)


@pytest.fixture(scope="module")
def limited() -> Trace:
    """Two workers in a group limited to 50 ms in each 100 ms, and a hog on the CPU of one.

    The workers want 160 ms at once, and from 1 s on 2 ms in every 10.
    """
    b = Builder()
    group = b.group("/web", quota="50ms")
    for n in range(2):
        worker = b.thread(f"worker-{n}", group=group, cpus=str(n)).run("80ms").wait_until("1s")
        for k in range(60):
            worker.run("1ms").wait_until(f"{1000 + 10 * (k + 1)}ms")
    b.thread("hog", cpus="0").run("1500ms")
    return simulate(b.workload(), policy="eevdf-6.12", cpus=2, until="2s")


def test_simulated_trace_records_throttling(limited: Trace, tmp_path: Path) -> None:
    limited.to_sched(tmp_path / "limited.sched")
    for trace in (limited, ss.open(tmp_path / "limited.sched")):
        (group,) = [one for one in trace.info["groups"] if one["cgroup"] == "/web"]
        assert (group["n_periods"], group["n_throttled"]) == (16, 3)
        parts = {row["comm"]: row for row in ss.wait_breakdown(trace, by="comm").to_dicts()}
        # Alone on its CPU, it waits only for the quota.
        alone = parts["worker-1"]
        assert alone["throttled"] == alone["wait"] > 100 * MS
        assert alone["evidence"] == "quota accounting"
        assert parts["worker-0"]["throttled"] > 100 * MS
        assert parts["hog"]["throttled"] == 0


def test_removed_quota_is_tested_on_times_without_throttling(
    limited: Trace,
) -> None:
    frame = ss.whatif(limited, quota={"/web": "none"}, by="name", replays=1)
    row = one(frame, "worker-*", "changed")
    assert (row["verdict"], row["cause"], row["cause_error"]) == ("good", "throttled", 1)
    assert row["tested_on"] >= 100
    assert row["tested_mean"] < row["wait_mean"]
    assert one(frame, "hog", "changed")["tested_on"] is None
    (said,) = [note for note in ss.whatif_notes(limited, frame) if note.startswith("tested on")]
    assert "'worker-*' at times without throttling" in said
    assert said.endswith("no more than predicted")
    more = ss.whatif(limited, quota={"/web": "80ms/100ms"}, by="name", replays=1)
    assert one(more, "worker-*", "changed")["tested_on"] is None


def test_notes_give_the_reason_for_a_refused_quota(limited: Trace) -> None:
    frame = ss.whatif(limited, quota={"/web": "none"}, by="name", replays=1)
    mine = (pl.col("name") == "worker-*") & (pl.col("configuration") == "changed")
    refused = (
        pl.when(mine).then(pl.lit("refused")).otherwise("verdict").cast(frame["verdict"].dtype)
    )
    cause = frame.with_columns(
        verdict=refused,
        cause_error=pl.when(mine).then(4.5),
        cause_recorded=pl.when(mine).then(0.14),
        cause_replayed=pl.when(mine).then(0.81),
    )
    assert ss.whatif_notes(limited, cause)[0] == (
        "refused, because times in which the quota was used up make up 14.0 % of the waiting in the"
        " recording and 81.0 % in its replay: 'worker-*'"
    )
    tested = frame.with_columns(verdict=refused, test_error=pl.when(mine).then(4.2))
    found = [note for note in ss.whatif_notes(limited, tested) if note.startswith("refuted by")]
    assert len(found) == 1
    assert found[0].endswith("4.2x what is predicted on average")


@pytest.mark.parametrize("replayed", [300_000, 0])
def test_little_waiting_still_widens_the_range(replayed: int) -> None:
    """The verdict ignores less than 0.1 % of the machine's time; the range does not."""
    usual = {**NOTHING, "alive": 1, "cpu_time": 1000 * MS, "n_waits": 50}
    own, again = {**usual, "waiting": 3 * MS}, {**usual, "waiting": replayed}
    was = AsItWas({"web": 1}, {"web": own}, [{"web": again}], floor=50 * MS)
    asked = Asked(was, [{"web": again}])
    then = one(combine([asked], "comm"), "web", "changed")
    assert then["verdict"] == "good"
    assert then["waiting_low"] <= replayed < 3 * MS <= then["waiting_high"]


def test_a_recording_without_wakeups_is_refused(tmp_path: Path) -> None:
    lines = (FIXTURES / "text-tracefs.txt").read_text().splitlines(keepends=True)
    path = tmp_path / "switches.txt"
    path.write_text("".join(line for line in lines if "sched_wak" not in line))
    trace = ss.open(path)
    with pytest.raises(MissingEventsError, match="no wakeups"):
        ss.whatif(trace, cpus=1)
    for ask in (ss.workload.extract, ss.fidelity):
        with pytest.raises(MissingEventsError, match="no wakeups; expected what a workload"):
            ask(trace)
    found = ss.findings(trace).filter(pl.col("topic") == "data quality").row(0, named=True)
    assert "No wakeups were recorded" in found["text"]
    assert found["advice"].startswith("Record sched_waking and sched_wakeup")
    # A trace.dat has the formats of all events, also of those that were not recorded.
    names = ("switches", "wakeups", "migrations", "losses", "states", "waits", "threads")
    tables = {name: getattr(trace, name).collect() for name in names}
    declared = Trace.from_tables(tables, {**trace.info, "has_waking": True, "has_enqueued": True})
    with pytest.raises(MissingEventsError, match="no wakeups"):
        ss.whatif(declared, cpus=1)


def test_longer_slice_gives_fewer_waits(hogs: Trace) -> None:
    frame = ss.whatif(hogs, slice="20ms", by="name")
    (service,) = frame["name"].unique()
    was, then = (one(frame, service, c) for c in ("recorded", "changed"))
    assert was["n_waits"] == 12
    assert (then["n_waits"], then["waiting"]) == (3, 60 * MS)  # 0, 20 and 40 ms


def test_thread_with_a_shorter_slice_waits_less() -> None:
    """It does not get more of the CPU, but gets it sooner (Linux 6.12)."""
    b = Builder()
    b.thread("hog").run("1s")
    b.thread("sleeper").sleep("7ms").run("1ms").repeat(60)
    real = simulate(b.workload(), policy="eevdf-6.18", cpus=1, set={"base_slice": "8ms"})
    frame = ss.whatif(
        real, set_slice={"sleeper": "500us"}, set={"base_slice": "8ms"}, policy="eevdf-6.18"
    )
    waits = frame.filter(comm="sleeper").sort("configuration")["wait_p99"].to_list()
    assert waits[2] < waits[1] / 2


def test_a_batch_job_at_nice_19_leaves_the_cpu_to_the_other() -> None:
    b = Builder()
    b.thread("web").run("100ms")
    b.thread("batch").run("100ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    frame = ss.whatif(real, set_nice={"bat*": 19})
    before, after = (one(frame, "web", c) for c in ("recorded", "changed"))
    assert before["completion"] > 190 * MS
    # 1024 of 1039 parts of the CPU.
    assert after["completion"] == pytest.approx(100 * MS * 1039 / 1024, rel=0.05)
    assert one(frame, "batch", "changed")["completion"] == pytest.approx(200 * MS, rel=0.01)


def test_pinned_threads_share_their_allowed_cpus() -> None:
    real = simulate(ss.workload.hogs(2, time="30ms"), policy="rr", cpus=2)
    frame = ss.whatif(real, pin={"*": "1"}, by="name")
    (service,) = frame["name"].unique()
    assert one(frame, service, "recorded")["waiting"] == 0
    assert one(frame, service, "changed")["completion"] == 60 * MS


def test_replay_far_off_is_refused() -> None:
    """A trace that names another scheduler, under which it comes out quite differently."""
    b = Builder()
    b.thread("long").run("90ms")
    for n in range(3):
        b.thread(f"short-{n}", start="1ms").run("3ms")
    real = simulate(b.workload(), policy="fifo", cpus=1)
    tables = {
        n: getattr(real, n).collect() for n in ("switches", "wakeups", "threads", "waits", "states")
    }
    about = {"ncpu": 1, "window": list(real.window), "scheduler": {"name": "srtf"}}
    wrong = Trace.from_tables(tables, about)
    frame = ss.whatif(wrong, policy="rr", by="name")
    row = one(frame, "short-*", "changed")
    assert row["verdict"] == "refused"
    assert row["replay_error"] > REFUSED > BOUND
    assert row["waiting"] is row["cpu_time"] is row["wait_p99"] is None
    notes = ss.whatif_notes(wrong, frame)
    assert notes[0].startswith("refused, because the replay of the recorded configuration is off")
    assert "short-*" in notes[0]


def test_tail_far_off_is_named_despite_correct_sums() -> None:
    real = simulate(ss.workload.hogs(2, time="30ms"), policy="rr", cpus=1)
    frame = ss.whatif(real, cpus=2, by="name")
    (service,) = frame["name"].unique()
    assert one(frame, service, "changed")["p99_error"] == 1
    said = "the 99th percentile of waits is off by more than"
    assert not any(said in note for note in ss.whatif_notes(real, frame))
    off = frame.with_columns(p99_error=pl.lit(BOUND + 0.1))
    (note,) = [note for note in ss.whatif_notes(real, off) if said in note]
    assert note.endswith(f"{BOUND:g}x: {service!r} (1.4x)")
    # A refused row has no percentile.
    none = off.with_columns(verdict=pl.lit("refused", pl.Enum(["good", "doubtful", "refused"])))
    assert not any(said in note for note in ss.whatif_notes(real, none))


def test_unrecorded_limit_on_threads_is_refused() -> None:
    """A parent that waits for each child after it has exited: the recording does not show it."""
    b = Builder()
    parent = b.thread("parent")
    for _ in range(12):
        child = b.thread("child", start=None)
        child.run("3ms").signal(parent)
        parent.fork(child).run("4ms").wait_for(child)
    real = simulate(b.workload(), policy="fifo", cpus=2)
    frame = ss.whatif(real, cpus=1)
    then = one(frame, "child", "changed")
    assert one(frame, "child", "recorded")["alive"] == 1
    assert (then["alive"], then["replay_error"], then["verdict"]) == (None, 1, "refused")
    assert one(frame, "parent", "changed")["verdict"] == "good"
    assert "more threads are alive at once" in ss.whatif_notes(real, frame)[0]


def test_recorded_capture_notes_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIXTURES / "linux-slice-default-1.capture")
    words = ["whatif", path, "--set-nice", "hog-1=10", "--replays", "2"]
    assert main([*words, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["change"] == ["'hog-1' at nice 10"]
    assert any("autogroup" in note for note in answer["notes"])
    rows = {(r["comm"], r["configuration"]): r for r in answer["rows"]}
    assert rows["hog-1", "changed"]["wait_p99"] > 2 * rows["hog-1", "replayed"]["wait_p99"]
    assert rows["hog-2", "changed"]["waiting"] < 0.5 * rows["hog-2", "replayed"]["waiting"]
    assert main(words) == 0
    assert "hog-1" in capsys.readouterr().out
    assert main([*words, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("comm,configuration,threads,alive,")


def test_unselected_threads_are_replayed_in_the_closer_way() -> None:
    """Beside a left-out hog of equal nice: competing is right, occupying makes it wait."""
    b = Builder()
    for name in ("mine", "other"):
        b.thread(name).run("200ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    frames = {
        others: ss.whatif(
            real, where=pl.col("comm").is_in(["mine"]), set_nice={"mine": -5}, others=others
        )
        for others in ("occupy", "compete", None)
    }
    after = {k: one(f, "mine", "changed")["completion"] for k, f in frames.items()}
    assert after["occupy"] == one(frames["occupy"], "mine", "recorded")["completion"]
    assert after["compete"] < 0.9 * after["occupy"]


def test_per_cpu_kernel_threads_leave_with_their_cpu() -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture")
    frame = ss.whatif(trace, cpus=1, replays=1)
    assert frame.height > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "no change"),
        ("--set-nice nobody=3", "no thread 'nobody'"),
        ("--set-nice hog-1=30", "from -20 to 19"),
        ("--set-nice hog-1=x", "a whole number"),
        ("--set-nice hog-1", "NAME=VALUE"),
        ("--set-nice hog-1=1 --set-nice hog*=2", "nice 1 by 'hog-1' and 2 by 'hog*'"),
        ("--pin hog-1=7", "CPUs from 0 to 1"),
        ("--pin hog-1=a", "as in 0-1,3"),
        ("--pin hog-1=0 --pin hog-?=1", "one of them"),
        ("--cpus 0", "from 1 to 4096"),
        ("--slice 0", "above 0"),
        ("--slice -1ms", "not a duration"),
        ("--set-slice hog-1=1us", "a time from 100us to 100ms"),
        ("--set-slice nobody=1ms", "no thread 'nobody'"),
        ("--set-slice hog-1=1ms --policy eevdf-6.6", "eevdf of 6.12 or later"),
        ("--set-slice hog-1=1ms --policy rr", "eevdf of 6.12 or later"),
        ("--quota hog-1=0", "a part of a CPU"),
        ("--quota nobody=50%", "no thread 'nobody'"),
        ("--quota /nobody=50%", "no control group '/nobody'"),
        ("--slice 1ms --policy fifo", "a policy with one slice"),
        ("--slice 1ms --policy ule-14", "a multiple of 7.87 ms, the ticks in which it counts"),
        ("--policy nope", "no policy is called 'nope'"),
        ("--set nope=1", "tunable"),
        ("--replays 0 --cpus 4", "from 1 to 100"),
        ("--by cgroup --cpus 4", "cgroup"),
        ("--comm hog-1 --pin hog-1=0 --cpus 1", "--others replay"),
        ("--comm nobody --cpus 1", "--comm nobody"),
        ("--others compete --cpus 4", "a selection of threads as well"),
        ("--top 0 --cpus 4", "1 or more"),
    ],
)
def test_unsupported_change_is_reported_in_one_sentence(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(FIXTURES / "linux-slice-default-1.capture")
    assert main(["whatif", path, *words.split()]) == 2
    found = capsys.readouterr()
    assert (found.out, found.err.count("\n")) == ("", 1)
    assert said in found.err


def test_slice_is_rounded_to_ticks_under_tick_policies() -> None:
    """ULE counts slices in ticks of 1/127 s: 24 ms are three of them."""
    assert _slice("ule-14", "24ms", {}) == {"slice": 3}
    assert _slice("4bsd", "100ms", {"stathz": 100}) == {"slice": 10}
    assert _slice("eevdf-6.18", "2ms", {})["base_slice"] == "2000000ns"


def test_unknown_thread_name_is_refused(hogs: Trace) -> None:
    with pytest.raises(UsageError, match="the name of a thread, one of the trace"):
        ss.whatif(hogs, set_nice={"nobody": 3})
    with pytest.raises(UsageError, match="one of the selected threads"):
        ss.whatif(hogs, set_nice={"nobody": 3}, where=pl.col("comm") == "hog-0")


def test_python_refuses_the_same_changes(hogs: Trace) -> None:
    for wrong in ({}, {"cpus": True}, {"set_nice": {"*": 1.5}}, {"cpus": 2, "by": "colour"}):
        with pytest.raises(UsageError):
            ss.whatif(hogs, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["set_nice", "set_class", "set_slice", "pin", "set_weight", "quota", "set"]
)
@pytest.mark.parametrize("wrong", [7, "hog=3", {3: 1}])
def test_values_are_given_by_names(name: str, wrong: object, hogs: Trace) -> None:
    with pytest.raises(UsageError, match=rf"{name}=.* expected values by names"):
        ss.whatif(hogs, **{name: wrong})  # type: ignore[arg-type]
    if name == "set":
        for question in (ss.simulate, ss.fidelity):
            with pytest.raises(UsageError, match="expected values by names"):
                question(hogs, set=wrong)  # type: ignore[operator]


def test_costs_are_given_by_names(hogs: Trace) -> None:
    for wrong in (7, "switch=2us"):
        with pytest.raises(UsageError, match=r"costs=.* expected values by names"):
            ss.simulate(hogs, costs=wrong)  # type: ignore[arg-type]


def hogs_of(time: str) -> Trace:
    return simulate(ss.workload.hogs(3, time=time), policy="rr", cpus=1, set={"quantum": "5ms"})


def captures_of(*waiting: float, recorded: float) -> list[dict[str, Any]]:
    """Captures with equal waits, and the given waits in the one replay of the change; ms."""
    rest = {"cpu_time": 60 * MS, "wait_p99": None}
    return [
        {"recorded": {**rest, "waiting": recorded * MS}, "changes": [{**rest, "waiting": w * MS}]}
        for w in waiting
    ]


def test_range_of_three_captures_is_their_spread() -> None:
    captures = captures_of(100, 110, 121, recorded=90)
    found = of_change(captures, {"cpu_time": 1, "waiting": 1.2, "wait_p99": 1})
    # Predictions are ln 1.1 apart, and the usual spread counts for two more captures; t for the 2 +
    # 2 degrees of freedom is 2.132; 4/3 = 1 + 1/3. Replays waited too little: the bound is wider.
    apart = math.sqrt((2 * math.log(1.1) ** 2 + 2 * APART["waiting"] ** 2) / 4)
    half = 2.132 * apart * math.sqrt(4 / 3)
    assert found["waiting_low"] == pytest.approx(110 * MS * math.exp(-half), abs=1)
    assert found["waiting_high"] == pytest.approx(110 * MS * 1.2 * math.exp(half), abs=1)
    assert found["cpu_time_low"] < 60 * MS < found["cpu_time_high"]
    assert found["wait_p99_low"] is found["wait_p99_high"] is None


def test_spread_of_recordings_widens_the_range() -> None:
    captures = captures_of(100, 100, 100, recorded=90)
    errors = {"cpu_time": 1.0, "waiting": 1.0, "wait_p99": 1.0}
    narrow = of_change(captures, errors)
    for one, times in zip(captures, (0.5, 1, 2), strict=True):
        one["recorded"]["waiting"] *= times
    wide = of_change(captures, errors)
    apart = math.sqrt((2 * math.log(2) ** 2 + 2 * APART["waiting"] ** 2) / 4)
    assert wide["waiting_high"] > 2 * narrow["waiting_high"]
    assert math.log(wide["waiting_high"] / (100 * MS)) == pytest.approx(
        2.132 * apart * math.sqrt(4 / 3), abs=1e-6
    )


@pytest.mark.parametrize("n", [1, 3])
def test_doubtful_prediction_widens_both_bounds(n: int) -> None:
    captures = captures_of(*[100.0] * n, recorded=90)
    for one in captures:
        one["recorded"]["wait_p99"] = one["changes"][0]["wait_p99"] = 5 * MS
    errors = {"cpu_time": 1.0, "waiting": 1.5, "wait_p99": 1.0}
    good, doubtful = of_change(captures, errors), of_change(captures, errors, doubt=1.5)
    for side, way in (("low", -1), ("high", 1)):
        further = way * math.log(doubtful[f"wait_p99_{side}"] / good[f"wait_p99_{side}"])
        if n > 1:
            assert further == pytest.approx(math.log(1.5), abs=1e-6)
        assert 0.1 < further < math.log(1.5) + 1e-6
    if n > 1:
        assert doubtful["waiting_low"] == pytest.approx(good["waiting_low"] / 1.5, abs=1)
    assert doubtful["waiting_high"] == good["waiting_high"]
    assert doubtful["cpu_time_high"] == good["cpu_time_high"]


def test_replay_without_waits_has_a_range_from_0() -> None:
    found = of_change(captures_of(0, 0, 0, recorded=0), dict.fromkeys(APART, 1.0))
    assert found["waiting_low"] == 0
    assert BRIEF < found["waiting_high"] < 10 * BRIEF


def test_several_captures_give_one_prediction() -> None:
    traces = [hogs_of(f"{ms}ms") for ms in (20, 40, 80)]
    frame = ss.whatif(traces, slice="100ms", by="name")
    (service,) = frame["name"].unique()
    was, then = (one(frame, service, c) for c in ("recorded", "changed"))
    assert (was["cpu_time_low"], was["cpu_time"], was["cpu_time_high"]) == (
        60 * MS,
        120 * MS,
        240 * MS,
    )
    # In sequence they wait 0, once and twice as long as a thread runs.
    assert then["waiting"] == 3 * 40 * MS
    assert then["waiting_low"] < 3 * 20 * MS
    assert then["waiting_high"] > 3 * 80 * MS
    assert then["verdict"] == "good"
    alone = ss.whatif(traces[1], slice="100ms", by="name")
    same = alone.filter(configuration="changed").select("waiting", "cpu_time", "verdict")
    assert same.equals(frame.filter(configuration="changed").select(same.columns))


def test_captures_of_other_machines_are_refused() -> None:
    other = simulate(ss.workload.hogs(3, time="20ms"), policy="rr", cpus=2)
    with pytest.raises(UsageError, match="machines of 1 and 2 CPUs"):
        ss.whatif([hogs_of("20ms"), other], slice="100ms")
    with pytest.raises(UsageError, match="no capture"):
        ss.whatif([], slice="100ms")


def test_option_again_and_the_report_section_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (str(FIXTURES / f"linux-slice-default-{i}.capture") for i in (1, 2))
    cache = ["--cache", str(tmp_path)]
    assert main(["whatif", first, "--again", second, "--slice", "10ms", *cache]) == 0
    said = capsys.readouterr().out
    for i in (1, 2):
        assert f"linux-slice-default-{i}.capture:" in said
    page = tmp_path / "page.html"
    plain = ["report", first, "--no-timeline", "-f", "-o", str(page), *cache]
    assert main(plain) == 0
    assert 'id="whatif"' not in page.read_text()
    capsys.readouterr()
    assert main([*plain, "--slice", "10ms"]) == 0
    html = page.read_text()
    assert 'id="whatif"' in html
    assert "What if: a slice of 10" in html
    assert "whatif --slice 10ms" in html
    assert main([*plain, "--set-nice", "no-such-thread=5"]) == 2
    assert "no-such-thread" in capsys.readouterr().err


def test_a_real_time_thread_no_longer_waits() -> None:
    b = Builder()
    b.thread("web").run("30ms")
    b.thread("batch").run("30ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    frame = ss.whatif(real, set_class={"web": "fifo:50"})
    assert one(frame, "web", "recorded")["completion"] > 50 * MS
    assert one(frame, "web", "changed")["completion"] == 30 * MS
    assert one(frame, "batch", "changed")["completion"] == 60 * MS
    # Behind all others is last, whatever its nice value.
    frame = ss.whatif(real, set_class={"web": "idle"}, set_nice={"batch": 19})
    assert one(frame, "batch", "changed")["completion"] < 40 * MS


def test_recorded_class_change_does_not_undo_the_asked_one() -> None:
    b = Builder()
    b.thread("web", sched="fifo", rt_prio=20).run("5ms").set_priority(sched="fair", nice=0).run(
        "25ms"
    )
    b.thread("batch").run("30ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    frame = ss.whatif(real, set_class={"web": "fair"})
    assert one(frame, "web", "changed")["completion"] > 45 * MS
    frame = ss.whatif(real, set_class={"web": "rr:1"})
    assert one(frame, "web", "changed")["completion"] == 30 * MS


def test_added_load_takes_its_share_of_cpu_time() -> None:
    """A thread of 30 ms beside two that compute all the time: a third of the CPU."""
    b = Builder()
    b.thread("web").run("30ms")
    real = simulate(b.workload(), policy="rr", cpus=1)
    asked = {"add_load": 2, "set": {"quantum": "5ms"}}
    frame = ss.whatif(real, **asked)
    assert frame["comm"].unique().to_list() == ["web"]
    assert one(frame, "web", "changed")["completion"] in (80 * MS, 85 * MS, 90 * MS)
    # Other changes may name it.
    frame = ss.whatif(real, **asked, cpus=2, pin={"load-*": "1"})
    assert one(frame, "web", "changed")["completion"] == 30 * MS


def test_added_load_has_its_own_group() -> None:
    """Like a new session: half of the CPU, where four threads without a group would get 4 / 5."""
    b = Builder()
    b.group("/web")
    b.thread("web", group="/web").run("100ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    frame = ss.whatif(real, add_load=4)
    assert one(frame, "web", "changed")["completion"] == pytest.approx(200 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"set_class": {"web": "fifo"}}, "class 'fifo' of 'web'"),
        ({"set_class": {"web": "fifo:100"}}, "class 'fifo:100' of 'web'"),
        ({"set_class": {"web": "batch:3"}}, "class 'batch:3' of 'web'"),
        ({"set_class": {"nobody": "idle"}}, "no thread 'nobody'"),
        ({"set_class": {"web": "rr:5"}, "policy": "4bsd"}, "a policy with that class"),
        ({"set_class": {"web": "idle", "w*": "fair"}}, "is given class"),
        ({"add_load": 0}, "0 threads of load"),
        ({"add_load": True}, "True threads of load"),
    ],
)
def test_invalid_class_or_load_is_refused(asked: dict[str, object], said: str) -> None:
    b = Builder()
    b.thread("web").run("10ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    with pytest.raises(UsageError, match=re.escape(said)):
        ss.whatif(real, **asked)  # type: ignore[arg-type]
