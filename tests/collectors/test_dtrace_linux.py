"""DTrace for Linux, really run, beside ftrace in the same seconds: the same switches and waits.

The two tracers' probes are some microseconds apart, or as much as a busy host takes from
the CPU in between. So switches are matched by their order on each CPU, not by their times.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from collector_runs import Run, eventually, meta
from freebsd.reading import Decoded
from together import in_breaks
from tools import tool

COLLECTORS = Path(__file__).parents[2] / "collectors"
YIELDS = 300
WORKLOAD = (
    "import os\n"
    "r, w = os.pipe()\n"
    "s, v = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    for _ in range(2000):\n"
    "        os.write(v, os.read(r, 1))\n"
    "    os._exit(0)\n"
    "for _ in range(2000):\n"
    "    os.write(w, b'x')\n"
    "    os.read(s, 1)\n"
    # Two threads that yield one CPU to each other.
    "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    "child = os.fork()\n"
    "open('/proc/self/comm', 'w').write('yielder')\n"
    f"for _ in range({YIELDS}):\n"
    "    os.sched_yield()\n"
    "if child: os.waitpid(child, 0)\n"
)

pytestmark = pytest.mark.needs("dtrace", "root", "tracefs", "linux")


def record(folder: Path) -> list[Decoded]:
    """DTrace's capture and ftrace's, which encloses it."""
    words = tool("dtrace")
    assert words is not None
    capture = shutil.copytree(COLLECTORS, folder / "collectors") / "capture"
    environment = {
        "DTRACE": " ".join(words),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SCHEDSCOPE_DTRACE_PATIENCE": "1200",
    }
    inner = ["sh", str(capture), "-q", "-t", "dtrace", "-b", "65536K", "-o", "d.capture", "--"]
    outer = ["sh", str(capture), "-q", "-t", "ftrace", "-b", "65536K", "-o", "f.capture", "--"]
    python = shutil.which("python3")
    done = subprocess.run(
        [*outer, *inner, str(python), "-c", WORKLOAD],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Decoded(folder / "d.capture"), Decoded(folder / "f.capture")]


@pytest.mark.parametrize("killed", ["capture", "all but dtrace"])
def test_dtrace_ends_with_a_capture_that_was_killed(killed: str) -> None:
    """If its watchdog is killed it ends with the process that it waits for."""
    words = tool("dtrace")
    assert words is not None
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        run = Run(
            "-t", "dtrace", "-o", "x",
            cwd=folder,
            program=shutil.copytree(COLLECTORS, folder / "collectors") / "capture",
            environment={"DTRACE": " ".join(words), "SCHEDSCOPE_DTRACE_PATIENCE": "1200"},
        )  # fmt: skip
        run.until("Ctrl-C ends the recording", 300)
        time.sleep(1)
        tracer = {pid for pid, line in run.processes() if line.startswith("dtrace ")}
        assert tracer
        pids = [run.process.pid] if killed == "capture" else set(run.pids()) - tracer
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.wait()
        eventually(lambda: not run.leftovers(), 120)
        left = folder / "x.capture.partial"
        assert meta(left)["complete"] is False
        assert (left / "events.txt").stat().st_size


class Both:
    """What two recorders recorded in the same seconds, switch by switch."""

    def __init__(self, dtrace: Decoded, ftrace: Decoded) -> None:
        self.dtrace, self.ftrace = dtrace, ftrace
        begin, end = dtrace.about["window"]
        # Without the first and last milliseconds, in which they start and stop.
        window = pl.col("ts").is_between(begin + 20_000_000, end - 20_000_000)
        self.switches = []
        for got in (dtrace, ftrace):
            rows = tids(got, "switches").filter(window)
            # The kernel may omit switches: research/notes/recorders-compared.md.
            for side in (dtrace, ftrace):
                rows = rows.filter(~in_breaks(rows, side.tables["losses"]))
            self.switches.append(rows)
        # Rows of both that are the same switch.
        self.matched: list[tuple[int, int]] = []
        for cpu in self.switches[0]["cpu"].unique():
            rows = [
                frame.with_row_index().filter(pl.col("cpu") == cpu)
                .select("index", "prev_utid", "next_utid").rows()
                for frame in self.switches
            ]  # fmt: skip
            pairs = in_order(*([(prev, new) for _, prev, new in side] for side in rows))
            self.matched += [(rows[0][i][0], rows[1][j][0]) for i, j in pairs]

    def side_by_side(self) -> pl.DataFrame:
        """One row per switch that both recorded: DTrace's columns, and ftrace's with `_right`."""
        mine, theirs = (
            frame[[pair[side] for pair in self.matched]] for side, frame in enumerate(self.switches)
        )
        return pl.concat([mine, theirs.rename(lambda name: f"{name}_right")], how="horizontal")


def tids(got: Decoded, table: str) -> pl.DataFrame:
    """The table with tids instead of utids; all idle threads are 0."""
    frame = got.tables[table]
    names = [name for name in frame.columns if name.endswith("utid")]
    known = {utid: max(got.tid(utid) or 0, 0) for utid in got.tids}
    return frame.with_columns(pl.col(names).replace_strict(known, return_dtype=pl.Int64))


def in_order(mine: list[object], theirs: list[object], ahead: int = 200) -> list[tuple[int, int]]:
    """Positions of equal items, in order; after a difference, the next place where three in a row
    match.
    """
    pairs, i, j = [], 0, 0
    while i < len(mine) and j < len(theirs):
        if mine[i] == theirs[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        places = ((di, d - di) for d in range(1, ahead) for di in range(d + 1))
        for di, dj in places:
            if mine[i + di : i + di + 3] == theirs[j + dj : j + dj + 3] != []:
                i, j = i + di, j + dj
                break
        else:
            break
    return pairs


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Below /tmp, where every dtrace sees it; once more if the host was too busy for one."""
    lost: list[object] = []
    for _ in range(3):
        with TemporaryDirectory(dir="/tmp") as name:
            captures = record(Path(name))
            lost = [
                loss
                for side in "df"
                for loss in json.loads((Path(name) / f"{side}.capture/capture.json").read_text())[
                    "lost"
                ]
            ]
            if not lost:
                yield Both(*captures)
                return
    pytest.skip(f"this host was too busy three times: {lost}")


def test_all_lines_are_read_and_none_is_missing(both: Both) -> None:
    assert both.dtrace.about["warnings"] == []
    assert both.dtrace.about["unplaced_losses"] == []
    assert len(both.dtrace.tables["switches"]) > 4000


def test_both_recorders_have_the_same_switches_on_each_cpu(both: Both) -> None:
    """In the same order; each misses at most what it hides about itself: 1 in 200, or three."""
    side_by_side = both.side_by_side()
    for cpu in both.switches[0]["cpu"].unique():
        longer = max(len(frame.filter(pl.col("cpu") == cpu)) for frame in both.switches)
        same = len(side_by_side.filter(pl.col("cpu") == cpu))
        # On a CPU that hardly switched a share is too strict: each recorder's own wait counts.
        assert same >= min(0.995 * longer, longer - 3), f"cpu {cpu}: {same} of {longer}"


def test_both_recorders_have_the_same_time_for_a_switch(both: Both) -> None:
    apart = (pl.col("ts") - pl.col("ts_right")).abs()
    distance = both.side_by_side().select(
        median=apart.median(), most=apart.quantile(0.95)
    ).row(0)  # fmt: skip
    assert distance[0] < 20_000
    assert distance[1] < 1_000_000


def test_states_agree_switch_by_switch(both: Both) -> None:
    rows = both.side_by_side().filter(pl.col("prev_utid") != 0)
    assert len(rows) > 2000
    agree = rows.filter(pl.col("prev_state") == pl.col("prev_state_right"))
    assert len(agree) >= 0.995 * len(rows)


def test_waits_agree_within_the_probes_distance(both: Both) -> None:
    """The same wait, from waking to running, differs by the distance between the two probes."""
    switch = both.side_by_side().select("cpu", ts_run="ts", ts_right="ts_right")
    mine, theirs = (
        tids(got, "waits").filter(pl.col("cause") == "wake").select("utid", "cpu", "ts_run", "wait")
        for got in (both.dtrace, both.ftrace)
    )
    mine = mine.join(switch, on=["cpu", "ts_run"])
    matched = mine.join(
        theirs, left_on=["utid", "cpu", "ts_right"], right_on=["utid", "cpu", "ts_run"]
    )
    assert len(mine) > 2000
    assert len(matched) >= 0.98 * len(mine)
    assert (
        matched.select(off=(pl.col("wait") - pl.col("wait_right")).abs().median()).item() < 20_000
    )


def test_yield_is_distinguished_from_preemption(both: Both) -> None:
    """Where the kernel can trace the call: every call, and each R is one or the other."""
    if not Path("/sys/kernel/tracing/events/syscalls/sys_enter_sched_yield").is_dir():
        pytest.skip("needs CONFIG_FTRACE_SYSCALLS")
    got = both.dtrace
    yielders = got.tables["threads"].filter(pl.col("comm") == "yielder")["utid"]
    assert len(yielders) == 2
    calls = got.tables["yields"].filter(pl.col("utid").is_in(yielders.implode()))
    assert calls.group_by("utid").len()["len"].to_list() == [YIELDS, YIELDS]
    waits = got.tables["waits"].filter(pl.col("utid").is_in(yielders.implode()))
    # While one sleeps, or others want the CPU, a yield has no effect: most do.
    assert len(waits.filter(pl.col("cause") == "yield")) > YIELDS / 2
    switches = got.tables["switches"].filter(pl.col("prev_utid") >= got.about["ncpu"])
    runnable = switches.filter(pl.col("prev_state") == "runnable")
    assert runnable["preempted"].null_count() == 0
