"""Changes of `whatif` take threads as users name them: by process, tree, unit and control group."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.errors import UsageError
from schedscope.simulator.changes.change import change
from schedscope.simulator.runs.named_threads import kind_of, matching
from schedscope.simulator.runs.replay import Replay, replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

MS = 1_000_000
ROWS = [  # name, pid, ppid, process, control group
    ("main", 10, 1, "java", "/system.slice/app.service"),
    ("GC 0", 10, 1, "java", "/system.slice/app.service"),
    ("helper", 11, 10, "helper", "/system.slice/app.service"),
    ("web", 12, 1, "web", "/web"),
    ("kworker/0:1", 13, 1, "kworker", "/"),
]


@pytest.fixture(scope="module")
def host() -> Trace:
    """A thread of each row, each of which would run all the time, on one CPU."""
    b = Builder()
    for row in ROWS:
        b.threads(row[0], 1).run("100ms").repeat(None)
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=1, until="2s")
    names = ("switches", "wakeups", "migrations", "states", "waits", "threads")
    tables = {name: getattr(real, name).collect() for name in names}
    known = {name: rest for name, *rest in ROWS}
    comms = tables["threads"]["comm"].to_list()

    def column(i: int) -> list[Any]:
        return [known[name][i] if name in known else None for name in comms]

    tables["threads"] = tables["threads"].with_columns(
        pid=pl.Series(column(0), dtype=tables["threads"].schema["pid"]),
        ppid=pl.Series(column(1), dtype=pl.Int32),
        process_name=pl.Series(column(2), dtype=pl.String),
        cgroup=pl.Series(column(3), dtype=pl.String),
    )
    groups = [
        {"cgroup": "/", "weight": 1024},
        {"cgroup": "/system.slice/app.service", "weight": 1024},
        {"cgroup": "/web", "weight": 1024},
    ]
    return Trace.from_tables(tables, {**real.info, "groups": groups})


@pytest.fixture(scope="module")
def way(host: Trace) -> Replay:
    return replay(host)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("main", ["main"]),
        ("kworker/0:1", ["kworker/0:1"]),
        ("comm:*e*", ["helper", "web", "kworker/0:1"]),
        ("process:java", ["main", "GC 0"]),
        ("pid:12", ["web"]),
        ("tree:10", ["main", "GC 0", "helper"]),
        ("service:app.service", ["main", "GC 0", "helper"]),
        ("cgroup:/web", ["web"]),
    ],
)
def test_threads_are_named_as_in_selections(way: Replay, text: str, names: list[str]) -> None:
    found = matching(way, way.workload, text)
    assert way.workload.threads.filter(found)["name"].to_list() == names


def test_a_colon_belongs_to_a_name_unless_a_kind_is_before_it() -> None:
    assert kind_of("irq/24:x") == (None, "irq/24:x")
    assert kind_of("process:a:b") == ("process", "a:b")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"set_nice": {"process:jaav": 5}}, "no process of .* matches process jaav"),
        ({"set_nice": {"tree:java": 5}}, "'tree:java'; expected a number"),
        ({"set_nice": {"pid:99": 5}}, "no thread of 'pid:99'"),
        ({"set_nice": {"process:java": 5, "main": 6}}, "'main' is given nice 5 by 'process:java'"),
        ({"set_weight": {"process:*e*": 5}}, "which is in several; expected threads of one group"),
        ({"move": {"web": "/nowhere"}}, "no control group '/nowhere'"),
        ({"autogroup": "off"}, "expected a recording in which sessions share CPU time"),
        ({"autogroup": "on"}, "does not show which threads share a session"),
        ({"uclamp": {"web": "50%"}}, "replays have neither"),
        ({"move": {"web": "/"}, "policy": "bfs"}, "control groups and sessions under bfs"),
    ],
)
def test_invalid_change_is_reported_in_one_sentence(
    way: Replay, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        change(way, **asked)


def test_a_process_of_many_names_is_one_change(way: Replay) -> None:
    threads = change(way, set_nice={"process:java": 5}).workload.threads
    nice = dict(threads.select("name", "nice").iter_rows())
    assert nice == {"main": 5, "GC 0": 5, "helper": 0, "web": 0, "kworker/0:1": 0}


def test_threads_that_are_not_replayed_are_not_changed(host: Trace) -> None:
    some = replay(host, where=pl.col("comm") == "web")
    with pytest.raises(UsageError, match="no thread of 'process:java' is replayed"):
        change(some, set_nice={"process:java": 5})


def part(frame: pl.DataFrame, *names: str) -> float:
    """The part of the CPU that these threads have with the change."""
    rows = frame.filter(pl.col("comm").is_in(names), configuration="changed")
    return rows["cpu_time"].sum() / (2000 * MS)


def test_weight_of_a_process_is_that_of_its_new_group(host: Trace) -> None:
    """The unit has a third of the CPU, and its helper the share of one thread in that."""
    frame = ss.whatif(host, set_weight={"process:java": 300}, replays=1)
    assert part(frame, "main", "GC 0") == pytest.approx(3 / 4 / 3, abs=0.01)
    assert part(frame, "helper") == pytest.approx(1 / 4 / 3, abs=0.01)


def test_a_quota_of_all_threads_of_a_group_is_that_groups(host: Trace, way: Replay) -> None:
    (said,) = change(way, quota={"service:app.service": "20%"}).words
    assert said.startswith("/system.slice/app.service with 20.0 ms")
    frame = ss.whatif(host, quota={"tree:10": "20%"}, replays=1)
    assert part(frame, "main", "GC 0", "helper") == pytest.approx(0.2, abs=0.01)


def test_a_thread_that_is_moved_shares_with_those_of_the_group(host: Trace) -> None:
    frame = ss.whatif(host, move={"helper": "/web"}, replays=1)
    assert part(frame, "helper") == pytest.approx(1 / 6, abs=0.01)
    assert part(frame, "main") == pytest.approx(1 / 6, abs=0.01)
    out = ss.whatif(host, move={"helper": "/"}, replays=1)
    assert part(out, "helper") == pytest.approx(1 / 4, abs=0.01)


def test_a_cpuset_keeps_what_its_threads_asked_for_of_it() -> None:
    b = Builder()
    for cpus in ("0", "1-2", None):
        b.threads("web", 1, cpus=cpus).run("1ms")
    real = simulate(b.workload(), policy="eevdf-6.12", cpus=4)
    threads = real.threads.collect().with_columns(
        cgroup=pl.when(pl.col("utid") >= 4).then(pl.lit("/web")), ppid=pl.lit(1)
    )
    names = ("switches", "wakeups", "migrations", "states", "waits")
    tables = {name: getattr(real, name).collect() for name in names}
    way = replay(Trace.from_tables({**tables, "threads": threads}, real.info))
    masks = change(way, pin={"cgroup:/web": "2-3"}).workload.threads["cpus"].to_list()
    assert masks == ["2-3", "2", "2-3"]
    assert change(way, pin={"web": "2-3"}).workload.threads["cpus"].to_list() == ["2-3"] * 3


def test_threads_outside_a_selection_are_named_by_process_where_they_are_replayed(
    host: Trace,
) -> None:
    selected = pl.col("comm") == "web"
    whole = replay(host, where=selected, others="replay")
    for name in ("GC 0", "process:java"):
        assert matching(whole, whole.workload, name).any(), name
    apart = replay(host, where=selected, others="occupy")
    with pytest.raises(UsageError, match="is replayed"):
        matching(apart, apart.workload, "process:java")
