"""Do hosts of one kernel, setting or label wait more than those of another?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from schedscope.errors import UsageError
from schedscope.fleets.intervals import (
    CONFIDENCE,
    SEED,
    difference,
    group_means,
    resamples_for,
)
from schedscope.fleets.measures import MEASURES, Host, comparable, hosts_of

LEAST_HOSTS = 5
"""In each group: fewer do not show how hosts vary."""
MOST_GROUPS = 8
"""A column with more values is no setting, unless it is asked for."""

_SCHEMA = {
    "column": pl.String,
    "group": pl.String,
    "against": pl.String,
    "measure": pl.String,
    "n_hosts": pl.Int64,
    "n_traces": pl.Int64,
    "value": pl.Float64,
    "ratio": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "verdict": pl.String,
}
_COLUMNS = ("release", "scheduler", "preempt", "hz", "cpus", "machine", "os")


def columns_of(table: pl.DataFrame) -> list[str]:
    """What the traces of a table can be grouped by."""
    more = [name for name in table.columns if name.startswith(("label_", "setting_"))]
    return [*_COLUMNS, *more]


def grouped(
    table: pl.DataFrame, by: Sequence[str] | None = None, *, seed: int = SEED
) -> tuple[pl.DataFrame, int]:
    """One row per group and measure: how its hosts compare with the largest group's.

    `by`: columns of the table; by default every kernel, setting and label of which at least two
    values have five hosts each. Columns that divide the hosts in the same way are one.

    * `column`, `group`: the hosts with that value, compared with those of `against`;
    * `value`: the geometric mean of the measure over the hosts (of each, over its traces);
      `ratio`: that over the other group's, with its 95 % interval from `lower` to `upper`;
    * `verdict`: `more` or `less` where an interval that holds for all rows at once (Bonferroni)
      excludes equality, else `within noise`.

    The first of a column's rows is the reference itself, without a ratio. Also returns the number
    of resamples.

    Raises `UsageError` for a column that the table does not have.
    """
    traces = comparable(table)
    known = columns_of(table)
    for name in by or ():
        if name not in known:
            raise UsageError(f"--by {name}", "a column of the table", f"one of {', '.join(known)}")
    divided = _divisions(traces, known if by is None else list(by), chosen=by is not None)
    tests = sum(len(sides) - 1 for sides in divided.values()) * len(MEASURES)
    resamples = resamples_for(tests)
    rows = []
    for column, sides in divided.items():
        # The same host may have traces in several groups: they are drawn apart.
        (against, reference), *others = sides
        drawn = group_means(reference, resamples, seed)
        rows += _rows(column, against, reference, against)
        for number, (name, hosts) in enumerate(others, 1):
            mine = group_means(hosts, resamples, seed + number)
            centre, low, high = difference(reference, hosts, drawn, mine, CONFIDENCE)
            sure = 1 - (1 - CONFIDENCE) / tests
            _, lowest, highest = difference(reference, hosts, drawn, mine, sure)
            for i, row in enumerate(_rows(column, name, hosts, against)):
                row |= {
                    "ratio": float(np.exp(centre[i])),
                    "lower": float(np.exp(low[i])),
                    "upper": float(np.exp(high[i])),
                    "verdict": "more"
                    if lowest[i] > 0
                    else "less"
                    if highest[i] < 0
                    else "within noise",
                }
                rows.append(row)
    return pl.DataFrame(rows, schema=_SCHEMA), resamples


_Sides = list[tuple[str, list[Host]]]


def _divisions(traces: pl.DataFrame, columns: list[str], *, chosen: bool) -> dict[str, _Sides]:
    """By column the groups with hosts enough, the largest first."""
    found: dict[str, _Sides] = {}
    alike: dict[tuple[tuple[str, ...], ...], str] = {}
    for column in columns:
        values = traces[column].drop_nulls().unique().sort().to_list()
        if len(values) < 2 or (len(values) > MOST_GROUPS and not chosen):
            continue
        sides, members = [], []
        for value in values:
            mine = traces.filter(pl.col(column) == value)
            hosts = hosts_of(mine)
            if len(hosts) >= LEAST_HOSTS:
                sides.append((str(value), hosts))
                members.append(tuple(sorted(mine["path"])))
        same = tuple(sorted(members))
        if len(sides) < 2 or (same in alike and not chosen):
            continue
        alike[same] = column
        found[column] = sorted(sides, key=lambda side: (-len(side[1]), side[0]))
    return found


def _rows(column: str, group: str, hosts: list[Host], against: str) -> list[dict[str, object]]:
    centre = np.mean([host.mean for host in hosts], axis=0)
    return [
        {
            "column": column,
            "group": group,
            "against": None if group == against else against,
            "measure": measure,
            "n_hosts": len(hosts),
            "n_traces": sum(len(host.values) for host in hosts),
            "value": float(np.exp(centre[i])),
        }
        for i, measure in enumerate(MEASURES)
    ]
