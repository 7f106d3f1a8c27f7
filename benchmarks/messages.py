"""How closely loads that exchange messages are replayed where their system calls were recorded.

Records `perf bench sched messaging` over pipes, over pipes between threads, and over sockets, each
several times with `capture --with syscalls`, replays each recording at five instants of the clock
tick, and prints replayed over recorded: waits, mean depth of the queues, and how long the benchmark
took. The benchmark's threads alone are replayed. Recordings of one load, and replays of one
recording, differ by a factor of up to five in their waits, so besides the ratio of medians it says
how many recordings lie between the extremes of their own replays. The rest of the host is frozen
while one is recorded (`quiet`). Needs root, and perf.

    python benchmarks/messages.py FOLDER [--record] [--runs 5] [--only pp] [--from 3]

FOLDER keeps the recordings; those that are there are not made again. `--from` leaves out the first.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
from quiet import Quiet

import schedscope as ss
from schedscope.simulator.replay import replay
from schedscope.trace import Trace

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parent / "collectors" / "capture"
WHO = "sched-messaging"
LOADS = {
    "pp": ("pipes", "-p -g 2 -l 200"),
    "pt": ("pipes and threads", "-p -t -g 2 -l 200"),
    "so": ("sockets", "-g 2 -l 100"),
}
PHASES = 5
EXTRAS = ("--with", "syscalls")


def record(folder: Path, names: Iterable[str], runs: range) -> None:
    """The captures that are not there, while the rest of the host is kept away."""
    lacking = [(folder / f"{name}{i}.capture", LOADS[name][1]) for name in names for i in runs]
    lacking = [(path, options) for path, options in lacking if not path.exists()]
    if not lacking:
        return
    with Quiet() as quiet:
        for path, options in lacking:
            command = ["perf", "bench", "sched", "messaging", *options.split()]
            with quiet.while_recording():
                subprocess.run(
                    ["sh", str(CAPTURE), "-q", *EXTRAS, "-o", str(path), "--", *command],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )


def figures(trace: Trace, threads: pl.DataFrame) -> tuple[int, float, float]:
    """Waits of these threads, mean number that wait while any lives, and how long that is."""
    mine = threads.lazy()
    n = trace.waits.filter(pl.col("censored") == "none").join(mine, on="utid").select(pl.len())
    lives = trace.threads.join(mine, on="utid").select(pl.col("exit_ts").max())
    runnable = trace.states.filter(pl.col("state") == "runnable").join(mine, on="utid")
    count, last, waiting = pl.collect_all([n, lives, runnable.select(pl.col("dur").sum())])
    lasted = (last.item() or trace.window[1]) - trace.window[0]
    return count.item(), waiting.item() / lasted, float(lasted)


def replays(trace: Trace, threads: pl.DataFrame) -> list[tuple[int, float, float]]:
    """The same of each replay."""
    way = replay(trace, where=pl.col("comm") == WHO, others="occupy")
    shape = way.workload.machine
    assert shape is not None
    rows = pl.DataFrame({"was": way.utids}).with_row_index("row")
    mine = rows.join(threads.rename({"utid": "was"}), on="was")
    settings = way.settings(way.policy)
    period = 1_000_000_000 // int(settings.get("hz") or 250)
    found = []
    for i in range(PHASES):
        phase = (shape.tick_phase + i * period // PHASES) % period
        again = ss.simulate(
            way.workload,
            policy=way.policy,
            machine=replace(shape, tick_phase=phase),
            set=settings,
            costs=way.costs,
            seed=1 + i,
            until=f"{4 * trace.duration}ns",
        )
        utids = mine.select(utid=(pl.col("row") + again.ncpu).cast(pl.UInt32))
        found.append(figures(again, utids))
    return found


def spread(values: Iterable[float]) -> str:
    """Median and extremes."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def main() -> None:
    """A row for each load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--from", type=int, default=1, metavar="I", dest="first")
    parser.add_argument("--record", action="store_true", help="only record")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    names = args.only.split(",") if args.only else list(LOADS)
    numbers = range(args.first, args.runs + 1)
    record(args.folder, names, numbers)
    if args.record:
        return
    print("| load | waits recorded | waits | of medians | inside | mean depth | elapsed |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        title = LOADS[name][0]
        real, ratios, middles, inside = [], [], [], 0
        for i in numbers:
            trace = ss.open(args.folder / f"{name}{i}.capture")
            threads = trace.threads.filter(pl.col("comm") == WHO).select("utid").collect()
            own, runs = figures(trace, threads), replays(trace, threads)
            middle = [statistics.median(run[k] for run in runs) for k in range(3)]
            ratios.append([m / o for m, o in zip(middle, own, strict=True)])
            real.append(own[0])
            middles.append(middle[0])
            n = [run[0] for run in runs]
            inside += min(n) <= own[0] <= max(n)
        of_medians = statistics.median(middles) / statistics.median(real)
        waits, depth, elapsed = (spread(r[k] for r in ratios) for k in range(3))
        print(
            f"| {title} | {min(real):,} to {max(real):,} | {waits} | {of_medians:.2f} |"
            f" {inside} of {len(real)} | {depth} | {elapsed} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
