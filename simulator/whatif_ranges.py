"""Ranges of `whatif`, from one capture or from several: 90 % of recordings should lie in them.

One capture does not show how far apart recordings of its workload lie. A usual figure (`APART`)
stands for it, and to that comes what the capture does show: how far its parts lie apart, and the
share of others in the CPU time (`schedscope.simulator.spread`). `ENOUGH` captures or more show it
themselves. The range is then the one in which one more recording would lie, if recordings with the
change lie as far apart as those without it, or as replays with it, whichever is further. As a few
captures show this only roughly, the usual figure counts as `USUAL` further ones.

The replays of the recorded configuration are too small or too large by some factor. That error may
or may not be there with the change as well, so the range reaches further by that factor, on that
side only. Where the error makes the answer doubtful, the ranges of both figures of waiting reach
further on both sides. In the campaign (research/notes/campaign.md) such replays were as often too
small with a change as too large, and wrong in the tail where they were wrong in the sum.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from schedscope.simulator.whatif_verdicts import BRIEF, RATE

APART = {"cpu_time": 0.04, "waiting": 0.19, "wait_p99": 0.20}
"""How far apart recordings of one workload lie, which a single one cannot show: the standard
deviation of the logarithm of each figure, as the quadratic mean over 9 services, each recorded
three times in two settings (research/notes/fidelity.md, the first set of captures)."""

_APART = {**APART, RATE: APART["cpu_time"]}
"""Throughput was not measured, and is proportional to CPU time."""

INTERVAL = 1.645
"""The number of standard deviations that hold 90 % of outcomes."""

ENOUGH = 3
"""The number of captures that show how far apart recordings lie."""

USUAL = 2
"""The number of captures for which the usual figure counts. Like everything here, it was set on the
half of the campaign that may be tuned on (research/notes/fidelity.md)."""

_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""Student's t below which 95 % lie, for 1 to 9 degrees of freedom."""

RANGES = tuple(APART)
WAITS = ("waiting", "wait_p99")


def extremes(
    runs: Sequence[Mapping[str, Any]], factors: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The lowest and the highest of each figure, moved apart by its factor on both sides."""
    found: dict[str, Any] = {}
    for key in _APART:
        factor = (factors or {}).get(key, 1)
        values = [run[key] for run in runs if run.get(key) is not None]
        down, up = (float, float) if key == RATE else (math.floor, math.ceil)
        found[f"{key}_low"] = down(min(values) / factor) if values else None
        found[f"{key}_high"] = up(max(values) * factor) if values else None
    return found


def of_change(
    captures: Sequence[Mapping[str, Any]],
    errors: Mapping[str, float],
    doubt: float = 1,
    fitted: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The range of the change: of each capture what was `recorded`, and all replays with it.

    `errors`: how many times as large as the replays of the recorded configuration the recordings
    are, times below `BRIEF` taken as that. `doubt`: the factor that makes the answer doubtful, 1 if
    it is not. `fitted`: how far recordings lie apart besides, as one of them tells it
    (`schedscope.simulator.spread`).
    """
    if len(captures) < ENOUGH:
        runs = [run for one in captures for run in one["changes"]]
        off = {key: max(abs(math.log(errors.get(key, 1))), _doubt(key, doubt)) for key in _APART}
        more = {**(fitted or {}), RATE: (fitted or {}).get("cpu_time", 0.0)}
        apart = {key: math.hypot(usual, more.get(key, 0.0)) for key, usual in _APART.items()}
        widths = {key: math.exp(math.hypot(off[key], INTERVAL * apart[key])) for key in _APART}
        found = extremes(runs, widths)
        for key in _APART:
            if found[f"{key}_high"] == 0:  # no factor makes more of a replay without waits
                found[f"{key}_high"] = math.ceil(BRIEF * math.exp(off[key])) if off[key] else 0
        return found
    found = {}
    for key in _APART:
        error, either = math.log(errors.get(key, 1)), _doubt(key, doubt)
        low, high = _of_next(key, captures, (max(-error, either), max(error, either)))
        found |= {f"{key}_low": low, f"{key}_high": high}
    return found


def _doubt(key: str, doubt: float) -> float:
    """By how much, as a logarithm, a doubtful answer may be off in either direction."""
    return math.log(doubt) if key in WAITS else 0.0


def _of_next(
    key: str, captures: Sequence[Mapping[str, Any]], further: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Where the next recording with the change should lie, 9 times in 10; so much `further` down
    and up for the errors of the replays.
    """
    changed = [_logs(one["changes"], key) for one in captures]
    middles = [statistics.median(logs) for logs in changed if logs]
    recorded = _logs([one["recorded"] for one in captures], key)
    n = len(middles)
    if not n:
        return None, None
    replayed = _variance(middles) + statistics.mean(
        map(statistics.pvariance, filter(None, changed))
    )
    seen = _variance(recorded)
    free = n - 1 + USUAL
    variance = (USUAL * _APART[key] ** 2 + (n - 1) * max(seen, replayed)) / free
    half = _T95[min(free, len(_T95)) - 1] * math.sqrt(variance * (1 + 1 / n))
    middle = statistics.mean(middles)
    low = math.exp(middle - max(0, further[0]) - half)
    high = math.exp(middle + max(0, further[1]) + half)
    if key == RATE:
        return low, high
    return (0 if low <= BRIEF else math.floor(low)), math.ceil(high)


def _variance(logs: Sequence[float]) -> float:
    return statistics.variance(logs) if len(logs) > 1 else 0.0


def _logs(runs: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """The logarithms of a figure, with times below `BRIEF` as that."""
    least = 1.0 if key == RATE else BRIEF
    return [math.log(max(run[key], least)) for run in runs if run.get(key) is not None]
