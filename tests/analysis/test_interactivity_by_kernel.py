"""FreeBSD's own scores (`capture --with inter`), on values recorded from a 13.2 kernel."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import polars as pl
import pytest
from archives import unpack
from freebsd.compact import Translator

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"
ARCHIVE = FIXTURES / "freebsd-13.2" / "inter.tar.xz"


def with_inter(folder: Path) -> tuple[ss.Trace, pl.DataFrame]:
    """The recording as `--with inter` would have made it, and the kernel's values."""
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, folder)
    old = (folder / "events.txt").read_text(errors="surrogateescape")
    base = int(old.split("\t", 4)[3])
    names = ("ts", "cpu", "tid", "ran", "slept", "prio")
    values = pl.read_csv(folder / "inter.txt", separator=" ", has_header=False, new_columns=names)
    lines = Translator(old).text().splitlines(keepends=True)
    sums = [
        f"V {ts - base} {cpu} {tid} {ran} {slept}\n"
        for ts, cpu, tid, ran, slept, _ in values.iter_rows()
    ]

    def at(line: str) -> int:
        return int(line.split()[1]) if line[1:2] == " " else 1 << 62

    body = sorted([*lines[1:], *sums], key=at)
    (folder / "new.txt").write_text("".join([lines[0], *body]), errors="surrogateescape")
    return ss.open(folder / "new.txt"), values


def score(ran: int, slept: int) -> int:
    """sched_interact_score() with the threshold of 30."""
    return ran * 50 // slept if slept > ran else 50 if ran else 0


def test_the_score_is_that_of_the_kernel(tmp_path: Path) -> None:
    trace, values = with_inter(tmp_path)
    frame = ss.interactivity(trace).filter("by_kernel")
    assert sorted(frame["tid"]) == sorted(values["tid"].unique())
    for row in frame.iter_rows(named=True):
        own = values.filter(pl.col("tid") == row["tid"])
        scores = [score(ran, slept) for ran, slept in own.select("ran", "slept").iter_rows()]
        assert row["n"] == len(scores)
        # The kernel divides by a fiftieth of the sum, rounded down.
        for name, expected in (("score", scores[-1]), ("score_min", min(scores))):
            assert abs(row[name] - expected) <= 1, row
        assert row["is_interactive"] == (row["score"] < 30)


def test_score_under_another_rule_is_an_estimate(tmp_path: Path) -> None:
    trace, _ = with_inter(tmp_path)
    for frame in (
        ss.interactivity(trace, "ule-2011"),
        ss.interactivity(trace, set={"interact": 40}),
    ):
        assert not frame["by_kernel"].any()


def test_estimate_for_a_young_thread_is_within_the_documented_error(tmp_path: Path) -> None:
    """The threads inherited their parent's running time, so none is more interactive than
    estimated.
    """
    trace, _ = with_inter(tmp_path)
    own = ss.interactivity(trace).filter("by_kernel").select("tid", kernel="score")
    guess = ss.interactivity(trace, set={"interact": 30}).join(own, on="tid")
    off = guess.select(pl.col("kernel") - pl.col("score")).to_series()
    assert off.min() >= -1
    assert 0 < off.max() <= 45


def test_a_replay_begins_with_the_kernels_sums(tmp_path: Path) -> None:
    """Those of its first switch, less what it did before that in the recording, in seconds. Only
    the first thread of the load is older than the recording: the others have its past.
    """
    _, values = with_inter(tmp_path)
    folder = tmp_path / "x.capture"
    folder.mkdir()
    # Of another capture of this host.
    about = json.loads((FIXTURES / "freebsd-ule.capture" / "capture.json").read_text())
    about["window"] = {"begin": None, "end": None}
    (folder / "capture.json").write_text(json.dumps(about))
    shutil.move(tmp_path / "new.txt", folder / "events.txt")
    trace = ss.open(folder)
    own = trace.threads.select("utid", "tid", "parent_utid").collect().join(values, on="tid")
    first = own.filter(pl.col("parent_utid").is_null()).sort("ts").row(0, named=True)
    states = trace.states.filter(
        pl.col("utid") == first["utid"],
        pl.col("ts") < first["ts"],
        pl.col("state").cast(pl.String) == "running",
    )
    ran = states.select(pl.col("dur").sum()).collect().item()
    past = ss.workload.extract(trace).threads.filter(pl.col("tid") == first["tid"])
    # Ticks of hz, which is 100, times 1024.
    kernel = [first[name] * 1_000_000_000 // (100 << 10) for name in ("ran", "slept")]
    # It still runs when the kernel is asked.
    assert past["past_run"].item() == pytest.approx(kernel[0] - ran, abs=50_000)
    assert 0 < past["past_sleep"].item() <= kernel[1]
