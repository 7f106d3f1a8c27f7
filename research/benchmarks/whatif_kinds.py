"""`whatif` on programs that others wrote, under some thirty kinds of change, on the host as it is.

Each kind (`campaign/kinds.py`) is recorded `--runs` times as it is and as often with its change,
run by run, so that what changes meanwhile concerns all alike. Nothing else on the host is frozen:
`busy` of the table is the share of CPU time that others took. Then `whatif` predicts each kind from
each single recording (or the first `--captures`) and from all these together.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from campaign.kinds import KINDS, PROGRAMS, Kind, aside, sides

import schedscope as ss
from research import results
from schedscope.errors import SchedscopeError, UsageError
from schedscope.processes import NoMatchError, of_processes
from schedscope.simulator.changes.alternatives import alternatives
from schedscope.simulator.changes.change import change
from schedscope.simulator.changes.ranges import RANGES
from schedscope.simulator.changes.time_limited import paces, throughput
from schedscope.simulator.changes.verdicts import BRIEF, FIGURES, RATE, VERDICTS
from schedscope.simulator.changes.whatif import Asked, as_it_was, combine, gathered
from schedscope.simulator.closeness.spread import ALIKE, outside_share
from schedscope.simulator.runs.named_threads import matching
from schedscope.simulator.runs.nearest_way import nearest_way
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.runs.services import figures, services
from schedscope.store.trace import Trace

HERE = Path(__file__).resolve().parent
CAPTURE = HERE.parents[1] / "collectors" / "capture"
GROUPS = Path("/sys/fs/cgroup/cpu")
SHARES, QUOTA_US = 1024, 50_000
LOOP = "more-load"

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
def loops(folder: Path, n: int) -> Iterator[None]:
    """So many loops, in a session of their own, called `LOOP`."""
    text = f"for i in $(seq {n}); do (while :; do :; done) & done; wait"
    shell = folder / LOOP
    if not shell.exists():
        shell.symlink_to("/bin/sh")
    running = subprocess.Popen([shell, "-c", text], start_new_session=True) if n else None
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
    for left in (half_made, half_made.with_name(half_made.name + ".partial")):
        shutil.rmtree(left, ignore_errors=True)
    extras = ["--with", kind.extras] if kind.extras else []
    with groups(kind.weights if then else {}), loops(folder, kind.load if then else 0):
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


@dataclass(frozen=True)
class Refused:
    """An unanswered question, with the reason."""

    why: str


def said(folder: Path, kind: Kind, run: int) -> Asked | Refused:
    """What `whatif` gathers from one capture, kept."""
    kept = path_of(folder, kind.name, run).with_suffix(".said")
    if not kept.exists():
        label, *_ = next(sides(kind))
        trace = ss.open(path_of(folder, label, run))
        kept.write_bytes(pickle.dumps(_asked(trace, kind)))
    found: Asked | str = pickle.loads(kept.read_bytes())
    return Refused(found) if isinstance(found, str) else found


def _asked(trace: Trace, kind: Kind) -> Asked | str:
    try:
        way = nearest_way(trace, of_processes(trace, workload=True))
        question = asked_of(way, kind)
        wanted, other = change(way, **question), alternatives(way, question)
        return gathered(way, wanted, as_it_was(way, kind.by), other, kind.by)
    except SchedscopeError as error:
        return str(error)


def real(folder: Path, kind: Kind, label: str, run: int) -> dict[str, dict[str, Any]]:
    """The figures of each service of the recorded command, kept."""
    kept = path_of(folder, label, run).with_suffix(f".{kind.by}.real")
    if not kept.exists():
        trace = ss.open(path_of(folder, label, run))
        mine = trace.threads.filter(of_processes(trace, workload=True)).select("utid").collect()
        named = services(trace, kind.by).join(mine, on="utid")
        measured = figures(trace, named)
        for service, pace in paces(trace, named).items():
            if service in measured:
                own = measured[service]
                own[RATE] = throughput(pace, own, own)
        kept.write_bytes(pickle.dumps(measured))
    found: dict[str, dict[str, Any]] = pickle.loads(kept.read_bytes())
    return found


def others(folder: Path, label: str, run: int) -> float:
    """The share of CPU time that others took in a recording, without its kind's load; kept."""
    kept = path_of(folder, label, run).with_suffix(".others")
    if not kept.exists():
        trace = ss.open(path_of(folder, label, run))
        loops = (
            trace.threads.filter(pl.col("comm").cast(pl.String) == LOOP).select("utid").collect()
        )
        kept.write_text(repr(outside_share(trace, besides=loops["utid"])))
    return float(kept.read_text())


def rows_of(
    folder: Path, number: int, kind: Kind, runs: int, captures: int
) -> Iterator[dict[str, Any]]:
    """From each of the first captures alone, and from all these: each figure, its range, and what
    happened in all runs.

    From each alone also with nothing changed, which the other recordings as it is say.
    """
    (before, *_), (after, *_) = sides(kind)
    came, were = (
        {
            run: _real(folder, kind, label, run)
            for run in range(runs)
            if path_of(folder, label, run).exists()
        }
        for label in (after, before)
    )
    each = [said(folder, kind, run) for run in range(captures)]
    common = {"kind": kind.name, "half": "aside" if aside(number) else "open"}
    for used in [*([run] for run in range(captures)), list(range(captures))]:
        told = [one for one in (each[run] for run in used) if isinstance(one, Asked)]
        about = {**common, "captures": len(used), "first": used[0]}
        if len(told) < len(used):
            why = next(one.why for one in each if isinstance(one, Refused))
            yield {**about, "changed": True, "refused": why}
            continue
        for row in _figures(told, kind, [*were.values()], [*came.values()]):
            yield {**about, "changed": True, **row}
        if len(used) == 1:
            rest = [one for run, one in were.items() if run not in used]
            unchanged = [as_if_unchanged(one) for one in told]
            for row in _figures(unchanged, kind, [*were.values()], rest):
                yield {**about, "changed": False, **row}


@dataclass(frozen=True)
class Real:
    """A recording: the figures of each service, and the share that others took."""

    figures: Mapping[str, Mapping[str, Any]]
    others: float


def _real(folder: Path, kind: Kind, label: str, run: int) -> Real:
    return Real(real(folder, kind, label, run), others(folder, label, run))


Figures = Sequence[Real]


def _figures(
    told: Sequence[Asked], kind: Kind, were: Figures, came: Figures
) -> Iterator[dict[str, Any]]:
    """The prediction for each service, and what happened: `came` after, `were` before."""
    frame = combine(told, kind.by)
    for row in frame.filter(configuration="changed").iter_rows(named=True):
        service = row[kind.by]
        old, new = (
            [one.figures[service] for one in side if service in one.figures]
            for side in (were, came)
        )
        if service in IGNORED or len(old) < len(were) or len(new) < len(came):
            continue
        if statistics.median(one["cpu_time"] for one in old) < LEAST:
            continue
        for figure in SHOWN:
            first, then = (
                [float(one[figure]) for one in side if one.get(figure) is not None]
                for side in (old, new)
            )
            short = len(first) < len(old) or len(then) < len(new)
            if short or row[f"{figure}_verdict"] is None:
                continue
            low, high = row.get(f"{figure}_low"), row.get(f"{figure}_high")
            ends = [row.get(f"{figure}_alike_{end}") for end in ("low", "high")]
            near = [
                value
                for value, one in zip(then, came, strict=True)
                if abs(one.others - (row["others_share"] or 0.0)) <= ALIKE
            ]
            yield {
                "service": service,
                "figure": figure,
                "verdict": row[f"{figure}_verdict"],
                "predicted": row[figure],
                "low": low,
                "high": high,
                "before": first,
                "after": then,
                "inside": _inside(then, low, high),
                "alike_low": ends[0],
                "alike_high": ends[1],
                "alike": len(near),
                "alike_inside": _inside(near, *ends),
                "busy": row["others_share"],
            }


def _inside(values: Sequence[float], low: float | None, high: float | None) -> int | None:
    return None if low is None or high is None else sum(low <= x <= high for x in values)


def as_if_unchanged(one: Asked) -> Asked:
    """The same without a change."""
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
COLUMNS = pl.Schema(
    {
        "kind": pl.String(),
        "half": pl.String(),
        "captures": pl.Int64(),
        "first": pl.Int64(),
        "changed": pl.Boolean(),
        "service": pl.String(),
        "figure": pl.String(),
        "verdict": pl.String(),
        "predicted": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "before": pl.List(pl.Float64()),
        "after": pl.List(pl.Float64()),
        "inside": pl.Int64(),
        "alike_low": pl.Float64(),
        "alike_high": pl.Float64(),
        "alike": pl.Int64(),
        "alike_inside": pl.Int64(),
        "busy": pl.Float64(),
        "refused": pl.String(),
    }
)


def coverage(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """How many recordings lie in their ranges, how wide these are, and the direction of answers.

    A direction counts where no recording before lies among those after; shorter times count as
    20 us in all factors.
    """
    floor = pl.when(pl.col("figure") == RATE).then(1.0).otherwise(BRIEF)
    told = rows.filter(pl.col("refused").is_null()).with_columns(
        old=pl.max_horizontal(pl.col("before").list.median(), floor),
        new=pl.max_horizontal(pl.col("after").list.median(), floor),
        said=pl.max_horizontal("predicted", floor),
        width=pl.max_horizontal("high", floor) / pl.max_horizontal("low", floor),
        alike_width=pl.max_horizontal("alike_high", floor) / pl.max_horizontal("alike_low", floor),
        up=pl.col("after").list.min() > pl.col("before").list.max(),
        down=pl.col("after").list.max() < pl.col("before").list.min(),
        noise=(
            pl.max_horizontal(pl.col("after").list.max(), floor)
            / pl.max_horizontal(pl.col("after").list.min(), floor)
        ).sqrt(),
    )
    apart = pl.col("changed") & (pl.col("up") | pl.col("down")) & pl.col("predicted").is_not_null()
    right = pl.col("up") == (pl.col("said") > pl.col("old"))
    off = (pl.col("said").log() - pl.col("new").log()).abs().exp()
    still = (pl.col("old").log() - pl.col("new").log()).abs().exp()
    one_in = pl.col("inside").is_not_null()
    some_alike = pl.col("alike_inside").is_not_null() & (pl.col("alike") > 0)
    return (
        told.group_by(*keys, maintain_order=True)
        .agg(
            *((pl.col("verdict") == v).sum().alias(v) for v in VERDICTS),
            inside=pl.col("inside").sum(),
            recordings=pl.col("after").list.len().filter(one_in).sum(),
            width=pl.col("width").filter(one_in).median(),
            long=(pl.col("high") - pl.col("low")).filter(one_in).median(),
            alike_inside=pl.col("alike_inside").sum(),
            alike=pl.col("alike").filter(some_alike).sum(),
            alike_width=pl.col("alike_width").filter(one_in).median(),
            alike_long=(pl.col("alike_high") - pl.col("alike_low")).filter(one_in).median(),
            right=(apart & right).sum(),
            separated=apart.sum(),
            off=off.filter(pl.col("predicted").is_not_null()).median(),
            no_change=still.median(),
            noise=pl.col("noise").median(),
        )
        .with_columns(
            held=pl.col("inside") / pl.col("recordings"),
            alike_held=pl.col("alike_inside") / pl.col("alike"),
        )
    )


def kept(rows: pl.DataFrame) -> None:
    """Writes the tables: how often ranges hold, and each kind."""
    machine = f"Linux {os.uname().release}, {os.cpu_count()} CPUs of a virtual machine, busy"
    day = datetime.now(UTC).date().isoformat()
    told = rows.filter(pl.col("refused").is_null())
    whole = coverage(told, "changed", "captures", "half", "figure").sort(
        "changed", "captures", "half", "figure", descending=[True, False, True, False]
    )
    results.keep(
        "whatif-kinds-ranges",
        [_texts(one) for one in whole.to_dicts()],
        measured_on=day,
        machine=machine,
    )
    alone = told.filter(pl.col("captures") == 1, pl.col("figure").is_in(RANGES))
    share = _among("busy").alias("others took")
    by_others = coverage(alone.with_columns(share), "figure", "others took", "half")
    results.keep(
        "whatif-kinds-others",
        [
            {"others took": row["others took"], **_texts(row)}
            for row in by_others.sort("figure", "others took", "half").to_dicts()
        ],
        measured_on=day,
        machine=machine,
    )
    figures_shown = pl.col("figure").is_in(["cpu_time", "waiting", "wait_p99", RATE])
    each = coverage(
        told.filter("changed", figures_shown), "kind", "half", "captures", "figure"
    ).sort("captures", maintain_order=True)
    busy = told.group_by("kind").agg(busy=pl.col("busy").median())
    rows_of_kinds = each.join(busy, on="kind", how="left", maintain_order="left")
    why = rows.filter(pl.col("refused").is_not_null()).unique("kind", keep="first")
    refused = [
        {**_texts(one), "refused": one["why"]}
        for one in why.select("kind", "half", "captures", why="refused").to_dicts()
    ]
    results.keep(
        "whatif-kinds",
        [*(_texts(one) for one in rows_of_kinds.to_dicts()), *refused],
        measured_on=day,
        machine=machine,
    )


OTHERS = {0.1: "under 10 %", 0.3: "10 to 30 %", 0.55: "30 to 55 %", 1.0: "over 55 %"}


def _among(column: str) -> pl.Expr:
    found = pl.lit(None, pl.String)
    for most in sorted(OTHERS, reverse=True):
        found = pl.when(pl.col(column) <= most).then(pl.lit(OTHERS[most])).otherwise(found)
    return found


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as it is kept: shares in per cent, factors to two places."""
    found = {key: _text(key, value) for key, value in row.items() if key in _KEYS}
    if "inside" in row:
        ranged = row["recordings"] > 0
        found["inside"] = f"{row['inside']} of {row['recordings']}" if ranged else ""
        found["held"] = f"{row['held']:.0%}" if ranged else ""
        found["ms"] = "" if row["long"] is None else f"{row['long'] / 1e6:.3g}"
        some = row["alike"] > 0
        found["alike"] = f"{row['alike_inside']} of {row['alike']}" if some else ""
        found["alike held"] = f"{row['alike_held']:.0%}" if some else ""
        for name, scale in (("alike_width", 1), ("alike_long", 1e6)):
            value = row[name]
            shown = {"alike_long": "alike ms"}.get(name, "alike width")
            found[shown] = "" if value is None else f"{value / scale:.3g}"
        found["directions right"] = f"{row['right']} of {row['separated']}"
        for name in ("width", "off", "no_change", "noise"):
            value = row[name]
            found[name.replace("_", " ")] = "" if value is None else f"{value:.3g}"
    if "busy" in row:
        found["others"] = "" if row["busy"] is None else f"{row['busy']:.0%}"
    return found


_KEYS = ("kind", "half", "captures", "figure", "changed", *VERDICTS)


def _text(key: str, value: Any) -> str:
    if key == "changed":
        return "the change" if value else "nothing"
    return str(value)


def main() -> None:
    """Record, or predict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument(
        "--captures", type=int, metavar="N", help="predict from the first N runs (default: all)"
    )
    parser.add_argument("--record", action="store_true", help="only record, both halves")
    parser.add_argument("--prove", action="store_true", help="the kinds set aside, too")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    args.folder.mkdir(exist_ok=True)
    if args.record:
        record_all(args.folder, KINDS, args.runs)
        return
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(KINDS):
        if aside(number) and not args.prove:
            continue
        begun = time.monotonic()
        rows += rows_of(args.folder, number, kind, args.runs, args.captures or args.runs)
        print(f"{kind.name}: {time.monotonic() - begun:.0f} s", flush=True)
    frame = pl.DataFrame(rows, schema=COLUMNS)
    frame.write_parquet(args.folder / "kinds.parquet")
    kept(frame)


if __name__ == "__main__":
    main()
