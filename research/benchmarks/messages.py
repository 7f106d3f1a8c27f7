"""How closely loads that exchange messages are replayed where their system calls were recorded.

Records `perf bench sched messaging` over pipes, over pipes between threads, and over sockets, each
several times with `capture --with syscalls`, replays each recording at five instants of the clock
tick, and prints replayed over recorded: waits, mean depth of the queues, and how long the benchmark
took. The benchmark's threads alone are replayed (`--others`: what the rest does). Recordings of one
load, and replays of one recording, differ by a factor of up to five in their waits, so besides the
ratio of medians it says how many recordings lie between the extremes of their own replays, and how
many of the wakes from another CPU brought a thread to its waker's. The rest of the host is frozen
while one is recorded (`quiet`). Needs root, and perf.

    python research/benchmarks/messages.py FOLDER [--record] [--runs 5] [--only pp] [--from 3]

FOLDER keeps the recordings; those that are there are not made again. `--from` leaves out the first.

    python research/benchmarks/messages.py --lab NAME,... [FOLDER]

compares recordings of the laboratory instead, of machines NAME that `python -m research.lab.predict
--work messages` made, whose kernels are Linux as published. There all threads are replayed, since
all of the machine was recorded. FOLDER is the laboratory's cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from quiet import Quiet

import schedscope as ss
from schedscope.simulator.runs.repeated import repeated
from schedscope.simulator.runs.replay import replay
from schedscope.store.trace import Trace

HERE = Path(__file__).resolve().parent
LAB = Path(os.environ.get("SCHEDSCOPE_LAB") or Path.home() / ".cache" / "schedscope-lab")
CAPTURE = HERE.parents[1] / "collectors" / "capture"
WHO = pl.col("comm") == "sched-messaging"
LAB_WHO = pl.col("comm").str.contains("^(writer|reader)[0-9]+$")
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


@dataclass(frozen=True)
class Figures:
    """Figures of the load's threads: their waits, how many wait on average while any lives, how
    long that is, and of the wakes from another CPU the share that brought a thread to its waker's.
    """

    waits: int
    depth: float
    elapsed: float
    pulled: float


def figures(trace: Trace, threads: pl.DataFrame) -> Figures:
    """Figures of one recording or replay."""
    mine = threads.lazy()
    waits = trace.waits.filter(pl.col("censored") == "none").join(mine, on="utid")
    n = waits.select(pl.len())
    far = waits.filter(pl.col("cause") == "wake", pl.col("waker_cpu") != pl.col("prev_cpu"))
    pulled = far.select((pl.col("queue_cpu") == pl.col("waker_cpu")).mean())
    lives = trace.threads.join(mine, on="utid").select(pl.col("exit_ts").max())
    runnable = trace.states.filter(pl.col("state") == "runnable").join(mine, on="utid")
    count, last, waiting, moved = pl.collect_all(
        [n, lives, runnable.select(pl.col("dur").sum()), pulled]
    )
    lasted = (last.item() or trace.window[1]) - trace.window[0]
    return Figures(count.item(), waiting.item() / lasted, float(lasted), moved.item() or 0.0)


def replays(trace: Trace, threads: pl.DataFrame, others: str) -> list[Figures]:
    """The same of each replay; no `others`: all threads are replayed."""
    way = replay(trace, where=WHO, others=others) if others else replay(trace)
    rows = pl.DataFrame({"was": way.utids}).with_row_index("row")
    mine = rows.join(threads.rename({"utid": "was"}), on="was")
    end = f"{4 * trace.duration}ns"
    settings = way.settings(way.policy)
    found = []
    for again in repeated(way, policy=way.policy, set=settings, replays=PHASES, until=end):
        utids = mine.select(utid=(pl.col("row") + again.ncpu).cast(pl.UInt32))
        found.append(figures(again, utids))
    return found


def spread(values: Iterable[float]) -> str:
    """Median and extremes."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def row(title: str, paths: Sequence[Path], who: pl.Expr, others: str) -> str:
    """The recordings of one load beside their replays."""
    real, middles, pulled, inside = [], [], [], 0
    ratios: dict[str, list[float]] = {"waits": [], "depth": [], "elapsed": []}
    for path in paths:
        trace = ss.open(path)
        threads = trace.threads.filter(who).select("utid").collect()
        own, runs = figures(trace, threads), replays(trace, threads, others)
        for name, found in ratios.items():
            middle = statistics.median(getattr(run, name) for run in runs)
            found.append(middle / getattr(own, name))
        real.append(own.waits)
        n = [run.waits for run in runs]
        middles.append(statistics.median(n))
        inside += min(n) <= own.waits <= max(n)
        pulled.append((own.pulled, statistics.median(run.pulled for run in runs)))
    of_medians = statistics.median(middles) / statistics.median(real)
    recorded, replayed = (statistics.median(pair[i] for pair in pulled) for i in (0, 1))
    return (
        f"| {title} | {min(real):,} to {max(real):,} | {spread(ratios['waits'])} |"
        f" {of_medians:.2f} | {inside} of {len(real)} | {spread(ratios['depth'])} |"
        f" {spread(ratios['elapsed'])} | {recorded:.0%}, {replayed:.0%} |"
    )


def main() -> None:
    """A row for each load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--from", type=int, default=1, metavar="I", dest="first")
    parser.add_argument("--record", action="store_true", help="only record")
    parser.add_argument("--others", choices=("occupy", "compete", "drop"), default="occupy")
    parser.add_argument("--lab", metavar="NAME,...", help="machines of the laboratory")
    args = parser.parse_args()
    loads: list[tuple[str, list[Path]]]
    if args.lab:
        runs = (args.folder or LAB) / "runs"
        loads = [(name, sorted((runs / name).glob("*.capture"))) for name in args.lab.split(",")]
        if lacking := [name for name, found in loads if not found]:
            parser.error(f"no recordings of {', '.join(lacking)} in {runs}")
    elif args.folder:
        args.folder.mkdir(exist_ok=True)
        names = args.only.split(",") if args.only else list(LOADS)
        numbers = range(args.first, args.runs + 1)
        record(args.folder, names, numbers)
        loads = [(LOADS[x][0], [args.folder / f"{x}{i}.capture" for i in numbers]) for x in names]
    else:
        parser.error("FOLDER, or --lab")
    if args.record:
        return
    print(
        "| load | waits recorded | waits | of medians | inside | mean depth | elapsed"
        " | to the waker's CPU |"
    )
    print("|---|---|---|---|---|---|---|---|")
    who, others = (LAB_WHO, "") if args.lab else (WHO, args.others)
    for title, paths in loads:
        print(row(title, paths, who, others), flush=True)


if __name__ == "__main__":
    main()
