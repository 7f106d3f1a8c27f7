"""CPU time of the latency table, beside other ways to the same table, in one run.

    python research/benchmarks/latency_table.py TRACE ...     default: a generated ledger

For each trace: the table by comm from its `.sched` folder, in millions of trace
events per CPU second (all threads count), with the time to start Python and
load Polars left out, and the peak memory. Beside it, where installed:
`trace-cmd report` (which only prints the events) on trace.dat, `perf sched
latency` on perf.data.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

# Waits per event in the captures that come with schedscope.
EVENTS_PER_WAIT = 2.4

_RUN = """
import json, resource, sys, time
import schedscope as ss
def peak():
    # Not ru_maxrss, which begins at what the parent had when it forked.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
import polars as pl
path, by = sys.argv[1], json.loads(sys.argv[2])
trace = ss.Trace.read(path)
analyse = ss.latency  # loads it
pl.DataFrame({"x": [2, 1]}).sort("x").group_by("x").len()  # start the thread pool
before, wall = time.process_time(), time.perf_counter()
frame = analyse(trace, by=by)
print(json.dumps({
    "cpu": time.process_time() - before,
    "wall": time.perf_counter() - wall,
    "rss": peak(),
    "rows": frame.height, "n": int(frame["n"].sum()), "events": trace.events,
}))
"""


def generated(folder: Path, waits: int) -> Path:
    """A `.sched` folder with a ledger of lognormal waits over 2,000 threads."""
    from schedscope import Trace
    from schedscope.parsers.schema import TABLES

    rng = np.random.default_rng(1)
    ts = np.sort(rng.integers(0, 60_000_000_000, waits))
    wait = np.exp(rng.normal(9, 2.5, waits)).astype(np.int64)
    utid = (rng.zipf(1.3, waits) % 2000 + 8).astype(np.uint32)
    schema = TABLES["waits"].schema
    causes = np.array(["wake", "preempt", "new", "yield"])[rng.integers(0, 4, waits)]
    given = {
        "utid": utid,
        "cause": causes,
        "ts_waking": ts,
        "ts_ready": ts,
        "ts_enqueued": ts + 100,
        "ts_run": ts + wait,
        "queue_cpu": utid % 8,
        "cpu": utid % 8,
        "placement": np.full(waits, 100),
        "queue": wait - 100,
        "wait": wait,
        "censored": np.full(waits, "none"),
    }
    frame = pl.DataFrame(given).with_columns(
        pl.lit(None).alias(name) for name in schema if name not in given
    )
    threads = [{"utid": i, "tid": i, "comm": f"worker-{i // 4}"} for i in range(2008)]
    columns = TABLES["threads"].schema
    tables = {
        "waits": frame.select(list(schema)).cast(schema),
        "threads": pl.DataFrame([{c: row.get(c) for c in columns} for row in threads], columns),
    }
    events = {"generated": {"0": round(waits * EVENTS_PER_WAIT)}}
    info = {"ncpu": 8, "window": [0, 60_000_000_000], "events": events}
    path = Trace.from_tables(tables, info).to_sched(folder / "generated.sched").path
    assert path is not None
    return path


def measure(sched: Path, by: list[str]) -> dict[str, float]:
    """Median of three fresh processes, by CPU time."""
    runs = []
    for _ in range(3):
        words = [sys.executable, "-c", _RUN, str(sched), json.dumps(by)]
        told = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
        runs.append(dict[str, float](json.loads(told)))
    return sorted(runs, key=lambda run: run["cpu"])[1]


def cpu_of(words: list[str]) -> float | None:
    """CPU seconds of another tool, children included; None if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def others(source: Path) -> dict[str, list[str]]:
    """Commands of other tools that read `source`."""
    head = source.read_bytes()[:10] if source.is_file() else b""
    tools = {}
    if head.startswith(b"\x17\x08\x44tracing") and shutil.which("trace-cmd"):
        tools["trace-cmd report"] = ["trace-cmd", "report", "-i", str(source)]
    if head.startswith(b"PERFILE2") and shutil.which("perf"):
        tools["perf sched latency"] = ["perf", "sched", "-i", str(source), "latency"]
    return tools


def line(name: str, events: float, cpu: float, extra: str = "") -> None:
    print(f"  {name:<28} {cpu:8.3f} CPU s  {events / cpu / 1e6:7.2f} M events/CPU s  {extra}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--waits", type=int, default=5_000_000, help="rows of the generated ledger")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sources = args.traces or [generated(Path(scratch), args.waits)]
        for source in sources:
            from schedscope import open as open_trace

            start = time.process_time()
            trace = open_trace(source, cache=scratch)
            converting = time.process_time() - start
            assert trace.path is not None
            print(f"{source.name}: {trace.events:,} events, load {os.getloadavg()[0]:.1f}")
            if trace.path != source:
                line("convert, once", trace.events, max(converting, 1e-9))
            for by in (["comm"], ["tid"], ["cpu"], ["comm", "cause"], []):
                run = measure(trace.path, by)
                extra = f"{run['wall']:.3f} s, {run['rss'] / 2**20:.0f} MiB, {run['rows']} rows"
                line(f"latency by {' '.join(by) or 'nothing'}", run["events"], run["cpu"], extra)
            for name, words in others(source).items():
                cpu = cpu_of(words)
                if cpu:
                    line(name, trace.events, cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
