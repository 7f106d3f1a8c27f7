"""The campaign of `whatif`: every workload under every intervention, predicted and then recorded.

Each workload is recorded `--runs` times as it is (side A) and as often under each intervention
(side B): other nice values, classes, masks, quotas and slices, of all its threads or those of one
name, and more load beside it. From the recordings of side A together `whatif` predicts each cell,
and those of side B show what happened. Existing recordings and predictions are reused, so the
program can be stopped at any time.

    python research/benchmarks/campaign.py FOLDER --record [--only WORKLOAD,...] [--changes NAMES]
    python research/benchmarks/campaign.py FOLDER [--prove]
    python research/benchmarks/campaign.py FOLDER --fidelity

`python -m research.results campaign` shows what is kept in `campaign/`. FOLDER keeps the recordings
 and `cells.csv`, a row for each cell, service and figure, with date and kernel. With
`--fidelity` the recordings of each cell are replayed as they were configured, and
`fidelity.parquet` says how close the replays are. Half of the cells are set aside, as on a
chessboard: no rule may be tuned on them, and they are only predicted with `--prove`. Needs root,
for ftrace, nice values and control groups, a C compiler, and for the workload `sockets` hackbench.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from campaign.cells import INTERVENTIONS, WORKLOADS, Cell, Intervention, Workload, cells
from campaign.record import matching, record
from campaign.table import NULL_MODEL, read, summary, write
from quiet import Quiet

import schedscope as ss
from research.lab import closeness
from schedscope.errors import SchedscopeError
from schedscope.simulator.changes.alternatives import alternatives
from schedscope.simulator.changes.change import change
from schedscope.simulator.changes.ranges import RANGES
from schedscope.simulator.changes.whatif import AsItWas, answers, as_it_was
from schedscope.simulator.runs.nearest_way import nearest_ways
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.runs.services import figures, services
from schedscope.store.trace import Trace

HERE = Path(__file__).resolve().parent


def names_in(traces: Iterable[Trace], patterns: Iterable[str]) -> list[str]:
    """The names of threads that match, in any of the traces."""
    known = {
        name
        for trace in traces
        for name in trace.threads.select("comm").unique().collect()["comm"].drop_nulls()
    }
    return _those_of(known, patterns)


def _those_of(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return sorted({n for n in names if any(fnmatch(n, one) for one in patterns)})


def question(workload: Workload, asked: Intervention, way: Replay) -> dict[str, Any]:
    """What `whatif` is asked for an intervention."""
    names = way.workload.threads["name"].to_list()
    mine = _those_of(names, matching(workload, asked.who))
    found: dict[str, Any] = {}
    if asked.nice is not None:
        found["set_nice"] = dict.fromkeys(mine, asked.nice)
    if asked.cpus:
        found["pin"] = {
            name: where
            for who, where in asked.cpus
            for name in _those_of(names, matching(workload, who))
        }
    if asked.quota is not None:
        found["quota"] = dict.fromkeys(matching(workload, asked.who), asked.quota)
    if asked.slice is not None:
        found["slice"] = asked.slice
    if asked.sched is not None:
        found["set_class"] = dict.fromkeys(mine, asked.sched)
    if asked.load is not None:
        found["add_load"] = asked.load
    return found


def measured(trace: Trace, workload: Workload) -> dict[str, dict[str, Any]]:
    """The figures of each service of the workload, as `whatif` gives them."""
    mine = trace.threads.filter(pl.col("comm").is_in(names_in([trace], workload.services)))
    named = services(trace, workload.by).join(mine.select("utid").collect(), on="utid")
    return figures(trace, named)


@dataclass(frozen=True)
class Before:
    """The recordings of a workload as it is, and their replays: the same for all its cells."""

    traces: list[Trace]
    ways: list[Replay]
    were: list[AsItWas]
    real: list[dict[str, dict[str, Any]]]


def before(workload: Workload, paths: Iterable[Path]) -> Before:
    """What the recordings of a workload say."""
    traces = [ss.open(path) for path in paths]
    where = pl.col("comm").is_in(names_in(traces, workload.services))
    ways = nearest_ways(traces, [where] * len(traces))
    were = [as_it_was(way, workload.by) for way in ways]
    return Before(traces, ways, were, [measured(trace, workload) for trace in traces])


def predict(cell: Cell, known: Before, after: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of a cell."""
    workload, asked = WORKLOADS[cell.workload], INTERVENTIONS[cell.intervention]
    then = [ss.open(path) for path in after]
    common = {
        "workload": cell.workload,
        "intervention": cell.intervention,
        "half": "aside" if cell.aside else "open",
        "date": datetime.now(UTC).date().isoformat(),
        "kernel": then[0].info.get("release"),
        "runs": len(then),
    }
    words = [question(workload, asked, way) for way in known.ways]

    def told(**more: Any) -> pl.DataFrame:
        wanted = [change(way, **one, **more) for way, one in zip(known.ways, words, strict=True)]
        other = [
            alternatives(way, {**one, **more}) for way, one in zip(known.ways, words, strict=True)
        ]
        changed = answers(known.ways, wanted, by=workload.by, were=known.were, other=other)
        return changed.filter(configuration="changed")

    try:
        frame = told()
    except SchedscopeError as error:
        return [{**common, "service": "", "figure": "", "verdict": f"error: {error}"}]
    # Round robin has no slices of threads and no groups.
    blunt = None if asked.slice or asked.quota else told(policy=NULL_MODEL)
    null = {} if blunt is None else {row[workload.by]: row for row in blunt.to_dicts()}
    real_after = [measured(trace, workload) for trace in then]
    rows = []
    for row in frame.iter_rows(named=True):
        service = row[workload.by]
        if not all(service in one for one in (*known.real, *real_after)):
            continue
        for figure in RANGES:
            old = sorted(one[service][figure] or 0 for one in known.real)
            new = sorted(one[service][figure] or 0 for one in real_after)
            low, high = row[f"{figure}_low"], row[f"{figure}_high"]
            rows.append(
                {
                    **common,
                    "service": service,
                    "figure": figure,
                    "verdict": row["verdict"],
                    **_spread("before", old),
                    **_spread("after", new),
                    "predicted": row[figure],
                    NULL_MODEL: null.get(service, {}).get(figure),
                    "low": low,
                    "high": high,
                    "inside": None if low is None else sum(low <= x <= high for x in new),
                }
            )
    return rows


def _spread(name: str, values: list[int]) -> dict[str, int]:
    return {name: values[len(values) // 2], f"{name}_low": values[0], f"{name}_high": values[-1]}


def main() -> None:
    """Record, predict, and print a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--record", action="store_true", help="only record, both halves")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--changes", metavar="PATTERN", help="such interventions alone: 'quota*'")
    parser.add_argument("--prove", action="store_true", help="the cells set aside, too")
    parser.add_argument("--fidelity", action="store_true", help="replays as configured, all cells")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    table = args.folder / "cells.csv"
    rows = read(table)
    only = args.only.split(",") if args.only else list(WORKLOADS)
    asked = [
        cell
        for cell in cells()
        if cell.workload in only and fnmatch(cell.intervention, args.changes or "*")
    ]
    if args.record:
        record_all(args.folder, asked, args.runs)
        return
    if args.fidelity:
        replay_all(args.folder, asked, args.runs)
        return
    order = {(c.workload, c.intervention): i for i, c in enumerate(cells())}
    done = {(r["workload"], r["intervention"]) for r in rows}
    known: dict[str, Before] = {}
    for cell in asked:
        key = (cell.workload, cell.intervention)
        captures, after = (
            captures_of(args.folder, name, args.runs) for name in (cell.workload, label(cell))
        )
        if key in done or (cell.aside and not args.prove):
            continue
        if not all(path.exists() for path in (*captures, *after)):
            print(f"{' '.join(key)}: not recorded yet", flush=True)
            continue
        begun = time.monotonic()
        if cell.workload not in known:
            known[cell.workload] = before(WORKLOADS[cell.workload], captures)
        rows += predict(cell, known[cell.workload], after)
        rows.sort(key=lambda r: order.get((r["workload"], r["intervention"]), len(order)))
        write(table, rows)
        print(f"{' '.join(key)}: predicted in {time.monotonic() - begun:.0f} s", flush=True)
    print("\n".join(summary(rows)))


def captures_of(folder: Path, name: str, runs: int) -> list[Path]:
    """The recordings of a workload as it is, or of a cell."""
    return [folder / f"{name}.{i}.capture" for i in range(runs)]


def replay_all(folder: Path, asked: list[Cell], runs: int) -> None:
    """How close replays are to all recordings that are there; a row per cell and measure."""
    table = folder / "fidelity.parquet"
    rows = closeness.read(table)
    done = set(rows.select("group", "cell").unique().rows())
    plain = dict.fromkeys((cell.workload, "as it is", cell.workload) for cell in asked)
    for name, changed, stem in [*plain, *((c.workload, c.intervention, label(c)) for c in asked)]:
        paths = captures_of(folder, stem, runs)
        if (name, changed) in done or not all(path.exists() for path in paths):
            continue
        begun = time.monotonic()
        traces = [ss.open(path) for path in paths]
        where = pl.col("comm").is_in(names_in(traces, WORKLOADS[name].services))
        ways = nearest_ways(traces, [where] * len(traces))
        mine = [way.utids.drop_nulls() for way in ways]
        rows = pl.concat([rows, closeness.compared(name, changed, ways, mine)])
        closeness.write(table, rows)
        print(f"{name} {changed}: replayed in {time.monotonic() - begun:.0f} s", flush=True)
    for lines in closeness.tables(rows, "workload"):
        print("\n".join(lines))


def label(cell: Cell) -> str:
    """The name of a cell's captures, without their number."""
    return f"{cell.workload}.{cell.intervention.replace(' ', '-').replace('%', '')}"


def record_all(folder: Path, asked: list[Cell], runs: int) -> None:
    """Records missing captures run by run, so that changes of the host affect all alike."""
    source = HERE.parent / "lab" / "guest" / "work.c"
    work = folder / "work"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(work), str(source)], check=True)
    begun = time.monotonic()
    with Quiet() as quiet:
        for i in range(runs):
            for cell in asked:
                workload = WORKLOADS[cell.workload]
                asked_for = INTERVENTIONS[cell.intervention]
                record(folder, f"{cell.workload}.{i}", workload, None, quiet)
                record(folder, f"{label(cell)}.{i}", workload, asked_for, quiet)
            print(f"run {i + 1}: done after {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
