"""What is wrong with a trace, ranked by what it cost."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import polars as pl
import pytest
from archives import unpack
from ledgers import played
from scenes import scene

import schedscope as ss
from schedscope import cli
from schedscope.analysis.cpus.stolen_time import stolen_shares
from schedscope.analysis.findings.findings import LEVELS, SCHEMA
from schedscope.present.headline import gaps, headline
from schedscope.report.subject import Subject
from schedscope.report.summary import summary
from schedscope.units import duration, interval

SECOND = 1_000_000_000
STARVED = f"""
    0                    cpu0: idle -> hog
    0                    cpu1: idle -> other
    {SECOND // 10}       cpu0: waking clerk on 0 by hog
    {SECOND // 10}       cpu0: enqueued clerk on 0 by hog
    {SECOND // 2}        cpu1: other S -> idle
    {9 * SECOND // 10}   cpu0: hog R -> clerk
"""


def test_costs_equal_hand_computed_values() -> None:
    """The clerk waits 800 ms, the hog the last 100 ms; CPU 1 idles for 500 ms beside them."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    found = {row["topic"]: row for row in ss.findings(trace).iter_rows(named=True)}
    assert found["starvation"]["cost"] == 900_000_000
    assert found["avoidable idle time"]["cost"] == 500_000_000
    assert "clerk" in found["starvation"]["text"]
    assert "behind hog" in found["starvation"]["text"]
    assert found["avoidable idle time"]["cost_frac"] == 0.25
    assert found["avoidable idle time"]["level"] == "warning"


def test_totals_of_threads_count_all_their_waits_not_only_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("schedscope.analysis.findings.starved.EPISODES", 1)
    trace = scene(
        """
        hog    running@0   0..400
        rare   runnable@0  0..400
        rare   running@0   400..410
        hog    runnable@0  400..410
        hog    running@0   410..610
        often  runnable@0  410..610
        often  running@0   610..620
        hog    runnable@0  610..620
        hog    running@0   620..820
        often  runnable@0  620..820
        often  running@0   820..830
        hog    runnable@0  820..830
        hog    running@0   830..1000
        often  runnable@0  830..1000
        """,
        ncpu=1,
    )
    found = ss.findings(trace).filter(pl.col("topic") == "starvation").row(0, named=True)
    assert "2 threads starved: 4 waits of 100 ms or more, at least 970 ms" in found["text"]
    assert re.search(r"Longest in total: often \(\d+\) 570 ms, rare \(\d+\) 400 ms", found["text"])


FIXTURES = Path(__file__).parents[2] / "fixtures"


def with_steal(trace: ss.Trace, stolen: int, counted: int) -> None:
    """Of CPU 1, of what the kernel counted of each CPU, ns."""
    trace.info["cpu_time"] = [
        {"cpu": 0, "idle": counted, "steal": 0},
        {"cpu": 1, "user": counted - stolen, "steal": stolen},
    ]


@pytest.mark.parametrize(("stolen", "told"), [(9, False), (40, False), (60, True)])
def test_time_that_the_hypervisor_took(stolen: int, told: bool) -> None:
    """Of two seconds of CPU time, ms; below a hundredth, or five of the kernel's steps, nothing."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    with_steal(trace, stolen * 1_000_000, SECOND)
    found = {row["topic"]: row for row in ss.findings(trace).iter_rows(named=True)}
    assert ("steal" in found) == told
    if told:
        assert found["steal"]["cost"] == 60_000_000
        assert "took 3.0 % of this machine's CPU time (CPU 1: 6.0 %)" in found["steal"]["text"]


def test_steal_time_outside_the_recording_is_excluded() -> None:
    """Before and after the recording, too, half of a CPU's time was taken: no more of it."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    with_steal(trace, 2 * SECOND, 4 * SECOND)
    found = ss.findings(trace).filter(pl.col("topic") == "steal").row(0, named=True)
    assert found["cost"] == SECOND // 2
    assert "about 500 ms of the recording" in found["text"]
    assert "the kernel counted 2.00 s of 8.00 s" in found["text"]
    assert "the hypervisor took 25.0 % of CPU time" in gaps(trace)


def test_elapsed_time_scales_the_kernels_count() -> None:
    """Ticks may be counted twice: the kernel's times add up to more than passed."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    with_steal(trace, 2 * SECOND, 5 * SECOND)
    for row in trace.info["cpu_time"]:
        row["elapsed"] = 4 * SECOND
    assert stolen_shares(trace) == {0: 0.0, 1: 0.5}


def topics(name: str) -> list[str]:
    topics: list[str] = ss.findings(ss.open(FIXTURES / name))["topic"].to_list()
    return topics


def test_in_order_of_level_then_of_cost() -> None:
    frame = ss.findings(ss.open(FIXTURES / "linux-ftrace-mixed.capture"))
    level = frame["level"].replace_strict({name: i for i, name in enumerate(LEVELS)})
    assert level.is_sorted()
    for part in frame.partition_by("level"):
        assert part["cost"].is_sorted(descending=True)
    assert (frame["cost_frac"] >= 0.001).all()


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("linux-ftrace-starved.capture", "starvation"),
        ("linux-ftrace-mixed.capture", "starvation"),
        ("linux-ftrace-placement.capture", "crowding"),
        ("linux-bpftrace.capture", "starvation"),
        ("linux-dtrace.capture", "recorder"),
        ("perfetto-compact.pftrace", "data quality"),
    ],
)
def test_planted_fault_of_each_load_comes_first(name: str, first: str) -> None:
    """Planted faults of the loads in fixtures/, and recordings with holes."""
    assert topics(name)[0] == first


def test_the_worst_case_is_where_it_can_be_seen() -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture")
    row = ss.findings(trace).row(0, named=True)
    worst = ss.worst_waits(trace, n=1).row(0, named=True)
    assert (row["ts"], row["dur"]) == (worst["ts_ready"], worst["wait"])
    assert "patient (prio 139) waited 1.39 s on CPU 1 behind greedy" in row["text"]


def test_threads_whose_run_was_not_recorded_do_not_starve() -> None:
    """This kernel did not trace switches to some threads: they seem to wait for an idle CPU."""
    trace = ss.open(FIXTURES / "perfetto-compact.pftrace")
    assert ss.starvation_summary(trace, by="all")["n"].item() == 0
    assert ss.findings(trace)["topic"].to_list() == ["data quality"]


def test_threads_on_one_cpu_are_not_reported_as_free_to_move() -> None:
    """`slice_load.py` pins its threads to CPU 1 after their masks were recorded."""
    text = ss.findings(ss.open(FIXTURES / "linux-slice-default-1.capture"))["text"][0]
    assert text.startswith(
        "CPUs were idle for 1.17 s (88.8 % of all idle time) while threads waited elsewhere."
    )
    assert "hog-1, hog-2 and beat ran on one CPU only" in text


def test_overload_is_context_and_comes_last() -> None:
    frame = ss.findings(ss.open(FIXTURES / "freebsd-4bsd-synthetic.capture"))
    assert frame.select("topic", "level").rows() == [("overload", "context")]


def test_waiting_beside_an_unknown_cpu_is_in_the_total(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path)
    waiting = pl.col("dur").filter(pl.col("state") == "runnable").sum()
    [row] = ss.findings(trace).filter(pl.col("topic") == "overload").to_dicts()
    assert row["cost"] == trace.states.select(waiting).collect().item()


def test_simulated_trace_without_waits_has_no_findings() -> None:
    run = ss.simulate(ss.workload.hogs(4, time="500ms"), policy="eevdf-6.12", cpus=8)
    assert ss.findings(run).is_empty()
    assert summary(Subject(run))[0] == (
        "No thread had to wait for a CPU within 500 ms on 8 CPUs: each of 4 found one free."
    )


CROWDED = """
    0     cpu0: idle -> hog
    0     cpu1: idle -> other
    1000  cpu1: waking pinned on 1 by other
    1000  cpu1: enqueued pinned on 1 by other
    2000  cpu1: other S -> hog2
    5000  cpu1: hog2 R -> pinned
    6000  cpu0: hog R -> hog2
    9000  cpu0: hog2 S -> hog
"""


def test_a_pinned_program_behind_one_that_runs_elsewhere_too() -> None:
    """`pinned` waits from 1000 to 5000 for CPU 1; `hog2`, seen on both CPUs, has it from 2000."""
    trace = played(CROWDED, ncpu=2, window=(0, 10_000))
    mask = pl.when(pl.col("comm") == "pinned").then(pl.lit("1"))
    threads = trace.threads.with_columns(affinity=mask, kernel=pl.lit(False)).collect()
    names = ("switches", "wakeups", "states", "waits", "migrations", "losses", "cpus")
    tables = {name: getattr(trace, name).collect() for name in names}
    trace = ss.Trace.from_tables({**tables, "threads": threads}, trace.info)
    found = ss.findings(trace).filter(pl.col("topic") == "crowding").row(0, named=True)
    assert found["cost"] == 3000
    assert found["command"] == "interference --comm 'pinned'"
    assert found["text"] == (
        "1 thread that may use only one CPU waited 3.00 µs for it behind threads that also ran"
        " elsewhere. It is pinned, which waited mostly behind hog2."
    )
    # Programs of one name, told apart by their groups.
    path = {"pinned": "/system.slice/web.service", "hog2": "/batch", "hog": "/batch"}
    threads = threads.with_columns(
        comm=pl.when(pl.col("comm").is_in(list(path))).then(pl.lit("python3")).otherwise("comm"),
        cgroup=pl.col("comm").replace_strict(path, default=None, return_dtype=pl.String),
    )
    trace = ss.Trace.from_tables({**tables, "threads": threads}, trace.info)
    text = ss.findings(trace).filter(pl.col("topic") == "crowding")["text"].item()
    assert text.endswith(
        "It is python3 of web.service, which waited mostly behind python3 of /batch."
    )


def test_contradictions_are_the_first_finding() -> None:
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    tables = {name: getattr(trace, name).collect() for name in ("switches", "waits", "threads")}
    tables["states"] = trace.states.with_columns(pl.col("dur") + 1).collect()
    broken = ss.Trace.from_tables(tables, trace.info)
    assert ss.findings(broken)["level"][0] == "violated"


def test_a_quiet_trace_has_no_findings() -> None:
    trace = played("0 cpu0: idle -> sh\n 500 cpu0: sh S -> idle", ncpu=1, window=(0, 1000))
    assert ss.findings(trace).is_empty()


@pytest.mark.parametrize("name", ["freebsd-ule-synthetic.capture", "perf-sched.data"])
def test_every_source_can_be_asked(name: str) -> None:
    frame = ss.findings(ss.open(FIXTURES / name))
    assert frame.columns == list(SCHEMA)
    assert frame.height


def test_trace_with_only_switches_reports_missing_wakeups() -> None:
    """Neither a larger buffer nor fewer events would bring them."""
    ms = SECOND // 1000
    turns = "".join(
        f"{20 * n * ms} cpu0: idle -> hog\n{(20 * n + 9) * ms} cpu0: hog S -> idle\n"
        for n in range(20)
    )
    trace = played(turns, ncpu=1, window=(0, SECOND))
    trace.info.update(has_waking=False, has_enqueued=False)
    trace.info["reconstruction"] = {"missing_wakeups": 19}
    row = ss.findings(trace).filter(topic="data quality").row(0, named=True)
    assert row["advice"].startswith("Record sched_waking and sched_wakeup, too: ")
    assert "No wakeups were recorded" in row["text"]
    assert "wakeups were not recorded" in headline(trace)[1]


@pytest.mark.parametrize("lost", [False, True])
def test_unreported_switches_do_not_advise_a_larger_buffer(lost: bool) -> None:
    """Every switch from idle to `hog` is missing; the recorder counts what it loses itself."""
    ms = SECOND // 1000
    turns = "".join(f"{(20 * n + 9) * ms} cpu0: hog S -> idle\n" for n in range(20))
    plain = played(turns, ncpu=1, window=(0, SECOND))
    about = {"source": {"format": "ftrace capture"}, "recorder": {"name": "ftrace"}}
    names = ("switches", "wakeups", "states", "waits", "migrations", "losses", "threads")
    tables = {name: getattr(plain, name).collect() for name in names}
    if lost:
        hole = {"cpu": 0, "ts_begin": 0, "ts_end": ms, "count": 1, "reason": "overrun"}
        more = pl.DataFrame([hole], tables["losses"].schema)
        tables["losses"] = pl.concat([tables["losses"], more])
    trace = ss.Trace.from_tables(tables, plain.info | about)
    row = ss.findings(trace).filter(topic="data quality").row(0, named=True)
    assert ("larger buffer does not help" in row["advice"]) != lost


# A bystander waits 800 ms behind the hog; the service waits 200 ms on the other CPU, or not at all.
BESIDE = f"""
    0                    cpu0: idle -> hog
    0                    cpu1: idle -> other
    {SECOND // 10}       cpu0: waking bystander on 0 by hog
    {SECOND // 10}       cpu0: enqueued bystander on 0 by hog
    {SECOND // 10}       cpu1: waking service on 1 by other
    {SECOND // 10}       cpu1: enqueued service on 1 by other
    {{ran}}              cpu1: other S -> service
    {9 * SECOND // 10}   cpu0: hog R -> bystander
"""


def affecting(trace: ss.Trace, name: str) -> pl.DataFrame:
    frame: pl.DataFrame = ss.findings(trace, where=pl.col("comm") == name)
    return frame


def test_a_selection_names_the_selected_thread_and_no_bystander() -> None:
    text = BESIDE.format(ran=3 * SECOND // 10)
    trace = played(text, ncpu=2, window=(0, SECOND))
    everyone = ss.findings(trace).filter(pl.col("topic") == "starvation").row(0, named=True)
    # The hog waits the last 100 ms.
    assert everyone["cost"] == 1_100_000_000
    assert "bystander" in everyone["text"]
    mine = affecting(trace, "service")
    row = mine.filter(pl.col("topic") == "starvation").row(0, named=True)
    assert row["cost"] == 200_000_000
    assert row["cost_frac"] == 0.1
    assert "service" in row["text"]
    assert trace.threads.collect()["comm"][row["utid"]] == "service"
    assert not mine.filter(pl.col("about") == "threads")["text"].str.contains("bystander").any()


def test_a_selected_thread_that_did_not_wait_has_no_findings() -> None:
    text = BESIDE.format(ran=SECOND // 10 + 1000)
    trace = played(text, ncpu=2, window=(0, SECOND))
    assert "starvation" in ss.findings(trace)["topic"]
    assert "threads" not in affecting(trace, "service")["about"]
    assert "starvation" in affecting(trace, "bystander")["topic"]


def test_findings_about_the_machine_stay_and_come_last() -> None:
    trace = played(BESIDE.format(ran=3 * SECOND // 10), ncpu=2, window=(0, SECOND))
    with_steal(trace, SECOND, SECOND)
    of_machine = pl.col("about") == "machine"
    mine = affecting(trace, "service")
    # Half of the machine's time was stolen: the worst of all, but not the service's own.
    assert ss.findings(trace).filter(pl.col("topic") == "steal")["cost"].item() == SECOND
    assert mine["about"].to_list() == sorted(mine["about"], reverse=True)
    every = ss.findings(trace).filter(of_machine)
    same = pl.exclude("text")
    assert mine.filter(of_machine).select(same).equals(every.select(same))
    ends = zip(every["text"], mine.filter(of_machine)["text"], strict=True)
    assert all(own.startswith(text) for text, own in ends)


def test_idle_time_beside_a_selected_thread_is_its_own() -> None:
    """CPU 1 idles for 500 ms: for 400 of them the clerk waits, and for 100 the hog."""
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    for name, cost in (("clerk", 400_000_000), ("hog", 100_000_000)):
        row = affecting(trace, name).filter(pl.col("topic") == "avoidable idle time")
        assert row["cost"].item() == cost
        assert trace.threads.collect()["comm"][row["utid"].item()] == name
    assert "avoidable idle time" not in affecting(trace, "other")["topic"]


def test_selecting_all_threads_keeps_costs() -> None:
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    every = ss.findings(trace, where=pl.col("utid") >= 0)
    one, other = (
        {row["topic"]: row["cost"] for row in frame.iter_rows(named=True)}
        for frame in (every, ss.findings(trace))
    )
    assert one == other


def test_selection_by_a_missing_column_is_refused() -> None:
    trace = played(STARVED, ncpu=2, window=(0, SECOND))
    with pytest.raises(ss.UsageError, match="no column 'cause'"):
        ss.findings(trace, where=pl.col("cause") == "wake")


def test_selected_threads_that_waited_get_a_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(fixture: str, name: str) -> str:
        assert cli.main(["findings", str(FIXTURES / fixture), "--comm", name]) == 0
        return capsys.readouterr().out

    out = told("linux-ftrace-mixed.capture", "hog-nice10")
    assert "no finding is about the selected threads: they ran 477 ms and waited 1.11 s" in out
    assert "mixed.capture --comm hog-nice10\n" in out.partition("schedscope interference")[2]
    assert "The selected threads waited 1.11 s of that." in " ".join(out.split())
    out = told("linux-ftrace-placement.capture", "cat")
    assert "nothing costs the selected threads 1 %" in out
    assert "they ran 1.30 ms and waited 6.67 ms for CPUs" in out


def test_quota_is_the_first_finding_of_a_limited_group(tmp_path: Path) -> None:
    with tarfile.open(FIXTURES / "lab" / "amd64-6.12-quota.tar.xz") as archive:
        unpack(archive, tmp_path)
    trace = ss.open(tmp_path / "lab.capture")
    found = ss.findings(trace, where=ss.of_processes(trace, cgroup="/limited"))
    assert found["topic"][0] == "quota"
    # The whole group: as the kernel counted.
    counted = {group["cgroup"]: group["throttled"] for group in trace.info["groups"]}
    assert found["cost"][0] == counted["/limited"] > 1_000_000_000
    others = ss.findings(trace, where=ss.of_processes(trace, cgroup="/below"))
    assert "quota" not in others["topic"]
    one = found["utid"][0]
    part = ss.findings(trace, where=pl.col("utid") == one).row(0, named=True)
    assert (part["topic"], part["utid"]) == ("quota", one)
    assert 0 < part["cost"] < found["cost"][0]


def test_starvation_says_how_many_more_waits_may_have_lasted_that_long(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path)
    row = ss.starvation_summary(trace, by="all").row(0, named=True)
    assert row["n_high"] > row["n"]
    (text,) = ss.findings(trace).filter(topic="starvation")["text"]
    may = f" {row['n_high'] - row['n']} more waits may have lasted that long"
    assert f"{may}: at most {duration(row['total_high'])} in total." in text


def test_overload_has_both_bounds_of_all_waiting(tmp_path: Path) -> None:
    """As the summary has them: of 20.2 to 20.6 s, the larger part of the rest is unknown time."""
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path)
    whole = ss.latency(trace)["total", "total_high"].row(0)
    assert whole[0] < whole[1]
    row = ss.findings(trace).filter(topic="overload").row(0, named=True)
    assert (row["cost"], row["cost_high"]) == whole
    assert f"threads waited {interval(*whole)} in total." in row["text"]
    assert f"{interval(*whole)} in total, within" in " ".join(summary(Subject(trace)))


def test_summary_has_both_bounds_of_shares(tmp_path: Path) -> None:
    """Half of the waiting of a lossy recording is unknown: it may be of any thread, or of none."""
    trace = ss.open(FIXTURES / "linux-ftrace-lossy.capture", cache=tmp_path)
    (most,) = (text for text in summary(Subject(trace)) if "waited most" in text)
    low, high = map(float, re.findall(r"(\S+) to (\S+) % of all waiting time", most)[0])
    first = ss.latency(trace, by="comm").row(0, named=True)
    whole = ss.latency(trace).row(0, named=True)
    assert low == pytest.approx(100 * first["total"] / whole["total_high"], abs=0.06)
    assert low < 100 * first["total"] / whole["total"] < high <= 100
