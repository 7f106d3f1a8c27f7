"""simulate(): timelines in round numbers, limits, errors, determinism."""

from __future__ import annotations

import polars as pl
import pytest

from schedscope.errors import UsageError
from schedscope.parsers.schema import TABLES
from schedscope.simulator.policies.policy import policies, tunables
from schedscope.simulator.runs.run import policy_series, simulate
from schedscope.simulator.runs.summary import simulate_all, summary, waits_by_class
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import hogs, make, spinners
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

MS = 1_000_000


def drawn(trace: Trace) -> list[str]:
    """The runs of a trace: `cpu0 a 0-10` (ms), in order of time."""
    rows = (
        trace.states.filter((pl.col("state") == "running") & (pl.col("utid") >= trace.ncpu))
        .join(trace.threads.select("utid", "comm"), on="utid")
        .sort("ts", "cpu")
        .collect()
    )
    return [
        f"cpu{r['cpu']} {r['comm']} {r['ts'] / MS:g}-{(r['ts'] + r['dur']) / MS:g}"
        for r in rows.to_dicts()
    ]


def test_request_and_response_on_one_cpu() -> None:
    """A client asks, a server answers: the client's second run waits for the answer."""
    # ms      0   2         5    6
    # cpu0    |cli|  server |cli|
    b = Builder()
    client, server = b.thread("client"), b.thread("server")
    client.run("2ms").signal(server).wait_for(server).run("1ms")
    server.wait_for(client).run("3ms").signal(client)
    trace = simulate(b.workload(), policy="fifo", cpus=1)
    assert drawn(trace) == ["cpu0 client 0-2", "cpu0 server 2-5", "cpu0 client 5-6"]
    wakers = trace.wakeups.filter(pl.col("kind") == "waking").select("waker_utid", "utid")
    assert (1, 2) not in wakers.collect().rows()  # the server had not slept yet: no wake
    assert (2, 1) in wakers.collect().rows()


def test_fork_sleep_and_exit_are_in_the_tables() -> None:
    b = Builder()
    parent, child = b.thread("parent"), b.thread("child", start=None)
    parent.run("1ms").fork(child).sleep("5ms", disk=True).run("1ms")
    child.run("2ms")
    trace = simulate(b.workload(), policy="fifo", cpus=1)
    threads = trace.threads.filter(pl.col("utid") >= 1).collect()
    assert threads["start_ts"].to_list() == [0, 1 * MS]
    assert threads["exit_ts"].to_list() == [7 * MS, 3 * MS]
    assert threads["parent_utid"].to_list() == [None, 1]
    assert "blocked" in trace.switches.collect()["prev_state"].cast(pl.String).to_list()


def test_costs_lengthen_the_run() -> None:
    """1 ms switch cost: a 0..3 (1 + 2), then b 3..6."""
    trace = simulate(hogs(2, time="2ms"), policy="fifo", cpus=1, costs={"switch": "1ms"})
    assert drawn(trace) == ["cpu0 hog-0 0-3", "cpu0 hog-1 3-6"]


def test_a_busy_sibling_halves_the_speed() -> None:
    """Two hogs on one core: both at half speed until one ends."""
    b = Builder()
    b.thread("short").run("2ms")
    b.thread("long").run("3ms")
    trace = simulate(b.workload(), policy="fifo", machine="1x1x2", costs={"smt_speed": 0.5})
    assert drawn(trace) == ["cpu0 short 0-4", "cpu1 long 0-5"]


def test_idle_cpu_has_an_exit_latency() -> None:
    b = Builder()
    b.thread("t").run("1ms").sleep("1ms").run("1ms")
    trace = simulate(b.workload(), policy="fifo", cpus=1, costs={"idle_exit": "500us"})
    assert drawn(trace) == ["cpu0 t 0.5-1.5", "cpu0 t 3-4"]


def test_affinity_moves_a_running_thread() -> None:
    b = Builder()
    b.thread("mover").run("1ms").set_affinity("1").run("2ms")
    trace = simulate(b.workload(), policy="rr", cpus=2)
    assert drawn(trace) == ["cpu0 mover 0-1", "cpu1 mover 1-3"]


def test_real_time_runs_first() -> None:
    b = Builder()
    b.thread("fair").run("3ms")
    b.thread("rt", sched="fifo", rt_prio=5, start="1ms").run("1ms")
    trace = simulate(b.workload(), policy="rr", cpus=1)
    assert drawn(trace) == ["cpu0 fair 0-1", "cpu0 rt 1-2", "cpu0 fair 2-4"]
    classes = [row["sched_class"] for row in waits_by_class(trace)]
    assert classes == ["fair", "realtime"]


@pytest.mark.parametrize("policy", policies()["name"].to_list())
def test_a_thread_that_becomes_real_time_while_it_runs_leaves_the_fair_queue(policy: str) -> None:
    """CFS kept it as the buddy to run next, and looked for it in a queue without it."""
    b = Builder()
    for i in range(6):
        b.thread(f"hog{i}").run("300ms")
    for i in range(3):
        b.thread(f"sleeper{i}").run("50us").sleep("1ms").repeat(200)
    changes = b.thread("changes")
    changes.run("7ms").set_priority(sched="fifo", rt_prio=10).run("2ms").sleep("3ms")
    changes.set_priority(sched="fair", nice=0).run("5ms").repeat(20)
    trace = simulate(b.workload(), policy=policy, cpus=1)
    ran = trace.states.filter(pl.col("state") == "running", pl.col("utid") >= 1)
    # 6 * 300 + 3 * 200 * 0.05 + 20 * 14
    assert ran.select(pl.col("dur").sum()).collect().item() == 2_110_000_000


def test_meeting_sender_waits_for_its_reader() -> None:
    """`meet`: the second signal is sent only when the reader waits again."""
    b = Builder()
    writer, reader = b.thread("writer"), b.thread("reader")
    writer.run("1ms").signal(reader, meet=True).run("1ms").signal(reader, meet=True).run("1ms")
    reader.wait_for(writer).run("5ms").wait_for(writer)
    trace = simulate(b.workload(), policy="fifo", cpus=2)
    runs = drawn(trace)
    assert "cpu1 reader 1-6" in runs
    assert any(r.endswith("writer 6-7") for r in runs)  # not before the reader came back at 6


def test_two_meeting_senders_do_not_deadlock() -> None:
    """Each has a signal for the other before it waits: the second one just sends."""
    b = Builder()
    one, two = b.thread("one"), b.thread("two")
    one.run("1ms").signal(two, meet=True).run("1ms").wait_for(two).run("1ms")
    two.run("2ms").signal(one, meet=True).run("1ms").wait_for(one).run("2ms")
    runs = drawn(simulate(b.workload(), policy="fifo", cpus=2))
    # `two` sends at 2 ms and waits at 3 ms; then `one` sends, and already has its signal.
    assert {run.partition(" ")[2] for run in runs} == {"one 0-1", "two 0-3", "two 3-5", "one 3-5"}


@pytest.mark.parametrize("policy", policies()["name"].to_list())
def test_same_seed_same_bytes(policy: str) -> None:
    workload = make(3, tasks=6, run="20ms")
    a, b = (simulate(workload, policy=policy, cpus=2, seed=7) for _ in range(2))
    for name in TABLES:
        assert getattr(a, name).collect().equals(getattr(b, name).collect()), name


@pytest.mark.parametrize("policy", policies()["name"].to_list())
def test_every_policy_conserves_cpu_time(policy: str) -> None:
    """Per CPU running + idle = window; all CPU time of the workload is used."""
    workload = make(3, tasks=6, run="20ms")
    trace = simulate(workload, policy=policy, cpus=2)
    ran = 0
    for cpu in trace.info["per_cpu"]:
        assert cpu["running"] + cpu["idle"] == trace.duration
        assert cpu["unknown"] == 0
        ran += cpu["running"]
    assert ran == workload.cpu_time
    counters = trace.info["reconstruction"]
    assert counters["contradictions"] == counters["chain_breaks"] == 0
    assert counters["missing_wakeups"] == 0


@pytest.mark.parametrize("policy", ["fifo", "rr"])
def test_facts_of_a_simulation_reconstruct_to_the_same_tables(policy: str) -> None:
    """The tables alone determine what the engine knew, although many events share an instant."""
    from schedscope import _native

    trace = simulate(make(3, tasks=6, run="20ms"), policy=policy, cpus=2)
    names = ("switches", "wakeups", "migrations", "yields")
    facts = {name: getattr(trace, name).collect() for name in names}
    again = _native.reconstruct(facts, trace.ncpu, trace.window)
    key = ["utid", "ts_ready", "ts_run"]
    columns = [*key, "cause", "ts_enqueued", "waker_utid", "cpu", "wait"]
    there = pl.DataFrame(again["waits"]).select(columns).sort(key)
    assert there.equals(trace.waits.select(columns).collect().sort(key))


def test_missing_signal_is_refused_with_its_waiter() -> None:
    b = Builder()
    silent = b.thread("silent")
    silent.run("1ms")
    b.thread("hopeful").wait_for(silent, 2)
    with pytest.raises(UsageError, match=r"hopeful.*signal 2 .*silent"):
        simulate(b.workload(), policy="fifo")


@pytest.mark.parametrize(
    ("workload", "options", "message"),
    [
        (hogs(2, cpus="7"), {"machine": 2}, "none of the"),
        (spinners(2), {}, "time limit"),
        (Workload(hogs(1).threads.clear(), hogs(1).steps), {}, "without threads"),
        (hogs(1), {"machine": "0"}, "machine"),
        (hogs(1), {"policy": "cfs-9"}, "no policy is called"),
        (hogs(1), {"set": {"slize": 3}}, "no tunable"),
        (hogs(1), {"set": {"quantum": "soon"}}, "quantum"),
        (hogs(1), {"costs": {"smt_speed": 3}}, "smt_speed = 3"),
        (hogs(1), {"seed": -1}, "seed"),
    ],
)
def test_invalid_arguments_are_refused(
    workload: Workload, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        simulate(workload, **{"policy": "rr", **options})  # type: ignore[arg-type]


def test_a_loop_without_length_is_an_error() -> None:
    b = Builder()
    b.thread("spin").yield_().repeat()
    with pytest.raises(UsageError, match=r"simulated time stopped.*spin"):
        simulate(b.workload(), policy="rr", until="1s")


def test_limits_end_the_run_and_are_reported() -> None:
    trace = simulate(hogs(2, time="10s"), policy="rr", until="25ms")
    assert trace.duration == 25 * MS
    assert "time limit" in trace.info["warnings"][0]
    trace = simulate(hogs(2, time="10s"), policy="rr", max_events=10)
    assert trace.info["simulation"]["ended"] == "event limit"


def test_a_hundred_thousand_threads_terminate() -> None:
    b = Builder()
    b.threads("t", 100_000).run("10us")
    trace = simulate(b.workload(), policy="fifo", cpus=8)
    assert trace.duration == 125 * MS
    assert trace.info["simulation"]["exits"] == 100_000


def test_a_callback_can_stop_the_run() -> None:
    def stop(now: int, events: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(spinners(8), policy="rr", until="100000s", progress=stop)


def test_every_policy_in_one_table() -> None:
    frame = simulate_all(hogs(4, time="10ms"), policies=["fifo", "rr"], cpus=2)
    assert frame["completion"].to_list() == [20 * MS, 20 * MS]
    assert frame["wasted"].to_list() == [0, 0]
    assert frame.filter(pl.col("policy") == "fifo")["n_switches"].item() == 2 + 2 + 2


def test_avoidable_idle_time_and_starvation_are_counted() -> None:
    """Under fifo one CPU leaves no avoidable idle time, but two threads starve."""
    trace = simulate(hogs(3, time="2s"), policy="fifo", cpus=1)
    found = summary(trace)
    assert found["n_starved"] == 2
    assert found["wait_max"] == 4_000_000_000
    # Running by due: 2 of 2/3 s, 2 of 2/3 + 1 s, 2 of 2/3 + 1 + 2 s.
    x = [3, 6 / 5, 6 / 11]
    assert found["fairness"] == pytest.approx(sum(x) ** 2 / (3 * sum(v * v for v in x)))


def test_output_folder(tmp_path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "out.sched"
    kept = simulate(hogs(3, time="5ms"), policy="rr", output=target)
    memory = simulate(hogs(3, time="5ms"), policy="rr")
    assert Trace.read(target).switches.collect().equals(memory.switches.collect())
    assert kept.path == target
    with pytest.raises(UsageError, match="exists"):
        simulate(hogs(3), policy="rr", output=target)
    with pytest.raises(UsageError, match="machine"):
        simulate(hogs(1), policy="rr", machine="0x1", output=tmp_path / "no.sched")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.sched"]


def test_policy_series_need_record() -> None:
    trace = simulate(hogs(1), policy="rr")
    with pytest.raises(UsageError, match="no internal series"):
        policy_series(trace)


def test_tunables_are_listed_with_their_defaults() -> None:
    for name in policies()["name"].to_list():
        frame = tunables(name)
        assert frame["doc"].str.len_chars().min() is None or frame["doc"].str.len_chars().min() > 0


def test_exiting_waker_ends_before_the_woken_thread_runs() -> None:
    """do_exit wakes the parent and then ends, whatever the parent's class is."""
    b = Builder()
    child = b.thread("child").run("1ms")
    parent = b.thread("parent", sched="fifo", rt_prio=50, asleep=True).wait_for(child).run("1ms")
    child.signal(parent).exit()
    b.thread("hog").run("5ms")
    trace = simulate(b.workload(), policy="eevdf-6.12", cpus=1)
    ends = trace.threads.filter(pl.col("comm") == "child").select("exit_ts").collect().item()
    switched = trace.switches.filter(prev_state="dead").sort("ts").collect()
    child_utid = trace.threads.filter(comm="child").collect()["utid"].item()
    assert switched["prev_utid"][0] == child_utid
    woken = trace.wakeups.filter(pl.col("kind") == "waking").collect()["ts"].item()
    assert ends == woken
