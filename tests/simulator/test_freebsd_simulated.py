"""ULE and 4BSD, simulated, printed as FreeBSD's probes would and read back: nothing is lost.

What the lines cannot hold is excluded from the comparison by name, below, and nowhere else.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from freebsd.reading import Decoded, decode
from freebsd.simulated import BEGIN, replay
from hypothesis import given, strategies as st

import schedscope as ss
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

POLICIES = {"ule-14": "ULE", "4bsd": "4BSD"}
MACHINES = ["1", "2", "1x2x2", "2x2x1"]
GENERATED = [
    "hogs:5,time=300ms",
    "nice_hogs:0 0 5 5 10 19 19,time=400ms",
    "periodic:6,run=2ms,sleep=3ms,times=40",
    "ping_pong:3,run=30us,times=150",
    "make:4,tasks=12,run=8ms,io=1ms",
    "hackbench:1,fan=3,loops=12",
]


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """A few threads that compute, sleep, wait for disks, yield, wake and fork each other."""
    b = ss.workload.Builder()
    time = st.sampled_from([1, 7_000, 50_000, 1_000_000, 13_000_001, 120_000_000])
    nice = st.sampled_from([0, 0, -10, 5, 19])
    for n in range(draw(st.integers(1, 5))):
        start = draw(st.sampled_from([0, 0, 1, 50_000]))
        worker = b.thread(f"worker {n}", nice=draw(nice), start=start)
        for _ in range(draw(st.integers(1, 4))):
            worker.run(draw(time))
            match draw(st.sampled_from(["sleep", "disk", "yield", "on", "nice", "cpus"])):
                case "sleep":
                    worker.sleep(draw(time))
                case "disk":
                    worker.sleep(draw(time), disk=True)
                case "yield":
                    worker.yield_()
                case "nice":
                    worker.set_priority(nice=draw(nice))
                case "cpus":
                    worker.set_affinity(draw(st.sampled_from(["0", None])))
        worker.repeat(draw(st.integers(1, 5)))
    for n in range(draw(st.integers(0, 2))):
        ping, pong = b.thread(f"ping {n}"), b.thread(f"pong {n}")
        times = draw(st.integers(1, 8))
        ping.run(draw(time)).signal(pong, sync=True).wait_for(pong).repeat(times)
        pong.wait_for(ping).run(draw(time)).signal(ping, sync=True).repeat(times)
    if draw(st.booleans()):
        parent = b.thread("parent")
        for n in range(draw(st.integers(1, 4))):
            child = b.thread(f"child {n}", start=None)
            child.run(draw(time)).sleep(draw(time)).run(draw(time))
            parent.run(draw(time)).fork(child)
    return b.workload()


def rows(frame: pl.DataFrame, columns: list[str], names: dict[int, int | None]) -> Counter[Any]:
    """The rows as tuples, with tids for utids and the lines' clock."""

    def value(column: str, cell: Any) -> Any:
        if cell is None:
            return None
        if column.endswith("utid"):
            return names[cell]
        return cell + BEGIN if column.startswith("ts") else cell

    return Counter(
        tuple(value(name, cell) for name, cell in zip(columns, row, strict=True))
        for row in frame.select(columns).rows()
    )


class Both:
    """A run, and what was read of its lines."""

    def __init__(self, trace: Trace, scheduler: str) -> None:
        self.trace = trace
        self.ule = scheduler == "ULE"
        self.ncpu = trace.ncpu
        utids = trace.threads.select("utid", "tid").collect().rows()
        self.names = {utid: tid if utid >= self.ncpu else -1 - utid for utid, tid in utids}
        machine = replay(trace, scheduler)
        with tempfile.TemporaryDirectory() as folder:
            self.got: Decoded = decode(Path(folder), machine.text(BEGIN + trace.window[1]))

    def simulated(self, table: str) -> pl.DataFrame:
        frame: pl.DataFrame = getattr(self.trace, table).collect()
        return frame

    def same(self, table: str, frame: pl.DataFrame, without: list[str] | None = None) -> None:
        """The rows of `frame` are those read into `table`, but for the columns `without`."""
        columns = [name for name in frame.columns if name not in (without or [])]
        expected = rows(frame, columns, self.names)
        found = Counter(self.got.rows(table, *columns))
        missing, more = list((expected - found).items()), list((found - expected).items())
        assert (missing[:3], more[:3]) == ([], []), f"{table} {columns}: only simulated, only read"


def check(trace: Trace, scheduler: str) -> None:
    both = Both(trace, scheduler)
    idle = pl.col("utid") < both.ncpu
    counts = both.got.about["reconstruction"]
    assert both.got.about["warnings"] == []
    for name in ("chain_breaks", "contradictions", "missing_wakeups", "spurious_wakeups"):
        assert counts[name] == 0, name

    # Idle threads have FreeBSD's own priority and never count as preempted.
    switches = both.simulated("switches")
    recorded = switches.with_columns(
        pl.when(pl.col("prev_utid") < both.ncpu).then(255)
        # lwp-exit does not have it.
        .when(pl.col("prev_state") != "dead").then(pl.col("prev_prio"))
        .cast(pl.Int16).alias("prev_prio"),
        pl.when(pl.col("next_utid") < both.ncpu).then(255).otherwise(pl.col("next_prio"))
        .cast(pl.Int16).alias("next_prio"),
        pl.when(pl.col("prev_utid") < both.ncpu).then(False).otherwise(pl.col("preempted"))
        .alias("preempted"),
    )  # fmt: skip
    both.same("switches", recorded)

    # enqueue fires before the priority is recomputed, and 4BSD never has a target.
    wakeups = both.simulated("wakeups")
    both.same("wakeups", wakeups, ["prio"] if both.ule else ["prio", "target_cpu"])
    if not both.ule:
        assert both.got.tables["wakeups"]["target_cpu"].null_count() == len(wakeups)

    # A woken thread's migration is in its target; 4BSD has nothing to move between.
    moves = both.simulated("migrations")
    targets = wakeups.filter(pl.col("kind") == "enqueued").select(
        "utid", ts_enqueued="ts", wake_cpu="target_cpu"
    )
    waits = both.simulated("waits").join(targets, on=["utid", "ts_enqueued"])
    both.same("migrations", _after_the_wake(moves, waits) if both.ule else moves.clear())

    # An idle CPU is known as such from the first line that names its running thread.
    seen = pl.concat([frame.select("cpu", first="ts") for frame in (switches, wakeups)])
    states = both.simulated("states")
    late = pl.when(idle).then((pl.col("first") - pl.col("ts")).clip(0)).otherwise(0)
    states = (
        states.join(seen.group_by("cpu").min(), on="cpu", how="left")
        .filter(~idle | (pl.col("first") < pl.col("ts") + pl.col("dur")))
        .with_columns(ts=pl.col("ts") + late, dur=pl.col("dur") - late)
        .drop("first")
    )
    # For priorities while waiting and at the exit see above; 4BSD's one queue has no CPU.
    resting = pl.col("state") == "runnable"
    unsaid = resting | idle | (pl.col("end") == "exited")
    hidden = [pl.when(~unsaid).then(pl.col("prio")).alias("prio")]
    if not both.ule:
        hidden.append(pl.when(~resting).then(pl.col("cpu")).alias("cpu"))
    both.got.tables["states"] = both.got.tables["states"].with_columns(hidden)
    both.same("states", states.with_columns(hidden))
    both.same("waits", both.simulated("waits"), [] if both.ule else ["queue_cpu"])

    loads(both)


def _after_the_wake(moves: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """`moves` without those of wakeups: one from where the thread last ran to its new queue."""
    woken = waits.filter(pl.col("cause") == "wake").select(
        "utid", ts="ts_enqueued", to_cpu="wake_cpu", ran="prev_cpu", woken=True
    )
    # A thread that has never run has a CPU, too.
    from_there = (pl.col("from_cpu") == pl.col("ran")).fill_null(value=True)
    placed = pl.col("woken").fill_null(value=False) & from_there
    return (
        moves.join(
            woken.unique(["utid", "ts", "to_cpu"]), on=["ts", "utid", "to_cpu"], how="left",
            maintain_order="left",
        )
        .with_columns(placed=placed)
        .with_columns(
            # A wakeup migrates once.
            nth=pl.int_range(pl.len()).over("ts", "utid", "to_cpu", "placed")
        )
        .filter(~pl.col("placed") | (pl.col("nth") > 0))
        .select(moves.columns)
    )  # fmt: skip


def loads(both: Both) -> None:
    """At each instant a queue's last load equals its running and waiting threads."""
    states = both.simulated("states").filter(
        (pl.col("utid") >= both.ncpu) & pl.col("state").is_in(["running", "runnable"])
    )
    queue = pl.col("cpu") if both.ule else pl.lit(0, pl.UInt16).alias("cpu")
    steps = pl.concat([
        states.select(queue, ts="ts", step=pl.lit(1)),
        states.select(queue, ts=pl.col("ts") + pl.col("dur"), step=pl.lit(-1)),
    ])  # fmt: skip
    after = (
        steps.group_by("cpu", "ts").agg(pl.col("step").sum()).sort("cpu", "ts")
        .with_columns(load=pl.col("step").cum_sum().over("cpu"))
    )  # fmt: skip
    expected = {(cpu, ts + BEGIN): load for cpu, ts, _, load in after.rows()}
    recorded: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for ts, cpu, load in both.got.rows("queue_load", "ts", "cpu", "load"):
        assert (cpu is None) == (not both.ule)
        recorded[cpu or 0, ts] = load
    end = both.trace.window[1] + BEGIN
    for cpu, ts in sorted(expected.keys() | recorded.keys()):
        # A thread that runs at the end has no switch-out.
        if ts == end:
            continue
        last[cpu] = expected.get((cpu, ts), last.get(cpu, 0))
        if (cpu, ts) in recorded:
            assert recorded[cpu, ts] == last[cpu], (cpu, ts)
        else:
            # No line was printed: one thread left and another came, or the other way round.
            before = [load for (c, t), load in recorded.items() if c == cpu and t < ts]
            assert (before[-1] if before else 0) == last[cpu], (cpu, ts)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("load", GENERATED, ids=lambda load: load.partition(":")[0])
def test_known_loads_are_read_back_from_their_lines(policy: str, machine: str, load: str) -> None:
    trace = ss.simulate(ss.workload.generate(load), policy=policy, machine=machine)
    assert trace.switches.collect().height > 10
    check(trace, POLICIES[policy])


@given(
    workloads(),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(MACHINES),
    st.integers(0, 1000),
    st.sampled_from([{}, {"ipi": 2_000, "idle_exit": 1_000, "switch": 1_500}]),
)
def test_random_loads_are_read_back_from_their_lines(
    load: Workload, policy: str, machine: str, seed: int, costs: dict[str, int]
) -> None:
    trace = ss.simulate(load, policy=policy, machine=machine, seed=seed, costs=costs)
    check(trace, POLICIES[policy])


def test_changed_row_is_detected() -> None:
    """The comparison itself: with one changed line it fails."""
    load = ss.workload.generate("periodic:6,run=2ms,sleep=3ms,times=4")
    trace = ss.simulate(load, policy="ule-14", machine="2")
    both = Both(trace, "ULE")
    table = both.got.tables["queue_load"]
    both.got.tables["queue_load"] = table.with_columns(pl.col("load") + (pl.col("load") == 2))
    with pytest.raises(AssertionError):
        loads(both)
    both.got.tables["waits"] = both.got.tables["waits"].with_columns(pl.col("wait") + 1)
    with pytest.raises(AssertionError, match="only simulated"):
        both.same("waits", both.simulated("waits"))
