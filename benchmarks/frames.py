"""A digest of every answer on every fixture: did a change of code change a number?

    python benchmarks/frames.py write before.json     run everything, keep the digests
    python benchmarks/frames.py compare before.json   run again, and list what differs

A digest is kept per column, so that a difference names the columns that hold it. Traces are the
fixtures and one small workload simulated under every policy. An answer that is refused is kept as
its sentence. `compare` exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from schedscope.errors import SchedscopeError
from schedscope.simulator.summary import summary, waits_by_class

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
SUFFIXES = (".capture", ".dat", ".data", ".pftrace", ".txt")


def questions() -> dict[str, Callable[[ss.Trace], Any]]:
    """What is asked of each trace. A public analysis that is missing here fails the test."""
    busiest = pl.col("utid") >= 0
    asked: dict[str, Callable[[ss.Trace], Any]] = {
        "affinity": lambda t: ss.affinity(t),
        "affinity tid": lambda t: ss.affinity(t, "tid"),
        "wait_breakdown": lambda t: ss.wait_breakdown(t),
        "wait_breakdown wait": lambda t: ss.wait_breakdown(t, by="wait"),
        "interference": lambda t: ss.interference(t),
        "interference comm": lambda t: ss.interference(t, by="comm"),
        "check": lambda t: ss.check(t),
        "compare": lambda t: ss.compare(t, t, resamples=100, blocks=8),
        "efficiency": lambda t: ss.efficiency(t),
        "cpu_returns": lambda t: ss.cpu_returns(t),
        "critical_path": lambda t: ss.critical_path(t, utid=longest_lived(t)),
        "episode_interference": lambda t: ss.episode_interference(
            t, ss.starvation(t, threshold="5ms")
        ),
        "definitions": lambda t: ss.definitions(t),
        "as_defined": lambda t: ss.as_defined(t, "perf").waits.collect(),
        "findings": lambda t: ss.findings(t),
        "events": lambda t: ss.events(t),
        "fairness": lambda t: ss.fairness(t),
        "fairness comm": lambda t: ss.fairness(t, by="comm"),
        "jain_index": lambda t: ss.jain_index(t),
        "idle_episodes": lambda t: ss.idle_episodes(t, longer_than="1us"),
        "work_conservation": lambda t: ss.work_conservation(t),
        "work_conservation cpu": lambda t: ss.work_conservation(t, by="cpu"),
        "work_conservation tid": lambda t: ss.work_conservation(t, by="thread"),
        "interactivity": lambda t: ss.interactivity(t),
        "interactivity o1": lambda t: ss.interactivity(t, "o1"),
        "interactivity_series": lambda t: ss.interactivity_series(t),
        "isolation_leaks": lambda t: ss.isolation_leaks(t, "0"),
        "runs_outside_affinity": lambda t: ss.runs_outside_affinity(t),
        "lag": lambda t: ss.lag(t),
        "match_threads": lambda t: ss.match_threads([t, t]),
        "migration_agreement": lambda t: ss.migration_agreement(t),
        "migration_matrix": lambda t: ss.migration_matrix(t),
        "migration_summary": lambda t: ss.migration_summary(t),
        "migration_summary cause": lambda t: ss.migration_summary(t, "cause", every="100ms"),
        "migrations": lambda t: ss.migrations(t),
        "ping_pong": lambda t: ss.ping_pong(t),
        "off_cpu": lambda t: ss.off_cpu(t),
        "off_cpu comm": lambda t: ss.off_cpu(t, by="comm"),
        "preemption_loss": lambda t: ss.preemption_loss(t),
        "slowdown": lambda t: ss.slowdown(t),
        "queue_depth": lambda t: ss.queue_depth(t),
        "queue_depth every": lambda t: ss.queue_depth(t, every=max(1, t.duration // 50)),
        "queue_depth_summary": lambda t: ss.queue_depth_summary(t),
        "queue_load_agreement": lambda t: ss.queue_load_agreement(t),
        "residency": lambda t: ss.residency(t),
        "run_lengths": lambda t: ss.run_lengths(t),
        "run_lengths comm": lambda t: ss.run_lengths(t, by="comm"),
        "latency": lambda t: ss.latency(t),
        "latency_histogram": lambda t: ss.latency_histogram(t),
        "latency comm": lambda t: ss.latency(t, by="comm"),
        "latency tid": lambda t: ss.latency(t, by="tid"),
        "latency every": lambda t: ss.latency(t, every="100ms"),
        "latency km": lambda t: ss.latency(t, censored="kaplan-meier"),
        "latency where": lambda t: ss.latency(t, by="comm", where=busiest),
        "starvation": lambda t: ss.starvation(t, threshold="5ms"),
        "starvation share": lambda t: ss.starvation(t, threshold=None, share=4, top=50),
        "starvation_summary": lambda t: ss.starvation_summary(t, threshold="5ms"),
        "starvation_timeline": lambda t: ss.starvation_timeline(
            t, ss.starvation(t, threshold="100us")
        ),
        "survival": lambda t: ss.survival(t),
        "virtual_lag": lambda t: ss.virtual_lag(t),
        "virtual_lag cfs": lambda t: ss.virtual_lag(t, "cfs"),
        "virtual_lag_series": lambda t: ss.virtual_lag_series(t),
        "wait_distribution": lambda t: ss.wait_distribution(t, t),
        "wakers": lambda t: ss.wakers(t),
        "weights": lambda t: ss.weights(t),
        "weight_notes": lambda t: pl.DataFrame({"note": ss.weight_notes(t)}),
        "worst_waits": lambda t: ss.worst_waits(t),
        "outcome": lambda t: pl.DataFrame([summary(t)]),
        "outcome by class": lambda t: pl.DataFrame(waits_by_class(t)),
        "states": lambda t: t.states.collect(),
        "waits": lambda t: t.waits.collect(),
    }
    return asked


def longest_lived(trace: ss.Trace) -> int:
    """The thread that ran most: whose path is of interest."""
    ran = (
        trace.states.filter(pl.col("utid") >= trace.ncpu, pl.col("state") == "running")
        .group_by("utid")
        .agg(pl.col("dur").sum())
        .sort("dur", "utid", descending=[True, False])
        .collect()
    )
    return int(ran["utid"][0]) if ran.height else trace.ncpu


def traces(cache: str) -> Iterator[tuple[str, ss.Trace]]:
    """Every fixture that can be opened, and a mix of loads under every policy."""
    for path in sorted(FIXTURES.iterdir()):
        if path.name.endswith(SUFFIXES):
            try:
                yield path.name, ss.open(path, cache=cache)
            except SchedscopeError as error:  # the judges' listings beside the fixtures
                print(f"{path.name}: {type(error).__name__}", file=sys.stderr)
    for policy in ss.policies()["name"]:
        yield f"simulated {policy}", mixed(policy)


def mixed(policy: str) -> ss.Trace:
    """Hogs of several nice levels, sleepers and a real-time thread on two CPUs, for half a second.

    The last 10 ms stay open: some waits are censored.
    """
    load = ss.workload.Builder()
    for nice in (0, 5, -5, 10):
        load.thread(f"hog{nice}", nice=nice).run("1s")
    for i in range(4):
        sleeper = load.thread(f"sleeper-{i}", nice=i, start=i * 1_000_000)
        sleeper.run("700us").sleep("4ms").repeat(200)
    urgent = load.thread("urgent", sched="fifo", rt_prio=10, start="2ms")
    urgent.run("300us").sleep("20ms").repeat(40)
    return ss.simulate(load.workload(), policy=policy, cpus=2, until="500ms")


def digests(frame: Any) -> dict[str, str]:
    """One digest per column, of its type and all values in order."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    out = {"(rows)": str(frame.height)}
    for name in frame.columns:
        values = frame[name]
        text = repr((str(values.dtype), [rounded(v) for v in values.to_list()]))
        out[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return out


def rounded(value: Any) -> Any:
    """Sums of floats may differ in the last digits by the order in which threads add them."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def run(only: str) -> dict[str, dict[str, str]]:
    """Every answer's digests, by "trace / question"."""
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name, trace in traces(cache):
            print(name, file=sys.stderr)
            for question, ask in questions().items():
                if only not in f"{name} / {question}":
                    continue
                try:
                    found[f"{name} / {question}"] = digests(ask(trace))
                except SchedscopeError as error:
                    found[f"{name} / {question}"] = {"(refused)": str(error)}
                except Exception as error:  # what is broken is to be seen, and the rest, too
                    found[f"{name} / {question}"] = {"(raised)": f"{type(error).__name__}: {error}"}
    return found


def main() -> int:
    """Write the digests, or compare with those written before."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="text that 'trace / question' contains")
    args = parser.parse_args()
    now = run(args.only)
    if args.what == "write":
        args.file.write_text(json.dumps(now, indent=1))
        return 0
    before = json.loads(args.file.read_text())
    differing = 0
    for key in sorted({*before, *now}):
        if args.only not in key:
            continue
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        differing += 1
        if old is None or new is None:
            print(f"{key}: {'new' if old is None else 'gone'}")
            continue
        for column in sorted({*old, *new}):
            if old.get(column) != new.get(column):
                print(f"{key}: {column}: {old.get(column)} -> {new.get(column)}")
    print(f"{differing} of {len(now)} answers differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
