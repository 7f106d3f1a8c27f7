"""`check` finds what is wrong with a trace, and nothing where nothing is.

Traces are hand-made worlds (worlds.py) through the native reconstruction; then
a table is broken on purpose and the right sum must be off.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import by_native
from hypothesis import given
from streams import ANY_STREAM
from worlds import World, world

from schedscope import Trace
from schedscope.analysis.check import conservation
from schedscope.analysis.check.check import check, verdict
from schedscope.analysis.recording.clock_doubt import clock_doubt
from schedscope.cli import main
from schedscope.parsers import schema

QUIET = """
     0 cpu0: idle -> A
     0 cpu1: idle -> B
    10 cpu0: A S -> C
    20 cpu1: waking A on 0 by B
    22 cpu1: enqueued A on 0 by B
    30 cpu0: C S -> A
    60 cpu0: A X -> idle
    80 cpu1: B R -> D
"""


def traced(played: World, **info: Any) -> Trace:
    """The world as a trace in memory, with what trace.json would say."""
    result = by_native(played)
    ncpu = played.ncpu
    utids = range(ncpu + len(played.names))
    threads = [{"utid": utid, "comm": played.name(utid), "comm_first": ""} for utid in utids]
    about = {
        "ncpu": ncpu,
        "window": played.window,
        "has_enqueued": True,
        "per_cpu": result["per_cpu"],
        "reconstruction": result["counters"],
    }
    tables = played.tables | {
        "threads": schema.conform("threads", pl.DataFrame(threads)),
        "states": result["states"],
        "waits": result["waits"],
        "losses": result["losses"],
    }
    return Trace.from_tables(tables, about | info)


def broken(trace: Trace, **tables: pl.DataFrame) -> Trace:
    """The trace with some tables replaced."""
    names = ("switches", "wakeups", "threads", "losses", "states", "waits")
    kept = {name: getattr(trace, name).collect() for name in names}
    return Trace.from_tables(kept | tables, trace.info)


def levels(trace: Trace) -> dict[str, str]:
    return dict(check(trace).select("check", "level").iter_rows())


def finding(trace: Trace, name: str) -> dict[str, Any]:
    return check(trace).row(by_predicate=pl.col("check") == name, named=True)


@pytest.fixture
def quiet() -> Trace:
    return traced(world(QUIET, window=(0, 100)))


# -- sums -------------------------------------------------------------------------------


def test_sums_of_a_consistent_trace_hold(quiet: Trace) -> None:
    sums = check(quiet).head(5)
    names = ["cpu time", "thread lives", "running time", "ledger", "wait parts"]
    assert sums["check"].to_list() == names
    assert set(sums["level"]) == {"ok"}
    assert sums["found"].to_list() == [0, 0, 0, 0, 0]


@given(ANY_STREAM)
def test_no_stream_violates_the_sums(played: World) -> None:
    """Whatever a source says: an incredible stream gives unknown time, not wrong sums.

    A utid that comes back from death is the one exception: its life has a gap.
    """
    violated = [name for name, level in levels(traced(played)).items() if level == "violated"]
    if violated:
        assert violated == ["thread lives", "origin"]
        deaths = played.tables["switches"].filter(prev_state="dead")
        assert deaths.height
        assert "after its exit" in finding(traced(played), "origin")["text"]


def test_an_interval_that_is_too_long_is_found(quiet: Trace) -> None:
    """A's first run said 15 instead of 10: it overlaps C's by 5 and A's own sleep."""
    states = quiet.states.collect().with_columns(
        dur=pl.when((pl.col("ts") == 0) & (pl.col("cpu") == 0)).then(15).otherwise("dur")
    )
    trace = broken(quiet, states=states)
    found = levels(trace)
    assert found["cpu time"] == found["thread lives"] == found["running time"] == "violated"
    assert found["ledger"] == "ok"
    assert finding(trace, "running time")["found"] == 5


def test_a_missing_interval_is_found(quiet: Trace) -> None:
    states = quiet.states.filter(~((pl.col("ts") == 10) & (pl.col("state") == "sleeping")))
    trace = broken(quiet, states=states.collect())
    assert finding(trace, "thread lives")["text"] == "1 gap or overlap in lives"
    assert levels(trace)["cpu time"] == "ok"


def test_a_life_cut_short_is_found(quiet: Trace) -> None:
    states = quiet.states.filter(~((pl.col("state") == "runnable") & (pl.col("end") == "window")))
    assert finding(broken(quiet, states=states.collect()), "thread lives")["text"] == (
        "1 life cut short"
    )


def test_an_interval_outside_the_window_is_found(quiet: Trace) -> None:
    late = quiet.states.collect().with_columns(
        dur=pl.when(end="window", state="running").then(pl.col("dur") + 50).otherwise("dur")
    )
    assert levels(broken(quiet, states=late))["cpu time"] == "violated"


def test_waits_that_overlap_do_not_add_up(quiet: Trace) -> None:
    """A, woken at 20, ran at 30; another row says that it waited from 25 on."""
    states = quiet.states.collect()
    twice = states.filter(state="runnable", ts=20).with_columns(ts=pl.lit(25), dur=pl.lit(5))
    assert len(twice) == 1
    trace = broken(quiet, states=pl.concat([states, twice.cast(dict(states.schema))]))
    assert finding(trace, "wait parts")["level"] == "violated"
    assert levels(trace)["cpu time"] == "ok"


@pytest.mark.parametrize(("part", "by"), [("behind_same", 1), ("unknown", -1), ("cpu_idle", 3)])
def test_a_part_of_a_wait_that_is_off_is_found(
    quiet: Trace, monkeypatch: pytest.MonkeyPatch, part: str, by: int
) -> None:
    """Of one wait only, to the ns."""
    before = conservation.every_wait

    def off(trace: Trace, states: pl.LazyFrame) -> pl.DataFrame:
        waits = before(trace, states).with_row_index()
        first = pl.when(pl.col("index") == 0).then(by).otherwise(0)
        return waits.with_columns(pl.col(part) + first)

    monkeypatch.setattr(conservation, "every_wait", off)
    row = finding(quiet, "wait parts")
    assert row["level"] == "violated"
    assert row["found"] >= abs(by)
    assert "differ from" in row["text"]


def test_parts_that_add_up_with_one_below_nothing_are_found(
    quiet: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = conservation.every_wait
    shifted = [pl.col("throttled") - 5, pl.col("behind_better") + 5]
    monkeypatch.setattr(
        conservation, "every_wait", lambda *given: before(*given).with_columns(shifted)
    )
    row = finding(quiet, "wait parts")
    waits = before(quiet, quiet.states)
    assert row["found"] == 5 * len(waits) > 0


def test_only_the_first_waits_of_a_long_trace_are_divided(
    quiet: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finding(quiet, "wait parts")
    assert "rows" not in whole["text"]
    monkeypatch.setattr(conservation, "_PARTED", len(quiet.states.collect()) - 3)
    part = finding(quiet, "wait parts")
    assert part["text"].endswith(" rows)")
    assert (part["level"], part["total"] < whole["total"]) == ("ok", True)


@pytest.mark.parametrize("change", ["lost", "doubled"])
def test_a_ledger_that_does_not_match_the_switches_is_found(quiet: Trace, change: str) -> None:
    waits = quiet.waits.collect()
    waits = waits[1:] if change == "lost" else pl.concat([waits, waits[:1]])
    trace = broken(quiet, waits=waits)
    assert levels(trace)["ledger"] == "violated"
    assert finding(trace, "ledger")["found"] == 1


def test_wait_row_of_another_thread_is_a_violation(quiet: Trace) -> None:
    """The number of rows agrees; the threads do not."""
    waits = quiet.waits.collect().with_columns(utid=pl.lit(3, pl.UInt32))
    assert levels(broken(quiet, waits=waits))["ledger"] == "violated"


def test_violation_names_its_origin(quiet: Trace) -> None:
    """The facts alone give sound sums, so the tables were changed after reconstruction."""
    trace = broken(quiet, waits=quiet.waits.collect()[1:])
    assert "do not follow from the events" in finding(trace, "origin")["text"]
    assert verdict(check(trace)).startswith("Do not trust this trace: sums do not add up. ledger: ")


# -- what is missing ---------------------------------------------------------------------


def test_complete_trace_is_trustworthy() -> None:
    """Not even a note: no thread waits at the end, and every thread's first event is a wakeup."""
    trace = traced(
        world(
            """
             0 cpu0: idle -> idle
             0 cpu0: new A on 0 by idle
             1 cpu0: idle -> A
             9 cpu0: A X -> idle
            """,
            ncpu=1,
            window=(0, 100),
        )
    )
    assert set(levels(trace).values()) == {"ok"}
    assert verdict(check(trace)) == (
        "Trustworthy as far as a trace can tell: all checks pass and no gaps were found. It rests "
        "on the assumption that no event was lost, as nothing in the trace counts lost events: a "
        "gap across which every CPU keeps its thread would not show."
    )


@pytest.mark.parametrize(
    ("recorder", "said"),
    [
        ("ftrace", "the kernel's counts of lost events"),
        ("bpftrace", "bpftrace's counts of lost events, which leave out those raised inside"),
        (
            "ftrace text",
            "the assumption that no event was lost, as nothing in the trace counts lost",
        ),
    ],
)
def test_verdict_names_what_it_rests_on(recorder: str, said: str, quiet: Trace) -> None:
    trace = Trace.from_tables(
        {name: getattr(quiet, name).collect() for name in ("states", "waits", "switches")},
        {**quiet.info, "recorder": {"name": recorder}},
    )
    assert finding(trace, "rests on")["text"].startswith(said)


def test_loss_counts_contradicted_by_switches_are_incomplete(quiet: Trace) -> None:
    """The kernel counted nothing lost, and a switch is missing."""
    tables = {name: getattr(quiet, name).collect() for name in ("states", "waits", "switches")}
    row = {"cpu": 0, "ts_begin": 1, "ts_end": 2, "count": None, "reason": "chain_break"}
    broken = tables | {"losses": schema.conform("losses", pl.DataFrame([row]))}
    info = {**quiet.info, "recorder": {"name": "ftrace"}}
    said = "(incomplete: 1 prev/next mismatch)"
    assert said in finding(Trace.from_tables(broken, info), "rests on")["text"]
    assert "incomplete" not in finding(Trace.from_tables(tables, info), "rests on")["text"]


@pytest.mark.parametrize(("system", "has"), [("Linux", False), ("Linux", True), ("FreeBSD", False)])
def test_verdict_explains_waits_without_wakings(system: str, has: bool, quiet: Trace) -> None:
    tables = {name: getattr(quiet, name).collect() for name in ("states", "waits", "switches")}
    trace = Trace.from_tables(tables, {**quiet.info, "os": system, "has_waking": has})
    said = "with no `waking` events, waits start when the thread is enqueued"
    assert (said in finding(trace, "rests on")["text"]) == (system == "Linux" and not has)


def test_clocks_are_compared_where_threads_are_woken_both_ways() -> None:
    """Twice from CPU 0 to 1, the quickest took 3 ns; twice back, in 5 ns and more."""

    def clocks(*wakeups: tuple[int, str, int, int]) -> str:
        lines = ["0 cpu0: idle -> idle", "0 cpu1: idle -> idle"]
        for begin, who, target, took in sorted(wakeups):
            lines += [
                f"{begin} cpu{1 - target}: waking {who} on {target} by idle",
                f"{begin + took} cpu{target}: idle -> {who}",
                f"{begin + took + 1} cpu{target}: {who} S -> idle",
            ]
        trace = traced(world("\n".join(lines), window=(0, 1280)))
        return str(finding(trace, "rests on")["text"])

    there = ((128, "A", 1, 3), (640, "A", 1, 3))
    once = (256, "B", 0, 5)
    assert "no CPU pair wakes threads both ways" in clocks(*there)
    assert "no CPU pair wakes threads both ways" in clocks(*there, once)
    # More than 20 ns would show in all four; after the first of those there only one follows.
    said = "clocks that differ by up to 20 ns, or by more for up to 1.15 µs, would not show"
    assert said in clocks(*there, once, (896, "B", 0, 20))


@pytest.mark.parametrize(
    ("quick", "furthest", "longest"),
    [
        # All in 5 ns: as many as there are show a difference of more than that.
        ([1] * 16, 5, 170),
        # Every fourth of them: more than 5 ns needs four times as long, more than 40 ns does not.
        ([1, 8, 8, 8] * 4, 40, 210),
        # Every second: twice as long is the price of a better limit.
        ([1, 8] * 8, 5, 330),
    ],
)
def test_lower_of_two_clock_limits_is_reported_unless_found_late(
    quick: list[int], furthest: int, longest: int
) -> None:
    """A wakeup each way in every 80 ns of 1,280, in 5 ns times `quick`."""
    lines = ["0 cpu0: idle -> idle", "0 cpu1: idle -> idle"]
    for n, times in enumerate(quick):
        for target, who in ((1, "A"), (0, "B")):
            at = 80 * n + 1
            lines += [
                f"{at} cpu{1 - target}: waking {who} on {target} by idle",
                f"{at + 5 * times} cpu{target}: idle -> {who}",
                f"{at + 5 * times + 1} cpu{target}: {who} S -> idle",
            ]
    lines.sort(key=lambda line: int(line.split()[0]))
    trace = traced(world("\n".join(lines), window=(0, 1280)))
    doubt = clock_doubt(trace)
    assert (doubt.furthest, doubt.longest, doubt.pairs) == (furthest, longest, 1)


def test_threads_that_ran_unseen_in_a_trace_without_holes_are_a_warning() -> None:
    """Woken again while it waits, A ran and slept, and no switch is missing anywhere."""
    lines = ["0 cpu0: idle -> C", "0 cpu1: idle -> idle", "1 cpu0: waking A on 1 by C"]
    lines += [f"{10 * n} cpu0: waking A on 1 by C" for n in range(1, 4)]
    trace = traced(world("\n".join(lines), window=(0, 100)), os="Linux")
    row = finding(trace, "unseen switch-ins")
    assert (row["found"], row["level"]) == (3, "warning")
    assert row["text"].endswith("or the CPUs' clocks differ")


def test_unknown_time_is_what_no_interval_covers() -> None:
    """CPU 0 is known from 10 on, CPU 1 from 40 on: 50 of 200 ns are not. Every recording has such
    a beginning, so it is no warning."""
    trace = traced(
        world(
            """
            10 cpu0: idle -> A
            40 cpu1: idle -> B
            """,
            window=(0, 100),
        )
    )
    row = finding(trace, "unknown time")
    assert (row["found"], row["total"], row["unit"], row["level"]) == (50, 200, "ns", "note")


def test_chain_breaks_are_counted_by_cpu() -> None:
    trace = traced(
        world(
            """
             0 cpu0: idle -> A
             0 cpu1: idle -> B
            10 cpu1: C S -> B
            20 cpu1: C S -> B
            """,
            window=(0, 100),
        )
    )
    row = finding(trace, "chain breaks")
    assert (row["found"], row["total"]) == (2, 4)
    assert row["text"].endswith("2 on CPU 1")


@pytest.mark.parametrize("seen", [0, 1])
def test_a_cpu_that_never_leaves_its_idle_thread_is_named(seen: int) -> None:
    """A kernel may leave switches from one CPU's idle thread out of all its trace events."""
    lines = [f"{10 * i} cpu1: B S -> idle" for i in range(2, 14)]
    lines += [f"{10 * i + 5} cpu0: idle -> A" for i in range(2, 14, 2)]
    lines += [f"{10 * i + 7} cpu0: A S -> idle" for i in range(2, 14, 2)]
    lines += ["145 cpu1: idle -> B"] * seen
    lines.sort(key=lambda line: int(line.split()[0]))
    trace = traced(world("\n".join(lines), window=(0, 200)), os="Linux")
    text = finding(trace, "chain breaks")["text"]
    assert ("on CPU 1 every switch from idle is missing" in text) == (seen == 0)
    assert "CPU 0" not in text


def test_losses_weigh_by_the_time_they_cover() -> None:
    """One CPU for 10 ns and both for 20 ns are 50 of 200 ns."""
    trace = traced(
        world(
            """
             0 cpu0: idle -> A
            10 loss cpu0 until 20 overrun
            50 loss until 70 truncated
            """,
            window=(0, 100),
        )
    )
    row = finding(trace, "losses")
    assert (row["found"], row["total"], row["level"]) == (50, 200, "warning")
    assert row["text"].startswith("1 overrun, 1 truncated, in 50 ns of CPU time")


def test_counts_of_lost_events_of_any_size_are_added() -> None:
    """A source may count with 64 bits, and two such counts do not fit into 64."""
    text = "0 cpu0: idle -> A\n10 loss cpu0 until 20 overrun\n30 loss cpu0 until 40 overrun"
    played = world(text, window=(0, 100))
    huge = played.tables["losses"].with_columns(count=pl.lit(2**63, pl.UInt64))
    row = finding(traced(replace(played, tables=played.tables | {"losses": huge})), "losses")
    assert row["text"].startswith("2 overruns (18,446,744,073,709,551,616 events), in ")


def test_unplaced_loss_is_a_warning() -> None:
    lost = [{"cpu": 0, "count": 3, "reason": "overrun"}]
    trace = traced(world(QUIET, window=(0, 100)), unplaced_losses=lost)
    row = finding(trace, "unplaced losses")
    assert (row["found"], row["level"]) == (3, "warning")


def test_missing_wakeups_are_counted_among_switch_ins_after_a_sleep() -> None:
    """A was woken once and came back once without a wakeup."""
    trace = traced(
        world(
            """
             0 cpu0: idle -> A
            10 cpu0: A S -> idle
            20 cpu0: waking A on 0
            30 cpu0: idle -> A
            40 cpu0: A S -> idle
            50 cpu0: idle -> A
            """,
            ncpu=1,
            window=(0, 100),
        )
    )
    row = finding(trace, "missing wakeups")
    assert (row["found"], row["total"], row["level"]) == (1, 2, "warning")


@pytest.mark.parametrize(
    ("born", "lost", "found"),
    [
        ("A", "", 1),
        # For a thread from before the recording it is unknown how long it had waited.
        ("", "", 0),
        # A was woken, too, when it was new.
        ("A", "6 cpu1: new A on 1 by B", 0),
        ("A", "loss cpu1 until 8", 0),
    ],
)
def test_created_thread_has_a_first_wakeup(born: str, lost: str, found: int) -> None:
    """A is made at 5 and runs at 10, and once more without a gap."""
    lines = ["0 cpu0: idle -> idle", "0 cpu1: idle -> B", f"6 {lost}" if "loss" in lost else lost]
    lines += ["10 cpu1: B R -> A", "20 cpu1: A R -> B", "30 cpu1: B R -> A"]
    played = world("\n".join(line for line in lines if line), window=(0, 100))
    trace = traced(played)
    threads = trace.threads.collect().with_columns(
        start_ts=pl.when(pl.col("comm") == born).then(pl.lit(5, pl.Int64))
    )
    trace = broken(trace, threads=threads)
    assert finding(trace, "missing wakeups")["found"] == found


def test_enqueue_after_its_switch_in_shows_disagreeing_clocks() -> None:
    """CPU 1 enqueued A, CPU 0 ran it, but CPU 1's clock is 4 ns ahead."""
    trace = traced(
        world(
            """
             0 cpu0: idle -> A
            10 cpu0: A S -> idle
            20 cpu1: waking A on 0 by idle
            21 cpu0: idle -> A
            25 cpu1: enqueued A on 0 by idle
            30 cpu0: A S -> idle
            40 cpu1: waking A on 0 by idle
            45 cpu1: enqueued A on 0 by idle
            46 cpu0: idle -> A
            """,
            window=(0, 100),
        )
    )
    row = finding(trace, "clock inversions")
    assert (row["found"], row["total"]) == (1, 2)
    assert "by up to 4 ns" in row["text"]
    assert finding(trace, "unmatched wakeups")["found"] == 1


def test_source_without_enqueues_is_not_checked_for_them() -> None:
    trace = traced(
        world("0 cpu0: idle -> A\n 5 cpu0: A S -> idle\n 7 cpu0: waking A\n 9 cpu0: idle -> A"),
        has_enqueued=False,
        window=(0, 9),
    )
    assert finding(trace, "unmatched wakeups")["found"] is None


def test_the_recorders_share_is_of_the_running_time(quiet: Trace) -> None:
    """C, the recorder, ran 20 of 160 ns of running time."""
    threads = quiet.threads.collect().with_columns(recorder=pl.col("comm") == "C")
    row = finding(broken(quiet, threads=threads), "recorder")
    assert (row["found"], row["total"], row["level"]) == (20, 160, "note")
    assert finding(quiet, "recorder")["found"] is None


def test_a_late_cpu_is_noted() -> None:
    trace = traced(world("0 cpu0: idle -> A\n 30 cpu1: idle -> B", ncpu=3, window=(0, 100)))
    row = finding(trace, "start skew")
    assert (row["found"], row["level"]) == (30, "note")
    assert row["text"] == "CPU 1 begins 30 ns after CPU 0; 1 CPU without a switch"


def test_warnings_of_the_recorder_are_passed_on() -> None:
    trace = traced(world(QUIET, window=(0, 100)), warnings=["72 % of wakeups are missing"])
    assert "72 % of wakeups are missing" in verdict(check(trace))


def test_an_empty_trace_is_answered(quiet: Trace) -> None:
    trace = Trace.from_tables({}, {"ncpu": 2, "window": None})
    assert "violated" not in levels(trace).values()
    assert verdict(check(trace)) == "Use with care. start skew: no CPU has a switch."


def test_absent_events_are_reported_as_absent(quiet: Trace) -> None:
    """A stretch without switches: none of nothing is no finding, and not a count of the trace's."""
    texts = dict(check(quiet.between("61ns", "79ns")).select("check", "text").iter_rows())
    assert texts["chain breaks"] == "there are no switches"
    assert texts["censored waits"] == "there are no waits"
    assert texts["missing wakeups"] == "counted only for the whole trace"


# -- the command ------------------------------------------------------------------------


def written(trace: Trace, folder: Path) -> Path:
    """The trace as a `.sched` folder."""
    folder.mkdir()
    for name in schema.TABLES:
        getattr(trace, name).collect().write_parquet(folder / f"{name}.parquet")
    about = trace.info | {"schema_version": schema.SCHEMA_VERSION}
    (folder / "trace.json").write_text(json.dumps(about))
    return folder


def test_exit_code_reports_the_verdict(
    quiet: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 if the sums hold, warnings or not; 1 for warnings with --strict; 1 if a sum is off."""
    warned = traced(world(QUIET, window=(0, 100)), warnings=["72 % of wakeups are missing"])
    poor = str(written(warned, tmp_path / "poor.sched"))
    assert main(["check", poor]) == 0
    assert "Use with care." in capsys.readouterr().out
    assert main(["check", "--strict", poor]) == 1
    off = broken(quiet, waits=quiet.waits.collect()[1:])
    assert main(["check", str(written(off, tmp_path / "off.sched"))]) == 1
    assert "violated" in capsys.readouterr().out


def test_json_carries_the_verdict_and_every_finding(
    quiet: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "--format", "json", str(written(quiet, tmp_path / "quiet.sched"))])
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == verdict(check(quiet))
    assert document["rows"] == json.loads(json.dumps(check(quiet).to_dicts()))


def test_waking_dropped_for_a_loss_is_not_missing() -> None:
    """A may have run on CPU 1 between the two steps: its wait has no `waking`, the trace has it."""
    facts = QUIET.replace("22 cpu1: enqueued", "21 loss cpu1 until 22 overrun\n22 cpu1: enqueued")
    trace = traced(world(facts), has_waking=True)
    untold = pl.col("ts_ready").is_null()
    assert trace.waits.filter(untold, cause="wake").collect()["ts_enqueued"].to_list() == [22]
    text = "none of 2 wakeups without a `waking`"
    assert found(trace, "missing wakings") == text
    # One that another wakeup's came before is missing all the same.
    facts += "90 cpu1: D S -> E\n 91 cpu1: enqueued D on 1 by E\n 95 cpu1: E S -> D"
    trace = traced(world(facts), has_waking=True)
    assert found(trace, "missing wakings").startswith("1 of 3 wakeups without a `waking`")


def test_enqueue_long_after_its_waking_misses_none() -> None:
    """An emulated CPU put the thread on its queue 27 ms after it was asked to."""
    late = """
         0 cpu0: idle -> A
         0 cpu1: idle -> B
        10 cpu0: A S -> C
        20 cpu1: waking A on 0 by B
        27000020 cpu0: enqueued A on 0 by C
        27000030 cpu0: C S -> A
    """
    trace = traced(world(late, window=(0, 27_000_100)), has_waking=True)
    assert trace.waits.filter(cause="wake").collect()["ts_ready"].to_list() == [20, None]
    assert found(trace, "missing wakings") == "none of 2 wakeups without a `waking`"


def found(trace: Trace, name: str) -> str:
    """What a check says."""
    return str(check(trace).filter(check=name).item(0, "text"))
