"""The table of a fleet, from the summaries of its traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schedscope.fleets.labels import Labels

FACTS = {
    "trace": pl.String,
    "path": pl.String,
    "host": pl.String,
    "os": pl.String,
    "release": pl.String,
    "machine": pl.String,
    "cpus": pl.Int64,
    "scheduler": pl.String,
    "preempt": pl.String,
    "hz": pl.Int64,
}
NUMBERS = {
    "dur": pl.Int64,
    "events": pl.Int64,
    "n": pl.Int64,
    "n_censored": pl.Int64,
    "n_excluded": pl.Int64,
    "total": pl.Int64,
    "mean": pl.Float64,
    "p50": pl.Int64,
    "p90": pl.Int64,
    "p99": pl.Int64,
    "p99.9": pl.Int64,
    "max": pl.Int64,
    "n_high": pl.Int64,
    "total_high": pl.Int64,
    "mean_high": pl.Float64,
    "p50_high": pl.Int64,
    "p90_high": pl.Int64,
    "p99_high": pl.Int64,
    "p99.9_high": pl.Int64,
    "max_high": pl.Int64,
    "coverage": pl.Float64,
    "waiting_frac": pl.Float64,
    "waiting_frac_high": pl.Float64,
    "busy_frac": pl.Float64,
}
TRUST = {
    "unknown_frac": pl.Float64,
    "level": pl.String,
    "verdict": pl.String,
    "error": pl.String,
}


def gathered(
    traces: Sequence[str],
    summaries: Mapping[str, dict[str, Any]],
    errors: Mapping[str, str],
    labels: Labels,
) -> pl.DataFrame:
    """A row for each trace, in this order; those without a summary have an error."""
    rows = [_row(trace, summaries.get(trace), errors.get(trace), labels) for trace in traces]
    for row, name in zip(rows, told_apart(traces), strict=True):
        row["trace"] = name
    # Columns that only some traces have follow the facts, by name.
    more = sorted({name for row in rows for name in row if name.startswith(("label_", "setting_"))})
    schema = {**FACTS, **dict.fromkeys(more, pl.String), **NUMBERS, **TRUST}
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in schema}, schema=schema, strict=False
    )


def _row(
    trace: str, summary: dict[str, Any] | None, error: str | None, labels: Labels
) -> dict[str, Any]:
    known = labels.of(trace, (summary or {}).get("labels", {}))
    row: dict[str, Any] = {}
    if summary is not None:
        row |= summary["facts"] | summary["numbers"] | summary["trust"]
        row |= {f"setting_{name}": value for name, value in summary["settings"].items()}
    # A recording may leave its host out, or be of a container that has another name.
    row["host"] = known.pop("host", _named(row.get("host")))
    row |= {f"label_{name}": value for name, value in known.items()}
    return row | {"path": trace, "error": error}


def _named(host: str | None) -> str | None:
    """The name of a host, unless it is a default such as "localhost"."""
    return None if host in _NAMELESS else host


_NAMELESS = (None, "", "(none)", "localhost", "localhost.localdomain")


def told_apart(paths: Sequence[str]) -> list[str]:
    """The end of each path, as short as it may be to differ from those of the others.

    >>> told_apart(["in/a/web.capture", "in/b/web.capture/", "in/b/db.capture"])
    ['a/web.capture', 'b/web.capture', 'db.capture']
    """
    parts = [path.rstrip("/").split("/") for path in paths]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(part[-n:]) for part, n in zip(parts, lengths, strict=True)]
        seen = Counter(names)
        longer = [
            i for i, name in enumerate(names) if seen[name] > 1 and lengths[i] < len(parts[i])
        ]
        if not longer:
            return names
        for i in longer:
            lengths[i] += 1
