"""What waits consisted of: by hand, and against the same waits by who ran meanwhile."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scenes import scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.asking import batches
from schedscope.analysis.causes.quota_periods import _owed
from schedscope.analysis.causes.throttling import throttling
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.rules import found
from schedscope.analysis.requests.parts import _lines
from schedscope.analysis.wait_breakdown import PARTS
from schedscope.cli.wait_breakdown import _limited
from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES, conform
from schedscope.report.machine import idle
from schedscope.report.subject import Subject
from schedscope.timelines.steps import Reader, Steps

MS = 1_000_000
FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = (
    *("linux-ftrace-mixed.capture", "linux-ftrace-starved.capture", "linux-bpftrace.capture"),
    *("linux-trace-cmd-yield.dat", "perf-sched.data", "perfetto-compact.pftrace"),
    *("freebsd-ule-synthetic.capture", "freebsd-4bsd-synthetic.capture"),
)


def world(groups: object = None, irqs: pl.DataFrame | None = None) -> ss.Trace:
    """One CPU for 100 ms: `web` (120) waits behind better, equal and worse ones, then beside none.

    rt 0-10, peer 10-30, hog 30-40, unknown 40-50, idle 50-90, web 90-100.
    """
    runs = [(0, 10, 2, 49), (10, 20, 3, 120), (30, 10, 4, 130)]
    rows = [(ts * MS, dur * MS, utid, "running", 0, prio) for ts, dur, utid, prio in runs]
    rows += [(0, 90 * MS, 1, "runnable", 0, 120), (50 * MS, 40 * MS, 0, "running", 0, None)]
    rows += [(90 * MS, 10 * MS, 1, "running", 0, 120)]
    rows.sort(key=lambda row: row[0] + row[1])
    states = pl.DataFrame(rows, schema=["ts", "dur", "utid", "state", "cpu", "prio"], orient="row")
    threads = pl.DataFrame(
        {
            "utid": range(5),
            "comm": ["idle/0", "web", "rt", "peer", "hog"],
            "tid": range(5),
            "prio": [None, 120, 49, 120, 130],
            "sched_class": ["idle", "fair", "realtime", "fair", "fair"],
            "cgroup": [None, "/web/one", "/", "/", "/"],
        }
    )
    tables = {"states": states, "threads": threads}
    if irqs is not None:
        tables["irqs"] = irqs
    about: dict[str, Any] = {"ncpu": 1, "window": [0, 100 * MS], "os": "Linux"}
    return ss.Trace.from_tables(tables, about | ({"groups": groups} if groups else {}))


def parts(frame: pl.DataFrame, comm: str = "web") -> dict[str, int | None]:
    """In ms."""
    row = frame.filter(pl.col("comm") == comm).row(0, named=True)
    return {part: None if row[part] is None else row[part] // MS for part in PARTS}


def test_a_wait_is_divided_by_what_its_cpu_did() -> None:
    found = parts(ss.wait_breakdown(world(), by="comm"))
    assert found == {
        "behind_better": 10, "behind_same": 20, "behind_worse": 10, "interrupted": None,
        "throttled": None, "cpu_idle": 40, "unknown": 10,
    }  # fmt: skip


def test_interrupts_count_once_and_in_place_of_what_they_interrupt() -> None:
    irqs = pl.DataFrame(
        {
            "ts": [8 * MS, 9 * MS, 60 * MS],
            "cpu": [0, 0, 0],
            "kind": ["hard", "soft", "hard"],
            "id": [1, 2, 1],
            "dur": [4 * MS, 2 * MS, 5 * MS],
        },
    )
    frame = ss.wait_breakdown(world(irqs=irqs), by="comm")
    found = parts(frame)
    assert found["interrupted"] == 4 + 5
    assert frame["interrupted_high"].to_list() == [(4 + 5 + 10) * MS]
    assert found["behind_better"] == 8
    assert found["behind_same"] == 18
    assert found["cpu_idle"] == 35


@pytest.mark.parametrize(
    ("group", "throttled"),
    [("/web", True), ("/web/one", True), ("/we", False), ("/web/two", False)],
)
def test_an_idle_cpu_beside_a_thread_of_a_throttled_group(group: str, throttled: bool) -> None:
    """The group that holds it, however far above; and no other one."""
    trace = world([{"cgroup": group, "n_throttled": 3, "throttled": 50 * MS}])
    frame = ss.wait_breakdown(trace, by="comm")
    found = parts(frame)
    assert (found["throttled"], found["cpu_idle"]) == ((40, 0) if throttled else (0, 40))
    # No event says when: it may have been while others ran, or while it is unknown which did.
    assert frame["throttled_high"].to_list() == [(90 if throttled else 0) * MS]
    assert frame["evidence"].to_list() == (["idle CPU"] if throttled else [None])


def test_wait_without_throttled_groups_has_no_throttled_time() -> None:
    found = parts(ss.wait_breakdown(world([{"cgroup": "/web", "n_throttled": 0}]), by="comm"))
    assert (found["throttled"], found["cpu_idle"]) == (0, 40)


def test_the_longest_waits_one_by_one() -> None:
    frame = ss.wait_breakdown(world(), by="wait")
    assert frame.select("ts", "comm", "cpu", "wait").rows() == [(0, "web", 0, 90 * MS)]
    assert parts(frame)["behind_same"] == 20


@pytest.mark.parametrize("name", NAMES)
def test_parts_agree_with_who_ran_meanwhile(name: str, tmp_path: Path) -> None:
    """Thread by thread: all of each wait, and its idle and unknown parts, to the ns."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    frame = ss.wait_breakdown(trace)
    assert len(frame) > 10
    zero = [pl.col(part).fill_null(0) for part in PARTS]
    assert frame.filter(pl.sum_horizontal(zero) != pl.col("wait")).is_empty()
    kinds = ("thread", "idle", "unknown", "no_queue")
    other = ss.interference(trace).group_by("victim_utid").agg(
        pl.col("wait").first().alias("wait_other"),
        **{kind: pl.col("time").filter(pl.col("kind") == kind).sum() for kind in kinds},
    )  # fmt: skip
    both = frame.join(other, left_on="utid", right_on="victim_utid", how="left", suffix="_other")
    assert both["wait"].to_list() == both["wait_other"].to_list()
    idle = pl.col("cpu_idle") + pl.col("throttled").fill_null(0)
    assert both.filter(idle != pl.col("idle")).is_empty()
    # A priority that is not known is unknown here only; an interrupt is known also where it is
    # unknown which thread ran.
    least = pl.col("unknown_other") + pl.col("no_queue")
    most = pl.col("unknown") + pl.col("interrupted").fill_null(0)
    assert both.filter(most < least).is_empty()
    waits = ss.wait_breakdown(trace, by="wait", top=1_000_000)
    assert waits["wait"].sum() == frame["wait"].sum()
    assert len(waits) == frame["n"].sum()
    assert waits["wait"].is_sorted(descending=True)


def test_selection_by_cpu_counts_waits_on_its_queue(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / NAMES[0], cache=tmp_path)
    whole = ss.wait_breakdown(trace, by="all")
    cpus = [ss.wait_breakdown(trace, by="all", where=pl.col("cpu") == cpu) for cpu in (0, 1)]
    unplaced = ss.wait_breakdown(trace, by="all", where=pl.col("cpu").is_null())
    of_parts = [frame["wait"].sum() for frame in (*cpus, unplaced)]
    assert sum(of_parts) == whole["wait"].sum()
    assert all(of_parts[:2])


def test_invalid_arguments_are_refused() -> None:
    for options in ({"by": "nonsense"}, {"top": 0}, {"where": pl.col("nonsense") == 1}):
        with pytest.raises(UsageError):
            ss.wait_breakdown(world(), **options)  # type: ignore[arg-type]


def throttled_world() -> ss.Trace:
    """Two CPUs, a quota of 20 ms per 100 ms, refilled at 0, 100 and 200 ms; ms below.

    `web` runs on CPU 0 at 0-20 and, for it queues behind `hog`, at 110-130; `hog` has the CPU else.
    In the third period it sleeps from 205 on: the quota is not used up.
    """
    rows = []

    def add(begin: int, end: int, utid: int, state: str, cpu: int | None = 0) -> None:
        rows.append((begin * MS, (end - begin) * MS, utid, state, cpu, 120 if cpu == 0 else None))

    for begin, end in ((0, 20), (110, 130), (200, 205)):
        add(begin, end, 2, "running")
    add(20, 110, 2, "runnable")
    add(130, 200, 2, "runnable")
    add(205, 300, 2, "sleeping", None)
    for begin, end in ((20, 110), (130, 200), (205, 300)):
        add(begin, end, 3, "running")
    for begin, end in ((0, 20), (110, 130), (200, 205)):
        add(begin, end, 3, "runnable")
    rows.sort(key=lambda row: row[0] + row[1])
    states = pl.DataFrame(rows, schema=["ts", "dur", "utid", "state", "cpu", "prio"], orient="row")
    threads = pl.DataFrame(
        {
            "utid": range(4),
            "comm": ["idle/0", "idle/1", "web", "hog"],
            "tid": range(4),
            "pid": range(4),
            "prio": [None, None, 120, 120],
            "kernel": [False] * 4,
            "recorder": [False] * 4,
            "affinity": [None] * 4,
            "sched_class": ["idle", "idle", "fair", "fair"],
            "cgroup": [None, None, "/web/one", "/"],
        },
        schema_overrides={"affinity": pl.String},
    )
    waits = pl.DataFrame(
        {
            "utid": [2, 2], "cause": ["preempt", "preempt"], "ts_ready": [20 * MS, 130 * MS],
            "ts_run": [110 * MS, 200 * MS], "wait": [90 * MS, 70 * MS], "cpu": [0, 0],
            "queue_cpu": [0, 0], "prio": [120, 120], "censored": ["none", "none"],
        },
    )  # fmt: skip
    refills = pl.DataFrame(
        {"ts": [0, 100 * MS, 200 * MS], "cpu": [0, 1, 0], "timer": [0, 0, 0]},
        schema_overrides={"cpu": pl.UInt16, "timer": pl.UInt32},
    )
    group = {"cgroup": "/web", "quota": 20 * MS, "period": 100 * MS, "n_periods": 3}
    groups = [group | {"n_throttled": 2, "throttled": 150 * MS}]
    tables = {
        "states": states,
        "threads": threads,
        "waits": conform("waits", waits),
        "quota_refills": refills,
    }
    about: dict[str, Any] = {"ncpu": 2, "window": [0, 300 * MS], "os": "Linux", "groups": groups}
    return ss.Trace.from_tables(tables, about)


def test_a_group_that_used_its_quota_up_is_throttled_until_the_refill() -> None:
    """Behind `hog` it waited only from the refill on, whichever thread ran before."""
    frame = ss.wait_breakdown(throttled_world(), by="comm")
    found = parts(frame)
    assert (found["throttled"], found["behind_same"]) == (80 + 70, 10)
    assert frame.filter(comm="web")["evidence"].to_list() == ["quota accounting"]
    assert parts(frame, "hog")["behind_same"] == 45


def beside_an_idle_cpu(affinity: str | None = None) -> ss.Trace:
    """The same beside a CPU that idles all the time; `web` may use these CPUs."""
    trace = throttled_world()
    states = trace.states.collect()
    idle = pl.DataFrame([(0, 300 * MS, 1, "running", 1, None)], schema=states.schema, orient="row")
    tables = {name: getattr(trace, name).collect() for name in ("waits", "quota_refills")}
    own = pl.when(pl.col("utid") == 2).then(pl.lit(affinity, pl.String))
    threads = trace.threads.with_columns(affinity=own)
    return ss.Trace.from_tables(
        tables | {"states": pl.concat([states, idle]), "threads": threads}, dict(trace.info)
    )


def finding(trace: ss.Trace, topic: str) -> dict[str, Any]:
    [row] = ss.findings(trace).filter(pl.col("topic") == topic).to_dicts()
    return row


def unseen(trace: ss.Trace) -> ss.Trace:
    """The same where no timer shows when the quota was used up."""
    names = ("states", "threads", "waits")
    tables = {name: getattr(trace, name).collect() for name in names}
    return ss.Trace.from_tables(tables, dict(trace.info))


def test_idle_time_beside_throttled_threads_is_not_avoidable() -> None:
    """`web` waits for 160 ms on CPU 0, of that 150 ms for its quota, and `hog` for 45."""
    row = finding(beside_an_idle_cpu(), "avoidable idle time")
    assert (row["cost"], "quota" in row["text"]) == ((160 + 45 - 150) * MS, False)
    assert "CPUs were idle for 55.0 ms (18.3 % of all idle time) while threads" in row["text"]
    # What nothing shows may be as much as the kernel counted.
    trace = beside_an_idle_cpu()
    trace.info["groups"][0]["throttled"] = 70 * MS
    row = finding(unseen(trace), "avoidable idle time")
    assert row["cost"] == (205 - 70) * MS
    assert "up to 70.0 ms of the waiting may be due to the CPU quota of /web" in row["text"]
    # Without the kernel's counts nothing of the sort is known.
    trace = beside_an_idle_cpu()
    trace.info["groups"] = []
    row = finding(trace, "avoidable idle time")
    assert (row["cost"], "quota" in row["text"]) == (205 * MS, False)


def test_a_throttled_thread_could_run_nowhere() -> None:
    trace = beside_an_idle_cpu()
    row = ss.work_conservation(trace).row(0, named=True)
    assert (row["wasted"], row["waiting"], row["throttled"]) == (55 * MS, 205 * MS, 150 * MS)
    threads = ss.work_conservation(trace, by="comm").select(
        "comm", "waiting", "throttled", "avoidable"
    )
    assert sorted(threads.rows()) == [
        ("hog", 45 * MS, 0, 45 * MS),
        ("web", 160 * MS, 150 * MS, 10 * MS),
    ]
    cpus = ss.work_conservation(trace, by="cpu").select("cpu", "waiting", "throttled", "waited")
    assert cpus.rows() == [(0, 205 * MS, 150 * MS, 55 * MS), (1, 0, 0, 0)]
    # An episode ends where only the quota keeps the thread from the idle CPU.
    episodes = ss.idle_episodes(trace, longer_than=0)
    found = episodes.filter(comm="web").select("ts", "dur", "cause").sort("ts").rows()
    assert found == [(100 * MS, 30 * MS, "preempted")]
    assert episodes.filter(comm="web")["waited"].to_list() == [10 * MS]


def test_no_service_is_due_while_the_quota_is_used_up() -> None:
    """`web` competes for 40 ms in which it runs, and for 10 in which it waits."""
    rows = ss.fairness(throttled_world(), per="cpu").filter(comm="web").to_dicts()
    [row] = rows
    assert (row["running"], row["waiting"]) == (45 * MS, 10 * MS)
    # Half of the time in which both wanted the CPU.
    assert row["due"] == pytest.approx((20 + 10 + 20 + 5) / 2 * MS)


def test_work_conservation_reports_time_explained_by_quotas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = beside_an_idle_cpu()
    monkeypatch.setattr("schedscope.cli._options.open_input", lambda _: trace)
    assert cli.main(["work-conservation", "any"]) == 0
    out = capsys.readouterr().out
    assert "150 ms in which CPU quotas held threads back" in out
    assert "may be due" not in out
    monkeypatch.setattr("schedscope.cli._options.open_input", lambda _: unseen(trace))
    assert cli.main(["work-conservation", "any"]) == 0
    assert "up to 150 ms of the avoidable waiting may be due to CPU q" in capsys.readouterr().out
    monkeypatch.setattr("schedscope.cli._options.open_input", lambda _: trace)
    trace = beside_an_idle_cpu()
    trace.info["groups"] = []
    assert cli.main(["work-conservation", "any"]) == 0
    assert "quotas" not in capsys.readouterr().out


def test_mask_is_not_blamed_while_the_quota_is_used_up() -> None:
    row = finding(beside_an_idle_cpu("0"), "mask")
    assert row["cost"] == 10 * MS
    assert "waited at most 10.0 ms for it" in row["text"]


def test_no_more_periods_are_throttled_than_the_kernel_counted() -> None:
    """The one in which the group used less than its quota is none, nor any beyond the count."""
    trace = throttled_world()
    trace.info["groups"][0]["n_throttled"] = 1
    assert parts(ss.wait_breakdown(trace, by="comm"))["throttled"] in (80, 70)
    trace = throttled_world()
    trace.info["groups"][0]["n_throttled"] = 9
    assert parts(ss.wait_breakdown(trace, by="comm"))["throttled"] == 80 + 70


@pytest.mark.parametrize("counted", [150, 80, 70])
def test_bounds_of_throttled_time_allow_for_the_kernels_count(counted: int) -> None:
    """Two periods may be throttled, for 80 and 70 ms: both, the first, or the second were."""
    trace = throttled_world()
    trace.info["groups"][0]["throttled"] = counted * MS
    row = ss.wait_breakdown(trace, by="comm", where=pl.col("comm") == "web").row(0, named=True)
    assert row["throttled"] <= counted * MS <= row["throttled_high"]
    assert row["throttled_high"] < 150 * MS or counted == 150
    assert row["behind_same"] <= 10 * MS + (150 - counted) * MS <= row["behind_same_high"]
    parts = ("behind_better", "behind_same", "behind_worse", "throttled", "cpu_idle", "unknown")
    assert sum(row[name] for name in parts) == row["wait"]


def guessed_world() -> ss.Trace:
    """Beside an idle CPU, `web` waits for 90 and 70 ms. Of that 80 and 70 ms may be throttled, and
    the kernel counted 70: no wait certainly was.
    """
    trace = beside_an_idle_cpu()
    trace.info["groups"][0]["throttled"] = 70 * MS
    return trace


def test_time_that_a_quota_may_have_held_back_is_in_upper_bounds_of_idle_time() -> None:
    """The other CPU idles all along; without any throttling all 205 ms of waiting are avoidable."""
    trace = guessed_world()
    row = ss.work_conservation(trace).row(0, named=True)
    expected = {
        "throttled": 0,
        "throttled_high": 80 * MS,
        "wasted": 125 * MS,
        "wasted_high": 205 * MS,
        "wasted_frac": 125 / 600,
        "wasted_frac_high": 205 / 600,
        "wasted_idle_frac": 125 / 300,
        "wasted_idle_frac_high": 205 / 300,
    }
    assert {name: row[name] for name in expected} == expected
    names = ("throttled", "avoidable", "avoidable_frac")
    web = ss.work_conservation(trace, by="comm").filter(comm="web").row(0, named=True)
    assert [(web[name], web[f"{name}_high"]) for name in names] == [
        (0, 80 * MS),
        (80 * MS, 160 * MS),
        (0.5, 1.0),
    ]
    cpus = ss.work_conservation(trace, by="cpu")
    assert cpus.select("waited", "waited_high").rows() == [(125 * MS, 205 * MS), (0, 0)]
    assert cpus.select("available", "available_high").rows() == [(0, 0), (125 * MS, 205 * MS)]
    assert cpus.select("throttled", "throttled_high").rows() == [(0, 80 * MS), (0, 0)]


def test_bounds_of_idle_time_add_up_over_windows() -> None:
    short = guessed_world()
    names = ("states", "threads", "waits", "quota_refills")
    tables = {name: getattr(short, name).collect() for name in names}
    tables["states"] = tables["states"].with_columns(end=pl.lit("switched"))
    trace = ss.Trace.from_tables(tables, dict(short.info))
    edges = [f"{ms}ms" for ms in (0, 30, 110, 150, 300)]
    sums = ["throttled", "throttled_high", "wasted", "wasted_high", "waiting", "idle", "dispatch"]
    found = [
        ss.work_conservation(trace.between(since, until)).select(sums)
        for since, until in pairwise(edges)
    ]
    assert pl.concat(found).sum().equals(ss.work_conservation(trace).select(sums))


def test_work_conservation_prints_what_is_a_guess_as_an_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("schedscope.cli._options.open_input", lambda _: guessed_world())
    assert cli.main(["work-conservation", "any", "--by", "comm"]) == 0
    out = capsys.readouterr().out
    section = idle(Subject(guessed_world())).body
    assert "Avoidable idle time: 125 to 205 ms of 300 ms idle time (41.7 to 68.3 %)." in section
    assert ">80.0 to 160 ms</td>" in section
    assert "avoidable idle time: 125 to 205 ms of CPU time, 20.8 to 34.2 % of the known" in out
    assert "<= 80.0 ms in which CPU quotas held threads back" in out
    assert re.search(r"web +160 ms +<= 80.0 ms +80.0 to 160 ms +50.0 to 100 %", out)


def test_findings_have_bounds_where_throttling_is_a_guess() -> None:
    trace = guessed_world()
    idle, quota = (finding(trace, topic)["text"] for topic in ("avoidable idle time", "quota"))
    assert idle.startswith("CPUs were idle for 125 to 205 ms (")
    assert "Throttling accounts for at most 80.0 ms of the 160 ms that they" in quota


def test_starvation_bounds_the_throttled_part_of_a_wait() -> None:
    trace = guessed_world()
    rows = ss.starvation(trace, threshold="50ms").filter(comm="web")
    assert rows.select("wait", "throttled", "throttled_high").rows() == [
        (90 * MS, 0, 80 * MS),
        (70 * MS, 0, 0),
    ]
    assert rows["story"][0].endswith("perhaps 80.0 ms of it throttled by the CPU quota of /web")
    # Where no timer shows when, all of a wait may be.
    rows = ss.starvation(unseen(trace), threshold="50ms").filter(comm="web")
    assert rows.select("throttled", "throttled_high").rows() == [(0, 90 * MS), (0, 70 * MS)]


def test_parts_of_requests_leave_out_waiting_that_may_be_throttled() -> None:
    """It is neither `waiting` nor `throttled`, and so `unknown`."""
    web = pl.Series([2], dtype=pl.UInt32)
    for trace, expected in ((guessed_world(), (80, 0)), (beside_an_idle_cpu(), (10, 150))):
        names = ("states", "threads", "waits", "quota_refills")
        tables = {name: getattr(trace, name).collect() for name in names}
        tables["states"] = tables["states"].cast({"utid": pl.UInt32})
        typed = ss.Trace.from_tables(tables, dict(trace.info))
        sums = _lines(typed, web).select("waiting", "throttled").sum().row(0)
        assert sums == tuple(ms * MS for ms in expected)


def test_share_of_cpu_time_closed_by_quotas_has_an_upper_bound() -> None:
    """CPU 0 of two may be closed to the group from 20 to 100 ms."""
    rows = ss.outliers(guessed_world(), every="50ms").sort("ts")
    assert rows["throttled_frac"].to_list() == [0.0] * 6
    high = [0.3, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert rows["throttled_frac_high"].to_list() == pytest.approx(high)


def test_notes_on_weights_say_how_much_throttling_is_a_guess() -> None:
    said = "for 0 ns to 80.0 ms of all waiting: which time that was is partly a guess"
    assert any(note.endswith(said) for note in ss.weight_notes(guessed_world()))
    assert not any("guess" in note for note in ss.weight_notes(beside_an_idle_cpu()))


def test_lane_of_a_quota_is_unknown_where_throttling_is_a_guess() -> None:
    trace = guessed_world()
    lane = Reader(trace, [0, 1]).read("quota", "0", 0, 300 * MS)["quota:0"]
    assert isinstance(lane, Steps)
    assert [lane.at(ms * MS)[1] for ms in (10, 50, 110)] == [0, -1, 0]
    sure = Reader(beside_an_idle_cpu(), [0, 1]).read("quota", "0", 0, 300 * MS)["quota:0"]
    assert isinstance(sure, Steps)
    assert [sure.at(ms * MS)[1] for ms in (10, 50, 110)] == [0, 1, 0]


def test_period_before_the_first_refill_seen_may_be_throttled() -> None:
    trace = throttled_world()
    later = trace.quota_refills.filter(pl.col("ts") > 0).collect()
    tables = {"states": trace.states, "threads": trace.threads, "quota_refills": later}
    known = ss.Trace.from_tables(tables, dict(trace.info))
    assert parts(ss.wait_breakdown(known, by="comm"))["throttled"] == 80 + 70


def test_throttling_follows_running_time_without_kernel_counters() -> None:
    # 20 of 24 ms are too few there, unless as much was taken before.
    for quota, throttled in ((20, 80 + 70), (24, 70)):
        trace = throttled_world()
        trace.info["groups"][0] |= {"n_throttled": 1, "quota": quota * MS}
        trace.info["counters_read"] = [100 * MS, 300 * MS]
        assert parts(ss.wait_breakdown(trace, by="comm"))["throttled"] == throttled
    used = pl.DataFrame({"period": [3, 4, 5, 7], "used": [28, 22, 24, 24]}).to_struct("")
    assert _owed(24, used).to_list() == [0, 4, 2, 0]


@pytest.mark.parametrize(
    ("move", "throttled"),
    [
        # Out of the group before its second period, and into it then.
        ({"ts": 115, "from": "/web/one", "cgroup": "/free"}, 80),
        ({"ts": 115, "from": "/free", "cgroup": "/web/one"}, 70),
        ({"ts": 60, "from": "/web/one", "cgroup": "/free"}, 60 - 20),
        # A group that lies in the same one is no way out.
        ({"ts": 115, "from": "/web/one", "cgroup": "/web/two"}, 80 + 70),
        ({"ts": 115, "from": "/free", "cgroup": "/elsewhere"}, 0),
    ],
)
def test_only_time_in_the_group_is_throttled(move: dict[str, Any], throttled: int) -> None:
    trace = throttled_world()
    names = ("states", "threads", "waits", "quota_refills")
    tables = {name: getattr(trace, name).collect() for name in names}
    last = pl.lit(move["cgroup"])
    tables["threads"] = tables["threads"].with_columns(
        cgroup=pl.when(pl.col("utid") == 2).then(last).otherwise("cgroup"),
        **dict.fromkeys(("parent_utid", "start_ts", "exit_ts"), pl.lit(None, pl.Int64)),
    )
    about: dict[str, Any] = {key: trace.info[key] for key in ("ncpu", "window", "os", "groups")}
    about["group_moves"] = [move | {"ts": move["ts"] * MS, "tid": 2}]
    found = ss.wait_breakdown(ss.Trace.from_tables(tables, about), by="comm")
    assert parts(found)["throttled"] == throttled
    assert parts(found)["behind_same"] == 160 - throttled


def test_cpu_losing_a_thread_is_not_throttled() -> None:
    """`web` waits on CPU 0 at 20-35, and runs on CPU 1 from then to 50: CPU 0 throttles from 35."""
    trace = throttled_world()
    moved = [
        (20, 15, "runnable", 0), (35, 15, "running", 1), (50, 60, "runnable", 0),
    ]  # fmt: skip
    rows = pl.DataFrame(
        [(ts * MS, dur * MS, 2, state, cpu, 120) for ts, dur, state, cpu in moved],
        schema=["ts", "dur", "utid", "state", "cpu", "prio"], orient="row",
    )  # fmt: skip
    states = trace.states.select(rows.columns).filter(
        (pl.col("utid") != 2) | (pl.col("ts") != 20 * MS)
    )
    states = pl.concat([states.collect(), rows], how="vertical_relaxed")
    states = states.sort(pl.col("ts") + pl.col("dur"))
    tables = {name: getattr(trace, name).collect() for name in ("threads", "quota_refills")}
    about: dict[str, Any] = {key: trace.info[key] for key in ("ncpu", "window", "os", "groups")}
    found = ss.wait_breakdown(ss.Trace.from_tables(tables | {"states": states}, about), by="comm")
    assert parts(found)["throttled"] == 50 + 70
    assert parts(found)["behind_same"] == 10 + 15


@pytest.mark.parametrize("rows", [400, 3000])
def test_long_trace_is_read_in_batches(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota below real waits, with two timers to choose from, and a thread that moves."""
    trace = ss.open(FIXTURES / NAMES[0], cache=tmp_path)
    begin, end = trace.window
    ticks = [(begin + shift, timer) for timer in (1, 2) for shift in (30 * MS * timer,)]
    refills = pl.DataFrame(
        [(ts, 0, timer) for at, timer in ticks for ts in range(at, end, 100 * MS)],
        TABLES["quota_refills"].schema,
        orient="row",
    )
    moved = trace.threads.filter(pl.col("utid") == 8).collect()
    threads = trace.threads.with_columns(cgroup=pl.when(pl.col("utid") % 3 == 2).then(pl.lit("/a")))
    group = {"cgroup": "/a", "quota": MS, "period": 100 * MS, "n_throttled": 9}
    move = {"ts": (begin + end) // 2, "from": "/a", "cgroup": "/b", "tid": moved["tid"][0]}
    about = {**trace.info, "groups": [group], "group_moves": [move]}
    tables = {"quota_refills": refills.lazy(), "threads": threads}
    limited = ss.Trace(about, tables, trace.path)
    wanted = throttling(limited)
    assert wanted.stretches.height
    assert wanted.stretches["group"].n_unique() > 1
    monkeypatch.setattr(batches, "BATCH", rows)
    found = throttling(limited)
    assert found.stretches.equals(wanted.stretches)


def test_the_timer_of_another_period_is_not_the_groups() -> None:
    trace = throttled_world()
    trace.info["groups"][0]["period"] = 50 * MS
    found = parts(ss.wait_breakdown(trace, by="comm"))
    assert (found["throttled"], found["behind_same"]) == (0, 160)


def test_starvation_and_findings_name_the_quota_and_no_bystander() -> None:
    trace = throttled_world()
    frame = ss.starvation(trace, threshold="50ms")
    assert frame["throttled"].to_list() == [80 * MS, 70 * MS]
    assert frame["story"].to_list() == [
        "web (prio 120) waited 90.0 ms on CPU 0, 80.0 ms of it throttled by the CPU quota of /web",
        "web (prio 120) waited 70.0 ms on CPU 0, all of it throttled by the CPU quota of /web",
    ]
    texts = {one.topic: one.text for one in found(Facts(trace, "50ms"))}
    assert "starvation" not in texts
    assert "fairness" not in texts
    assert "Throttling accounts for 150 ms of the 160 ms that they waited" in texts["quota"]


def test_longest_throttling_of_nested_quotas_is_named() -> None:
    """/web/one, in which `web` is, was throttled for 4 ms, and /web around it for 150."""
    trace = throttled_world()
    inner = {"cgroup": "/web/one", "quota": 25 * MS, "period": 100 * MS, "n_periods": 3}
    trace.info["groups"].append(inner | {"n_throttled": 1, "throttled": 4 * MS})
    story = ss.starvation(trace, threshold="50ms")["story"][0]
    assert story.endswith("throttled by the CPU quota of /web")
    assert parts(ss.wait_breakdown(trace, by="comm"))["throttled"] == 80 + 70
    # The findings of the thread alone name both, each with what is due to it.
    about = Facts(trace, "50ms", affected=pl.Series([2], dtype=pl.UInt32))
    first, second = (one for one in found(about) if one.topic == "quota")
    assert "of control group /web held" in first.text
    assert "Throttling accounts for 150 ms of the 160 ms" in first.text
    assert (first.cost, second.cost) == (150 * MS, 4 * MS)
    assert "of control group /web/one held" in second.text
    assert "Throttling accounts for at most 4.00 ms of the 160 ms" in second.text


MOVED = (("parent_utid", pl.UInt32), ("start_ts", pl.Int64), ("exit_ts", pl.Int64))


def test_group_gone_at_the_end_is_not_reported_without_a_quota() -> None:
    """`web` entered /run/1 before the recording's end, where that group was gone."""
    plain = throttled_world()
    names = ("states", "threads", "quota_refills")
    tables: dict[str, Any] = {name: getattr(plain, name).collect() for name in names}
    tables["threads"] = tables["threads"].with_columns(
        *(pl.lit(None, kind).alias(name) for name, kind in MOVED),
        cgroup=pl.when(pl.col("comm") == "web").then(pl.lit("/run/1")).otherwise("cgroup"),
    )
    ends = [100, 201, 305, 402, 503]
    tables["waits"] = conform(
        "waits",
        pl.DataFrame(
            {"utid": [2] * 5, "cause": ["preempt"] * 5, "cpu": [0] * 5, "censored": ["none"] * 5},
        ).with_columns(
            ts_ready=pl.Series(ends) * MS - 70 * MS, ts_run=pl.Series(ends) * MS, wait=70 * MS
        ),
    )
    fired = [100 * MS * n for n in range(6)]
    tables["quota_refills"] = pl.DataFrame(
        {"ts": fired, "cpu": [0] * 6, "timer": [0] * 6}, plain.quota_refills.collect_schema()
    )
    move = {"ts": 0, "tid": 2, "from": "/", "cgroup": "/run/1"}
    about = {**plain.info, "groups": [{"cgroup": "/", "n_periods": 0}], "group_moves": [move]}
    trace = ss.Trace.from_tables(tables, about)
    assert parts(ss.wait_breakdown(trace, by="comm"))["throttled"] is None
    assert parts(ss.wait_breakdown(trace, by="comm"), "hog")["throttled"] == 0
    [told] = [one for one in found(Facts(trace, "500ms")) if one.topic == "quota"]
    assert told.text.startswith("Control group /run/1 was gone when the recording ended")
    assert "of 5 waits of 10.0 ms or more of its threads, 5 ended within 10.0 ms" in told.text
    assert told.cost == 5 * 70 * MS
    # A thread that waits for a CPU gets it at any time.
    tables["waits"] = tables["waits"].with_columns(pl.col("ts_run") + 30 * MS)
    later = ss.Trace.from_tables(tables, about)
    assert not [one for one in found(Facts(later, "500ms")) if one.topic == "quota"]
    # Without a timer that fires there is no quota.
    del tables["quota_refills"]
    none = ss.Trace.from_tables(tables, {**about, "recorder": {"name": "ftrace"}})
    assert parts(ss.wait_breakdown(none, by="comm"))["throttled"] == 0


@pytest.mark.parametrize("recorder", ["ftrace", "perf"])
def test_quota_of_unknown_threads_is_reported(recorder: str) -> None:
    """The kernel counted /web as throttled, but no thread is known to have been in it."""
    plain = throttled_world()
    tables: dict[str, Any] = {
        name: getattr(plain, name).collect() for name in ("states", "threads", "waits")
    }
    tables["threads"] = tables["threads"].with_columns(
        *(pl.lit(None, kind).alias(name) for name, kind in (*MOVED, ("cmdline", pl.String))),
        cgroup=pl.lit("/"),
    )
    trace = ss.Trace.from_tables(tables, {**plain.info, "recorder": {"name": recorder}})
    about = Facts(trace, "50ms", affected=pl.Series([2], dtype=pl.UInt32))
    [told] = [one for one in found(about) if one.topic == "quota"]
    assert "does not show which threads were in it; their waits include that time." in told.text
    assert ("The ftrace recorder sees threads enter" in told.text) == (recorder == "perf")
    assert (told.command, told.whatif) == ("info", None)


@pytest.mark.parametrize(("waited", "told"), [(50, True), (0, False)])
def test_why_a_real_time_thread_waits_for_a_fair_one(waited: int, told: bool) -> None:
    """`pump` waits behind `clerk`, which is fair; `clerk` waits behind `pump` as it must."""
    lines = f"pump running@0 0..100\nclerk runnable@0 0..100\nclerk running@0 100..{150 + waited}"
    if waited:
        lines += f"\npump runnable@0 150..{150 + waited}\npump running@0 200..210"
    known = {
        "pump": {"prio": 89, "sched_class": "realtime"},
        "clerk": {"prio": 120, "sched_class": "fair"},
    }
    trace = scene(lines, known, os="Linux")
    notes = _limited(trace, None)
    assert bool(notes) == told
    if told:
        assert "is a real-time thread, and waited 50.0 ms while threads of worse" in notes[0]
        assert "sched_rt_runtime_us" in notes[0]
    assert _limited(trace, pl.col("comm") == "clerk") == []


def test_the_command_shows_when_waits_began_as_every_table_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds after the start of the recording, which `--since` takes; also of a part."""
    source = [str(FIXTURES / "linux-ftrace-mixed.capture"), "--cache", str(tmp_path)]
    for part in ([], ["--since", "0.5"]):
        assert cli.main(["wait-breakdown", *source, *part, "--by", "wait"]) == 0
        lines = capsys.readouterr().out.split("\n\n")[1].splitlines()
        assert lines[0].split()[0] == "at"
        times = [float(line.split()[0]) for line in lines[1:] if " s " in line[:12]]
        assert len(times) == 20
        assert 0 <= min(times) < max(times) < 1.67
