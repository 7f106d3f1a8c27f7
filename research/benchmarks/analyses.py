"""CPU seconds and peak memory of every analysis of a whole trace.

    python research/benchmarks/analyses.py                     a generated trace of 10 M events
    python research/benchmarks/analyses.py TRACE               a .sched folder, or what `open` opens
    python research/benchmarks/analyses.py TRACE --only queue  those whose name has the word
    python research/benchmarks/analyses.py TRACE --check       and fail above the limits

Each in a fresh process: the CPU time of all threads from the call to the answer, with the time to
start Python and load Polars left out, the least of `--runs`; and the most memory that the process
ever held (VmHWM), start and libraries included. Wall time is for the reader only: it depends on the
host's other work. CPU time is longer on a busy host, too, where cores share their units and caches:
up to twice as long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_CPU_S = 1.0
LIMIT_RSS = 10**9


@dataclass(frozen=True)
class Case:
    """One line of the table: an expression over `ss`, `pl`, `trace`, and `main` for a command."""

    name: str
    expression: str
    cpu_s: float | None = LIMIT_CPU_S
    """Limit for `--check`, of the 10 M events; None: shown only."""


# Add yours here: one line for each summary that a command or `report` calls.
CASES = [
    Case("check", "ss.check(trace)"),
    Case("definitions", "ss.definitions(trace)"),
    Case("latency by comm", "ss.latency(trace, by='comm')"),
    Case("latency by tid", "ss.latency(trace, by='tid')"),
    Case("survival", "ss.survival(trace)"),
    Case("worst waits", "ss.worst_waits(trace)"),
    Case("queue depth", "ss.queue_depth_summary(trace)"),
    Case("queue depth, machine", "ss.queue_depth_summary(trace, by='all')"),
    Case("queue depth every 1200th of it", "ss.queue_depth(trace, every=trace.duration // 1200)"),
    Case("cpu efficiency", "ss.efficiency(trace)"),
    Case("run lengths", "ss.run_lengths(trace)"),
    Case("run lengths by comm", "ss.run_lengths(trace, by='comm')"),
    Case("process efficiency", "ss.slowdown(trace)"),
    Case("preemption loss", "ss.preemption_loss(trace)"),
    Case("starvation, summary", "ss.starvation_summary(trace)"),
    Case("starvation, worst 100", "ss.starvation(trace, top=100)"),
    Case("starvation by share", "ss.starvation(trace, threshold=None, share=4, top=100)"),
    Case("starvation by lag, summary", "ss.starvation_summary(trace, threshold=None, lag='1s')"),
    Case("starvation by lag", "ss.starvation(trace, threshold=None, lag='1s', top=100)"),
    Case("fairness", "ss.fairness(trace)"),
    Case("fairness, machine", "ss.fairness(trace, per='machine')"),
    Case("interactivity, ULE", "ss.interactivity(trace)"),
    Case("virtual lag, EEVDF", "ss.virtual_lag(trace)"),
    Case("virtual lag, CFS", "ss.virtual_lag(trace, 'cfs')"),
    Case("wasted time", "ss.work_conservation(trace)"),
    Case("wasted time by cpu", "ss.work_conservation(trace, by='cpu')"),
    Case("wasted time by tid", "ss.work_conservation(trace, by='thread')"),
    Case("idle episodes", "ss.idle_episodes(trace)"),
    Case("wait breakdown", "ss.wait_breakdown(trace)"),
    Case("interference of one", "ss.interference(trace, where=pl.col('utid') == 8)"),
    Case("interference by comm", "ss.interference(trace, by='comm')"),
    Case("interference by tid", "ss.interference(trace)"),
    Case("outliers", "ss.outliers(trace)"),
    Case("wakers", "ss.wakers(trace)"),
    Case("off_cpu", "ss.off_cpu(trace)"),
    Case("critical path, 1 s", "ss.critical_path(trace, 50, 51, utid=8)"),
    Case("wake chain, 1 s", "ss.wake_chain(trace, 50, 51, utid=8)"),
    Case("critical path", "ss.critical_path(trace, utid=8)"),
    Case("migrations by comm", "ss.migration_summary(trace)"),
    Case("migrations by cause over time", "ss.migration_summary(trace, 'cause', every='1s')"),
    Case("migration matrix", "ss.migration_matrix(trace)"),
    Case("ping-pong", "ss.ping_pong(trace)"),
    Case("migrations against reports", "ss.migration_agreement(trace)"),
    Case("affinity by comm", "ss.affinity(trace)"),
    Case("residency", "ss.residency(trace)"),
    Case("CPU returns", "ss.cpu_returns(trace)"),
    Case("findings", "ss.findings(trace)", 15.0),
    # Everything on the page, with its figures drawn.
    Case("report", "main(['report', sys.argv[1], '-o', 'report.html', '-f'])", 15.0),
    # Not summaries: answers with very many rows.
    Case("queue depth, steps", "ss.queue_depth(trace)", None),
    Case("lag every second", "ss.lag(trace, every='1s')", None),
    Case("migrations, each", "ss.migrations(trace)", None),
]

_RUN = """
import json, sys, time
import polars as pl
import schedscope as ss
from schedscope.cli import main
trace = ss.Trace.read(sys.argv[1])
# Loads the module of the analysis and starts the thread pool.
code = compile(sys.argv[2], "case", "eval")
[getattr(ss, name) for name in code.co_names if name in ss.__all__]
pl.DataFrame({"x": [2, 1]}).sort("x").group_by("x").len()
cpu, wall = time.process_time(), time.perf_counter()
result = eval(code)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
# Not ru_maxrss, which begins at what the parent had when it forked.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
rows = getattr(result, "height", None)
print(json.dumps({"cpu": cpu, "wall": wall, "rss": peak, "rows": rows}))
"""


def measure(folder: Path, case: Case, runs: int, scratch: Path) -> dict[str, Any] | str:
    """The least of `runs` fresh processes; the last line of what one said if it failed."""
    found = []
    for _ in range(runs):
        words = [sys.executable, "-c", _RUN, str(folder.absolute()), case.expression]
        done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=scratch)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no word"])[-1]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    rows = found[0]["rows"]
    return {
        **{key: min(run[key] for run in found) for key in ("cpu", "wall", "rss")},
        "rows": rows,
    }


def generated(folder: Path, events: int) -> Path:
    """A `.sched` of `events` synthetic events: 8 CPUs, 400 threads."""
    import schedscope as ss
    from schedscope import _native

    source = folder / "generated.dat"
    _native.synthesize_trace_dat(source, events, 8, 400)
    trace = ss.convert(source, folder / "generated.sched")
    source.unlink()
    assert trace.path is not None
    return trace.path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--events", type=int, default=10_000_000, help="of the generated trace")
    parser.add_argument("--only", action="append", default=[], help="cases whose name has this")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    args = parser.parse_args()
    cases = [case for case in CASES if not args.only or any(w in case.name for w in args.only)]
    over, failed = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        if args.trace is None:
            folder = generated(Path(scratch), args.events)
        else:
            import schedscope as ss

            opened = ss.open(args.trace, cache=scratch)
            made = opened.path or opened.to_sched(Path(scratch) / "trace.sched").path
            assert made is not None
            folder = made
        about = json.loads((folder / "trace.json").read_text())
        rows = about.get("rows", {})
        sizes = ", ".join(
            f"{rows.get(name, 0):,} {name}" for name in ("states", "waits", "threads")
        )
        print(f"{folder.name}: {sizes}; load {os.getloadavg()[0]:.1f}")
        print(
            f"{'least of ' + str(args.runs):<28} {'CPU s':>7} {'wall s':>7} {'MB':>6} {'rows':>9}"
        )
        for case in cases:
            found = measure(folder, case, args.runs, Path(scratch))
            if isinstance(found, str):
                print(f"{case.name:<28} failed: {found}")
                failed += 1
                continue
            result = "-" if found["rows"] is None else f"{found['rows']:,}"
            print(
                f"{case.name:<28} {found['cpu']:7.3f} {found['wall']:7.3f}"
                f" {found['rss'] / 1e6:6.0f} {result:>9}",
                flush=True,
            )
            if case.cpu_s is not None and (found["cpu"] > case.cpu_s or found["rss"] > LIMIT_RSS):
                over.append(
                    f"{case.name}: {found['cpu']:.2f} s of {case.cpu_s:g} s CPU,"
                    f" {found['rss'] / 1e6:.0f} MB of {LIMIT_RSS / 1e6:.0f} MB"
                )
    if args.check and over:
        print("above the limits:\n  " + "\n  ".join(over), file=sys.stderr)
    return 1 if failed or (args.check and over) else 0


if __name__ == "__main__":
    sys.exit(main())
