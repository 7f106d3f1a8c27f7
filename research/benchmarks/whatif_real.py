"""How accurate `whatif` is: predicted from recordings as they were, against recordings changed.

Each workload is recorded several times as it is and several times changed (all of its threads on
CPU 0; for the hogs also other nice values), in turn. From each recording of the first kind `whatif`
predicts how long each service waits for a CPU after the change; the others show how long it did.
Prints a row for each service, and what the verdicts were worth. Needs root, for ftrace, and a C
compiler, for `research/lab/guest/work.c`.

    python research/benchmarks/whatif_real.py FOLDER [--runs 3] [--only hogs,server]

FOLDER keeps the recordings; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from schedscope.simulator.runs.services import figures, services
from schedscope.store.trace import Trace

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parents[1] / "collectors" / "capture"

ONE_CPU = "taskset -c 0 "

# Name: arguments of `work` and names of its threads. Its microseconds are those of an emulated
# machine: a real one does SCALE times as many loops in one.
SCALE = 19
WORKLOADS: dict[str, tuple[str, list[str]]] = {
    "hogs": (f"hogs {300 * SCALE} 0,0,0,5,10", ["hog*"]),
    "periodic": (f"sleepers 4 10000 {800 * SCALE} 150 2", ["hog*", "sleeper*"]),
    "server": (f"server 8 500 1500 {2000 * SCALE}", ["worker*", "dispatcher*"]),
    "build": (f"forks 4 60 {30000 * SCALE}", ["job*", "part*"]),
    "pipes": ("pipes 5 12000", ["writer*", "reader*"]),
}
NICE = {"hog2": 10, "hog3": 10}


def record(folder: Path, name: str, command: str) -> Trace:
    """The capture of this name, made if it is not there."""
    path = folder / f"{name}.capture"
    if not path.exists():
        subprocess.run(
            ["sh", str(CAPTURE), "-q", "-o", str(path), "--", *command.split()],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return ss.open(path)


def waiting(trace: Trace, comm: list[str], by: str) -> dict[str, int]:
    """The time that each service waited for a CPU, ns."""
    mine = trace.threads.filter(pl.col("comm").is_in(comm)).select("utid").collect()
    found = figures(trace, services(trace, by).join(mine, on="utid"))
    return {service: row["waiting"] for service, row in found.items()}


def names_in(trace: Trace, patterns: list[str]) -> list[str]:
    """The names of the workload's threads."""
    known = trace.threads.select("comm").unique().collect()["comm"].drop_nulls()
    return sorted(name for name in known if any(fnmatch(name, one) for one in patterns))


class Tally:
    """What the verdicts were worth."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.counts: Counter[str] = Counter()
        self.off: dict[str, list[float]] = defaultdict(list)

    def case(
        self,
        title: str,
        before: list[Trace],
        after: list[Trace],
        patterns: list[str],
        by: str,
        change: Mapping[str, Any] | None,
    ) -> None:
        """One workload and change: a row for each service."""
        was = [waiting(t, names_in(t, patterns), by) for t in before]
        then = [waiting(t, names_in(t, patterns), by) for t in after]
        answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for trace in before:
            comm = names_in(trace, patterns)
            asked = change or {"pin": dict.fromkeys(comm, "0")}
            frame = ss.whatif(trace, by=by, where=pl.col("comm").is_in(comm), **asked)
            for row in frame.filter(configuration="changed").iter_rows(named=True):
                answers[row[by]].append(row)
        for service in sorted(answers):
            old = [one[service] for one in was if service in one]
            new = [one[service] for one in then if service in one]
            if len(new) < len(after) or len(old) < len(before):
                continue
            self.service(title, service, old, new, answers[service])

    def service(
        self, title: str, name: str, old: list[int], new: list[int], rows: list[dict[str, Any]]
    ) -> None:
        """One service: prints its row, and counts."""
        real = statistics.median(new)
        apart = max(old) < min(new) or max(new) < min(old)
        for row in rows:
            verdict = row["verdict"]
            self.counts[verdict] += 1
            if verdict == "refused":
                continue
            said, first = row["waiting"], old[rows.index(row)]
            self.counts[f"{verdict} inside"] += row["waiting_low"] <= real <= row["waiting_high"]
            self.off[verdict].append(abs(math.log(max(said, 1) / real)))
            self.off[f"{verdict}, no change"].append(abs(math.log(first / real)))
            if apart:
                self.counts[f"{verdict} directions"] += 1
                right = (said > first) == (real > statistics.median(old))
                self.counts[f"{verdict} directions right"] += right
        told = [row for row in rows if row["verdict"] != "refused"]
        ms = 1e6
        said = "refused"
        if told:
            low, high = min(r["waiting_low"] for r in told), max(r["waiting_high"] for r in told)
            middle = statistics.median(r["waiting"] for r in told)
            said = f"{middle / ms:.0f} [{low / ms:.0f}, {high / ms:.0f}]"
        verdicts = ", ".join(f"{n} {v}" for v, n in Counter(r["verdict"] for r in rows).items())
        print(
            f"| {title}: {name} | {statistics.median(old) / ms:.0f} | {said} |"
            f" {real / ms:.0f} ({min(new) / ms:.0f} to {max(new) / ms:.0f}) | {verdicts} |",
            flush=True,
        )

    def print(self) -> None:
        """The counts, and the median factors."""
        print()
        for key, n in sorted(self.counts.items()):
            print(f"{key}: {n}")
        for key, values in sorted(self.off.items()):
            print(f"{key}: off by {math.exp(statistics.median(values)):.2f} in the median")


def main() -> None:
    """Record and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(WORKLOADS)}")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    work = args.folder / "work"
    source = HERE.parent / "lab" / "guest" / "work.c"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(work), str(source)], check=True)
    run = f"{work.resolve()} /dev/null "
    print("| change, service | recorded, ms | predicted, ms | real, ms | verdicts |")
    print("|---|---|---|---|---|")
    tally = Tally()
    for name in args.only.split(",") if args.only else WORKLOADS:
        arguments, patterns = WORKLOADS[name]
        before, after, nice = [], [], []
        for i in range(args.runs):
            before.append(record(args.folder, f"{name}-{i}", run + arguments))
            after.append(record(args.folder, f"{name}-one-cpu-{i}", ONE_CPU + run + arguments))
            if name == "hogs":
                changed = run + f"hogs {300 * SCALE} 0,0,10,10,10"
                nice.append(record(args.folder, f"{name}-nice-{i}", changed))
        tally.case(f"{name} on one CPU", before, after, patterns, "name", None)
        if nice:
            asked = {"set_nice": NICE}
            tally.case(f"{name} of other nice", before, nice, patterns, "comm", asked)
    tally.print()


if __name__ == "__main__":
    main()
