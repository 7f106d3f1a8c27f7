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

A second table says how many figures of other recordings lie in the ranges of `whatif` from each one
alone (stated: 90 %), of the threads of the command with ten waits or more.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from research.lab.factors import FEW, LONGER, NO_CHANGE, PHASES, REPEATS, TIMES, factor
from research.results import keep
from schedscope.simulator.changes.ranges import RANGES, WAITS
from schedscope.simulator.changes.verdicts import BOUND, BRIEF
from schedscope.simulator.runs.repeated import repeated
from schedscope.simulator.runs.replay import replay
from schedscope.store.trace import Trace

KERNELS = {"ule": "ule-13", "4bsd": "4bsd-13"}
OWN, ACROSS = "own", "across"
MODELS = (REPEATS, NO_CHANGE, OWN, ACROSS)
FIGURES = (*TIMES, "waits")
TABLE = "fidelity-freebsd-recordings"
RANGES_TABLE = "fidelity-freebsd-ranges"

Figures = Mapping[str, Mapping[str, float]]
Cells = dict[tuple[str, str], dict[str, list[Trace]]]
"""Recordings by number of CPUs and workload, and by kernel."""


def commands_own(trace: Trace) -> pl.DataFrame:
    """The threads of the recorded command and of the processes that it started."""
    command = trace.info["workload"]["pid"]
    threads = trace.threads.select("utid", "pid", "comm", "parent_utid").collect()
    mine = set(threads.filter(pl.col("pid") == command)["utid"])
    for utid, parent in threads.sort("utid").select("utid", "parent_utid").iter_rows():
        if parent in mine:
            mine.add(utid)
    return threads.filter(pl.col("utid").is_in(list(mine)))


def figures(trace: Trace) -> Figures:
    """By role the figures of its waits, of the processes that the recorded command started."""
    # The number in `nice10` is its nice value.
    levels = pl.col("comm").str.starts_with("nice")
    role = pl.when(levels).then("comm").otherwise(pl.col("comm").str.replace(r"\d+$", ""))
    of = commands_own(trace).select("utid", role=role)
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


def ranged(recorded: Mapping[str, Sequence[Trace]]) -> Iterator[dict[str, Any]]:
    """A row for each figure that `whatif` gives of a role, from each recording under each model."""
    asked = {
        (kernel, i, model): _asked(trace, model)
        for kernel, traces in recorded.items()
        for i, trace in enumerate(traces)
        for model in KERNELS
    }
    for (kernel, i, model), said in asked.items():
        # A recording is no judge of itself.
        judges = [
            asked[model, j, model]
            for j in range(len(recorded.get(model, ())))
            if (model, j) != (kernel, i)
        ]
        for role, (was, will) in said.items():
            if not judges or was["n_waits"] < FEW:
                continue
            for figure in RANGES:
                truth = [one[role][0][figure] for one in judges if role in one]
                low, high = will[f"{figure}_low"], will[f"{figure}_high"]
                told = None not in (low, high, will[figure])
                least = BRIEF if figure in WAITS else 1
                middle = max(statistics.median(truth), least)
                off = [abs(math.log(max(one[figure] or 0, least) / middle)) for one in (will, was)]
                yield {
                    "kernel": model,
                    "model": OWN if kernel == model else ACROSS,
                    "figures": len(truth),
                    "not told": 0 if told else len(truth),
                    "inside": sum(low <= one <= high for one in truth) if told else 0,
                    "width": max(high, least) / max(low, least) if told else None,
                    "good": will[f"{figure}_verdict"] == "good",
                    "good, but worse than no change": will[f"{figure}_verdict"] == "good"
                    and off[0] > max(off[1], math.log(BOUND)),
                }


def _asked(trace: Trace, kernel: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By name of the command's threads, as recorded and as said to be under the model."""
    frame = ss.whatif(trace, policy=KERNELS[kernel])
    names = commands_own(trace)["comm"].unique()
    frame = frame.filter(pl.col("comm").is_in(names.implode()))
    was, will = (
        {row["comm"]: row for row in frame.filter(configuration=which).to_dicts()}
        for which in ("recorded", "changed")
    )
    return {name: (was[name], will[name]) for name in was}


def ranges_table(cells: Cells) -> pl.DataFrame:
    """A row for each kernel, number of CPUs and model."""
    rows = [
        {"CPUs": ncpu, **row} for (ncpu, _), recorded in cells.items() for row in ranged(recorded)
    ]
    count = pl.sum("figures", "not told", "inside", "good", "good, but worse than no change")
    keys = ["kernel", "CPUs", "model"]
    found = pl.DataFrame(rows).group_by(keys).agg(count, pl.median("width").round(1)).sort(keys)
    share = 100 * pl.col("inside") / (pl.col("figures") - pl.col("not told"))
    return found.with_columns(share.round(0).cast(pl.Int64).alias("inside, %"))


def opened(folder: Path, phrase: str = "") -> Cells:
    """The captures of a folder."""
    cells: Cells = {}
    for path in sorted(folder.glob("*.capture")):
        kernel, ncpu, work, _ = path.name.removesuffix(".capture").split("-")
        if kernel in KERNELS and phrase in path.name:
            cells.setdefault((ncpu, work), {}).setdefault(kernel, []).append(ss.open(path))
    return cells


def table(cells: Cells) -> pl.DataFrame:
    """A row for each kernel, number of CPUs and workload, and one over all workloads (`all`)."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares the captures of a folder, and keeps the table if asked."""
    parser = argparse.ArgumentParser(description="Replays of genuine recordings of FreeBSD.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only captures with this in their names")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as unpacked:
        folder = options.folder
        archives = sorted(folder.glob("*.tar.xz"))
        if archives:
            folder = Path(unpacked)
            for archive in archives:
                subprocess.run(["tar", "xJf", archive.resolve()], cwd=folder, check=True)
        cells = opened(folder, options.only)
        tables = {TABLE: table(cells), RANGES_TABLE: ranges_table(cells)}
    for name, rows in tables.items():
        with pl.Config(tbl_rows=100, tbl_cols=20, tbl_hide_dataframe_shape=True):
            print(rows)
        if not options.write:
            continue
        text = [{column: str(value) for column, value in row.items()} for row in rows.to_dicts()]
        keep(
            name,
            text,
            measured_on=datetime.now(UTC).date().isoformat(),
            commit="",
            machine="FreeBSD 13.2 in an emulator of counted time",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
