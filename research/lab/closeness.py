"""How close replays are to reality: recordings of one workload beside replays of each.

A cell is a workload in one configuration, recorded three times or more. All its recordings are
replayed as they were configured, under the model of the scheduler that they were recorded under and
under models that know nothing of it (`schedscope fidelity` of several captures).

    python -m research.lab.closeness --write

does so for the recordings of the prediction bench that are there (`python -m
research.lab.predict`). Rows of machines that are not there any more are kept in
`closeness.parquet`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

import schedscope as ss
from research.lab.__main__ import default_cache
from research.lab.boots import Cell, Run, earlier
from research.lab.factors import roles
from research.lab.guests import HERE
from research.lab.plan import plan
from research.lab.predict import captures, machines
from schedscope.simulator.closeness.of_runs import FEWEST, null_models, of_ways
from schedscope.simulator.runs.replay import Replay, replay
from schedscope.store.trace import Trace

KEPT = HERE / "closeness.parquet"

HOST = "host_cpu_time_err"
"""The share of the CPU time of all threads of the host that went to another thread."""

JUDGED = ("waits", "preemptions", "depth", "wait_p99")
"""Measures of which the goal is to lie within the range of the recordings in 90 % of cells."""

OTHER = "cfs or eevdf"
"""What the tables call whichever of the two did not record."""

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(
            ("group", "cell", "model", "against", "measure", "date", "kernel"), pl.String
        ),
        **dict.fromkeys(("real", "real_low", "real_high"), pl.Float64),
        **dict.fromkeys(("replay", "replay_low", "replay_high"), pl.Float64),
        "inside": pl.Boolean,
        "runs": pl.UInt32,
    }
)
"""`group`: a row of the tables; `model`: own, or the null model that `against` is."""


def compared(
    group: str, cell: str, ways: Sequence[Replay], mine: Sequence[pl.Series]
) -> pl.DataFrame:
    """Rows of the table, of the recordings of one cell; `mine`: the threads that count, of each."""
    own = ways[0].policy
    errors = [_of_the_host(way.trace, own) for way in ways]
    host = pl.DataFrame({"against": own, "measure": HOST, "runs": len(ways)}).with_columns(
        replay=pl.Series(errors).median(),
        replay_low=pl.Series(errors).min(),
        replay_high=pl.Series(errors).max(),
    )
    # Null models are far off anyway, and replayed once.
    said = [
        of_ways(ways, policies=[own], mine=mine),
        of_ways(ways, policies=null_models(own), mine=mine, replays=1),
    ]
    rows = [one.with_columns(pl.col("measure").cast(pl.String)) for one in said]
    return (
        pl.concat([*rows, host], how="diagonal_relaxed")
        .with_columns(
            group=pl.lit(group),
            cell=pl.lit(cell),
            model=pl.when(against=own)
            .then(pl.lit("own"))
            .when(pl.col("against").str.contains("^(cfs|eevdf)"))
            .then(pl.lit(OTHER))
            .otherwise("against"),
            date=pl.lit(datetime.now(UTC).date().isoformat()),
            kernel=pl.lit(ways[0].trace.info.get("release"), pl.String),
        )
        .select(SCHEMA.names())
        .cast(SCHEMA)
    )


def _of_the_host(trace: Trace, policy: str) -> float | None:
    found: float | None = ss.fidelity(trace, policies=[policy]).row(1, named=True)["cpu_time_err"]
    return found


def read(table: Path) -> pl.DataFrame:
    """The rows that are there."""
    return pl.read_parquet(table) if table.exists() else SCHEMA.to_frame()


def write(table: Path, rows: pl.DataFrame) -> None:
    """All rows."""
    new = table.with_suffix(".new")
    rows.write_parquet(new)
    new.replace(table)


def merged(before: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of `before`, those of the same cells replaced, by group."""
    key = ["group", "cell"]
    others = before.join(rows.select(key).unique(), on=key, how="anti", maintain_order="left")
    return pl.concat([others, rows]).sort("group", maintain_order=True)


def tables(rows: pl.DataFrame, head: str) -> list[list[str]]:
    """Two Markdown tables: the ranges, and the distances of waits; `head` says what a group is."""
    nulls = rows.filter(pl.col("model") != "own")["model"].unique(maintain_order=True).to_list()
    measures = [*JUDGED, "elapsed", "migrations"]
    inside = [
        f"| {head} | cells | {' | '.join(measures)} | first four |"
        f" {' | '.join(nulls)} | CPU time error | largest |",
        f"|---{'|---' * (4 + len(measures) + len(nulls))}|",
    ]
    apart = [
        f"| {head} | between recordings | replays | times as far | at most 1.5 |"
        f" {' | '.join(nulls)} | all of these twice as far, or more |",
        f"|---{'|---' * (5 + len(nulls))}|",
    ]
    for group in (*rows["group"].unique(maintain_order=True), "all"):
        mine = rows if group == "all" else rows.filter(group=group)
        inside.append(_inside(group, mine, measures, nulls))
        apart.append(_apart(group, mine, nulls))
    return [inside, apart]


def _inside(group: str, rows: pl.DataFrame, measures: list[str], nulls: list[str]) -> str:
    known = rows.drop_nulls("inside")
    own = known.filter(model="own")

    def share(model: str) -> str:
        part = known.filter(pl.col("measure").is_in(JUDGED), model=model)["inside"]
        return f"{part.sum() / len(part):.0%}" if len(part) else "-"

    each = [own.filter(measure=name)["inside"] for name in measures]
    host = rows.filter(measure=HOST)["replay"]
    fields = [
        group,
        str(rows.select("group", "cell").n_unique()),
        *(f"{one.sum()} of {len(one)}" for one in each),
        share("own"),
        *(share(name) for name in nulls),
        _number(host.median(), 3),
        _number(host.max(), 3),
    ]
    return f"| {' | '.join(fields)} |"


def _apart(group: str, rows: pl.DataFrame, nulls: list[str]) -> str:
    far = rows.filter(measure="wait_distance").drop_nulls("replay")
    cells = far.filter(model="own").select("group", "cell", "real", own="replay")
    cells = cells.with_columns(times=pl.col("own") / pl.max_horizontal("real", 1.0))
    against = (
        far.filter(pl.col("model") != "own")
        .join(cells, on=["group", "cell"])
        .with_columns(further=pl.col("replay") / pl.max_horizontal("own", 1.0))
    )
    nearest = against.group_by("group", "cell").agg(pl.col("further").min())["further"]
    middle = [against.filter(model=name)["further"].median() for name in nulls]
    fields = [
        group,
        _us(cells["real"]),
        _us(cells["own"]),
        _number(cells["times"].median()),
        f"{(cells['times'] <= 1.5).sum()} of {cells.height}",
        *(_number(value) for value in middle),
        f"{(nearest >= 2).sum()} of {len(nearest)}",
    ]
    return f"| {' | '.join(fields)} |"


def _us(values: pl.Series) -> str:
    middle = values.median()
    return f"{middle / 1e3:,.0f} µs" if isinstance(middle, float) else "-"


def _number(value: object, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "-"


def of_the_bench(cache: Path) -> pl.DataFrame:
    """The rows of all machines of the prediction bench that ran under a kernel's own scheduler."""
    recorded = [
        (cell, run)
        for cell in machines(plan().questions)
        if not cell.bpf and (run := earlier(cache, cell)) is not None and not run.failed
    ]
    parts = [part for cell, run in recorded if (part := _of_a_machine(cell, run)) is not None]
    return pl.concat(parts) if parts else SCHEMA.to_frame()


def _of_a_machine(cell: Cell, run: Run) -> pl.DataFrame | None:
    traces = captures(run)
    if len(traces) < FEWEST:
        return None
    mine = [roles(trace)["utid"] for trace in traces]
    _, kernel, _, work = cell.name.split("-", 3)
    several = f"{cell.smp} CPU{'s' * (cell.smp != '1')}"
    print(f"{kernel}, {several}, {work}", flush=True)
    return compared(f"{kernel}, {several}", work, [replay(trace) for trace in traces], mine)


def kept_tables() -> dict[str, list[str]]:
    """From the kept rows: what lies within the recordings, and how far waits are from them."""
    inside, apart = tables(read(KEPT), "kernel, machine")
    return {"closeness": inside, "closeness-distances": apart}


def main() -> int:
    """Replay what was recorded, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.lab.closeness", description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="keep the rows in research/lab")
    arguments = parser.parse_args()
    rows = of_the_bench(arguments.cache)
    if rows.is_empty():
        print("no machine of the bench was recorded three times or more", file=sys.stderr)
        return 1
    for table in tables(rows, "kernel, machine"):
        print("\n".join(table))
    if arguments.write:
        write(KEPT, merged(read(KEPT), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
