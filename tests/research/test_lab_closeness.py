"""The tables of distances of replays: what they count, and that rows are kept."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from research.lab import closeness
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.workloads.generators import make

pytestmark = pytest.mark.research


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """Three runs of a program under round robin, which its own model replays exactly."""
    traces = [
        ss.simulate(
            make(4, tasks=20, run="20ms", seed=seed), policy="rr", cpus=2, set={"quantum": "2ms"}
        )
        for seed in range(3)
    ]
    mine = [trace.threads.filter(pl.col("utid") >= 2).collect()["utid"] for trace in traces]
    return closeness.compared("one", "make", [replay(trace) for trace in traces], mine)


def test_right_model_is_inside_and_others_are_counted(
    rows: pl.DataFrame,
) -> None:
    own = rows.filter(model="own")
    assert own.drop_nulls("inside")["inside"].all()
    assert own["against"].unique().to_list() == ["rr"]
    assert own.filter(measure=closeness.HOST)["replay"].item() == pytest.approx(0, abs=1e-6)
    assert {"fifo", "srtf", "ps", "bfs", closeness.OTHER} == set(rows["model"]) - {"own"}
    inside, apart = closeness.tables(rows, "machine")
    first = dict(zip(_cells(inside[0]), _cells(inside[2]), strict=True))
    assert first["machine"] == "one"
    assert first["preemptions"] == "1 of 1"
    assert first["first four"] == "100%"
    assert first["fifo"] != "100%"
    distance = dict(zip(_cells(apart[0]), _cells(apart[2]), strict=True))
    assert distance["at most 1.5"] == "1 of 1"
    assert float(distance["fifo"]) > 1
    assert _cells(inside[-1])[0] == "all"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_nearer_null_model_is_not_counted_as_twice_as_far(rows: pl.DataFrame) -> None:
    """No null model has twice the own model's distance, which is made large here."""
    far = (pl.col("model") == "own") & (pl.col("measure") == "wait_distance")
    changed = rows.with_columns(replay=pl.when(far).then(pl.lit(1e12)).otherwise("replay"))
    _, apart = closeness.tables(changed, "machine")
    assert _cells(apart[2])[-1] == "0 of 1"
    assert _cells(apart[2])[4] == "0 of 1"


def test_rows_of_other_cells_are_kept(rows: pl.DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "rows.parquet"
    assert closeness.merged(closeness.read(table), rows).equals(rows)
    closeness.write(table, rows)
    assert list(tmp_path.iterdir()) == [table]
    other = rows.with_columns(cell=pl.lit("hogs"))
    both = closeness.merged(closeness.read(table), other)
    assert both.equals(pl.concat([rows, other]))
    again = closeness.merged(both, rows.with_columns(replay=pl.lit(0.0)))
    assert again.filter(cell="make")["replay"].unique().to_list() == [0.0]
    assert again.height == both.height
