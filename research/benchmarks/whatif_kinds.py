"""`whatif` on programs that others wrote, under some thirty kinds of change, on the host as it is.

Each kind (`campaign/kinds.py`) is recorded `--runs` times as it is and as often with its change,
run by run, so that what changes meanwhile concerns all alike. Nothing else on the host is frozen:
`busy` of the table is the share of CPU time that others took. Then `whatif` predicts each kind from
each single recording and from all together.

    python research/benchmarks/whatif_kinds.py FOLDER --record
    python research/benchmarks/whatif_kinds.py FOLDER [--prove] [--only PATTERN]

FOLDER keeps the recordings and `kinds.csv`. Needs root, cgroup 1's cpu controller, a C compiler, a
JDK, PostgreSQL, hackbench, cyclictest, xz, bzip2, sqlite3 and openssl.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from campaign.kinds import KINDS, PROGRAMS, Kind, aside, sides

import schedscope as ss
from schedscope.errors import SchedscopeError, UsageError
from schedscope.processes import NoMatchError, of_processes
from schedscope.simulator.alternatives import alternatives
from schedscope.simulator.change import change
from schedscope.simulator.named_threads import matching
from schedscope.simulator.nearest_way import nearest_way
from schedscope.simulator.replay import Replay
from schedscope.simulator.services import figures, services
from schedscope.simulator.time_limited import paces, throughput
from schedscope.simulator.whatif import Asked, as_it_was, combine, gathered
from schedscope.simulator.whatif_verdicts import FIGURES, RATE

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parents[1] / "collectors" / "capture"
GROUPS = Path("/sys/fs/cgroup/cpu")
SHARES, QUOTA_US = 1024, 50_000

BUILD = (
    "SRC = $(shell seq 1 12)\nall: $(SRC:%=%.o)\n%.o: unit.c\n\tgcc -O1 -c -o /dev/null unit.c\n"
)
UNIT = "#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n" + "\n".join(
    f'double f{i}(double x){{for(int k=0;k<{i};k++)x=sin(x)+k*{i}.5;return printf("%f",x);}}'
    for i in range(60)
)
MP = """\
import multiprocessing
def work(n):
    return sum(i * i % 7 for i in range(n))
if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        pool.map(work, [120_000] * 40, chunksize=1)
"""
ROWS = (
    "create table t(a int, b text);\nwith recursive n(i) as (select 1 union all select i+1 from n"
    " where i<400000) insert into t select i%1000, 'row'||i from n;\n"
    "select a, count(*), max(b) from t group by a order by 2 desc limit 3;\n"
)
JAVA = """\
import java.util.*;
public class W { public static void main(String[] a) throws Exception {
  Thread[] t = new Thread[4];
  for (int i = 0; i < 4; i++) { final int n = i; t[i] = new Thread(() -> {
    Map<Integer, String> m = new HashMap<>(); Random r = new Random(n);
    for (int k = 0; k < 900000; k++) m.put(r.nextInt(20000), "x" + k + m.size());
    System.out.println(m.size()); }, "worker-" + i); t[i].start(); }
  for (Thread x : t) x.join(); } }
"""
SLICED = """\
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
struct attributes { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority;
                    uint64_t runtime, deadline, period; };
int main(int argc, char **argv) {
    struct attributes asked = {sizeof asked, SCHED_OTHER, 0, 0, 0, strtoull(argv[1], 0, 10), 0, 0};
    if (argc < 3 || syscall(SYS_sched_setattr, 0, &asked, 0)) { perror("sched_setattr"); return 1; }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
}
"""


def prepare(folder: Path) -> None:
    """The programs and their input."""
    source = HERE.parent / "lab" / "guest" / "work.c"
    subprocess.run(["cc", "-O2", "-pthread", "-o", folder / "work", source], check=True)
    for name, text in (
        ("build.mk", BUILD),
        ("unit.c", UNIT),
        ("mp.py", MP),
        ("rows.sql", ROWS),
        ("W.java", JAVA),
        ("sliced.c", SLICED),
    ):
        (folder / name).write_text(text)
    subprocess.run(["cc", "-O2", "-o", "sliced", "sliced.c"], cwd=folder, check=True)
    subprocess.run(["javac", "W.java"], cwd=folder, check=True)
    if not (folder / "text").exists():
        subprocess.run(
            "base64 < /dev/urandom | head -c 8M > text", shell=True, cwd=folder, check=True
        )


@contextlib.contextmanager
def database(folder: Path) -> Iterator[None]:
    """PostgreSQL with the tables of pgbench, as `nobody`, on a socket in /tmp."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise SystemExit("PostgreSQL is not installed")
    data = folder / "pg"

    def run(command: str) -> None:
        subprocess.run(
            ["su", "-s", "/bin/sh", "nobody", "-c", command],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    fresh = not data.exists()
    if fresh:
        data.mkdir()
        shutil.chown(data, "nobody")
        run(f"LC_ALL=C {found[-1]}/initdb -A trust -D {data}")
    run(f"{found[-1]}/pg_ctl -w -D {data} -o '-p 54329 -k /tmp -c listen_addresses=' start")
    try:
        if fresh:
            run("pgbench -h /tmp -p 54329 -i -s 2 postgres")
        yield
    finally:
        run(f"{found[-1]}/pg_ctl -w -D {data} -m fast stop")


def command(words: dict[str, str]) -> str:
    """Shell words that start all programs, each configured, and wait for them."""
    parts = []
    for program, before in words.items():
        line = PROGRAMS[program]
        if before.startswith("@"):
            enter = f"echo $$ > {GROUPS}/wi-{before[1:]}/cgroup.procs; exec {line}"
            parts.append(f"sh -c {shlex.quote(enter)}")
        else:
            parts.append(f"{before} {line}".strip())
    return "; ".join([*(f"{part} > /dev/null 2>&1 &" for part in parts), "wait"]).replace("&;", "&")


@contextlib.contextmanager
def groups(weights: dict[str, int]) -> Iterator[None]:
    """Groups a and b of usual weight or of these, and q with a quota of half a CPU."""
    for name in "abq":
        folder = GROUPS / f"wi-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "cpu.shares").write_text(str(weights.get(name, SHARES)))
        if name == "q":
            (folder / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
    try:
        yield
    finally:
        for name in "abq":
            for _ in range(100):
                with contextlib.suppress(OSError):
                    (GROUPS / f"wi-{name}").rmdir()
                    break
                time.sleep(0.05)


@contextlib.contextmanager
def loops(n: int) -> Iterator[None]:
    """So many loops, in a session of their own."""
    text = f"for i in $(seq {n}); do (while :; do :; done) & done; wait"
    running = subprocess.Popen(["sh", "-c", text], start_new_session=True) if n else None
    try:
        yield
    finally:
        if running:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def path_of(folder: Path, label: str, run: int) -> Path:
    """The capture of a configuration."""
    safe = "".join(c if c.isalnum() else "-" for c in label)
    return folder / f"{safe}.{run}.capture"


def record(
    folder: Path, kind: Kind, label: str, words: dict[str, str], run: int, *, then: bool
) -> None:
    """One recording, made if it is not there."""
    path = path_of(folder, label, run)
    if path.exists():
        return
    half_made = folder / "half-made.capture"
    shutil.rmtree(half_made, ignore_errors=True)
    extras = ["--with", kind.extras] if kind.extras else []
    with groups(kind.weights if then else {}), loops(kind.load if then else 0):
        subprocess.run(
            ["sh", CAPTURE, "-q", *extras, "-o", half_made, "--", "sh", "-c", command(words)],
            check=True,
            cwd=folder,
            env={**os.environ, "CPUTIME": "1"},
            stdout=subprocess.DEVNULL,
            timeout=120,
        )
    half_made.rename(path)


def record_all(folder: Path, kinds: list[Kind], runs: int) -> None:
    """All captures that are not there, run by run."""
    prepare(folder)
    begun = time.monotonic()
    with database(folder):
        for run in range(runs):
            for kind in kinds:
                for label, words, then in sides(kind):
                    try:
                        record(folder, kind, label, words, run, then=then)
                    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                        print(f"{label}: {error}", flush=True)
            print(f"run {run + 1}: done after {time.monotonic() - begun:.0f} s", flush=True)


def asked_of(way: Replay, kind: Kind) -> dict[str, Any]:
    """What `whatif` is asked, without names that no thread of this recording has."""
    found: dict[str, Any] = {}
    for option, value in kind.ask.items():
        if not isinstance(value, dict) or option == "set_weight":
            found[option] = value
            continue
        there = {}
        for who, what in value.items():
            with contextlib.suppress(NoMatchError, UsageError):
                matching(way, way.workload, who)
                there[who] = what
        found[option] = there or value
    return found


def said(folder: Path, kind: Kind, run: int) -> Asked | str:
    """What `whatif` gathers from one capture, kept; the sentence of a refusal."""
    kept = path_of(folder, kind.name, run).with_suffix(".said")
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    label, *_ = next(sides(kind))
    trace = ss.open(path_of(folder, label, run))
    try:
        way = nearest_way(trace, of_processes(trace, workload=True))
        question = asked_of(way, kind)
        found: Asked | str = gathered(
            way,
            change(way, **question),
            was=as_it_was(way, kind.by),
            other=alternatives(way, question),
            by=kind.by,
        )
    except SchedscopeError as error:
        found = str(error)
    kept.write_bytes(pickle.dumps(found))
    return found


def real(folder: Path, kind: Kind, label: str, run: int) -> dict[str, dict[str, Any]]:
    """The figures of each service of the recorded command."""
    kept = path_of(folder, label, run).with_suffix(f".{kind.by}.real")
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    trace = ss.open(path_of(folder, label, run))
    mine = trace.threads.filter(of_processes(trace, workload=True)).select("utid").collect()
    named = services(trace, kind.by).join(mine, on="utid")
    found = figures(trace, named)
    for service, pace in paces(trace, named).items():
        if service in found:
            found[service][RATE] = throughput(pace, found[service], found[service])
    kept.write_bytes(pickle.dumps(found))
    return found


def rows_of(folder: Path, number: int, kind: Kind, runs: int) -> Iterator[dict[str, Any]]:
    """From each capture alone, and from all: each figure, its range, and what came."""
    (before, *_), (after, *_) = sides(kind)
    came = [real(folder, kind, after, run) for run in range(runs)]
    were = [real(folder, kind, before, run) for run in range(runs)]
    each = [said(folder, kind, run) for run in range(runs)]
    sets = [([i], [one]) for i, one in enumerate(each)] + [(list(range(runs)), each)]
    for change_made, results in ((True, came), (False, were)):
        for used, these in sets:
            common = {
                "kind": kind.name,
                "half": "aside" if aside(number) else "open",
                "captures": len(used),
                "changed": change_made,
                "first": used[0],
            }
            if any(isinstance(one, str) for one in these):
                words = [one for one in these if isinstance(one, str)]
                yield {**common, "refused": words[0]}
                continue
            if not change_made and len(used) > 1:
                continue
            told = these if change_made else [as_if_unchanged(one) for one in these]
            frame = combine(told, kind.by)
            mean = [one.was.spreads for one in these]
            for row in frame.filter(configuration="changed").iter_rows(named=True):
                service = row[kind.by]
                there = [
                    one[service]
                    for i, one in enumerate(results)
                    if service in one and (change_made or i not in used)
                ]
                old = [one[service] for one in were if service in one]
                if service in IGNORED or len(there) < len(results) - (not change_made):
                    continue
                if statistics.median(one["cpu_time"] for one in old) < LEAST:
                    continue
                for figure in SHOWN:
                    first, then = ([one.get(figure) for one in side] for side in (old, there))
                    if None in first or None in then:
                        continue
                    low, high = row.get(f"{figure}_low"), row.get(f"{figure}_high")
                    yield {
                        **common,
                        "service": service,
                        "figure": figure,
                        "verdict": row[f"{figure}_verdict"],
                        "whole": row["verdict"],
                        "predicted": row[figure],
                        "low": low,
                        "high": high,
                        "n_waits": row["n_waits"],
                        "before": sorted(first),
                        "after": sorted(then),
                        "inside": None if low is None else sum(low <= x <= high for x in then),
                        "busy": statistics.mean(
                            s.get(service, {}).get("outside", 0.0) for s in mean
                        ),
                    }


def as_if_unchanged(one: Asked) -> Asked:
    """The same, asked for no change."""
    return replace(
        one,
        changed=one.was.replayed,
        tested={},
        other=[replace(other, changed=[other.replayed]) for other in one.other],
    )


IGNORED = ("sh", "-")
LEAST = 2_000_000
"""Services that ran for less, ns, are left out."""
SHOWN = (*FIGURES, RATE)


def flat(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """The rows as a table."""
    columns = {
        **dict.fromkeys(("kind", "half"), pl.String),
        "captures": pl.Int64,
        "first": pl.Int64,
        "changed": pl.Boolean,
        **dict.fromkeys(("service", "figure", "verdict", "whole"), pl.String),
        **dict.fromkeys(("predicted", "low", "high", "n_waits"), pl.Float64),
        "before": pl.List(pl.Float64),
        "after": pl.List(pl.Float64),
        "inside": pl.Int64,
        "busy": pl.Float64,
        "refused": pl.String,
    }
    return pl.DataFrame(list(rows), schema=columns, infer_schema_length=None)


def main() -> None:
    """Record, or predict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--record", action="store_true", help="only record, both halves")
    parser.add_argument("--prove", action="store_true", help="the kinds set aside, too")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    args.folder.mkdir(exist_ok=True)
    if args.record:
        record_all(args.folder, KINDS, args.runs)
        return
    rows = []
    for number, kind in enumerate(KINDS):
        if aside(number) and not args.prove:
            continue
        begun = time.monotonic()
        rows += rows_of(args.folder, number, kind, args.runs)
        print(f"{kind.name}: {time.monotonic() - begun:.0f} s", flush=True)
    flat(rows).write_parquet(args.folder / "kinds.parquet")


if __name__ == "__main__":
    main()
