"""Migrations: worlds in round numbers, a naive count, the kernel's reports, and perf."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from ledgers import played
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from streams import faulty, plausible, wild
from tools import tool

import schedscope as ss
from schedscope import _native, cli
from schedscope.analysis.cpus.topology import cpu_list, cpu_text, distances, groups, places
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
LINUX = [
    *("linux-ftrace-mixed.capture", "linux-ftrace-placement.capture", "linux-dtrace.capture"),
    *("linux-trace-cmd-yield.dat", "linux-trace-cmd-overrun.dat"),
]
LOSSY = [
    "linux-ftrace-lossy.capture",
    "linux-bpftrace.capture",
    "perf-lost.data",
    "perf-sched.data",
]
FREEBSD = ["freebsd-ule-synthetic.capture", "freebsd-4bsd-synthetic.capture"]

# a is woken onto CPU 1, computes there, is preempted and pulled back to CPU 0.
# b never moves. c is made by a on CPU 0 and placed on CPU 1.
WORLD = """
    0   cpu0: idle -> a
    5   cpu1: idle -> b
    10  cpu0: new c on 1 by a
    20  cpu0: a S -> idle
    30  cpu1: b S -> c
    40  cpu1: waking a on 0 by c
    41  cpu1: migrate a 0 -> 1
    42  cpu1: enqueued a on 1 by c
    70  cpu1: c R -> a
    90  cpu1: a R -> c
    95  cpu0: migrate a 1 -> 0
    99  cpu0: idle -> a
"""
CPUS = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2, 2, 0, 0, 0), (3, 3, 3, 0, 0), (4, 4, 4, 1, 1)]


def with_tables(trace: ss.Trace, **tables: pl.DataFrame) -> ss.Trace:
    names = ("states", "waits", "migrations", "switches", "threads")
    return ss.Trace.from_tables({n: getattr(trace, n) for n in names} | tables, trace.info)


def masked(trace: ss.Trace, **masks: str) -> ss.Trace:
    """The same with the CPU masks of some threads known."""
    known = pl.col("comm").replace_strict(masks, default=None, return_dtype=pl.String)
    threads = trace.threads.collect().with_columns(affinity=known)
    return with_tables(trace, threads=threads)


def rows(trace: ss.Trace, *columns: str) -> list[tuple[Any, ...]]:
    return ss.migrations(trace).select(columns).rows()


@pytest.fixture
def trace() -> ss.Trace:
    return played(WORLD, window=(0, 100), source={"name": "round"})


# -- where CPUs are -------------------------------------------------------------------


def machine(**without: None) -> ss.Trace:
    cpus = pl.DataFrame(CPUS, ["cpu", "core", "llc", "package", "numa_node"], orient="row")
    cpus = cpus.with_columns(pl.lit(None, pl.UInt16).alias(name) for name in without)
    return ss.Trace.from_tables({"cpus": cpus}, {"ncpu": 5, "window": [0, 1]})


def test_distance_is_the_smallest_thing_shared() -> None:
    frame = distances(machine())
    from_0 = frame.filter(from_cpu=0).select("to_cpu", "distance").rows()
    assert from_0 == [(1, "smt"), (2, "llc"), (3, "package"), (4, "numa")]
    assert frame.height == 20


def test_distance_is_null_where_unknown() -> None:
    """Without cores, two CPUs of a cache may be one; without caches the distance is unknown."""
    no_core = distances(machine(core=None)).filter(from_cpu=0)["distance"].to_list()
    assert no_core == [None, None, "package", "numa"]
    no_llc = distances(machine(llc=None)).filter(from_cpu=0)["distance"].to_list()
    assert no_llc == ["smt", None, None, "numa"]
    nothing = machine(core=None, llc=None, package=None, numa_node=None)
    assert distances(nothing)["distance"].null_count() == 20


def test_two_nodes_of_a_package_are_far() -> None:
    cpus = pl.DataFrame({"cpu": [0, 1], "core": [0, 1], "llc": [0, 1], "package": [0, 0]})
    cpus = cpus.with_columns(numa_node=pl.Series([0, 1]))
    frame = distances(ss.Trace.from_tables({"cpus": cpus}, {"ncpu": 2}))
    assert frame["distance"].to_list() == ["numa", "numa"]


def test_groups() -> None:
    assert groups(machine(), "llc") == {0: [0, 1, 2], 3: [3], 4: [4]}
    assert groups(machine(llc=None), "llc") == {}
    with pytest.raises(ss.UsageError, match="over='socket'"):
        places(machine(), "socket")


@given(st.sets(st.integers(0, 300)))
def test_lists_of_cpus(cpus: set[int]) -> None:
    assert cpu_list(cpu_text(cpus)) == sorted(cpus)


@pytest.mark.parametrize("text", ["a", "1-", "-1", "0-x", "0;1"])
def test_invalid_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ss.FormatError, match="not a list of CPUs"):
        cpu_list(text)


# -- causes ---------------------------------------------------------------------------


def test_every_migration_has_its_cause_and_times(trace: ss.Trace) -> None:
    """a slept from 20 on, and ran at 70; it waited 30, of it 28 on CPU 1's queue."""
    columns = ("ts", "comm", "from_cpu", "to_cpu", "cause", "since", "wait", "queued")
    assert rows(trace, *columns) == [
        (30, "c", 0, 1, "fork", None, 20, 20),
        (70, "a", 0, 1, "wake", 50, 30, 28),
        (99, "a", 1, 0, "balance", 9, 9, 4),
    ]


def test_waited_anyway_is_time_on_the_new_queue(trace: ss.Trace) -> None:
    assert ss.migrations(trace, waited=19)["waited"].to_list() == [True, True, False]
    assert ss.migrations(trace, waited="20ns")["waited"].to_list() == [False, True, False]
    with pytest.raises(ss.UsageError, match="waited=-1"):
        ss.migrations(trace, waited=-1)


def test_a_wakeup_that_is_pulled_on_is_a_balance() -> None:
    """Woken onto CPU 0 where it ran before, and taken away from there while it waited."""
    world = """
        0  cpu0: a S -> b
        10 cpu0: waking a on 0 by b
        11 cpu0: enqueued a on 0 by b
        30 cpu1: migrate a 0 -> 1
        32 cpu1: idle -> a
    """
    trace = played(world, window=(0, 50))
    assert rows(trace, "cause", "since", "queued") == [("balance", 32, 2)]


def test_unreported_migration_is_inferred_from_the_queue() -> None:
    """The source has no sched_migrate_task: the queue it was put on says the same."""
    world = """
        0  cpu0: a S -> b
        10 cpu0: waking a on 0 by b
        11 cpu0: enqueued a on {queue} by b
        32 cpu1: idle -> a
    """
    placed = played(world.format(queue=1), window=(0, 50))
    assert rows(placed, "cause", "queued") == [("wake", 21)]
    pulled = played(world.format(queue=0), window=(0, 50))
    assert rows(pulled, "cause", "queued") == [("balance", None)]


def test_cause_follows_the_wakers_cpu_with_wakings_only() -> None:
    """perf sched records no enqueue. The waker moves at once; a balancer after a switch."""
    world = """
        0  cpu0: a S -> b
        10 cpu{waker}: waking a on 0 by {who}
        {switch}
        12 cpu{waker}: migrate a 0 -> 1
        32 cpu1: {who} S -> a
    """
    said = {"waker": 1, "who": "c"}
    at_once = played("0 cpu1: idle -> c\n" + world.format(switch="", **said), window=(0, 50))
    assert rows(at_once, "cause", "queued") == [("wake", 20)]
    switch = "11 cpu1: c S -> idle"
    later = world.format(switch=switch, **said).replace("c S -> a", "idle -> a")
    pulled = played("0 cpu1: idle -> c\n" + later, window=(0, 50))
    assert rows(pulled, "cause") == [("balance",)]


def test_cause_is_unknown_without_a_queue() -> None:
    world = "0 cpu0: a S -> b\n10 cpu0: waking a\n30 cpu1: idle -> a"
    assert rows(played(world, window=(0, 40)), "cause", "since") == [("unknown", 30)]


def test_cause_on_a_shared_queue_follows_the_free_cpu() -> None:
    """4BSD: no queue is named; a free CPU takes the thread, after the wakeup."""
    world = "0 cpu0: a S -> b\n10 cpu0: waking a by b\n10 cpu0: enqueued a by b\n30 cpu1: idle -> a"
    assert rows(played(world, window=(0, 40)), "cause") == [("balance",)]


def test_a_mask_that_forbids_the_cpu_it_left_is_the_cause(trace: ss.Trace) -> None:
    """Of two moves of a the one away from CPU 0 was forced; a new thread was still placed."""
    forced = masked(trace, a="1", c="1")
    assert rows(forced, "cause") == [("fork",), ("affinity",), ("balance",)]
    assert rows(masked(trace, a="0-1"), "cause") == rows(trace, "cause")


def test_an_exec_is_a_move_by_the_stopper_and_a_new_name() -> None:
    world = """
        0  cpu0: idle -> sh
        20 cpu0: sh R -> stopper
        22 cpu0: migrate sh 0 -> 1
        24 cpu1: idle -> sh
        90 cpu1: sh S -> idle
    """
    trace = played(world, window=(0, 100))
    assert rows(trace, "cause") == [("balance",)]
    sh = trace.threads.filter(comm="sh").select("utid").collect().item()

    def renamed(ts: int) -> ss.Trace:
        table = pl.DataFrame([(ts, sh, "ls")], TABLES["renames"].schema, orient="row")
        return with_tables(trace, renames=table)

    assert rows(renamed(60), "cause") == [("exec",)]
    assert rows(renamed(10), "cause") == [("balance",)]  # before the move
    assert rows(renamed(95), "cause") == [("balance",)]  # not in that run


def test_cause_is_unknown_across_unknown_time() -> None:
    """It was on CPU 0 and then on CPU 1: it migrated, but when, why and how often is unknown."""
    world = """
        0  cpu0: a S -> b
        10 loss cpu0 until 20
        30 cpu1: idle -> a
        40 cpu1: a S -> idle
        60 cpu1: idle -> a
    """
    trace = played(world, window=(0, 80))
    assert rows(trace, "from_cpu", "to_cpu", "cause", "since") == [(0, 1, "unknown", None)]
    # At 60 its wakeup was not seen: it may have been elsewhere meanwhile.
    row = ss.migration_summary(trace, "comm", where=pl.col("comm") == "a").row(0, named=True)
    assert (row["n"], row["runs"], row["n_excluded"]) == (1, 2, 1)


def test_two_moves_count_once_and_a_return_not_at_all() -> None:
    world = """
        0  cpu0: a S -> b
        10 cpu0: waking a on 0 by b
        11 cpu0: enqueued a on 0 by b
        20 cpu1: migrate a 0 -> 1
        25 cpu0: migrate a 1 -> 0
        30 cpu0: b S -> a
        40 cpu0: a R -> b
        50 cpu1: migrate a 0 -> 1
        55 cpu1: migrate a 1 -> 2
        60 cpu2: idle -> a
        70 cpu2: a R -> d
        80 cpu2: migrate a 2 -> 0
    """
    trace = played(world, ncpu=3, window=(0, 100))
    assert rows(trace, "ts", "from_cpu", "to_cpu") == [(60, 0, 2)]
    said = ss.migration_agreement(trace).row(0, named=True)
    assert said == {
        **dict.fromkeys(said, 0),
        **{"n": 1, "n_reported": 1, "n_events": 5},
        **{"n_repeated": 1, "n_returned": 2, "n_open": 1},
    }
    total = ss.migration_summary(trace, [], where=pl.col("comm") == "a").row(0, named=True)
    assert (total["n"], total["runs"], total["n_censored"]) == (1, 2, 1)


# -- sums -----------------------------------------------------------------------------


def test_the_summary(trace: ss.Trace) -> None:
    """a ran 3 times: at 0 (previous CPU unknown), 70 and 99."""
    frame = ss.migration_summary(trace, waited=20)
    columns = ("comm", "n", "runs", "moved_frac", "n_waited", "queued", "n_excluded")
    assert frame.select(columns).rows() == [
        ("a", 2, 3, 2 / 3, 1, 28, 1),
        ("c", 1, 2, 1 / 2, 0, 0, 0),
        ("b", 0, 1, 0.0, 0, 0, 1),
    ]
    assert frame["rate_hz"].to_list() == [2e7, 1e7, 0.0]  # in 100 ns
    causes = ss.migration_summary(trace, ["cause"])
    assert dict(causes.select("cause", "n").iter_rows()) == {"wake": 1, "balance": 1, "fork": 1}
    assert causes["runs"].to_list() == [6, 6, 6]


def test_buckets_are_where_it_ran_and_the_last_is_short(trace: ss.Trace) -> None:
    frame = ss.migration_summary(trace, [], every=40)
    assert frame.select("ts", "n", "runs", "rate_hz").rows() == [
        (0, 1, 3, 2.5e7),
        (40, 1, 1, 2.5e7),
        (80, 1, 2, 5e7),
    ]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"by": "colour"}, "by='colour'"),
        ({"by": ["comm", "comm"]}, "twice"),
        ({"every": 0}, "every=0"),
        ({"where": pl.col("colour") == "red"}, "colour"),
    ],
)
def test_invalid_arguments_are_refused(
    trace: ss.Trace, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ss.UsageError, match=match):
        ss.migration_summary(trace, **options)


def test_ping_pong_is_there_and_back_within_the_time() -> None:
    """a goes 0 1 0 1 at 10, 30 and 80: back after 20, and again after 50."""
    world = """
        0  cpu0: a S -> idle
        5  cpu0: enqueued a on 1
        10 cpu1: idle -> a
        12 cpu1: a S -> idle
        25 cpu0: enqueued a on 0
        30 cpu0: idle -> a
        40 cpu0: a S -> idle
        75 cpu0: enqueued a on 1
        80 cpu1: idle -> a
    """
    trace = played(world, window=(0, 100))
    assert len(rows(trace, "ts")) == 3
    columns = ("comm", "cpu_a", "cpu_b", "n", "n_migrations", "away_p50", "away_min", "wait")
    wide = ss.ping_pong(trace, 50).select(columns).rows()
    assert wide == [("a", 0, 1, 2, 3, 20, 20, 10)]
    assert ss.ping_pong(trace, 20)["n"].to_list() == [1]
    assert ss.ping_pong(trace, 19).height == 0
    with pytest.raises(ss.UsageError, match="within=-1"):
        ss.ping_pong(trace, -1)


def test_round_trip_over_three_cpus_is_not_ping_pong() -> None:
    world = """
        0  cpu0: a S -> idle
        5  cpu0: enqueued a on 1
        10 cpu1: idle -> a
        12 cpu1: a S -> idle
        15 cpu0: enqueued a on 2
        20 cpu2: idle -> a
        22 cpu2: a S -> idle
        25 cpu0: enqueued a on 0
        30 cpu0: idle -> a
    """
    trace = played(world, ncpu=3, window=(0, 100))
    assert len(rows(trace, "ts")) == 3
    assert ss.ping_pong(trace).height == 0


def check_sums(trace: ss.Trace) -> None:
    """What holds for every trace."""
    frame = ss.migrations(trace)
    n = frame.height
    assert (frame["from_cpu"] != frame["to_cpu"]).all()
    assert frame["since"].drop_nulls().ge(0).all()
    assert frame["queued"].drop_nulls().ge(0).all()
    matrix = ss.migration_matrix(trace)
    causes = ("wake", "balance", "fork", "exec", "affinity", "unknown")
    assert matrix["n"].sum() == n == sum(matrix[c].sum() for c in causes)
    runs = trace.waits.filter(pl.col("ts_run").is_not_null()).select(pl.len()).collect().item()
    for by in ("utid", "comm", ["comm", "pid"]):
        summary = ss.migration_summary(trace, by)
        assert (summary["n"].sum(), summary["runs"].sum()) == (n, runs)
    for keys in ("cause", "distance", ["from_cpu", "to_cpu"], ["utid", "cause"]):
        assert ss.migration_summary(trace, keys)["n"].sum() == n
    assert ss.migration_summary(trace, "utid", every="1ms")["runs"].sum() == runs
    row = ss.migration_agreement(trace).row(0, named=True)
    assert row["n"] == n == row["n_reported"] + row["n_fork"] + row["n_silent"]
    parts = ("n_reported", "n_repeated", "n_returned", "n_open", "n_early", "n_idle")
    assert row["n_events"] == sum(row[part] for part in parts)
    assert row["n_events"] == trace.migrations.select(pl.len()).collect().item()
    if trace.ncpu == 1:
        assert n == 0


@given(st.one_of(plausible(), faulty(), wild()))
def test_sums_hold_for_every_stream(facts: Any) -> None:
    """Contradictions and losses included; on one CPU there are no migrations."""
    result = _native.reconstruct(facts.tables, facts.ncpu, facts.window)
    tables = facts.tables | {n: pl.DataFrame(result[n]) for n in ("states", "waits", "losses")}
    names = [facts.name(utid) for utid in range(facts.ncpu + len(facts.names))]
    threads = pl.DataFrame({"utid": range(len(names)), "comm": names, "comm_first": names})
    tables["threads"] = threads.with_columns(
        pl.lit(None, TABLES["threads"].schema[c]).alias(c)
        for c in TABLES["threads"].schema
        if c not in threads.columns
    ).select(pl.col(c).cast(d) for c, d in TABLES["threads"].schema.items())
    window = facts.window or (0, 10**6)
    check_sums(ss.Trace.from_tables(tables, {"ncpu": facts.ncpu, "window": list(window)}))


def test_many_migrations_are_summed_up_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all at once; parts cut threads' migrations anywhere, and nothing is kept."""
    recording = FIXTURES / "linux-ftrace-placement.capture"

    def asked() -> list[pl.DataFrame]:
        trace = ss.open(recording, cache=tmp_path)
        return [
            ss.migration_summary(trace, None),
            ss.migration_summary(trace, ("comm", "cause", "distance")),
            ss.migration_summary(trace, "utid", every="100ms"),
            ss.migration_matrix(trace),
            ss.ping_pong(trace, "1s"),
            ss.migrations(trace),
            ss.findings(trace),
        ]

    whole = asked()
    assert whole[0]["n"].item() > 50
    for name, number in (("_MOVES", 7), ("_KEPT", 20)):
        monkeypatch.setattr(f"schedscope.analysis.migration.migrations.{name}", number)
    monkeypatch.setattr("schedscope.analysis.asking.batches.BATCH", 500)
    monkeypatch.setattr("schedscope.analysis.sums.folded._ROWS", 9)
    for held, parts in zip(whole, asked(), strict=True):
        assert_frame_equal(held, parts)


@pytest.mark.parametrize("name", [*LINUX, *LOSSY, *FREEBSD, "perfetto-compact.pftrace"])
def test_sums_hold_on_recordings(name: str, tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    check_sums(trace)
    begin, end = trace.window
    middle = (begin + end) // 2
    at = f"{middle - begin}ns"
    parts = [trace.between(until=at), trace.between(since=at)]
    for part in parts:
        check_sums(part)
    last = ss.migrations(trace).filter(pl.col("ts") == end).height  # begins with the end
    whole = ss.migrations(trace).height
    assert sum(ss.migrations(part).height for part in parts) in (whole, whole - last)


@pytest.mark.parametrize("policy", ["eevdf-6.12", "ule-14", "4bsd", "bfs", "scx-simple"])
def test_sums_hold_in_simulations(policy: str) -> None:
    """In a simulation every move has its report, or is a wakeup's placement; one CPU has none."""
    b = ss.workload.Builder()
    parent = b.thread("parent")
    children = [b.thread(f"child-{i}", start=None) for i in range(5)]
    for child in children:
        parent.run("100us").fork(child)
        child.run("7ms").sleep("3ms").run("5ms").sleep("1ms").run("4ms")
    for cpus in (1, 4):
        trace = ss.simulate(b.workload(), policy=policy, cpus=cpus)
        check_sums(trace)
        moved = ss.migrations(trace)
        assert (moved.height > 0) == (cpus > 1)
        assert "unknown" not in moved["cause"].cast(pl.String)
        if cpus > 1:
            assert moved["distance"].null_count() == 0


def seen_moves(trace: ss.Trace) -> Counter[tuple[int, int, int]]:
    """From the switches alone: (thread, from, to) between one run on a CPU and the next."""
    last: dict[int, int] = {}
    moves: Counter[tuple[int, int, int]] = Counter()
    for row in trace.switches.collect().iter_rows(named=True):
        cpu = row["cpu"]
        for utid, came in ((row["prev_utid"], False), (row["next_utid"], True)):
            if utid < trace.ncpu:
                continue
            if utid in last and last[utid] != cpu:
                moves[utid, last[utid], cpu] += 1
            if utid in last or came:  # before its first known run, nothing is compared
                last[utid] = cpu
    return moves


@pytest.mark.parametrize("name", [*LINUX, *LOSSY, *FREEBSD])
def test_equal_to_a_naive_count_of_switches(name: str, tmp_path: Path) -> None:
    """Also the moves that only a switch-out shows, which `n_unseen` counts."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    theirs = seen_moves(trace)
    new = trace.waits.filter(pl.col("cause") == "new").select("utid", "ts_run").collect()
    moved = ss.migrations(trace).join(
        new, left_on=["utid", "ts"], right_on=["utid", "ts_run"], how="anti"
    )
    ours = Counter(moved.select("utid", "from_cpu", "to_cpu").rows())
    unseen = ss.migration_agreement(trace)["n_unseen"].item()
    assert ours - theirs == Counter()
    assert (theirs - ours).total() == unseen
    assert theirs.total() > 0


def told_moves(trace: ss.Trace) -> set[tuple[int, int, int, int]]:
    """(thread, when, from, to) by the kernel's words alone: the last CPU that it reported to have
    assigned a thread to before the thread got one, or the one on which it made the thread."""
    facts = [
        *((ts, "move", utid, cpu) for ts, utid, cpu in rows_of(trace.migrations, "utid", "to_cpu")),
        *(
            (ts, "made", utid, cpu)
            for ts, kind, utid, cpu in rows_of(trace.wakeups, "kind", "utid", "cpu")
            if kind == "new"
        ),
        *((ts, "off", utid, cpu) for ts, utid, cpu in rows_of(trace.switches, "prev_utid", "cpu")),
        *((ts, "on", utid, cpu) for ts, utid, cpu in rows_of(trace.switches, "next_utid", "cpu")),
    ]
    order = ["move", "made", "off", "on"]
    assigned: dict[int, int] = {}
    last: dict[int, int] = {}
    moves = set()
    for ts, what, utid, cpu in sorted(facts, key=lambda fact: (fact[0], order.index(fact[1]))):
        if what == "move":
            assigned[utid] = cpu
        elif what == "made" or (what == "off" and utid in last):
            last[utid] = cpu
        elif what == "on" and utid >= trace.ncpu:
            # A new thread's first queue is in no report, only the run there.
            if (to := assigned.pop(utid, cpu)) != last.get(utid, to):
                moves.add((utid, ts, last[utid], to))
            last[utid] = cpu
    return moves


def rows_of(table: pl.LazyFrame, *columns: str) -> list[tuple[Any, ...]]:
    return table.select("ts", *columns).collect().rows()


@pytest.mark.parametrize("name", LINUX)
def test_migrations_are_the_kernels_reports_and_the_placements_at_fork(
    name: str, tmp_path: Path
) -> None:
    """Each has its report, each report that is no migration is accounted for; and who reads
    nothing but the reports, and on which CPU threads were made, finds the same ones."""
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    row = ss.migration_agreement(trace).row(0, named=True)
    assert row["n_silent"] == row["n_elsewhere"] == 0
    assert row["n"] == row["n_reported"] + row["n_fork"] > 0
    moved = ss.migrations(trace).select("utid", "ts", "from_cpu", "to_cpu").rows()
    # Where a new thread waited across a hole, its first run is no first run for certain.
    first = trace.waits.filter(pl.col("prev_cpu").is_null() & (pl.col("censored") == "left"))
    unsure = set(first.select("utid", "ts_run").collect().rows())
    told = {move for move in told_moves(trace) if move[:2] not in unsure}
    assert set(moved) == told
    assert len(told) > 0.9 * len(told_moves(trace))
    assert len(moved) == row["n"]


@pytest.mark.parametrize("name", LOSSY)
def test_unreported_migrations_have_unknown_cause(name: str, tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / name, cache=tmp_path)
    row = ss.migration_agreement(trace).row(0, named=True)
    unknown = ss.migrations(trace).filter(pl.col("cause") == "unknown").height
    assert row["n_silent"] <= unknown
    assert row["n_elsewhere"] == 0


def test_migrations_with_missing_runs_are_not_counted_as_undone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of the three have a report before the next run seen; that one is where it says."""
    path = FIXTURES / "linux-ftrace-placement.capture"
    row = ss.migration_agreement(ss.open(path, cache=tmp_path)).row(0, named=True)
    assert (row["n_unseen"], row["n_early"], row["n_returned"]) == (3, 2, 0)
    assert cli.main(["migrations", str(path), "--cache", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "3 migrations of which only the end of the run was recorded" in out
    assert "undone" not in out


def test_long_list_is_cut_in_text_output_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(FIXTURES / "linux-ftrace-placement.capture"), "--cache", str(tmp_path)]
    assert cli.main(["migrations", *words, "--each", "--format", "csv"]) == 0
    rows = len(capsys.readouterr().out.splitlines()) - 1
    assert cli.main(["migrations", *words, "--each"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"({rows - 20:,} more rows; use a larger --top)"


def test_the_recording_of_moving_threads(tmp_path: Path) -> None:
    """`mover` changes its mask; `stay-N` and `reserved` may not move, and do not."""
    trace = ss.open(FIXTURES / "linux-ftrace-placement.capture", cache=tmp_path)
    summary = ss.migration_summary(trace)
    counts = dict(summary.select("comm", "n").iter_rows())
    assert counts["mover"] > 30
    assert counts["stay-1"] == counts["stay-2"] == counts["reserved"] == 0
    causes = set(ss.migrations(trace)["cause"])
    assert {"wake", "balance", "fork", "exec", "affinity"} <= causes
    assert ss.ping_pong(trace, "30ms")["comm"][0] == "mover"
    assert set(ss.migrations(trace)["distance"]) == {"llc"}


# -- perf -----------------------------------------------------------------------------

ROW = re.compile(
    r"\s*(?P<s>\d+)\.(?P<us>\d{6}) \[(?P<cpu>\d+)\]\s+(?P<task>.+?)\s+[\d.]+\s+[\d.]+\s+"
    r"[\d.]+\s+\S\s*$"
)
MOVED = re.compile(r".*migrated: .*?(\d+)(?:/\d+)?\]? cpu (\d+) => (\d+)")


def test_equal_to_what_the_rows_of_timehist_show(tmp_path: Path) -> None:
    """A thread that leaves another CPU than the row before moved; one not yet off has no row."""
    trace = ss.open(FIXTURES / "perf-sched.data", cache=tmp_path)
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    off = trace.switches.select(utid="prev_utid", left="ts").collect()
    off = off.group_by("utid").agg(pl.col("left").max())
    came = trace.waits.group_by("utid").agg(pl.col("ts_run").min()).collect()
    first = {tids[utid]: ts for utid, ts in came.iter_rows() if ts is not None}
    theirs: Counter[tuple[int, int, int]] = Counter()
    last: dict[int, int] = {}
    for line in (FIXTURES / "perf-sched.timehist.txt").read_text().splitlines():
        if (match := ROW.match(line)) and (
            name := re.search(r"\[(\d+)(?:/\d+)?\]$", match["task"])
        ):
            tid, cpu = int(name[1]), int(match["cpu"])
            at = int(match["s"]) * 10**9 + int(match["us"]) * 1000
            if at < first.get(tid, at + 1) // 1000 * 1000:
                continue  # left a CPU before it was seen to get one
            if tid in last and last[tid] != cpu:
                theirs[tid, last[tid], cpu] += 1
            last[tid] = cpu
    moved = ss.migrations(trace).filter(pl.col("cause") != "fork").join(off, on="utid")
    ended = moved.filter(pl.col("left") > pl.col("ts"))
    ours = Counter((tids[u], a, b) for u, a, b in ended.select("utid", "from_cpu", "to_cpu").rows())
    assert ours == theirs
    assert ours.total() > 0


@pytest.mark.needs("perf")
@pytest.mark.parametrize("name", ["sched", "lost", "zstd"])
def test_equal_to_perf_timehist_m(name: str, tmp_path: Path) -> None:
    """Every move that `perf sched timehist -M` prints is in our account, and no other."""
    perf = tool("perf")
    assert perf is not None
    data = tmp_path / f"perf-{name}.data"
    shutil.copy(FIXTURES / data.name, data)
    done = subprocess.run(
        [*perf, "sched", "timehist", "-M", "-i", str(data)], capture_output=True, text=True
    )
    theirs = Counter(
        tuple(map(int, m.groups())) for line in done.stdout.splitlines() if (m := MOVED.match(line))
    )
    if not theirs:
        pytest.skip(f"this perf reads no moves from it: {done.stderr.strip()[-200:]}")
    trace = ss.open(data, cache=tmp_path)
    tids = dict(trace.threads.select("utid", "tid").collect().iter_rows())
    said = trace.migrations.select("utid", "from_cpu", "to_cpu").collect().rows()
    assert Counter((tids[u], a, b) for u, a, b in said) == theirs
    assert ss.migration_agreement(trace)["n_events"].item() == theirs.total()


# -- the command and the figures ------------------------------------------------------


@pytest.fixture
def sched(trace: ss.Trace, tmp_path: Path) -> str:
    return str(trace.to_sched(tmp_path / "round.sched").path)


def test_command_prints_its_table(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["migrations", sched, "--waited", "20ns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == [
        "3 migrations in 6 runs (50.0 %); by 1 wake, 1 balance, 1 fork; distance unknown: no"
        " topology; 1 then waited over 20ns anyway; 2 runs excluded: previous CPU unknown",
        "the kernel reported 2 moves: 2 are these migrations; it did not report 1 placed at fork",
        "",
    ]
    assert [" ".join(line.split()) for line in lines[5:]] == [
        "comm migrations per second runs migrated waited anyway queued excluded",
        "a 2 20,000,000 3 66.7 % 1 28 ns 1",
        "c 1 10,000,000 2 50.0 % 0 0 ns 0",
        "(1 more ran but never migrated)",
    ]


def test_command_writes_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["migrations", sched, "--each", "--comm", "a", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["ts"], row["cause"]) for row in document["rows"]] == [
        (70, "wake"),
        (99, "balance"),
    ]
    assert document["all"]["n"] == 2
    assert document["kernel_reports"]["n_reported"] == 2
    assert cli.main(["migrations", sched, "--matrix", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "from_cpu,to_cpu,distance,n,wake,balance,fork,exec,affinity,unknown,n_waited,queued",
        "0,1,,2,1,0,1,0,0,0,0,0",
        "1,0,,1,0,1,0,0,0,0,0,0",
    ]
    assert cli.main(["migrations", sched, "--ping-pong", "29ns", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(",a,0,1,,1,2,29,29,9")


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "colour"],
        ["--top", "0"],
        ["--every", "10ns", "--matrix"],
        ["--by", "comm", "--each"],
        ["--every", "0"],
        ["--comm", "nobody"],
        ["--ping-pong", "soon"],
        ["--waited", "long"],
    ],
)
def test_command_refuses_invalid_arguments(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(["migrations", sched, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def drawn(axes: Any) -> None:
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(io.BytesIO(), format="png")


def test_the_matrix_shows_every_number(trace: ss.Trace) -> None:
    axes = ss.plot.migration_matrix(ss.migration_matrix(trace))
    assert [text.get_text() for text in axes.texts] == ["2", "1"]
    assert axes.get_title(loc="left") == "Migrations: 3 in all"
    drawn(axes)
    drawn(ss.plot.migration_matrix(ss.migration_matrix(trace, waited=20), value="queued"))


@pytest.mark.parametrize("whole", [True, False])
def test_the_matrix_of_many_cpus_shows_groups_of_neighbours(*, whole: bool) -> None:
    """96 CPUs in 12 caches of 8, or in pairs where not every pair of CPUs has its row."""
    pairs = [(a, b) for a in range(96) for b in range(96) if a != b]
    near = ["llc" if a // 8 == b // 8 else "package" for a, b in pairs]
    moved = [int(b == a + 1 and b % 8 > 0) * 3 for a, b in pairs]
    frame = pl.DataFrame(
        {
            "from_cpu": [a for a, _ in pairs],
            "to_cpu": [b for _, b in pairs],
            "distance": near,
            "n": moved,
        }
    )
    axes = ss.plot.migration_matrix(frame if whole else frame.filter(pl.col("n") > 0))
    field = axes.images[0].get_array()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert field.sum() == sum(moved)
    if whole:
        assert field.shape == (12, 12)
        assert field.diagonal().tolist() == [21] * 12
        assert labels[:2] == ["0-7", "8-15"]
    else:
        assert field.shape == (48, 48)
        assert labels[:2] == ["0-1", "4-5"]
    drawn(axes)


def test_rates_are_stacked_to_the_rate_of_all(trace: ss.Trace) -> None:
    axes = ss.plot.migration_rates(ss.migration_summary(trace, "cause", every=40))
    tops = Counter()  # type: ignore[var-annotated]
    for bar in axes.patches:
        tops[round(bar.get_x() * 1e9)] += bar.get_height()  # type: ignore[attr-defined]
    assert dict(tops) == {0: 2.5e7, 40: 2.5e7, 80: 5e7}
    drawn(axes)


def test_short_last_bucket_is_not_drawn_as_a_rate(trace: ss.Trace) -> None:
    """The window is 100 ns: of the second bucket of 70 there are 30, which could be a spike."""
    axes = ss.plot.migration_rates(ss.migration_summary(trace, "cause", every=70))
    assert {round(bar.get_x() * 1e9) for bar in axes.patches} == {0}  # type: ignore[attr-defined]
    assert axes.get_title(loc="left").endswith("buckets of 70 ns; the last 30 ns not drawn")


def test_figures_of_empty_frames(trace: ss.Trace) -> None:
    nothing = played("0 cpu0: a S -> idle", window=(0, 10))
    drawn(ss.plot.migration_matrix(ss.migration_matrix(nothing)))
    drawn(ss.plot.migration_rates(ss.migration_summary(nothing, "cause", every=5)))
    with pytest.raises(ss.UsageError, match=r"schedscope\.migration_matrix returns"):
        ss.plot.migration_matrix(ss.migrations(trace).drop("distance"))
    with pytest.raises(ss.UsageError, match="every="):
        ss.plot.migration_rates(ss.migration_summary(trace))


def test_thousands_of_cpus_have_no_row_for_each_pair(trace: ss.Trace) -> None:
    """A header of one line may say "5783 CPUs": 33 million pairs took 4 GB."""
    number = pl.Series("cpu", range(5783), pl.UInt16)
    places = ("cpu", "core", "llc", "package", "numa_node")
    wide = with_tables(trace, cpus=pl.DataFrame(dict.fromkeys(places, number)))
    matrix = ss.migration_matrix(wide).select("from_cpu", "to_cpu", "n").rows()
    whole = ss.migration_matrix(trace).filter(pl.col("n") > 0)
    assert matrix == whole.select("from_cpu", "to_cpu", "n").rows() != []
