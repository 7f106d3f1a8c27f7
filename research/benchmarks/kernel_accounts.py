"""Waiting and interrupts in a recording, compared with the kernel's own counts.

    python research/benchmarks/kernel_accounts.py [SECONDS]

Needs root and tracefs. Loops and sleepers, three times as many as CPUs, share this machine; each
reads its own `/proc/self/schedstat` first and last. Between these two moments, its time as runnable
is compared with `run_delay`; a switch that the kernel left out of its trace makes time unknown,
which stands beside it. Below are the times of softirqs and hard interrupts, beside what
`/proc/stat` counts: in steps of 10 ms, and by samples at ticks on many kernels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

import schedscope as ss

CAPTURE = Path(__file__).resolve().parents[2] / "collectors" / "capture"
LOAD = """
import os, sys, time
def account():
    with open("/proc/self/schedstat") as file:
        begin = time.monotonic_ns()
        ran, waited, runs = map(int, file.read().split())
    return begin, waited
def work(sleeps):
    first = account()
    while time.monotonic_ns() < first[0] + SECONDS * 1e9:
        if sleeps: time.sleep(0.003)
        until = time.thread_time_ns() + 500_000
        while time.thread_time_ns() < until: pass
    print(("sleeper" if sleeps else "loop"), os.getpid(), *first, *account(), flush=True)
children = []
for number in range(3 * os.cpu_count()):
    if (child := os.fork()) == 0:
        work(number % 3 == 0)
        os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
"""


def accounts(folder: Path, seconds: float) -> tuple[ss.Trace, pl.DataFrame]:
    """Records it. A row per process: `what`, `pid`, `kernel`, `ours`, `unknown` (ns)."""
    log, target = folder / "log", folder / "x.capture"
    (folder / "load.py").write_text(LOAD.replace("SECONDS", str(seconds)))
    subprocess.run(
        ["sh", str(CAPTURE), "-q", "--with", "irq", "-o", str(target), "--", "sh", "-c",
         f"exec '{sys.executable}' -I -S '{folder}/load.py' >'{log}'"],
        check=True, timeout=120 + seconds,
    )  # fmt: skip
    trace = ss.open(target, cache=folder / "cache")
    states = trace.states.select(
        "utid", "ts", pl.col("state").cast(pl.String), end=pl.col("ts") + pl.col("dur")
    ).join(trace.threads.select("utid", "tid"), on="utid").collect()  # fmt: skip
    rows = []
    for line in log.read_text().splitlines():
        what, *numbers = line.split()
        pid, begin, before, end, after = map(int, numbers)
        inside = pl.min_horizontal("end", end) - pl.max_horizontal("ts", begin)
        sums = {
            state: int(
                states.filter(pl.col("tid") == pid, pl.col("state") == state)
                .select(inside.clip(0).sum())
                .item()
            )
            for state in ("runnable", "unknown")
        }
        rows.append((what, pid, after - before, sums["runnable"], sums["unknown"]))
    columns = ["what", "pid", "kernel", "ours", "unknown"]
    return trace, pl.DataFrame(rows, columns, orient="row")


def main() -> None:
    """Print both comparisons."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as folder:
        trace, rows = accounts(Path(folder), seconds)
        print(
            f"{'process':>16} {'run_delay':>12} {'runnable':>12} {'difference':>11} {'unknown':>9}"
        )
        for what, pid, kernel, ours, unknown in rows.iter_rows():
            print(
                f"{what:>8} {pid:>7} {kernel / 1e6:9.2f} ms {ours / 1e6:9.2f} ms"
                f" {(ours - kernel) / 1e6:8.3f} ms {unknown / 1e6:6.2f} ms"
            )
        total = rows.select(pl.col("kernel", "ours", "unknown").sum()).row(0)
        print("all: run_delay {:.2f} ms, runnable {:.2f} ms, unknown {:.2f} ms".format(
            *(one / 1e6 for one in total)
        ))  # fmt: skip
        for kind, name in (("hard", "irq"), ("soft", "softirq")):
            irqs = trace.irqs.filter(pl.col("kind").cast(pl.String) == kind)
            told = int(irqs.select(pl.col("dur").sum()).collect().item())
            counted = sum(int(row[name] or 0) for row in trace.info["cpu_time"])
            print(f"{kind}: {told / 1e6:.2f} ms recorded, {counted / 1e6:.0f} ms counted")
        stolen = sum(int(row["steal"] or 0) for row in trace.info["cpu_time"])
        print(f"steal: {stolen / 1e6:.0f} ms counted, of {trace.duration / 1e6:.0f} ms on each CPU")


if __name__ == "__main__":
    main()
