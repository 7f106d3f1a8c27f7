"""The same seconds recorded by every recorder at once: what does each of them see?

    # python benchmarks/formats_together.py [--seconds 1]

Starts ftrace, perf, bpftrace, DTrace (collectors/capture) and Perfetto, as far as
they are here, runs one small load under all of them, reads the five traces and
compares them with ftrace's: switches in common, only in one, and waits that
differ by more than 1 µs. SCHEDSCOPE_TOOLS may name a tree with newer tools
(tests/tools.py); it must have /tmp mounted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import schedscope as ss

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from tools import tool  # noqa: E402

CAPTURE = ROOT / "collectors" / "capture"
RECORDERS = ("ftrace", "perf", "bpftrace", "dtrace")
NEAR = 100_000
"""Two records are of one switch if they are at most this many ns apart."""
FAR = 1_000
LOAD = """
for i in 1 2 3 4; do /bin/true & done; wait
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01 & sleep 0.005; done; wait
"""
CONFIG = """
buffers { size_kb: 32768 fill_policy: DISCARD }
data_sources { config { name: "linux.ftrace" ftrace_config {
  ftrace_events: "sched/sched_switch" ftrace_events: "sched/sched_waking"
  ftrace_events: "sched/sched_wakeup" ftrace_events: "sched/sched_wakeup_new"
  ftrace_events: "sched/sched_migrate_task" ftrace_events: "task/task_newtask"
  buffer_size_kb: 8192 drain_period_ms: 250 } } }
"""


def record(folder: Path, seconds: float) -> dict[str, Path]:
    """Run everything at once; returns the traces that came out whole."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name in RECORDERS:
        program = "sh" if name == "ftrace" else name
        words = tool(program)
        if words is None:
            continue
        variable = "DTRACE" if name == "dtrace" else f"SCHEDSCOPE_{name.upper()}"
        environment = {**os.environ, variable: " ".join(words)}
        command = ["sh", str(CAPTURE), "-q", "-t", name, "-o", str(folder / name)]
        # bpftrace and DTrace take long to start: their capture runs until it is told to stop.
        log = (folder / f"{name}.log").open("wb")
        running[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    perfetto = start_perfetto(folder)
    time.sleep(25 if "dtrace" in running else 8)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        subprocess.run(["sh", "-c", LOAD], check=False)
    time.sleep(0.3)
    for process in running.values():
        process.terminate() if process.poll() is None else None
    for process in perfetto:
        process.terminate()
        time.sleep(0.5)
    for process in [*running.values(), *perfetto]:
        process.wait(60)
    traces = {name: folder / f"{name}.capture" for name in running}
    traces["perfetto"] = folder / "x.pftrace"
    return {name: path for name, path in traces.items() if path.exists()}


def start_perfetto(folder: Path) -> list[subprocess.Popen[bytes]]:
    """traced, traced_probes and perfetto on sockets of their own, to be ended last first."""
    words = {name: tool(name) for name in ("traced", "traced_probes", "perfetto")}
    if None in words.values():
        return []
    (folder / "config").write_text(CONFIG)
    environment = {
        **os.environ,
        "PERFETTO_PRODUCER_SOCK_NAME": str(folder / "producer"),
        "PERFETTO_CONSUMER_SOCK_NAME": str(folder / "consumer"),
    }
    started = []
    arguments = ["--txt", "-c", str(folder / "config"), "-o", str(folder / "x.pftrace")]
    for name in ("traced", "traced_probes", "perfetto"):
        command = [*(words[name] or ()), *(arguments if name == "perfetto" else ())]
        null = subprocess.DEVNULL
        started.append(subprocess.Popen(command, env=environment, stdout=null, stderr=null))
        time.sleep(0.7)
    return started[::-1]


def runs(trace: ss.Trace) -> pl.DataFrame:
    """ts, cpu, prev, next of each switch, with the wait that it ended (null: not known)."""
    idle = pl.col("utid") < trace.ncpu
    tid = pl.when(idle).then(0).otherwise(pl.col("tid").cast(pl.Int64))
    ids = trace.threads.select("utid", tid=tid)
    shift = int(trace.fact("clock", "from_mono") or 0)
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
    for row, (ts, *key) in enumerate(a.select("ts", "cpu", "prev", "next").iter_rows()):
        rows, at = places.get(tuple(key), []), taken.get(tuple(key), 0)
        while at < len(rows) and times[rows[at]] < ts - NEAR:
            at += 1
        if at < len(rows) and times[rows[at]] <= ts + NEAR:
            pairs.append((row, rows[at]))
            at += 1
        if rows:
            taken[tuple(key)] = at
    return pairs


def compare(traces: dict[str, ss.Trace]) -> pl.DataFrame:
    """One row per recorder against the first: switches in common, only in either, waits apart."""
    views = {name: runs(trace) for name, trace in traces.items()}
    begin = max(int(str(view["ts"].min())) for view in views.values()) + NEAR
    end = min(int(str(view["ts"].max())) for view in views.values()) - NEAR
    inside = {
        name: view.filter(pl.col("ts").is_between(begin, end)) for name, view in views.items()
    }
    reference, first = next(iter(inside.items()))
    rows = []
    for name, view in inside.items():
        pairs = matched(first, view)
        a = first[[i for i, _ in pairs]]
        b = view[[j for _, j in pairs]]
        apart = b["ts"] - a["ts"]
        off = (b["wait"] - a["wait"]).drop_nulls().abs()
        rows.append(
            {
                "recorder": name,
                "switches": len(view),
                "common": len(pairs),
                f"only {reference}": len(first) - len(pairs),
                "only here": len(view) - len(pairs),
                "stamps apart p50": int(apart.abs().median() or 0),
                "stamps apart p99": int(apart.abs().quantile(0.99) or 0),
                "waits in both": len(off),
                "waits > 1 µs apart": int((off > FAR).sum()),
                "lost": sum(int(n or 0) for n in _lost(traces[name])),
            }
        )
    return pl.DataFrame(rows)


def _lost(trace: ss.Trace) -> list[int | None]:
    told = trace.losses.filter(~pl.col("reason").is_in(["chain_break", "late_start"])).collect()
    return told["count"].to_list()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="together-", dir="/tmp") as name:
        paths = record(Path(name), arguments.seconds)
        traces = {}
        for recorder, path in paths.items():
            try:
                traces[recorder] = ss.open(path, cache=Path(name) / "cache")
            except ss.FormatError as error:
                print(f"{recorder} is left out: {error}", file=sys.stderr)
        with pl.Config(tbl_cols=-1, tbl_width_chars=200, tbl_hide_dataframe_shape=True):
            print(compare(traces))


if __name__ == "__main__":
    main()
