"""Ranges of `whatif`: in which 90 % of recordings should lie, from one capture or from several.

One capture does not show how far recordings of its workload lie apart, so a usual figure
(`APART`) stands for it. From `ENOUGH` captures on they show it themselves: each is predicted by
itself, and the range is that in which another prediction would lie.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

APART = {"cpu_time": 0.04, "waiting": 0.19, "wait_p99": 0.20}
"""How far recordings of one workload lie apart, which one of them cannot tell: the standard
deviation of the logarithm of each figure, in the quadratic mean over 9 services, each recorded
three times in two settings (docs/simulator-fidelity.md, the first set of captures)."""

BRIEF = 20_000
"""Times below this count as this where two are compared, ns."""

INTERVAL = 1.645
"""So many standard deviations hold 90 % of outcomes."""

ENOUGH = 3
"""So many captures tell how far recordings lie apart."""

_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""Student's t below which 95 % lie, for 1 to 9 degrees of freedom."""

RANGES = tuple(APART)


def extremes(
    runs: Sequence[Mapping[str, Any]], factors: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The lowest and the highest of each figure, further apart by its factor on both sides."""
    found: dict[str, Any] = {}
    for key in RANGES:
        factor = (factors or {}).get(key, 1)
        values = [run[key] for run in runs if run[key] is not None]
        found[f"{key}_low"] = math.floor(min(values) / factor) if values else None
        found[f"{key}_high"] = math.ceil(max(values) * factor) if values else None
    return found


def of_change(
    captures: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    off: Mapping[str, float],
) -> dict[str, Any]:
    """The range of the change: `captures` are the medians of each, `runs` all replays of all.

    `off`: by which factor the replay of the recorded configuration is off, times below `BRIEF`
    taken as that. The two causes are taken as independent: their logarithms add as squares.
    """
    found: dict[str, Any] = {}
    if len(captures) < ENOUGH:
        widths = {k: math.exp(math.hypot(math.log(off[k]), INTERVAL * APART[k])) for k in RANGES}
        found = extremes(runs, widths)
    else:
        for key in RANGES:
            values = [one[key] for one in captures if one[key] is not None]
            low, high = (None, None) if not values else _between(values, off[key])
            found |= {f"{key}_low": low, f"{key}_high": high}
    for key in RANGES:
        if found[f"{key}_high"] == 0:  # no factor makes more of a replay without waits
            found[f"{key}_high"] = math.ceil(BRIEF * off[key]) if off[key] > 1 else 0
    return found


def _between(values: Sequence[int], off: float) -> tuple[int, int]:
    """Where the next of such values should lie, 9 times in 10."""
    logs = [math.log(value) for value in values if value > 0]
    n = len(logs)
    if n < max(2, len(values)):  # of some there is nothing: no logarithm says how far apart
        return math.floor(min(values) / off), math.ceil(max(values) * off)
    t = _T95[min(n - 2, len(_T95) - 1)]
    spread = t * statistics.stdev(logs) * math.sqrt(1 + 1 / n)
    half = math.hypot(spread, math.log(off))
    middle = statistics.mean(logs)
    return math.floor(math.exp(middle - half)), math.ceil(math.exp(middle + half))
