"""A digest of every answer on every fixture: did a change of code change a number?

    python research/benchmarks/frames.py write before.json     run everything, keep the digests
    python research/benchmarks/frames.py compare before.json   run again, and list what differs

A digest is kept per column, so that a difference names the columns that hold it. Traces are the
fixtures and one small workload simulated under every policy. An answer that is refused is kept as
its sentence. `compare` exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from schedscope.errors import SchedscopeError
from schedscope.simulator.runs.summary import summary, waits_by_class

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SUFFIXES = (".capture", ".dat", ".data", ".pftrace", ".txt")


def plain_questions() -> list[str]:
    """The public analyses that need nothing but a trace and return a frame."""
    found = []
    for name in dir(ss):
        public = getattr(ss, name)
        if not getattr(public, "__module__", "").startswith("schedscope.analysis."):
            continue
        parameters = inspect.signature(public).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty]
        if required == ["trace"] and public.__annotations__.get("return") == "pl.DataFrame":
            found.append(name)
    return found


def questions() -> dict[str, Callable[[ss.Trace], Any]]:
    """What is asked of each trace: every plain question, and those below, which have arguments.

    A public analysis that is in neither fails `tests/analysis/test_question_needs.py`.
    """
    busiest = pl.col("utid") >= 0
    asked: dict[str, Callable[[ss.Trace], Any]] = {
        **{name: getattr(ss, name) for name in plain_questions()},
        "affinity tid": lambda t: ss.affinity(t, "tid"),
        "wait_breakdown wait": lambda t: ss.wait_breakdown(t, by="wait"),
        "interference comm": lambda t: ss.interference(t, by="comm"),
        "compare": lambda t: ss.compare(t, t, resamples=100, blocks=8),
        "critical_path": lambda t: ss.critical_path(t, utid=longest_lived(t)),
        "wake_chain": lambda t: ss.wake_chain(t, utid=longest_lived(t)),
        "episode_interference": lambda t: ss.episode_interference(
            t, ss.starvation(t, threshold="5ms")
        ),
        "as_defined": lambda t: ss.as_defined(t, "perf").waits.collect(),
        "fairness comm": lambda t: ss.fairness(t, by="comm"),
        "idle_episodes": lambda t: ss.idle_episodes(t, longer_than="1us"),
        "work_conservation cpu": lambda t: ss.work_conservation(t, by="cpu"),
        "work_conservation tid": lambda t: ss.work_conservation(t, by="thread"),
        "interactivity o1": lambda t: ss.interactivity(t, "o1"),
        "isolation_leaks": lambda t: ss.isolation_leaks(t, "0"),
        "match_threads": lambda t: ss.match_threads([t, t]),
        "migration_summary cause": lambda t: ss.migration_summary(t, "cause", every="100ms"),
        "off_cpu comm": lambda t: ss.off_cpu(t, by="comm"),
        "queue_depth every": lambda t: ss.queue_depth(t, every=max(1, t.duration // 50)),
        "run_lengths comm": lambda t: ss.run_lengths(t, by="comm"),
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
        "virtual_lag cfs": lambda t: ss.virtual_lag(t, "cfs"),
        "wait_distribution": lambda t: ss.wait_distribution(t, t),
        "weight_notes": lambda t: pl.DataFrame({"note": ss.weight_notes(t)}),
        "outcome": lambda t: pl.DataFrame([summary(t)]),
        "outcome by class": lambda t: pl.DataFrame(waits_by_class(t)),
        "states": lambda t: t.states.collect(),
        "waits": lambda t: t.waits.collect(),
    }
    return asked


def longest_lived(trace: ss.Trace) -> int:
    """The thread that ran most, for questions about a single thread."""
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
                except Exception as error:  # show what is broken, and everything else, too
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
