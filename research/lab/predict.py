"""The prediction bench: workloads recorded in one machine and asked for another, beside reality.

`python -m research.lab.predict` records what research/lab/predictions.toml lists, in emulated
machines of counted time, replays each recording as the other machine would run it, and compares. A
machine that was recorded before is not booted again. See research/lab/README.md.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

import schedscope as ss
from research.lab import predictions_page
from research.lab.__main__ import default_cache, matrix, one
from research.lab.boots import Cell, Run, earlier
from research.lab.factors import compare, of_enough_waits
from research.lab.plan import Question, plan
from schedscope.simulator.runs.replay import replay


def captures(run: Run) -> list[ss.Trace]:
    """The recordings of a run, in the order of their seeds."""
    found = sorted(run.folder.glob("*.capture"), key=lambda path: int(path.stem))
    return [ss.open(path, cache=run.folder / "cache") for path in found]


def machines(questions: Iterable[Question]) -> list[Cell]:
    """What must be recorded for them, each once, in the order of the questions."""
    return list(dict.fromkeys(cell for q in questions for cell in (q.before, q.after)))


def compared(questions: Sequence[Question], runs: dict[Cell, Run]) -> Iterator[pl.DataFrame]:
    """The rows of each question of which both sides were recorded."""
    for asked in questions:
        if asked.before not in runs or asked.after not in runs:
            continue
        before, after = (captures(runs[cell]) for cell in (asked.before, asked.after))
        if asked.whatif:
            rows = compare(before, after, whatif=asked.whatif)
        else:
            target = None if asked.same else replay(after[0])
            rows = compare(before, after, asked.under.policy, target=target)
        rows = of_enough_waits(rows)
        print(f"{asked.case}, {asked.cpus} CPUs, {asked.work}: replayed", flush=True)
        key = {"case": asked.case, "cpus": asked.cpus, "work": asked.work}
        key |= {"recorded_on": recorded_on(runs[asked.after])}
        yield rows.select(*[pl.lit(x).alias(name) for name, x in key.items()], pl.all())


def recorded_on(run: Run) -> str:
    """The day on which a machine ran."""
    at = (run.folder / "run.json").stat().st_mtime
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat()


def merged(kept: Path, rows: pl.DataFrame, questions: Sequence[Question]) -> pl.DataFrame:
    """The kept rows, those of a case and workload replaced by new ones, in the plan's order."""
    key = ["case", "cpus", "work"]
    rows = rows.filter(pl.col("figure").is_in(predictions_page.SHOWN))
    if kept.exists():
        before = pl.read_parquet(kept)
        others = before.join(rows.select(key).unique(), on=key, how="anti", maintain_order="left")
        rows = pl.concat([others, rows.select(before.columns).cast(before.schema)])
    asked = pl.DataFrame(
        [(q.case, q.cpus, q.work) for q in questions],
        schema={name: rows.schema[name] for name in key},
        orient="row",
    ).unique(maintain_order=True)
    return asked.join(rows, on=key, maintain_order="left_right").select(rows.columns)


def main() -> int:
    """Record what was not recorded yet, compare, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m research.lab.predict", description=__doc__)
    parser.add_argument("--cpus", type=int, action="append", help="only machines of so many CPUs")
    parser.add_argument("--work", action="append", help="only this workload")
    parser.add_argument("--case", action="append", help="only this case, as the tables name it")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each boot")
    parser.add_argument("--jobs", type=int, default=1, help="boots at a time (default: 1)")
    parser.add_argument("--again", action="store_true", help="record again what was recorded")
    parser.add_argument(
        "--recorded", action="store_true", help="compare what is there, boot nothing"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the rows as Parquet")
    parser.add_argument("--write", action="store_true", help="keep the rows in research/lab")
    arguments = parser.parse_args()
    kernels, _ = matrix()
    asked = [
        q
        for q in plan().questions
        if q.cpus in (arguments.cpus or [q.cpus])
        and q.work in (arguments.work or [q.work])
        and q.case in (arguments.case or [q.case])
    ]
    if not asked:
        parser.error("no such case or workload; see research/lab/predictions.toml")
    wanted = machines(asked)

    def run(cell: Cell) -> Run | None:
        if arguments.recorded:
            return earlier(arguments.cache, cell)
        given = {"again": arguments.again, "timeout": arguments.timeout}
        return one(arguments.cache, cell, kernels[cell.kernel], **given)

    runs: dict[Cell, Run] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for n, (cell, done) in enumerate(zip(wanted, pool.map(run, wanted), strict=True), 1):
            if done is None:
                said = "not recorded"
            else:
                said = f"FAILED: {done.failed}" if done.failed else f"{done.cpu:.0f} CPU s"
            print(f"[{n}/{len(wanted)}] {cell.name}: {said}", flush=True)
            if done is not None and not done.failed:
                runs[cell] = done
    parts = list(compared(asked, runs))
    if not parts:
        print("nothing was recorded of which both sides are there", file=sys.stderr)
        return 1
    rows = pl.concat(parts)
    if arguments.output:
        rows.write_parquet(arguments.output)
    print(predictions_page.summary(rows))
    if arguments.write:
        kept = predictions_page.KEPT
        merged(kept, rows, plan().questions).write_parquet(kept)
    return int(len(runs) < len(wanted))


if __name__ == "__main__":
    sys.exit(main())
