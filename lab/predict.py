"""The prediction bench: workloads recorded under one kernel and asked for another, beside reality.

`python -m lab.predict` records what lab/predictions.toml lists, in emulated machines of counted
time, replays each recording under the policy of the kernel that is asked for, and compares. A
machine that was recorded before is not booted again. See lab/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import schedscope as ss
from lab import predictions_page
from lab.__main__ import default_cache, matrix, one
from lab.boots import Cell, Run
from lab.factors import compare
from lab.guests import HERE


@dataclass(frozen=True)
class Plan:
    """predictions.toml."""

    repeats: int
    policies: dict[str, str]
    """The policy that models a kernel, by the kernel's short name."""
    kernels: dict[str, str]
    """The kernel of matrix.toml by its short name."""
    works: dict[str, dict[int, str]]
    """Arguments of the workload by its name and the number of CPUs."""
    cases: list[tuple[str, str]]
    """Source and target, by short names."""

    def cell(self, kernel: str, cpus: int, work: str) -> Cell:
        """The machine that records a workload under a kernel."""
        return Cell(
            name=f"bench-{kernel}-{cpus}cpu-{work}",
            kernel=self.kernels[kernel],
            work=self.works[work][cpus],
            smp=str(cpus),
            counted=True,
            repeats=self.repeats,
        )


def plan() -> Plan:
    """What predictions.toml says."""
    document = tomllib.loads((HERE / "predictions.toml").read_text())
    works = {row.pop("name"): row for row in document["work"]}
    return Plan(
        repeats=document["repeats"],
        policies={row["name"]: row["policy"] for row in document["kernel"]},
        kernels={row["name"]: row["kernel"] for row in document["kernel"]},
        works={name: {int(n): text for n, text in row.items()} for name, row in works.items()},
        cases=[(row["source"], row["target"]) for row in document["case"]],
    )


def captures(run: Run) -> list[ss.Trace]:
    """The recordings of a run, in the order of their seeds."""
    found = sorted(run.folder.glob("*.capture"), key=lambda path: int(path.stem))
    return [ss.open(path, cache=run.folder / "cache") for path in found]


def compared(plan: Plan, runs: dict[tuple[str, int, str], Run]) -> Iterator[pl.DataFrame]:
    """The rows of each case, number of CPUs and workload of which both sides were recorded."""
    for source, target in plan.cases:
        for cpus, work in sorted({(cpus, work) for _, cpus, work in runs}):
            sides = runs.get((source, cpus, work)), runs.get((target, cpus, work))
            if sides[0] is None or sides[1] is None:
                continue
            before, after = (captures(run) for run in sides if run)
            rows = compare(before, after, plan.policies[target], same=source == target)
            print(f"{source} -> {target}, {cpus} CPUs, {work}: replayed", flush=True)
            key = {"source": source, "target": target, "cpus": cpus, "work": work}
            yield rows.select(*[pl.lit(x).alias(name) for name, x in key.items()], pl.all())


def main() -> int:
    """Record what was not recorded yet, compare, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m lab.predict", description=__doc__)
    parser.add_argument("--cpus", type=int, action="append", help="only machines of so many CPUs")
    parser.add_argument("--work", action="append", help="only this workload")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each boot")
    parser.add_argument("--jobs", type=int, default=1, help="boots at a time (default: 1)")
    parser.add_argument("--again", action="store_true", help="record again what was recorded")
    parser.add_argument("-o", "--output", type=Path, help="write the rows as Parquet")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the tables into a page")
    arguments = parser.parse_args()
    asked, (kernels, _) = plan(), matrix()
    wanted = [
        (name, cpus, work)
        for work, by_cpus in asked.works.items()
        for cpus in by_cpus
        for name in sorted({name for case in asked.cases for name in case})
        if cpus in (arguments.cpus or [cpus]) and work in (arguments.work or [work])
    ]
    if not wanted:
        parser.error("no such workload; see lab/predictions.toml")

    def run(what: tuple[str, int, str]) -> Run:
        cell = asked.cell(*what)
        given = {"again": arguments.again, "timeout": arguments.timeout}
        return one(arguments.cache, cell, kernels[cell.kernel], **given)

    runs: dict[tuple[str, int, str], Run] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for n, (what, done) in enumerate(zip(wanted, pool.map(run, wanted), strict=True), 1):
            said = f"FAILED: {done.failed}" if done.failed else f"{done.cpu:.0f} CPU s"
            print(f"[{n}/{len(wanted)}] {done.cell}: {said}", flush=True)
            if not done.failed:
                runs[what] = done
    parts = list(compared(asked, runs))
    if not parts:
        print("nothing was recorded of which both sides are there", file=sys.stderr)
        return 1
    rows = pl.concat(parts)
    if arguments.output:
        rows.write_parquet(arguments.output)
    print(predictions_page.summary(rows))
    if arguments.write:
        predictions_page.write(arguments.write, rows)
    return int(len(runs) < len(wanted))


if __name__ == "__main__":
    sys.exit(main())
