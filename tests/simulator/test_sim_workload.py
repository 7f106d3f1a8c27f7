"""Workloads: builder, generators, files, rt-app, extraction."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, strategies as st

from schedscope import workload as w
from schedscope.analysis.cpus.offline import offline
from schedscope.errors import FormatError, UsageError
from schedscope.parsers.schema import TABLES
from schedscope.simulator.changes.whatif import whatif
from schedscope.simulator.recorded.extract import extract, report
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.machine import Machine, Outage, machine, machine_of
from schedscope.store.trace import Trace

MS = 1_000_000


@pytest.mark.parametrize("name", sorted(w.generate.__globals__["GENERATORS"]))
def test_every_generator_runs_to_its_end(name: str) -> None:
    text = {
        "hackbench": "hackbench:1,fan=4,loops=5",
        "spinners": "spinners:4,unpin=1ms,time=3ms",
        "cascade": "cascade:5,run=1ms",
        "web": "web:3,requests=30",
        "nice_hogs": "nice_hogs",
    }.get(name, f"{name}:2")
    trace = simulate(w.generate(text), policy="fifo", cpus=2)
    assert trace.info["simulation"]["ended"] == "finished"


@pytest.mark.parametrize("text", ["nothing:3", "hogs", "hogs:0", "hogs:2,size=3", "hogs:2,time=x"])
def test_generator_texts_are_checked(text: str) -> None:
    with pytest.raises(UsageError):
        w.generate(text)


def test_threads_of_a_builder_are_checked() -> None:
    with pytest.raises(UsageError, match="0 threads called 'a'; expected a whole number"):
        w.Builder().threads("a", 0)
    with pytest.raises(UsageError, match=r"'niceness'; expected one of sched, tid, .*nice"):
        w.Builder().thread("a", niceness=3)
    b = w.Builder()
    given = {"dl_runtime": "3ms", "dl_deadline": "10ms", "dl_period": "10ms"}
    b.thread("a", sched="deadline", **given).run("6ms")
    trace = simulate(b.workload(), policy="eevdf", set={"hz": 1000})
    assert trace.duration == 13 * MS


def test_save_and_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    load = w.make(2, tasks=4)
    path = load.save(tmp_path / "m.workload")
    again = w.read_workload(path)
    assert again.threads.equals(load.threads)
    assert again.steps.equals(load.steps)
    assert again.info == load.info
    with pytest.raises(UsageError, match="exists"):
        load.save(path)
    (path / "workload.json").write_text("{}")
    with pytest.raises(FormatError, match="version"):
        w.read_workload(path)


def runs_the_same_from_rtapp(load: w.Workload) -> None:
    document, lost = w.to_rtapp(load)
    assert lost == {}
    again = w.from_rtapp(json.dumps(document))
    first, second = (simulate(x, policy="rr", cpus=2) for x in (load, again))
    assert first.switches.collect().equals(second.switches.collect())


def test_rtapp_there_and_back() -> None:
    """What rt-app can say survives, and runs the same."""
    b = w.Builder()
    ping, pong = b.thread("ping", cpus="0", nice=3), b.thread("pong", sched="fifo", rt_prio=7)
    ping.run("1ms").signal(pong).wait_for(pong).sleep("2ms").repeat(5)
    pong.wait_for(ping).run("500us").signal(ping).repeat(5)
    runs_the_same_from_rtapp(b.workload())


def test_rtapp_locks_there_and_back() -> None:
    b = w.Builder()
    m, c, gate = b.mutex(), b.condition(), b.barrier()
    b.thread("waiter").lock(m).cond_wait(c, m).run("1ms").unlock(m).barrier(gate, 2).run("1ms")
    signaller = b.thread("signaller").run("2ms").lock(m).run("1ms").cond_signal(c).unlock(m)
    signaller.cond_broadcast(c).barrier(gate, 2).run("1ms")
    runs_the_same_from_rtapp(b.workload())
    # `sync` signals and waits.
    task = {"loop": 1, "lock": "m", "sync": {"ref": "c", "mutex": "m"}, "unlock": "m"}
    ops = w.from_rtapp({"tasks": {"t": task}}).steps["op"].cast(pl.String).to_list()
    assert ops == ["lock", "cond_signal", "cond_wait", "unlock"]


def test_rtapp_names_what_it_cannot_say() -> None:
    b = w.Builder()
    b.thread("t").wait_until("5ms").set_affinity("0")
    assert w.to_rtapp(b.workload())[1] == {"wait_until": 1, "set_affinity": 1}


def test_rtapp_errors_name_the_task() -> None:
    with pytest.raises(UsageError, match=r"task t: event 'iorun'"):
        w.from_rtapp({"tasks": {"t": {"iorun": 10, "run": 5}}})
    with pytest.raises(UsageError, match=r"task t: wait .*`ref`, a condition, and `mutex`"):
        w.from_rtapp({"tasks": {"t": {"wait": "c", "run": 5}}})
    with pytest.raises(UsageError, match=r"task t: lock 3; expected a name"):
        w.from_rtapp({"tasks": {"t": {"lock": 3, "run": 5}}})
    with pytest.raises(FormatError):
        w.from_rtapp("// no JSON")


@pytest.mark.parametrize("text", ["requests:3,requests=20", "make:3,tasks=8", "web:4,requests=60"])
@pytest.mark.parametrize("policy", ["fifo", "rr"])
def test_replaying_a_replay_changes_nothing(text: str, policy: str) -> None:
    """Extraction loses nothing that the engine needs: the same switches, to the ns."""
    first = simulate(w.generate(text), policy=policy, cpus=2)
    load = extract(first)
    again = simulate(load, policy=policy, cpus=2)
    columns = ["ts", "cpu", "prev_state"]
    there, here = (t.switches.select(columns).collect() for t in (again, first))
    assert there.filter(pl.col("ts") < first.duration).equals(
        here.filter(pl.col("ts") < first.duration)
    )
    counted = report(load)
    assert counted["wakes_missing"] == counted["chain_breaks"] == counted["cpu_time_lost"] == 0


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 1000), st.sampled_from(["fifo", "rr"]))
def test_extraction_keeps_all_cpu_time(clients: int, cpus: int, seed: int, policy: str) -> None:
    load = w.requests(clients, requests=8, seed=seed)
    trace = simulate(load, policy=policy, cpus=cpus)
    assert extract(trace).cpu_time == load.cpu_time
    # Whatever policy and machine it is replayed on.
    other = simulate(extract(trace), policy="rr", cpus=3 - min(cpus, 2))
    assert other.info["simulation"]["ended"] == "finished"
    ran = sum(c["running"] for c in other.info["per_cpu"])
    assert ran == load.cpu_time


def _trace(switches: list[tuple], wakeups: list[tuple], end: int) -> Trace:  # type: ignore[type-arg]
    """A hand-made trace of one CPU; utid 0 is its idle thread."""
    known = {row[1] for row in switches} | {row[3] for row in switches}
    tables = {
        "switches": pl.DataFrame(
            [(ts, 0, p, s, 120, None, n, 120) for ts, p, s, n in switches],
            schema=TABLES["switches"].schema,
            orient="row",
        ),
        "wakeups": pl.DataFrame(
            [
                {
                    "ts": ts,
                    "cpu": 0,
                    "waker_utid": waker,
                    "utid": utid,
                    "kind": kind,
                    "target_cpu": 0,
                    "prio": 120,
                }
                for ts, waker, utid, kind in wakeups
            ],
            schema=TABLES["wakeups"].schema,
        ),
        "threads": pl.DataFrame(
            {"utid": sorted(known), "comm": [f"t{u}" for u in sorted(known)]},
        )
        .with_columns(
            pl.lit(None, dtype).alias(name)
            for name, dtype in TABLES["threads"].schema.items()
            if name not in ("utid", "comm")
        )
        .cast({"utid": pl.UInt32}),
    }
    return Trace.from_tables(tables, {"ncpu": 1, "window": [0, end]})


def _program(load: w.Workload, thread: int) -> list[tuple[str, int | None]]:
    rows = load.steps.filter(pl.col("program") == thread)
    return list(zip(rows["op"].cast(pl.String).to_list(), rows["ns"].to_list(), strict=True))


def test_extraction_rules_by_hand() -> None:
    """One CPU: a runs from before, wakes b, is preempted by it; b sleeps; a timer wakes b."""
    # 0    10     20        30      45     60   70  100
    # | a  |wakes b, b runs | a     | b    | a  | b... (cut)
    trace = _trace(
        [
            (10, 1, "runnable", 2),
            (20, 2, "sleeping", 1),
            (45, 1, "runnable", 2),
            (60, 2, "sleeping", 1),
            (70, 1, "dead", 0),
        ],
        [(10, 1, 2, "waking"), (44, None, 2, "waking")],
        100,
    )
    load = extract(trace)
    a, b = (load.threads["name"].to_list().index(n) for n in ("t1", "t2"))
    assert _program(load, a) == [("run", 10), ("signal", None), ("run", 35), ("exit", None)]
    assert _program(load, b) == [
        ("wait_for", None),
        ("run", 10),
        ("sleep", 24),
        ("run", 15),
        ("park", None),
    ]
    counted = report(load)
    assert counted["wakes_by_threads"] == 1
    assert counted["wakes_external"] == 1
    assert counted["involuntary_dropped"] == 2
    assert counted["running_at_begin"] == 1
    assert counted["cut_at_end"] == 1
    assert load.threads.filter(pl.col("name") == "t2")["asleep"].item() is True
    absolute = extract(trace, external="absolute")
    assert ("wait_until", 44) in _program(absolute, b)


def test_left_out_threads_wake_from_outside() -> None:
    trace = _trace([(10, 1, "runnable", 2), (20, 2, "sleeping", 1)], [(10, 1, 2, "waking")], 50)
    load = extract(trace, where=pl.col("comm") == "t2")
    assert load.n_threads == 1
    assert _program(load, 0) == [("sleep", 10), ("run", 10), ("park", None)]


def test_a_machine_has_a_limit() -> None:
    with pytest.raises(UsageError, match="a machine of 70,000 CPUs; expected 1 to 4096 CPUs"):
        machine(70_000)


def _with_offline(*silent: int) -> Trace:
    """A trace of four CPUs, two to a core, of which some were offline throughout."""
    rows = [
        {"cpu": cpu, "core": cpu // 2, "llc": 0, "package": 0, "numa_node": 0, "online": True,
         "smt_siblings": f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}", "capacity": None}
        for cpu in range(4)
    ]  # fmt: skip
    for cpu in silent:
        rows[cpu] |= dict.fromkeys(("core", "llc", "package", "smt_siblings"), None)
        rows[cpu] |= {"online": False}
        rows[cpu ^ 1]["smt_siblings"] = str(cpu ^ 1)
    busy = [cpu for cpu in range(4) if cpu not in silent]
    load = Builder()
    for cpu in busy:
        load.thread(f"t{cpu}", cpus=str(cpu)).run("1ms")
    ran = simulate(load.workload(), policy="fifo", machine="1x2x2")
    tables = {name: getattr(ran, name) for name in ("switches", "wakeups", "threads", "states")}
    return Trace.from_tables(tables | {"cpus": pl.DataFrame(rows)}, ran.info)


def test_a_cpu_that_was_offline_is_in_no_threads_mask() -> None:
    """It keeps its number, and the others their cores."""
    found = machine_of(_with_offline(2))
    assert found.offline == (2,)
    assert [cpu.core for cpu in found.cpus] == [0, 0, 1, 2]
    assert {cpu.llc for cpu in found.cpus} == {cpu.package for cpu in found.cpus} == {0}
    load = w.hogs(8, time="1ms")
    ran = simulate(load, policy="eevdf-6.12", machine=found)
    on = ran.states.filter(pl.col("state") == "running", pl.col("utid") >= 4).collect()
    assert set(on["cpu"]) == {0, 1, 3}
    assert offline(ran)["cpu"].to_list() == [2]
    assert Machine.from_dict(found.to_dict()) == found
    with pytest.raises(UsageError, match="one of 4 CPUs"):
        Machine.from_dict(found.to_dict() | {"outages": [{"cpu": 4}]})
    with pytest.raises(UsageError, match="all CPUs offline at 0 ns"):
        simulate(load, machine=replace(found, outages=tuple(Outage(cpu) for cpu in range(4))))
    with pytest.raises(UsageError, match="of 't0', which were offline; expected one of CPUs 0-1,3"):
        whatif(_with_offline(2), pin={"t0": "2"})
    assert machine_of(_with_offline()).offline == ()
    assert machine_of(_with_offline()).cpus == machine("1x2x2").cpus


def test_machine_shapes() -> None:
    assert machine("2x4x2").ncpu == 16
    trace = simulate(w.hogs(1, time="1ms"), policy="fifo", machine="2x2x2")
    assert machine_of(trace).cpus == machine("2x2x2").cpus
    for bad in ("", "x", "2x", "1x2x3x4", "-1"):
        with pytest.raises(UsageError):
            machine(bad)
