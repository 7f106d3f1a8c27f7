"""Replays of genuine recordings of FreeBSD, and predictions of its other scheduler.

    python -m research.lab.freebsd FOLDER --write

FOLDER has captures of one host called `ule-1-hogs-1.capture`: the scheduler, the number of CPUs,
the workload, and which repeat it is; or archives of them (`.tar.xz`). A figure is the median of the
replays of all repeats, five of each with ticks at other instants, beside the median of what really
happened: the waits of each role, the threads of one name without its number at the end. `own` is
replayed under the scheduler that recorded, `across` is predicted from the recordings of the other
one, `no change` expects what was recorded there, and `repeats` is the largest of the real repeats
over the smallest. A row has the geometric mean over total, p50, p90, p99 and number of waits of the
roles with ten waits or more.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

import schedscope as ss
from research.lab.factors import FEW, LONGER, NO_CHANGE, PHASES, REPEATS, TIMES, factor
from research.results import keep
from schedscope.processes import of_processes
from schedscope.simulator.runs.repeated import repeated
from schedscope.simulator.runs.replay import replay
from schedscope.store.trace import Trace

KERNELS = {"ule": "ule-13", "4bsd": "4bsd-13"}
OWN, ACROSS = "own", "across"
MODELS = (REPEATS, NO_CHANGE, OWN, ACROSS)
FIGURES = (*TIMES, "waits")
TABLE = "fidelity-freebsd-recordings"

Figures = Mapping[str, Mapping[str, float]]


def figures(trace: Trace) -> Figures:
    """By role the figures of the waits of what the recorded command started."""
    threads = trace.threads.filter(of_processes(trace, workload=True))
    # The number in `nice10` is its nice value.
    levels = pl.col("comm").str.starts_with("nice")
    role = pl.when(levels).then("comm").otherwise(pl.col("comm").str.replace(r"\d+$", ""))
    of = threads.select("utid", role=role).collect()
    waits = trace.waits.filter(pl.col("censored") == "none").select("utid", "wait").collect()
    found: dict[str, dict[str, float]] = {}
    for (name,), rows in waits.join(of, on="utid").group_by("role"):
        values = rows["wait"].drop_nulls().sort().to_list()
        if values:
            quantiles = {q: values[math.ceil(q / 100 * len(values)) - 1] for q in (50, 90, 99)}
            found[str(name)] = {
                "total": sum(values),
                **{f"p{q}": value for q, value in quantiles.items()},
                "waits": len(values),
            }
    return found


def replays(trace: Trace, kernel: str) -> Iterator[Figures]:
    """Of one recording, under the model of `kernel`."""
    way = replay(trace)
    policy = KERNELS[kernel]
    for ran in repeated(
        way,
        policy=policy,
        set=way.settings(policy),
        replays=PHASES,
        until=f"{trace.duration * LONGER}ns",
    ):
        ran.info["workload"] = trace.info["workload"]
        yield figures(ran)


def compared(recorded: Mapping[str, Sequence[Trace]]) -> Iterator[tuple[str, str, float]]:
    """The kernel, the model and the factor of each figure of one workload, by the kernel that
    recorded it.
    """
    real = {kernel: [figures(trace) for trace in traces] for kernel, traces in recorded.items()}
    said = {
        (kernel, model): [one for trace in traces for one in replays(trace, model)]
        for kernel, traces in recorded.items()
        for model in KERNELS
    }
    for kernel, truth in real.items():
        [other] = set(KERNELS) - {kernel}
        for role in sorted({role for found in truth for role in found}):
            if statistics.median(_values(truth, role, "waits")) < FEW:
                continue
            for figure in FIGURES:
                values = _values(truth, role, figure)
                yield kernel, REPEATS, factor(figure, max(values), min(values))
                for model, found in (
                    (OWN, said[kernel, kernel]),
                    (ACROSS, said.get((other, kernel), [])),
                    (NO_CHANGE, real.get(other, [])),
                ):
                    if found:
                        middle = statistics.median(_values(found, role, figure))
                        yield kernel, model, factor(figure, middle, statistics.median(values))


def _values(found: Sequence[Figures], role: str, figure: str) -> list[float]:
    return [float(one.get(role, {}).get(figure, 0)) for one in found]


@contextlib.contextmanager
def opened(folder: Path, phrase: str = "") -> Iterator[dict[tuple[str, ...], Trace]]:
    """Captures whose name has this in it, by kernel, number of CPUs, workload and repeat."""
    with tempfile.TemporaryDirectory() as unpacked:
        for archive in sorted(folder.glob("*.tar.xz")):
            if phrase in archive.name:
                subprocess.run(["tar", "xJf", archive.resolve()], cwd=unpacked, check=True)
        found = {}
        for path in sorted([*folder.glob("*.capture"), *Path(unpacked).glob("*.capture")]):
            name = tuple(path.name.removesuffix(".capture").split("-"))
            if name[0] in KERNELS and phrase in path.name:
                found[name] = ss.open(path)
        yield found


def table(captures: Mapping[tuple[str, ...], Trace]) -> pl.DataFrame:
    """A row for each kernel, number of CPUs and workload, and one over all workloads (`all`)."""
    cells: dict[tuple[str, str], dict[str, list[Trace]]] = {}
    for (kernel, ncpu, work, _), trace in captures.items():
        cells.setdefault((ncpu, work), {}).setdefault(kernel, []).append(trace)
    rows = [
        {"CPUs": ncpu, "workload": work, "kernel": kernel, "model": model, "factor": off}
        for (ncpu, work), recorded in cells.items()
        for kernel, model, off in compared(recorded)
    ]
    every = pl.DataFrame(rows)
    every = pl.concat([every, every.with_columns(workload=pl.lit("all"))])
    keys = ["kernel", "CPUs", "workload"]
    means = every.group_by(*keys, "model").agg(pl.col("factor").log().mean().exp().round(2))
    return means.pivot("model", index=keys, values="factor").sort(keys).select(*keys, *MODELS)


def show(rows: pl.DataFrame, table: str) -> None:
    """Prints the rows, and keeps them as a table if that has a name."""
    with pl.Config(tbl_rows=100, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(rows)
    if table:
        text = [{name: str(value) for name, value in row.items()} for row in rows.to_dicts()]
        keep(
            table,
            text,
            measured_on=datetime.now(UTC).date().isoformat(),
            commit="",
            machine="FreeBSD 13.2 in an emulator of counted time",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares the captures of a folder, and keeps the table if asked."""
    parser = argparse.ArgumentParser(description="Replays of genuine recordings of FreeBSD.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only captures with this in their names")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args(arguments)
    with opened(options.folder, options.only) as captures:
        rows = table(captures)
    show(rows, TABLE if options.write else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
