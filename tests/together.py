"""The same seconds recorded by every recorder at once: how, and how to compare what they saw.

    # python tests/together.py OUTPUT.tar.xz

records once and packs the five traces: so was fixtures/together.tar.xz made. The recorders are
nested, slowest to start outermost: each one's workload is the next one, and when the innermost
load runs, all record. SCHEDSCOPE_TOOLS may name a tree with newer tools (tests/tools.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from tools import tool

import schedscope as ss
from schedscope.analysis.recording.lost_events import is_short_edge

COLLECTORS = Path(__file__).parents[1] / "collectors"
NESTED = ("dtrace", "bpftrace", "ftrace", "perf")
PROGRAMS = ("dtrace", "bpftrace", "perf", "traced", "traced_probes", "perfetto")
"""What must be there to record; ftrace needs no tool, only tracefs."""
TRACES = {
    "ftrace": "ftrace.capture",
    "perf": "perf.capture",
    "bpftrace": "bpftrace.capture",
    "dtrace": "dtrace.capture",
    "perfetto": "perfetto.pftrace",
}
"""The first is what the others are compared with."""
BPF = ("bpftrace", "dtrace")
"""Their probes are BPF programs; the others read the kernel's trace events."""
_VARIABLES = {
    "dtrace": "DTRACE",
    "bpftrace": "SCHEDSCOPE_BPFTRACE",
    "perf": "SCHEDSCOPE_PERF",
}
NEAR = 100_000
"""Two records are of one switch if they are at most this many ns apart."""
FAR = 1_000


def record(folder: Path, seconds: float) -> dict[str, Path]:
    """Run everything at once below `folder`, which every tool must see under that name."""
    capture = shutil.copytree(COLLECTORS, folder / "collectors") / "capture"
    environment = dict(os.environ)
    for program, variable in _VARIABLES.items():
        environment[variable] = shlex.join(tool(program) or ())
    # Straight to the load: an interpreter with its packages would be most of the recording.
    load = Path(__file__).with_name("together_load.py")
    trace = folder / TRACES["perfetto"]
    command = [sys.executable, "-S", "-E", str(load), str(trace), str(seconds)]
    for name in reversed(NESTED):
        output = str(folder / TRACES[name])
        command = ["sh", str(capture), "-q", "-t", name, "-b", "16384K", "-o", output, *command]
        command.insert(command.index(output) + 1, "--")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    if done.returncode != 0:
        raise RuntimeError(f"recording failed: {done.stderr[-2000:]}")
    return {name: folder / trace for name, trace in TRACES.items()}


def opened(paths: dict[str, Path], cache: Path) -> dict[str, ss.Trace]:
    """Every trace, converted below `cache`."""
    return {name: ss.open(path, cache=cache) for name, path in paths.items()}


def runs(trace: ss.Trace) -> pl.DataFrame:
    """ts (CLOCK_MONOTONIC), cpu, prev, next of each switch; the wait that it ended, if known."""
    idle = pl.col("utid") < trace.ncpu
    tid = pl.when(idle).then(0).otherwise(pl.col("tid").cast(pl.Int64))
    ids = trace.threads.select("utid", tid=tid)
    shift = int(trace.metadata("clock", "from_mono") or 0)
    waits = trace.waits.filter(pl.col("wait").is_not_null() & (pl.col("censored") == "none"))
    return (
        trace.switches.join(ids.select(prev_utid="utid", prev="tid"), on="prev_utid")
        .join(ids.select(next_utid="utid", next="tid"), on="next_utid")
        .join(
            waits.select(next_utid="utid", ts="ts_run", wait="wait"),
            on=["next_utid", "ts"],
            how="left",
        )
        .select(ts=pl.col("ts") - shift, cpu="cpu", prev="prev", next="next", wait="wait")
        .sort("ts")
        .collect()
    )


def matched(a: pl.DataFrame, b: pl.DataFrame) -> list[tuple[int, int]]:
    """Rows of `a` and `b` that are one switch: same CPU and threads, near in time, each once."""
    places: dict[tuple[int, int, int], list[int]] = {}
    for row, key in enumerate(b.select("cpu", "prev", "next").iter_rows()):
        places.setdefault(key, []).append(row)
    times, taken, pairs = b["ts"].to_list(), dict.fromkeys(places, 0), []
    for row, (ts, *where) in enumerate(a.select("ts", "cpu", "prev", "next").iter_rows()):
        cpu, prev, after = where
        key = (cpu, prev, after)
        rows, at = places.get(key, []), taken.get(key, 0)
        while at < len(rows) and times[rows[at]] < ts - NEAR:
            at += 1
        if at < len(rows) and times[rows[at]] <= ts + NEAR:
            pairs.append((row, rows[at]))
            at += 1
        if rows:
            taken[key] = at
    return pairs


def rest(view: pl.DataFrame, rows: list[int]) -> pl.DataFrame:
    """What is left of `view` without `rows`."""
    return view.with_row_index("row").filter(~pl.col("row").is_in(rows)).drop("row")


def in_breaks(view: pl.DataFrame, losses: pl.DataFrame, shift: int = 0) -> pl.Series:
    """Which switches lie where a trace's own records show that it missed one there.

    `shift` is what that trace's times are ahead of the view's.
    """
    breaks = losses.filter(pl.col("reason") == "chain_break").select(
        "cpu", begin=pl.col("ts_begin") - shift - NEAR, end=pl.col("ts_end") - shift + NEAR
    )
    rows = view.select("cpu", "ts").with_row_index("row")
    inside = rows.join(breaks, on="cpu").filter(pl.col("ts").is_between("begin", "end"))
    return rows["row"].is_in(inside["row"].implode())


def _missed(view: pl.DataFrame, other: ss.Trace) -> int:
    """How many of the switches the other trace shows that it missed."""
    shift = int(other.metadata("clock", "from_mono") or 0)
    return int(in_breaks(view, other.losses.collect(), shift).sum())


def readers(traces: dict[str, ss.Trace]) -> set[int]:
    """Thread ids of bpftrace and DTrace, which events wake from inside the kernel's probes."""
    found: set[int] = set()
    for name in ("bpftrace", "dtrace"):
        own = traces[name].threads.filter("recorder").select("tid").collect()
        found.update(own["tid"].to_list())
    return found


def compare(traces: dict[str, ss.Trace]) -> pl.DataFrame:
    """One row per recorder against the first: switches in common, only in either, waits apart."""
    views = {name: runs(trace) for name, trace in traces.items()}
    begin = max(int(str(view["ts"].min())) for view in views.values()) + NEAR
    end = min(int(str(view["ts"].max())) for view in views.values()) - NEAR
    inside = {
        name: view.filter(pl.col("ts").is_between(begin, end)) for name, view in views.items()
    }
    reference, first = next(iter(inside.items()))
    own = readers(traces)
    rows = []
    for name, view in inside.items():
        pairs = matched(first, view)
        a = first[[i for i, _ in pairs]]
        b = view[[j for _, j in pairs]]
        apart = (b["ts"] - a["ts"]).abs()
        off = (b["wait"] - a["wait"]).drop_nulls().abs()
        missing = a.filter(a["wait"].is_not_null() & b["wait"].is_null())
        alone = rest(first, [i for i, _ in pairs]), rest(view, [j for _, j in pairs])
        rows.append(
            {
                "recorder": name,
                "switches": len(view),
                "common": len(pairs),
                f"only {reference}": len(alone[0]),
                "only here": len(alone[1]),
                "in breaks": _missed(alone[0], traces[name]) + _missed(alone[1], traces[reference]),
                "stamps apart p50": int(apart.median() or 0),  # type: ignore[arg-type]
                "stamps apart p99": int(apart.quantile(0.99) or 0),
                "waits in both": len(off),
                "> 1 µs apart": int((off > FAR).sum()),
                f"waits only {reference}": len(missing),
                "of readers": int(missing["next"].is_in(own).sum()),
                "lost": sum(_lost(traces[name])),
            }
        )
    return pl.DataFrame(rows)


def _lost(trace: ss.Trace) -> list[int]:
    """Events that the source says were lost; broken chains and where a CPU ends are our finding."""
    ours = pl.col("reason").is_in(["chain_break", "late_start"]) | is_short_edge(trace)
    told = trace.losses.filter(~ours).collect()
    return told["count"].fill_null(1).to_list()


def markdown(table: pl.DataFrame) -> str:
    """The table as the docs show it."""
    lines = [f"| {' | '.join(table.columns)} |", "|" + "---|" * table.width]
    for row in table.rows(named=True):
        cells = [
            f"{value / 1000:.1f} µs" if name.startswith("stamps") else _cell(value)
            for name, value in row.items()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: str | int) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def cut(paths: dict[str, Path]) -> None:
    """Drops what the recorders that start first have outside the last one's window.

    DTrace and bpftrace take seconds to start, and record the others' starts. Their lines are
    counted, so the counts are made to fit.
    """
    with TemporaryDirectory() as cache:
        perfetto = ss.open(paths["perfetto"], cache=cache)
        shift = int(perfetto.metadata("clock", "from_mono") or 0)
        begin, end = (ts - shift for ts in perfetto.window)
    for name, edit in (("dtrace", _cut_dtrace), ("bpftrace", _cut_bpftrace)):
        events = paths[name] / "events.txt"
        lines = events.read_text(errors="surrogateescape").splitlines(keepends=True)
        events.write_text("".join(edit(lines, begin, end)), errors="surrogateescape")
        about = json.loads((paths[name] / "capture.json").read_text())
        about["window"] = {"begin": begin, "end": end}
        (paths[name] / "capture.json").write_text(json.dumps(about, indent=2) + "\n")


def _cut_dtrace(lines: list[str], begin: int, end: int) -> list[str]:
    """Kind, time, ...; `#count KIND NUMBER` behind them."""
    dropped: Counter[str] = Counter()
    kept = []
    for line in lines:
        words = line.split("\t")
        if line.startswith("#count"):
            kept.append(f"#count\t{words[1]}\t{int(words[2]) - dropped[words[1]]}\n")
        elif line.startswith("#") or len(words) < 2 or begin <= int(words[1]) <= end:
            kept.append(line)
        else:
            dropped[words[0]] += 1
    return kept


def _cut_bpftrace(lines: list[str], begin: int, end: int) -> list[str]:
    """Kind, time, cpu, number on that CPU, ...; `@n[CPU]: NUMBER` behind them."""
    first: dict[str, int] = {}
    made: dict[str, int] = {}
    kept = []
    for line in lines:
        total = re.match(r"@n\[(\d+)\]:", line)
        words = line.split(" ", 4)
        if total:
            kept.append(f"@n[{total[1]}]: {made.get(total[1], 0)}\n")
        elif not re.match(r"[A-Z] \d+ \d+ \d+ ", line):
            kept.append(line)
        elif begin <= int(words[1]) <= end:
            # A gap in the numbers stays a gap.
            number = int(words[3]) - first.setdefault(words[2], int(words[3]))
            made[words[2]] = number + 1
            kept.append(" ".join([*words[:3], str(number), *words[4:]]))
    return kept


def pack(archive: Path, seconds: float) -> None:
    """Record, cut and pack."""
    with TemporaryDirectory(prefix="together-", dir="/tmp") as name:
        paths = record(Path(name), seconds)
        cut(paths)
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            for path in paths.values():
                packed.add(path, path.name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


if __name__ == "__main__":
    pack(Path(sys.argv[1]), 0.3)
