"""Losses known only by their number: nothing is measured where they may have been."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from faults import campaign
from faults.mutations import Mutant, book, cut, recount

from schedscope import Trace
from schedscope.analysis.check.check import check
from schedscope.present.headline import gaps

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-ftrace-placement.capture"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> campaign.Case:
    return campaign.load(FIXTURE, tmp_path_factory.mktemp("case"))


def hole(case: campaign.Case) -> tuple[int, int]:
    """From the 100th event of CPU 0 to the 140th."""
    records = case.recording.cpus[0]
    return records[100].ts, records[140].ts


def lossy(case: campaign.Case, folder: Path, count: int | None = None) -> Trace:
    """Events of CPU 0 are missing in the middle, and only `stats` has their number."""
    made = case.recording.copy()
    lost = cut(made, 0, *hole(case))
    assert lost > 32
    book(made, 0, lost if count is None else count)
    recount(made)
    return campaign.opened(Mutant(made, "lossy"), folder)


def test_unplaced_loss_may_be_in_any_long_enough_gap(case: campaign.Case, tmp_path: Path) -> None:
    trace = lossy(case, tmp_path)
    losses = trace.losses.filter(pl.col("reason") != "chain_break").collect()
    assert losses["cpu"].unique().to_list() == [0]
    assert losses["count"].is_null().all()
    least = (losses["ts_end"] - losses["ts_begin"]).min()
    assert isinstance(least, int)
    assert least >= 32 * 250
    begin, end = hole(case)
    inside = (pl.col("ts_begin") <= begin) & (pl.col("ts_end") >= end)
    assert losses.filter(inside).height == 1


def test_measured_waits_are_true_and_not_empty(case: campaign.Case, tmp_path: Path) -> None:
    trace = lossy(case, tmp_path)
    true = set(case.truth.waits.select("tid", "ts_run", "wait").iter_rows())
    rows = trace.waits.filter(censored="none").join(trace.threads, on="utid")
    said = set(rows.select("tid", "ts_run", "wait").collect().iter_rows())
    assert said
    assert said <= true
    assert any("no record of when" in doubt for doubt in gaps(trace))
    row = check(trace).row(by_predicate=pl.col("check") == "unplaced losses", named=True)
    assert row["level"] == "warning"
    assert row["text"].endswith("events lost, and the trace does not say when")


def test_a_single_event_makes_no_holes(case: campaign.Case, tmp_path: Path) -> None:
    trace = lossy(case, tmp_path, count=1)
    assert trace.losses.filter(pl.col("reason") != "chain_break").collect().is_empty()
