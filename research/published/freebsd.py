"""Run-for-run comparison of `ule-14` and `4bsd` with what FreeBSD's own files do.

    python -m research.published.freebsd FOLDER [CASE ...] [--policy 4bsd] [--chance N]

FOLDER holds small programs (`cases.csv`, `threads.csv`, `steps.csv`) and the runs that the kernel's
own scheduler made of them (`runs.parquet` for ULE, `4bsd/runs.parquet` for 4BSD, `chance.csv` for
ULE with its random numbers): `fixtures/freebsd-schedulers.md` describes them. The programs run
under our policy on the same machine, and the two sequences of runs are compared: each run's thread,
CPU, start and end, to the nanosecond.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder, Program
from schedscope.simulator.workloads.machine import Cpu, Machine
from schedscope.simulator.workloads.workload import Workload
from schedscope.store.trace import Trace

RUNS = {"ule-14": "runs.parquet", "4bsd": "4bsd/runs.parquet"}
"""The policies that are compared, and where the kernel's runs of each are."""

SETTINGS: dict[str, dict[str, Any]] = {
    "ule-14": {"hz": 1000, "stathz": 127},
    # The machine that made the runs: priorities of release 12, a fixed load average.
    "4bsd": {"stathz": 127, "min_timeshare": 120, "load_average": 2},
}
"""Tunables that make our policy the machine of the cases."""

WITHOUT_CHANCE: dict[str, dict[str, Any]] = {"ule-14": {"random": False}, "4bsd": {}}
"""Added to them where the kernel ran with chance taken out."""

RT_PRIO = 52
"""Our real-time priority whose place on FreeBSD's 32 levels is rtprio 15."""

MEASURES = ("wait_mean_ms", "wait_p90_ms", "wait_p99_ms")
"""What a run with chance is held against: the span over the kernel's own seeds."""


@dataclass(frozen=True)
class Cases:
    """The programs, and where they lie."""

    folder: Path
    cases: pl.DataFrame
    threads: dict[str, pl.DataFrame]
    steps: dict[str, pl.DataFrame]

    def names(self, policy: str) -> list[str]:
        """The cases that the kernel ran under this policy."""
        ran = set(self.runs(policy)["case"].unique())
        return [name for name in self.cases["case"] if name in ran]

    def runs(self, policy: str) -> pl.DataFrame:
        """The kernel's runs: `case, start, end, cpu, thread`, in order of start and CPU."""
        frame = pl.read_parquet(self.folder / RUNS[policy])
        if "gap" in frame.columns:
            # Compact form: starts as differences within a case, ends as lengths.
            frame = frame.with_columns(
                pl.col("case").cast(pl.String),
                start=pl.col("gap").cast(pl.Int64).cum_sum().over("case"),
            ).with_columns(end=pl.col("start") + pl.col("dur"))
        else:
            frame = frame.rename({"start_ns": "start", "end_ns": "end"})
        return frame.select("case", "start", "end", pl.col("cpu", "thread").cast(pl.Int64)).sort(
            "case", "start", "cpu", maintain_order=True
        )

    def row(self, name: str) -> dict[str, Any]:
        """The line of `cases.csv`."""
        return self.cases.row(by_predicate=pl.col("case") == name, named=True)

    def machine(self, name: str) -> Machine:
        """Its CPUs: caches of equal size, cores of two threads where `smt` says so."""
        row = self.row(name)
        size = row["cpus"] // row["groups"]
        return Machine(
            tuple(Cpu(c // 2 if row["smt"] else c, c // size, 0, 0) for c in range(row["cpus"]))
        )

    def workload(self, name: str) -> Workload:
        """Its threads and programs in our form."""
        build = Builder()
        steps = self.steps[name].partition_by("thread", as_dict=True)
        threads = self.threads[name].sort("thread").to_dicts()
        for thread in threads:
            fifo, idle = thread["class"] == "fifo", thread["class"] == "idle"
            program = build.thread(
                thread["name"],
                nice=thread["nice"],
                sched="fifo" if fifo else "idle" if idle else "fair",
                rt_prio=RT_PRIO if fifo else 0,
                start=thread["start_ns"],
                cpus=_cpus(thread["cpu_mask_hex"]),
            )
            for step in steps[(thread["thread"],)].sort("step").iter_rows(named=True):
                _add(program, step, threads)
        return build.workload(self.machine(name))


def _cpus(mask: str | None) -> str | None:
    """A CPU list from a hexadecimal mask; None means all."""
    if mask is None or mask == "all":
        return None
    bits = int(mask, 16)
    return ",".join(str(c) for c in range(bits.bit_length()) if bits >> c & 1)


def _add(program: Program, step: dict[str, Any], threads: list[dict[str, Any]]) -> None:
    """One step of a case as a step of ours."""
    a = None if step["a"] is None else int(step["a"])
    b = step["b"]
    match step["op"]:
        case "run":
            program.run(a or 0)
        case "sleep":
            program.sleep(a or 0)
        case "until":
            program.wait_until(a or 0)
        case "wait":
            program.wait_for(None if a == -1 else a, None if int(b) < 1 else int(b))
        case "signal":
            program.signal(int(step["a"]))
        case "fork":
            program.fork(int(step["a"]))
        case "yield":
            program.yield_()
        case "nice":
            program.set_priority(nice=int(b), of=None if a == -1 else a)
        case "affinity":
            program.set_affinity(_cpus(b), of=None if a == -1 else a)
        case "repeat":
            program.repeat(None if int(b) == -1 else int(b) + 1, to=a or 0)
        case "park":
            program.park()
        case "exit":
            program.exit()
        case other:
            raise UsageError(f"step {other!r}", "a step that the cases' description names")


def read_cases(folder: Path) -> Cases:
    """The programs of a folder."""
    text = {"a": pl.String, "b": pl.String, "cpu_mask_hex": pl.String, "until_ns": pl.Int64}

    def table(name: str) -> pl.DataFrame:
        path = folder / name
        if not path.is_file():
            raise UsageError(
                f"no {name} in {folder}", "a folder of cases", "as fixtures/freebsd-schedulers"
            )
        return pl.read_csv(path, schema_overrides=text)

    def by_case(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        return {str(key[0]): part for key, part in frame.partition_by("case", as_dict=True).items()}

    return Cases(
        folder, table("cases.csv"), by_case(table("threads.csv")), by_case(table("steps.csv"))
    )


def simulated(
    cases: Cases, name: str, policy: str, *, seed: int = 1, chance: bool = False
) -> Trace:
    """The case under our policy; with `chance` the policy draws its random numbers."""
    settings = SETTINGS[policy] | ({} if chance else WITHOUT_CHANCE[policy])
    row = cases.row(name)
    return simulate(
        cases.workload(name),
        policy=policy,
        set=settings,
        seed=seed,
        until=None if row["until_ns"] is None else f"{row['until_ns']}ns",
    )


def runs_of(trace: Trace) -> pl.DataFrame:
    """The runs in the form of the cases: adjoining runs of a thread are merged."""
    runs = (
        trace.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
        .select(
            start="ts",
            end=pl.col("ts") + pl.col("dur"),
            cpu=pl.col("cpu").cast(pl.Int64),
            thread=pl.col("utid").cast(pl.Int64) - trace.ncpu,
        )
        .sort("cpu", "start")
        .collect()
    )
    touches = (
        (pl.col("start") == pl.col("end").shift(1))
        & (pl.col("thread") == pl.col("thread").shift(1))
        & (pl.col("cpu") == pl.col("cpu").shift(1))
    ).fill_null(False)
    joined = runs.with_columns(run=(~touches).cum_sum()).group_by("run", maintain_order=True)
    return (
        joined.agg(pl.col("start").first(), pl.col("end").last(), pl.col("cpu", "thread").first())
        .drop("run")
        .sort("start", "cpu")
    )


def equal_prefix(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """How many runs both have in common before the first that differs.

    >>> equal_prefix([(0, 5), (5, 9)], [(0, 5), (5, 8)])
    1
    """
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def compare(cases: Cases, policy: str, names: Sequence[str] = ()) -> pl.DataFrame:
    """One row per case: how far our sequence of runs is the kernel's.

    `prefix` is the number of runs before the first that differs, `first` the time of that one.
    """
    kernel = cases.runs(policy).partition_by("case", as_dict=True, include_key=False)
    rows = []
    for name in names or cases.names(policy):
        theirs = kernel[(name,)].rows()
        ours = runs_of(simulated(cases, name, policy)).rows()
        prefix = equal_prefix(ours, theirs)
        equal = prefix == len(theirs) == len(ours)
        rows.append(
            {
                "case": name,
                "cpus": cases.row(name)["cpus"],
                "runs": len(theirs),
                "ours": len(ours),
                "prefix": prefix,
                "prefix_frac": 1.0 if equal else prefix / max(len(theirs), 1),
                "first": None if equal or prefix >= len(theirs) else theirs[prefix][0],
                "equal": equal,
            }
        )
    return pl.DataFrame(rows, schema_overrides={"first": pl.Int64})


def wait_figures(trace: Trace) -> dict[str, float]:
    """Switches, migrations and waits of a run, as `chance.csv` has them."""
    waits: list[int] = sorted(trace.waits.select("wait").drop_nulls().collect()["wait"])

    def quantile(q: float) -> float:
        """The wait that this part of the others are not longer than, as the cases have it."""
        return waits[int(q * len(waits))] / 1e6 if waits else 0.0

    simulation = trace.info["simulation"]
    return {
        "switches": simulation["switches"],
        "migrations": simulation["migrations"],
        "wait_mean_ms": sum(waits) / max(len(waits), 1) / 1e6,
        "wait_p90_ms": quantile(0.90),
        "wait_p99_ms": quantile(0.99),
        "wait_max_ms": max(waits, default=0) / 1e6,
        "wait_total_ms": sum(waits) / 1e6,
    }


def chance_spans(cases: Cases, seeds: int, names: Sequence[str] = ()) -> pl.DataFrame:
    """One row per case and measure: our median over `seeds` runs, and the kernel's span."""
    kernel = pl.read_csv(cases.folder / "chance.csv", infer_schema_length=None)
    rows = []
    for (name,), theirs in kernel.partition_by("case", as_dict=True).items():
        if names and name not in names:
            continue
        ours = [
            wait_figures(simulated(cases, str(name), "ule-14", seed=seed, chance=True))
            for seed in range(1, seeds + 1)
        ]
        for measure in MEASURES:
            span: list[float] = sorted(theirs[measure])
            low, high = span[0], span[-1]
            mid = statistics.median(figures[measure] for figures in ours)
            rows.append(
                {
                    "case": name,
                    "measure": measure,
                    "ours": mid,
                    "low": low,
                    "high": high,
                    # They are printed to the nanosecond.
                    "inside": low - 2e-6 <= mid <= high + 2e-6,
                }
            )
    return pl.DataFrame(rows)


def headline(result: pl.DataFrame) -> list[str]:
    """Equal cases and prefix, for one CPU and for several."""
    lines = []
    for what, part in (
        ("one CPU", result.filter(pl.col("cpus") == 1)),
        ("several CPUs", result.filter(pl.col("cpus") > 1)),
    ):
        if part.height:
            prefix = statistics.mean(part["prefix_frac"])
            lines.append(
                f"{what}: {part['equal'].sum()} of {part.height} cases equal, "
                f"prefix {prefix:.3f} of the runs on average"
            )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("case", nargs="*", help="cases (default: all)")
    parser.add_argument("--policy", choices=list(RUNS), help="one policy (default: both)")
    parser.add_argument(
        "--chance", type=int, metavar="N", help="instead, N runs of each with chance"
    )
    given = parser.parse_args(arguments)
    cases = read_cases(given.folder)
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, fmt_str_lengths=30):
        if given.chance:
            spans = chance_spans(cases, given.chance, given.case)
            print(spans, f"{spans['inside'].sum()} of {spans.height} inside", sep="\n")
            return 0
        for policy in [given.policy] if given.policy else list(RUNS):
            result = compare(cases, policy, given.case)
            print(policy, result.filter(~pl.col("equal")), *headline(result), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
