"""The tables of predictions, from the rows that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from research.lab.factors import NO_CHANGE, NULLS, REPEATS
from research.lab.guests import HERE
from research.lab.plan import plan
from schedscope import units

KEPT = HERE / "predictions.parquet"
"""The rows: recordings are not kept for long, and not all are made at once."""
SHOWN = ("total", "p90", "p99", "preemptions", "migrations")
GOALS = {1: 1.10, 2: 1.20, 4: 1.30, 8: 1.30}
"""How far total wait, p90 and p99 may be off, by number of CPUs: what the bench works towards."""
_OTHERS = (NO_CHANGE, *NULLS, REPEATS)


def summary(rows: pl.DataFrame) -> str:
    """The first table, as Markdown."""
    return "\n".join(_policies(rows))


def tables() -> dict[str, list[str]]:
    """From the kept rows: the policies, the models to compare with, every role."""
    return of_rows(pl.read_parquet(KEPT))


def of_rows(rows: pl.DataFrame) -> dict[str, list[str]]:
    """The same of these rows."""
    return {
        "predictions": list(_policies(rows)),
        "predictions-models": list(_others(rows)),
        "predictions-roles": list(_roles(rows)),
    }


def _order(models: list[str]) -> list[str]:
    """The policy first."""
    return [m for m in models if m not in _OTHERS] + [m for m in _OTHERS if m in models]


def _policies(rows: pl.DataFrame) -> Iterator[str]:
    """A row for each case and number of CPUs: how close the policy came, and one for all cases."""
    yield (
        f"| case | CPUs | policy | {' | '.join(SHOWN)} | waiting within the goal"
        " | waiting within the repeats | all within the repeats | workloads | without"
        " | recorded on |"
    )
    yield "|---|---|---|" + "---|" * (len(SHOWN) + 6)
    ours = rows.filter(~pl.col("model").is_in(_OTHERS) & pl.col("figure").is_in(SHOWN))
    for (case, cpus), part in ours.group_by(["case", "cpus"], maintain_order=True):
        yield _policy(str(case), str(cpus), part["model"][0], part)
    yield _policy("all", "", "", ours)


def _policy(case: str, cpus: str, policy: str, rows: pl.DataFrame) -> str:
    waits = rows.filter(pl.col("figure").is_in(["total", "p90", "p99"]))
    goals = pl.col("cpus").cast(pl.Int64).replace_strict(GOALS, return_dtype=pl.Float64)
    good = waits.filter(pl.col("factor") <= goals).height
    works = ", ".join(rows["work"].unique(maintain_order=True)) if policy else ""
    cells = [
        *(_mean(rows, figure) for figure in SHOWN),
        *(f"{n} of {of.height}" for n, of in ((good, waits), (_inside(waits), waits))),
        f"{_inside(rows)} of {rows.height}",
    ]
    day = rows.select(pl.col("recorded_on").max()).item()
    out = _left_out(case, int(cpus), rows["work"].unique().to_list()) if policy else ""
    return f"| {case} | {cpus} | {policy} | {' | '.join(cells)} | {works} | {out} | {day} |"


def _left_out(case: str, cpus: int, works: list[str]) -> str:
    """The workloads that a case does not have, and why."""
    asked = plan()
    if (case, cpus) not in asked.others:
        return ""
    missing = [name for name in asked.works[cpus] if name not in works]
    why = "; ".join(dict.fromkeys(asked.others[case, cpus]))
    return f"{', '.join(missing)} ({why})" if missing else ""


def _others(rows: pl.DataFrame) -> Iterator[str]:
    """The same factors of the models to compare with."""
    yield f"| case | CPUs | model | {' | '.join(SHOWN)} |"
    yield "|---|---|---|" + "---|" * len(SHOWN)
    others = rows.filter(pl.col("model").is_in(_OTHERS))
    for (case, cpus), part in others.group_by(["case", "cpus"], maintain_order=True):
        for model in _order(part["model"].unique().to_list()):
            of = part.filter(model=model)
            yield f"| {case} | {cpus} | {model} | {' | '.join(_mean(of, f) for f in SHOWN)} |"


def _mean(rows: pl.DataFrame, figure: str) -> str:
    """Geometric mean of the factors of a figure."""
    mean = rows.filter(figure=figure).select(pl.col("factor").log().mean().exp()).item()
    return f"{mean:.2f}"


def _inside(rows: pl.DataFrame) -> int:
    """How many medians lie between the least and the largest of the real repeats, by the three
    digits that the tables show.
    """
    shown = rows.select(pl.col("value", "real_low", "real_high").round_sig_figs(3))
    return shown.filter(pl.col("value").is_between("real_low", "real_high")).height


def _roles(rows: pl.DataFrame) -> Iterator[str]:
    others = [name for name in _OTHERS if name != REPEATS]
    yield f"| case | CPUs | workload | role | figure | real | policy | {' | '.join(others)} |"
    yield "|---|---|---|---|---|---|---|" + "---|" * len(others)
    by = ["case", "cpus", "work", "role", "figure"]
    for key, cell in rows.filter(pl.col("figure").is_in(SHOWN)).group_by(by, maintain_order=True):
        figure = str(key[4])
        of = {row["model"]: row for row in cell.iter_rows(named=True)}
        policy = next(name for name in of if name not in _OTHERS)
        real = of[REPEATS]
        cells = [
            f"{_said(figure, of[m]['value'])} ({of[m]['factor']:.2f})" if m in of else ""
            for m in (policy, *others)
        ]
        low, high = (_said(figure, real[name]) for name in ("real_low", "real_high"))
        yield (
            f"| {' | '.join(str(x) for x in key)} | {_said(figure, real['real'])} "
            f"[{low}, {high}] | {' | '.join(cells)} |"
        )


def _said(figure: str, value: float) -> str:
    return units.duration(round(value)) if figure in ("total", "p90", "p99") else f"{value:.0f}"
