"""The tables of docs/predictions.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from lab.factors import NO_CHANGE, NULLS, REPEATS
from schedscope import units

BEGIN = "<!-- tables: python -m lab.predict --write docs/predictions.md -->"
END = "<!-- end of the tables -->"
SHOWN = ("total", "p90", "p99", "preemptions", "migrations")
GOALS = {1: 1.10, 2: 1.20, 4: 1.30, 8: 1.30}
"""How far total wait, p90 and p99 may be off, by number of CPUs: what the bench works towards."""
_OTHERS = (NO_CHANGE, *NULLS, REPEATS)


def means(rows: pl.DataFrame) -> pl.DataFrame:
    """Geometric mean of the factor for each case, number of CPUs, model and figure."""
    by = ["case", "cpus", "model", "figure"]
    return (
        rows.filter(pl.col("figure").is_in(SHOWN))
        .group_by(by, maintain_order=True)
        .agg(factor=pl.col("factor").log().mean().exp(), n=pl.len())
    )


def summary(rows: pl.DataFrame) -> str:
    """The first table, as Markdown."""
    return "\n".join(_means_table(rows))


def write(path: Path, rows: pl.DataFrame) -> None:
    """Put the tables between the two marks of the page at `path`."""
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    lines = [BEGIN, "", *_means_table(rows), "", *_goals(rows)]
    for case in rows["case"].unique(maintain_order=True):
        lines += ["", *_roles(rows, case)]
    path.write_text(before + "\n".join([*lines, "", END]) + after)


def _order(models: list[str]) -> list[str]:
    """The policy first."""
    return [m for m in models if m not in _OTHERS] + [m for m in _OTHERS if m in models]


def _means_table(rows: pl.DataFrame) -> list[str]:
    lines = [
        f"| case | CPUs | model | {' | '.join(SHOWN)} | recorded on |",
        "|---|---|---|" + "---|" * (len(SHOWN) + 1),
    ]
    days = {
        (case, cpus): day
        for case, cpus, day in rows.group_by("case", "cpus")
        .agg(pl.col("recorded_on").max())
        .iter_rows()
    }
    for (case, cpus), part in means(rows).group_by(["case", "cpus"], maintain_order=True):
        for model in _order(part["model"].unique().to_list()):
            of = dict(part.filter(pl.col("model") == model).select("figure", "factor").iter_rows())
            cells = " | ".join(f"{of[figure]:.2f}" for figure in SHOWN)
            lines.append(f"| {case} | {cpus} | {model} | {cells} | {days[case, cpus]} |")
    return lines


def _goals(rows: pl.DataFrame) -> Iterator[str]:
    """One sentence for each case and number of CPUs."""
    for (case, cpus), part in rows.group_by(["case", "cpus"], maintain_order=True):
        ours = part.filter(~pl.col("model").is_in(_OTHERS))
        waits = ours.filter(pl.col("figure").is_in(["total", "p90", "p99"]))
        goal = GOALS[int(str(cpus))]
        good = waits.filter(pl.col("factor") <= goal).height
        machine = units.several(int(str(cpus)), "CPU")
        yield (
            f"* {case}, {machine}: {good} of {waits.height} figures of waiting "
            f"within {goal:.2f}, {_inside(waits)} within the range of the real repeats; "
            f"of all figures {_inside(ours)} of {ours.height}."
        )


def _inside(rows: pl.DataFrame) -> int:
    """How many medians lie between the least and the largest of the real repeats."""
    return rows.filter(pl.col("value").is_between("real_low", "real_high")).height


def _roles(rows: pl.DataFrame, case: str) -> Iterator[str]:
    part = rows.filter(case=case)
    models = [m for m in _order(part["model"].unique().to_list()) if m != REPEATS]
    yield f"### {case[:1].upper()}{case[1:]}"
    yield ""
    yield f"| CPUs | workload | role | figure | real | {' | '.join(models)} |"
    yield "|---|---|---|---|---|" + "---|" * len(models)
    by = ["cpus", "work", "role", "figure"]
    for key, cell in part.filter(pl.col("figure").is_in(SHOWN)).group_by(by, maintain_order=True):
        figure = str(key[3])
        of = {row["model"]: row for row in cell.iter_rows(named=True)}
        real = of[REPEATS]
        cells = [f"{_said(figure, of[m]['value'])} ({of[m]['factor']:.2f})" for m in models]
        low, high = (_said(figure, real[name]) for name in ("real_low", "real_high"))
        yield (
            f"| {' | '.join(str(x) for x in key)} | {_said(figure, real['real'])} "
            f"[{low}, {high}] | {' | '.join(cells)} |"
        )


def _said(figure: str, value: float) -> str:
    return units.duration(round(value)) if figure in ("total", "p90", "p99") else f"{value:.0f}"
