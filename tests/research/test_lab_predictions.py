"""The prediction bench: its plan, its factors and its tables (research/lab/README.md)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from research.lab import __main__ as lab, factors, predict, predictions_page
from research.lab.policies import OWN, ScxLocal
from schedscope.simulator.policies.policy import policies
from schedscope.simulator.runs.replay import replay
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.research


def hogs(ms: list[int], policy: str = "rr") -> Trace:
    """One CPU; the k-th hog runs for `ms[k]`, the last at nice 5."""
    build = Builder()
    for i, length in enumerate(ms):
        nice = 5 if i == len(ms) - 1 else 0
        build.thread(f"hog{i}", nice=nice).run(length * 1_000_000)
    build.thread("other").run(1_000_000)
    return simulate(build.workload(), policy=policy, cpus=1)


REPEATS = {4: 3, 8: 2}
"""Of machines with so many CPUs, which take longer to record."""


def test_every_case_has_every_workload_or_says_why_not() -> None:
    asked = predict.plan()
    for case, cpus in asked.others:
        there = {q.work for q in asked.questions if (q.case, q.cpus) == (case, cpus)}
        left_out = set(asked.works[cpus]) - there
        assert not left_out or asked.others[case, cpus], case


def test_the_plan_names_kernels_of_the_matrix_and_policies() -> None:
    kernels, _ = lab.matrix()
    asked = predict.plan()
    assert {under.kernel for under in asked.kernels.values()} <= kernels.keys()
    known = {*policies()["name"], *OWN}
    assert {under.policy for under in asked.kernels.values()} <= known
    guest = ROOT / "research/lab/guest"
    assert all((guest / under.bpf).is_file() for under in asked.kernels.values() if under.bpf)
    cells = predict.machines(asked.questions)
    assert len({cell.name for cell in cells}) == len(cells)
    assert all(cell.counted for cell in cells)
    assert all(
        q.before.repeats == q.after.repeats == REPEATS.get(q.cpus, 5) for q in asked.questions
    )
    of = {(q.case, q.work, q.cpus): q for q in asked.questions}
    assert len(of) == len(asked.questions)
    assert of["6.12 to 6.12", "hogs", 2].same
    quota = of["6.12: quota of 20 ms per 100 ms", "groups", 1]
    assert "cpu.max" in quota.after.before
    assert "cpu.max" not in quota.before.before
    pinned = of["6.12: hogs on CPU 1", "sleepers", 2]
    assert (pinned.before.settings, pinned.after.settings) == ("", "hog cpus=1")
    assert (pinned.before.smp, pinned.before.work) == (pinned.after.smp, pinned.after.work)
    more = of["6.12: 4 CPUs instead of 2", "hogs", 4]
    assert (more.before.smp, more.after.smp, more.before.work) == ("2", "4", more.after.work)
    assert more.after == of["6.12 to 6.12", "hogs", 4].after


def test_figures_are_by_kind_and_nice_level() -> None:
    """Under fifo: hog0 0-4, hog1 (waits 4) 4-6, hog2 (waits 6, nice 5) 6-9, other."""
    found = factors.figures(hogs([4, 2, 3], "fifo"))
    assert found.keys() == {"hog", "hog nice 5"}
    assert found["hog"] == {
        "total": 4_000_000,
        "p50": 0,
        "p90": 4_000_000,
        "p99": 4_000_000,
        "waits": 2,
        "preemptions": 0,
        "migrations": 0,
    }
    assert found["hog nice 5"]["total"] == 6_000_000


@pytest.mark.parametrize(
    ("figure", "value", "real", "expected"),
    [
        ("total", 1_980_000, 980_000, 2.0),
        ("total", 980_000, 1_980_000, 2.0),
        ("p99", 0, 0, 1.0),
        ("migrations", 0, 4, 5.0),
    ],
)
def test_factor_is_symmetric(figure: str, value: float, real: float, expected: float) -> None:
    assert factors.factor(figure, value, real) == pytest.approx(expected)


def compared(*, same: bool) -> pl.DataFrame:
    before, after = [hogs([40, 40, 30])], [hogs([40, 40, 30], "fifo"), hogs([40, 44, 30], "fifo")]
    target = None if same else replay(after[0])
    return factors.compare(before, after, "fifo", target=target)


def test_factor_of_a_perfect_model_is_at_most_that_of_repeats() -> None:
    """rr was recorded, fifo is the real change: the replay of fifo equals what happened."""
    rows = compared(same=False)
    of = {
        (row["role"], row["model"]): row
        for row in rows.filter(figure="total").iter_rows(named=True)
    }
    # hog1 takes 40 ms; the second repeat is as long for it, and 4 ms longer for hog2.
    assert of["hog", "fifo"]["real"] == 40e6
    assert of["hog", "fifo"]["factor"] == pytest.approx(1.0, abs=0.01)
    assert of["hog nice 5", "repeats"]["factor"] == pytest.approx(84.02 / 80.02)
    assert of["hog", "no change"]["factor"] > 1.5
    assert {row["model"] for row in of.values()} == {"fifo", "rr", "no change", "repeats"}
    assert set(compared(same=True)["model"]) == {"fifo", "rr", "repeats"}


def test_roles_that_hardly_waited_are_left_out() -> None:
    rows = compared(same=False)
    waits = {row["role"]: row["real"] for row in rows.filter(figure="waits").to_dicts()}
    assert waits == {"hog": 2, "hog nice 5": 1}
    assert factors.of_enough_waits(rows).is_empty()
    often = pl.when(pl.col("role") == "hog").then(pl.lit(50.0)).otherwise("real")
    kept = factors.of_enough_waits(rows.with_columns(real=often))
    assert set(kept["role"]) == {"hog"}
    assert kept.height == rows.filter(role="hog").height


def test_change_is_that_of_whatif_and_roles_are_thread_kinds() -> None:
    """hog2 was recorded at nice 5 under rr, and the change asks for nice 0."""
    before, after = [hogs([40, 40, 30])], [hogs([40, 40, 30], "fifo")]
    rows = factors.compare(before, after, whatif={"policy": "fifo", "set_nice": {"hog2": 0}})
    assert set(rows["role"]) == {"hog"}
    of = {row["model"]: row for row in rows.filter(figure="total").iter_rows(named=True)}
    assert of["fifo"]["value"] == of["fifo"]["real"] == 120e6
    assert of["no change"]["value"] > 150e6


def test_scx_local_alternates_by_slice_and_extends_a_lone_thread() -> None:
    """Ticks of 4 ms: 5 ms are over at the second. s wakes at 6 and waits for the tick at 8.

    h 0-8 s 8-9 h 9-...; alone, h is seen to have used up 5 ms at 20 (a tick after 9 + 5 = 14 is
    at 16), and has 20 more: u, which comes at 18, waits for 36.
    """
    build = Builder()
    build.thread("h").run("60ms")
    build.thread("s", asleep=True).sleep("6ms").run("1ms")
    build.thread("u", asleep=True).sleep("18ms").run("1ms")
    ran = simulate(build.workload(), policy=ScxLocal(), cpus=1)
    names = dict(ran.threads.select("utid", "comm").collect().iter_rows())
    onto = ran.switches.select("ts", "next_utid").collect()
    came = [(ts / 1e6, names[utid]) for ts, utid in onto.iter_rows() if names[utid] in "hsu"]
    assert came == [(0, "h"), (8, "s"), (9, "h"), (36, "u"), (37, "h")]


def test_prediction_equals_the_replay_of_simulate() -> None:
    """A recording that is cut while both are runnable: they stay runnable to its end."""
    build = Builder()
    build.threads("hog", 2).run("200ms")
    cut = simulate(build.workload(), policy="rr", cpus=1, until="100ms")
    said = list(factors.replays(cut, "eevdf-6.12", replay(cut)))
    found = [figures for name, figures in said if name == "eevdf-6.12"]
    wanted = simulate(cut, policy="eevdf-6.12")
    assert wanted.duration == pytest.approx(100e6, abs=1)
    assert found[0] == factors.figures(wanted)
    assert found[0]["hog"]["waits"] == 11  # with each tick of 10 ms, and at the start
    # The others' ticks come at other instants of their 4 ms.
    assert len(found) == factors.PHASES
    assert len({figures["hog"]["total"] for figures in found}) > 1


def test_tables_have_a_row_for_every_model_and_role() -> None:
    key = {"case": "a to b", "cpus": 1, "work": "hogs", "recorded_on": "2026-01-02"}
    rows = compared(same=False).select(
        *[pl.lit(x).alias(name) for name, x in key.items()],
        pl.exclude("model"),
        model=pl.col("model").replace("fifo", "eevdf"),
    )
    policies, models, roles = map("\n".join, predictions_page.of_rows(rows).values())
    assert "| a to b | 1 | eevdf |" in policies
    assert "| a to b | 1 | no change |" in models
    assert "| a to b | 1 | hogs | hog nice 5 | total | 82.0 ms [80.0 ms, 84.0 ms] |" in roles
    assert roles.count("| a to b | 1 | hogs | hog | ") == len(predictions_page.SHOWN)


def test_the_table_of_policies_has_geometric_means_and_counts(tmp_path: Path) -> None:
    """Totals are off by factors of 1 and 4, mean 2; one of the two is within the real repeats."""
    rows = pl.DataFrame(
        {
            "case": ["a to b"] * 10,
            "cpus": [1] * 10,
            "work": ["hogs", "sleepers"] * 5,
            "recorded_on": ["2026-01-02", "2026-01-03"] * 5,
            "model": ["eevdf"] * 10,
            "figure": [figure for figure in predictions_page.SHOWN for _ in range(2)],
            "factor": [1.0, 4.0] + [1.0] * 8,
            "value": [10.0, 40.0] + [10.0] * 8,
            "real_low": [9.0] * 10,
            "real_high": [11.0] * 10,
        }
    )
    counts = "5 of 6 | 5 of 6 | 9 of 10"
    expected = f"2.00 | 1.00 | 1.00 | 1.00 | 1.00 | {counts}"
    text = predictions_page.summary(rows)
    assert f"| a to b | 1 | eevdf | {expected} | hogs, sleepers |  | 2026-01-03 |" in text
    assert f"| all |  |  | {expected} |  |  | 2026-01-03 |" in text


def test_new_predictions_keep_rows_of_other_cases(tmp_path: Path) -> None:
    questions = [q for q in predict.plan().questions if q.case == "6.12 to 6.12" and q.cpus == 1]
    schema = {"case": pl.String, "cpus": pl.Int32, "work": pl.String, "recorded_on": pl.String}
    schema |= dict(factors.SCHEMA)

    def rows(works: list[str], value: float) -> pl.DataFrame:
        return pl.DataFrame(
            [
                {"case": "6.12 to 6.12", "cpus": 1, "work": work, "figure": figure, "value": value}
                for work in works
                for figure in ("total", "p50")
            ],
            schema=schema,
        )

    kept = tmp_path / "kept.parquet"
    first = predict.merged(kept, rows(["sleepers", "hogs", "gone"], 1), questions)
    assert first["work"].to_list() == ["hogs", "sleepers"]  # the plan's order, and no other work
    assert first["figure"].unique().to_list() == ["total"]  # what the page shows
    first.write_parquet(kept)
    then = predict.merged(kept, rows(["sleepers"], 2), questions)
    assert then.select("work", "value").rows() == [("hogs", 1.0), ("sleepers", 2.0)]
