"""DTrace for Linux, really run, beside ftrace in the same seconds: the same switches and waits."""

from __future__ import annotations

import difflib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from freebsd.reading import Decoded
from tools import tool

COLLECTORS = Path(__file__).parent.parent / "collectors"
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
)

pytestmark = pytest.mark.needs("dtrace", "root", "tracefs", "linux")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Decoded, Decoded]]:
    """(DTrace's capture, ftrace's of the same seconds); below /tmp, where every dtrace sees it."""
    words = tool("dtrace")
    assert words is not None
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        capture = shutil.copytree(COLLECTORS, folder / "collectors") / "capture"
        environment = {"DTRACE": " ".join(words), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        inner = ["sh", str(capture), "-q", "-t", "dtrace", "-b", "65536", "-o", "d.capture", "--"]
        outer = ["sh", str(capture), "-q", "-t", "ftrace", "-b", "65536", "-o", "f.capture", "--"]
        python = shutil.which("python3")
        done = subprocess.run(
            [*outer, *inner, str(python), "-c", WORKLOAD],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        about = json.loads((folder / "d.capture/capture.json").read_text())
        if about["lost"]:
            pytest.skip(f"this host was too busy for dtrace: {about['lost']}")
        yield Decoded(folder / "d.capture"), Decoded(folder / "f.capture")


def in_window(got: Decoded, table: str, begin: int, end: int) -> pl.DataFrame:
    frame = got.tables[table].filter(pl.col("ts").is_between(begin, end))
    names = [name for name in frame.columns if name.endswith("utid")]
    # Idle threads are 0 for both.
    tids = {utid: max(got.tid(utid) or 0, 0) for utid in got.tids}
    return frame.with_columns(pl.col(names).replace_strict(tids, return_dtype=pl.Int64))


def common(both: tuple[Decoded, Decoded]) -> tuple[int, int]:
    """The seconds that both recorded, without the first and last milliseconds."""
    begin, end = both[0].about["window"]
    return begin + 20_000_000, end - 20_000_000


def test_all_lines_were_read_and_none_is_missing(both: tuple[Decoded, Decoded]) -> None:
    assert both[0].about["warnings"] == []
    assert both[0].about["unplaced_losses"] == []
    assert len(both[0].tables["switches"]) > 4000


def test_each_cpu_switched_between_the_same_threads(both: tuple[Decoded, Decoded]) -> None:
    """In the same order; what one misses is what it hides from itself: 1 in 200, or three."""
    dtrace, ftrace = (in_window(got, "switches", *common(both)) for got in both)
    for cpu in dtrace["cpu"].unique():
        pairs = [
            frame.filter(pl.col("cpu") == cpu).select("prev_utid", "next_utid").rows()
            for frame in (dtrace, ftrace)
        ]
        matcher = difflib.SequenceMatcher(None, *pairs, autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        longer = max(map(len, pairs))
        # A CPU that hardly switched leaves no room for a share: each recorder's own wait counts.
        assert same >= min(0.995 * longer, longer - 3), f"cpu {cpu}: {same} of {longer}"


def test_states_agree_switch_by_switch(both: tuple[Decoded, Decoded]) -> None:
    dtrace, ftrace = (in_window(got, "switches", *common(both)) for got in both)
    # The same switch is seen by both within a few microseconds.
    joined = dtrace.sort("ts").join_asof(
        ftrace.sort("ts").select("ts", "cpu", "prev_utid", "next_utid", other="prev_state"),
        on="ts", by=["cpu", "prev_utid", "next_utid"], strategy="nearest", tolerance=100_000,
        check_sortedness=False,
    )  # fmt: skip
    matched = joined.filter(pl.col("other").is_not_null() & (pl.col("prev_utid") != 0))
    assert len(matched) > 2000
    agree = matched.filter(pl.col("prev_state") == pl.col("other"))
    assert len(agree) >= 0.995 * len(matched)


def test_waits_agree_within_the_probes_distance(both: tuple[Decoded, Decoded]) -> None:
    """The same wait, from waking to running, differs by the time between two tracers' probes."""
    begin, end = common(both)
    frames = []
    for got in both:
        tids = {utid: got.tid(utid) for utid in got.tids}
        frames.append(
            got.tables["waits"]
            .filter(pl.col("ts_run").is_between(begin, end) & (pl.col("cause") == "wake"))
            .with_columns(pl.col("utid").replace_strict(tids, return_dtype=pl.Int64))
            .select("utid", ts="ts_run", wait="wait", cpu="cpu")
            .sort("ts")
        )
    joined = frames[0].join_asof(
        frames[1],
        on="ts",
        by=["utid", "cpu"],
        strategy="nearest",
        tolerance=100_000,
        check_sortedness=False,
    )
    matched = joined.drop_nulls("wait_right")
    assert len(matched) >= 0.98 * len(frames[0])
    off = (matched["wait"] - matched["wait_right"]).abs()
    median = off.median()
    assert isinstance(median, float)
    assert median < 20_000
