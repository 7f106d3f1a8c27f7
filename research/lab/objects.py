"""Compiled sched_ext schedulers beside the kernel: the same object loaded there, and simulated.

`python -m research.lab.objects` records the workloads of predictions.toml under each scheduler on
the newest kernel, replays the recordings under the very object that the kernel had loaded, and
compares: each figure of waiting and running by its factor, and the scheduler's decisions one by
one, in their order. See research/lab/README.md.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import math
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from research import results
from research.lab import factors, schedulers
from research.lab.__main__ import default_cache, matrix, one
from research.lab.boots import Cell, Run, earlier
from research.lab.guests import HERE, Kernel
from research.lab.predict import captures
from schedscope.analysis.waits.queue_stays import name_of_queue
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate

KERNEL = "amd64-newest"
EEVDF = "eevdf-7.2"
"""The model of the kernel's own scheduler."""
SCHEDULERS = (
    *("scx_simple.bpf.c", "scx_local.bpf.c", "scx_layers.bpf.c", "scx_kick.bpf.c"),
    *("fifo.bpf.o", "steal.bpf.o"),
)
"""Sources of guest/, and objects of native/scx/objects that the kernel loads as they are."""
WORKS = {1: ("hogs", "sleepers", "server", "forks"), 2: ("hogs", "sleepers"), 4: ("sleepers",)}
REPEATS = {1: 3, 2: 2, 4: 2}

FIGURES = (*factors.TIMES, "waits", "runs", *factors.RUNS)
MODELS = ("object", "object on 7.2", factors.NO_CHANGE, EEVDF, factors.REPEATS)
"""`object`: a recording under the scheduler, replayed under its object. `object on 7.2`: one under
the kernel's own scheduler, replayed under the object. `no change`: the latter as it is.
`eevdf-7.2`: the former under the model of the kernel's own."""
KEPT, DECISIONS = "scx-objects", "scx-objects-decisions"
_KEY = ("scheduler", "CPUs", "work")
_HEAD, _RESTORE = 1 << 4, 1 << 1
"""SCX_ENQ_HEAD, ENQUEUE_RESTORE: the kernel puts a thread back that it took from its CPU."""


def name_of(scheduler: str) -> str:
    """What tables call it."""
    return scheduler.partition(".")[0]


def cell(scheduler: str, cpus: int, work: str) -> Cell:
    """The machine that records a workload under a scheduler; under the kernel's own if empty."""
    document = tomllib.loads((HERE / "predictions.toml").read_text())
    row = next(row for row in document["work"] if row["name"] == work)
    extras = row.get("options", "").removeprefix("--with ")
    before = ""
    if scheduler:
        extras = ",".join(filter(None, [extras, "scx"]))
        name = f"/bin/{scheduler.removesuffix('.c').removesuffix('.o')}.o"
        # Those with a link stay loaded as long as that is kept in a file.
        links = scheduler.endswith(".o")
        before = "mount -t bpf bpf /sys/fs/bpf\n" if links else ""
        before += f"bpftool struct_ops register {name}{' /sys/fs/bpf' if links else ''} || exit\n"
    return Cell(
        name=f"objects-{name_of(scheduler) or '7.2'}-{cpus}cpu-{work}",
        kernel=KERNEL,
        work=row[str(cpus)],
        smp=str(cpus),
        counted=True,
        before=before,
        options=f"--with {extras}" if extras else "",
        bpf=scheduler,
        tools="bpftool" if scheduler else "",
        repeats=REPEATS[cpus],
    )


# ------------------------------------------------------------------ figures


def figures(trace: ss.Trace) -> factors.Figures:
    """Those of the prediction bench, and how long each role ran at a time."""
    found = factors.figures(trace)
    runs = (
        trace.states.filter(
            pl.col("state") == "running", pl.col("end").is_in(["switched", "preempted", "exited"])
        )
        .select("utid", "dur")
        .collect()
        .join(factors.roles(trace), on="utid")
    )
    for (role,), rows in runs.group_by("role"):
        lengths = rows["dur"].sort()
        at = {part: lengths[math.ceil(part / 100 * len(lengths)) - 1] for part in (50, 90)}
        more = {"runs": len(lengths), **{f"run_p{part}": length for part, length in at.items()}}
        if str(role) in found:
            found[str(role)] |= more
    return found


def models(
    under: Sequence[ss.Trace], own: Sequence[ss.Trace], path: Path
) -> Iterator[tuple[str, list[factors.Figures]]]:
    """What each model says of the recordings: their figures, one for each repeat or replay."""
    policy = ss.scx(path)
    yield "object", [figures(ran) for trace in under for ran in _replays(trace, policy)]
    if own:
        yield "object on 7.2", [figures(ran) for trace in own for ran in _replays(trace, policy)]
        yield factors.NO_CHANGE, [figures(trace) for trace in own]
    yield EEVDF, [figures(ran) for trace in under for ran in _replays(trace, EEVDF)]


def _replays(trace: ss.Trace, policy: str | ss.Policy) -> Iterator[ss.Trace]:
    way = replay(trace)
    return factors.ran(way, policy, factors.PHASES if trace.ncpu == 1 else 10, way.settings(policy))


def compared(
    under: Sequence[ss.Trace], own: Sequence[ss.Trace], path: Path
) -> dict[str, dict[str, str]]:
    """By model: the factor of each figure (geometric mean over the roles), and how many figures lie
    within the range of the repeats, by three digits.
    """
    real = [figures(trace) for trace in under]
    enough = [
        role
        for role in sorted({role for found in real for role in found})
        if statistics.median(_values(real, role, "waits")) >= factors.FEW
    ]
    said = dict(models(under, own, path))
    rows: dict[str, dict[str, str]] = {}
    for model in [*said, factors.REPEATS]:
        inside = n = 0
        row = {}
        for figure in FIGURES:
            logs = []
            for role in enough:
                truth = _values(real, role, figure)
                if model == factors.REPEATS:
                    logs.append(math.log(factors.factor(figure, max(truth), min(truth))))
                    continue
                value = statistics.median(_values(said[model], role, figure))
                logs.append(math.log(factors.factor(figure, value, statistics.median(truth))))
                low, high, shown = (_shown(x) for x in (min(truth), max(truth), value))
                inside += low <= shown <= high
                n += 1
            row[figure] = f"{math.exp(statistics.fmean(logs)):.3f}"
        row["within the repeats"] = f"{inside} of {n}" if n else ""
        rows[model] = row
    return rows


def _shown(value: float) -> float:
    """By the three digits that tables show."""
    return float(f"{value:.3g}")


def _values(found: Iterable[factors.Figures], role: str, figure: str) -> list[float]:
    return [float(one.get(role, {}).get(figure, 0)) for one in found]


# ------------------------------------------------------------------ decisions


def recorded_decisions(trace: ss.Trace) -> pl.DataFrame:
    """The scheduler's insertions in a recording: `ts`, `utid`, `queue`.

    Those of the kernel itself are left out: a thread that it moves from a queue to its CPU, one
    that it puts back after a preemption or a change of it, and one that exits.
    """
    rows = (
        trace.dispatch_queues.join(trace.threads.select("utid", "exit_ts"), on="utid", how="left")
        .with_columns(queue=name_of_queue())
        .collect()
        .sort("ts", maintain_order=True)
    )
    step, kind = (pl.col(name).shift(1).over("utid") for name in ("step", "kind"))
    # It has been in no local queue, and so has not run, since it was taken from the other one.
    moved = ((step == "remove") & kind.is_in(["user", "global"])).fill_null(False)
    local = pl.col("kind") == "local"
    exits = (pl.col("ts") >= pl.col("exit_ts")).fill_null(False)
    flags = pl.col("flags").fill_null(0)
    kernels = local & (moved | exits | (flags & (_HEAD | _RESTORE) != 0))
    return rows.filter(pl.col("step") == "insert", ~kernels, pl.col("kind") != "bypass").select(
        "ts", "utid", queue=pl.when(local).then(pl.lit("local")).otherwise("queue")
    )


def replayed_decisions(trace: ss.Trace, path: Path) -> pl.DataFrame:
    """The same of a replay under the object; `utid` is that of the recording."""
    way = replay(trace)
    policy = ss.scx(path)
    ran = simulate(
        way.workload,
        policy=policy,
        machine=way.workload.machine,
        set=way.settings(policy),
        costs=way.costs,
        until=way.until,
        record=True,
    )
    series = ss.policy_series(ran).filter(pl.col("series").cast(pl.String) == "dsq")
    names = {-1.0: "local", -2.0: "global"}
    # Of a simulation, the threads follow the idle ones.
    whose = dict(enumerate(way.origins, ran.ncpu))
    return pl.DataFrame(
        [
            (ts, whose.get(utid), names.get(value, f"user {value:.0f}"))
            for ts, utid, value in series.select("ts", "utid", "value").iter_rows()
        ],
        schema={"ts": pl.Int64, "utid": pl.UInt32, "queue": pl.String},
        orient="row",
    )


def agreement(real: pl.DataFrame, replayed: pl.DataFrame) -> dict[str, int]:
    """How many decisions of the recording the replay makes in the same order."""
    sides = [list(frame.select("utid", "queue").iter_rows()) for frame in (real, replayed)]
    matcher = difflib.SequenceMatcher(None, sides[0], sides[1], autojunk=False)
    blocks = matcher.get_matching_blocks()
    first = next((n for n, (a, b) in enumerate(zip(*sides, strict=False)) if a != b), None)
    return {
        "recorded": len(sides[0]),
        "replayed": len(sides[1]),
        "in the same order": sum(block.size for block in blocks),
        "before the first other": min(map(len, sides)) if first is None else first,
    }


def both_agreements(trace: ss.Trace, path: Path) -> dict[str, dict[str, int]]:
    """That of all threads, and that of the workload's alone."""
    real, replayed = recorded_decisions(trace), replayed_decisions(trace, path)
    own = factors.roles(trace).select("utid")
    return {
        "all": agreement(real, replayed),
        "the workload's": agreement(
            *(
                frame.join(own, on="utid", how="semi", maintain_order="left")
                for frame in (real, replayed)
            )
        ),
    }


# ------------------------------------------------------------------ what is kept


def main() -> int:
    """Record what was not recorded yet, compare, and keep the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.lab.objects", description=__doc__)
    parser.add_argument("--cpus", type=int, action="append", help="only machines of so many CPUs")
    parser.add_argument("--work", action="append", help="only this workload")
    parser.add_argument("--scheduler", action="append", help="only this one, as tables name it")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each boot")
    parser.add_argument("--recorded", action="store_true", help="boot nothing")
    parser.add_argument("--write", action="store_true", help="keep the tables in research/data")
    given = parser.parse_args()
    kernels, _ = matrix()
    failed = 0
    for cpus, works in WORKS.items():
        for work in works:
            if cpus not in (given.cpus or [cpus]) or work not in (given.work or [work]):
                continue
            chosen = [s for s in SCHEDULERS if name_of(s) in (given.scheduler or [name_of(s)])]
            own = _run(given, kernels[KERNEL], cell("", cpus, work))
            for scheduler in chosen:
                run = _run(given, kernels[KERNEL], cell(scheduler, cpus, work))
                if run is None or run.failed:
                    failed += run is not None
                    print(f"{name_of(scheduler)}, {cpus} CPUs, {work}: {run and run.failed}")
                    continue
                path = schedulers.compiled(given.cache, kernels[KERNEL], scheduler)
                key = dict(zip(_KEY, (name_of(scheduler), str(cpus), work), strict=True))
                _compare(key, run, None if own is None or own.failed else own, path, given.write)
    return int(failed > 0)


def _run(given: argparse.Namespace, kernel: Kernel, asked: Cell) -> Run | None:
    if given.recorded:
        return earlier(given.cache, asked)
    return one(given.cache, asked, kernel, again=False, timeout=given.timeout)


def _compare(key: dict[str, str], run: Run, own: Run | None, path: Path, write: bool) -> None:
    under = captures(run)
    rows = compared(under, captures(own) if own else [], path)
    steps = [both_agreements(trace, path) for trace in under]
    print(*key.values())
    for model, row in rows.items():
        print(f"  {model:14}", *(f"{name} {value}" for name, value in row.items()))
    for n, step in enumerate(steps, 1):
        for threads, of in step.items():
            print(f"  recording {n}, {threads}:", *(f"{k} {value}" for k, value in of.items()))
    if not write:
        return
    about = {
        "measured_on": datetime.datetime.fromtimestamp(
            (run.folder / "run.json").stat().st_mtime, datetime.UTC
        ).date().isoformat(),
        "commit": _commit(),
        "machine": f"emulated, Linux {under[0].info['release']}",
    }  # fmt: skip
    _keep(KEPT, [{**about, **key, "model": model, **row} for model, row in rows.items()])
    numbered = [
        {**key, "recording": str(n), "threads": threads, **of}
        for n, step in enumerate(steps, 1)
        for threads, of in step.items()
    ]
    _keep(DECISIONS, [{**about, **{k: str(v) for k, v in row.items()}} for row in numbered])


def _commit() -> str:
    words = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _keep(name: str, rows: list[dict[str, Any]]) -> None:
    """Replaces the rows of this cell."""
    path = results.FOLDER / f"{name}.csv"
    before = results.read(path) if path.exists() else []
    others = [row for row in before if any(row[k] != rows[0][k] for k in _KEY)]
    order = [(name_of(s), str(c), w) for c in WORKS for w in WORKS[c] for s in SCHEDULERS]
    at = {key: n for n, key in enumerate(order)}
    both = sorted([*others, *rows], key=lambda row: at[row["scheduler"], row["CPUs"], row["work"]])
    results.keep(name, both)


if __name__ == "__main__":
    sys.exit(main())
