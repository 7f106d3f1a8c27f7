"""How accurate `whatif` is about control groups: predicted from one setting, against the other.

Each case records the same loops (`research/lab/guest/work.c`) in control groups several times in
each of two settings, in turn: two groups of equal weight and of weights 1:3, on one CPU or two; a
group without a quota and with one of 20 ms in 100 ms. From each recording of one setting `whatif`
predicts the CPU time of each group in the other, and the other way about; the other recordings show
what it was. Also prints a replay of the recorded setting, with its groups and without them. Needs
root, for ftrace and control groups, and a C compiler.

    python research/benchmarks/whatif_groups.py FOLDER [--runs 3] [--only weights-1]

FOLDER keeps the recordings; those that are there are not made again. Groups have 16 times the
weight of an ordinary one, so that other work on the host has little part in the outcome.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss
from schedscope.simulator.changes.change import change
from schedscope.simulator.changes.whatif import answer, change_of_nothing
from schedscope.simulator.runs.nearest_way import nearest_way
from schedscope.simulator.runs.replay import Replay
from schedscope.store.trace import Trace

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parents[1] / "collectors" / "capture"
SECONDS = 4
UNIT = 1600
"""The weight of a group, that of an ordinary one being 100."""


@dataclass(frozen=True)
class Setting:
    """Each group's threads, weight in `UNIT`s, and quota in ms of each 100 ms."""

    threads: dict[str, int]
    weights: dict[str, int]
    quotas: dict[str, int]
    cpus: str | None = None


EQUAL = Setting({"a": 1, "b": 1}, {"a": 1, "b": 1}, {}, "0")
CASES: dict[str, tuple[Setting, Setting]] = {
    "weights-1": (EQUAL, replace(EQUAL, weights={"a": 1, "b": 3})),
    "weights-2": (
        replace(EQUAL, threads={"a": 2, "b": 2}, cpus=None),
        replace(EQUAL, threads={"a": 2, "b": 2}, cpus=None, weights={"a": 1, "b": 3}),
    ),
    "sizes": (
        replace(EQUAL, threads={"a": 1, "b": 4}),
        replace(EQUAL, threads={"a": 1, "b": 4}, weights={"a": 1, "b": 3}),
    ),
    "quota": (EQUAL, replace(EQUAL, quotas={"a": 20})),
}


def root() -> tuple[Path, bool]:
    """Where the cpu controller's groups are, and whether it is that of cgroup 2."""
    for place in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        if Path(place, "cpu.shares").exists():
            return Path(place), False
    return Path("/sys/fs/cgroup"), True


def name_of(group: str) -> str:
    return f"schedscope-{group}"


def make(setting: Setting) -> dict[str, Path]:
    """Creates or updates the groups of a setting."""
    top, second = root()
    found = {}
    for group in setting.threads:
        folder = top / name_of(group)
        folder.mkdir(exist_ok=True)
        weight = setting.weights[group] * UNIT
        quota = setting.quotas.get(group)
        if second:
            (folder / "cpu.weight").write_text(str(weight))
            (folder / "cpu.max").write_text(f"{quota * 1000 if quota else 'max'} 100000")
        else:
            (folder / "cpu.shares").write_text(str(weight * 1024 // 100))
            (folder / "cpu.cfs_quota_us").write_text(str(quota * 1000 if quota else -1))
        found[group] = folder
    return found


def empty(folder: Path) -> None:
    """End what runs in the group, which is all ours, and remove it."""
    while pids := (folder / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)
    folder.rmdir()


def record(target: Path, work: Path, setting: Setting) -> Trace:
    """A recording of this setting, made if it is not there."""
    if target.exists():
        return ss.open(target)
    folders = make(setting)
    script = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
    loops = []
    for group, folder in folders.items():
        pinned = ["taskset", "-c", setting.cpus] if setting.cpus else []
        program = [
            str(work),
            "/dev/null",
            "hogs",
            "10000000",
            ",".join("0" * setting.threads[group]),
        ]
        loops.append(
            subprocess.Popen(
                ["sh", "-c", script, "sh", str(folder), *pinned, *program],
                stdout=subprocess.DEVNULL,
            )
        )
    try:
        time.sleep(1)
        subprocess.run(
            ["sh", str(CAPTURE), "-q", "-d", str(SECONDS), "-o", str(target)], check=True
        )
    finally:
        for folder in folders.values():
            empty(folder)
        for loop in loops:
            loop.wait()
    return ss.open(target)


def part(trace: Trace) -> dict[str, float]:
    """The CPU time of each group, as a part of one CPU."""
    mine = trace.threads.filter(pl.col("cgroup").str.contains("/schedscope-")).select(
        "utid", group=pl.col("cgroup").str.split("schedscope-").list.last()
    )
    found = (
        trace.states.filter(pl.col("state") == "running")
        .join(mine, on="utid")
        .group_by("group")
        .agg(pl.col("dur").sum() / trace.duration)
        .collect()
    )
    return dict(found.sort("group").iter_rows())


def without_groups(way: Replay) -> Replay:
    """The same threads as they would be replayed if the groups were not known."""
    workload = way.workload
    bare = replace(
        workload,
        threads=workload.threads.with_columns(group=pl.lit(None, pl.String)),
        groups=workload.groups.clear(),
    )
    return replace(way, workload=bare)


def asked(before: Setting, after: Setting) -> dict[str, Any]:
    """What `whatif` is asked, to get from one setting to the other."""
    weights = {
        f"/{name_of(g)}": w * UNIT for g, w in after.weights.items() if w != before.weights[g]
    }
    quotas = {
        f"/{name_of(g)}": f"{after.quotas[g]}%" if g in after.quotas else "none"
        for g in {*before.quotas, *after.quotas}
        if before.quotas.get(g) != after.quotas.get(g)
    }
    return {"set_weight": weights, "quota": quotas}


def figures(frame: pl.DataFrame, length: int, configuration: str) -> dict[str, str]:
    """Each group's part of a CPU in `configuration`, with its range if it has one."""
    found = {}
    for row in frame.filter(configuration=configuration).iter_rows(named=True):
        group = str(row["cgroup"]).rpartition("schedscope-")[2]
        if row["cpu_time"] is None:
            found[group] = "refused"
            continue
        text = f"{row['cpu_time'] / length:.3f}"
        if configuration == "changed":
            low, high = (row[f"cpu_time_{side}"] / length for side in ("low", "high"))
            text += f" [{low:.3f}, {high:.3f}] {row['verdict']}"
        found[group] = text
    return found


def direction(
    title: str, before: list[Trace], after: list[Trace], change_to: dict[str, Any]
) -> None:
    """One case: a line per group."""
    was, then = [part(t) for t in before], [part(t) for t in after]
    said = []
    for trace in before:
        comm = pl.col("cgroup").str.contains("/schedscope-")
        way = nearest_way(trace, comm)
        frame = answer(way, change(way, **change_to), by="cgroup")
        bare = without_groups(way)
        plain = answer(bare, change_of_nothing(bare), by="cgroup", replays=1)
        said.append(({"groups": frame, "none": plain}, way.trace.duration))
    for group in sorted(was[0]):
        print(f"{title:24} {group}")
        real = [one[group] for one in was]
        print(f"    recorded              {' '.join(f'{x:.3f}' for x in real)}")
        for label, which, of in (
            ("replayed", "replayed", "groups"),
            ("replayed, no groups", "replayed", "none"),
            ("predicted", "changed", "groups"),
        ):
            texts = [figures(one[of], length, which).get(group, "-") for one, length in said]
            print(f"    {label:21} {'  '.join(texts)}")
        goal = [one[group] for one in then]
        middle = statistics.median(goal)
        print(
            f"    then recorded         {' '.join(f'{x:.3f}' for x in goal)} (median {middle:.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--record-only", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    work = args.folder / "work"
    source = HERE.parent / "lab" / "guest" / "work.c"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(work), str(source)], check=True)
    for name in args.only.split(","):
        settings = CASES[name]
        traces: tuple[list[Trace], list[Trace]] = ([], [])
        for i in range(args.runs):
            for side, setting in enumerate(settings):
                target = args.folder / f"{name}-{side}-{i}.capture"
                traces[side].append(record(target, work, setting))
        if args.record_only:
            continue
        one, other = settings
        direction(f"{name}, changed", traces[0], traces[1], asked(one, other))
        direction(f"{name}, changed back", traces[1], traces[0], asked(other, one))


if __name__ == "__main__":
    main()
