"""Ranges of `whatif`, from one capture or from several: 90 % of recordings should lie in them.

There are two: of any recording, and of those in which others take as much of the CPU time as in
this one (`ALIKE`), which on a busy host is several times as narrow.

One capture does not show how far apart recordings of its workload lie. A usual figure (`APART`)
stands for it, and to that comes what the capture does show: how far its parts lie apart, and the
share of others in the CPU time (`closeness.spread`). `ENOUGH` captures or more show it
themselves. The range is then the one in which one more recording would lie, if recordings with the
change lie as far apart as those without it, or as replays with it, whichever is further. As a few
captures show this only roughly, the usual figure counts as `USUAL` further ones. Where the median
of the captures' own ranges is narrower, as on a host whose load changes, that is the range. For
recordings in which others take as much, captures count as if others had taken in each of them what
they took in the middle one.

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

from schedscope.simulator.changes.verdicts import BRIEF, RATE
from schedscope.simulator.closeness.spread import ALIKE, BUSY, FEW, from_others, moved

APART = {"cpu_time": 0.04, "waiting": 0.19, "wait_p50": 0.35, "wait_p99": 0.20}
"""How far apart recordings of one workload lie, which a single one cannot show: the standard
deviation of the logarithm of each figure, as the quadratic mean over 9 services, each recorded
three times in two settings (research/notes/fidelity.md, the first set of captures). The median is
from the captures of `fixtures/linux-slice.md`."""

CROSS = {"cpu_time": 0.05, "waiting": 0.2, "wait_p50": 0.4, "wait_p99": 0.4}
"""The same of predictions under another policy than the recorded one, of whose model the replay of
the recorded one says nothing: what the laboratory's predictions of other kernels are off by
(research/lab/predictions.parquet), for the median as for the 90th percentile."""

_APART = {**APART, RATE: APART["cpu_time"]}
_CROSS = {**CROSS, RATE: CROSS["cpu_time"]}
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
WAITS = ("waiting", "wait_p50", "wait_p99")

QUANTILES = ("wait_p50", "wait_p99")
"""These differ by `BRIEF` besides: of waits of 4 us another recording may have 20 us."""


def _about_median(run: Mapping[str, Any], outside: float) -> dict[str, Any]:
    """The run with two figures more. Which of its waits are short and which are long changes from
    one recording to the next, and the median with it: on a quiet host that of another one is a wait
    between the 30th percentile and the 70th. Where others take `BUSY` it goes half as far from the
    median, as what others do (`BESIDE`) is a part of the range already."""
    if run.get("wait_p30") is None:
        return dict(run)
    middle = run["wait_p50"] + BRIEF
    part = 1 - min(1.0, outside / BUSY) / 2
    ends = (
        middle * ((run[f"wait_p{percent}"] + BRIEF) / middle) ** part - BRIEF
        for percent in (30, 70)
    )
    return {**run, **dict(zip(("median_low", "median_high"), ends, strict=True))}


def extremes(
    runs: Sequence[Mapping[str, Any]],
    widths: Mapping[str, tuple[float, ...]] | None = None,
    ends: Mapping[str, tuple[str, str]] | None = None,
    brief: int = 0,
) -> dict[str, Any]:
    """The lowest and the highest of each figure, moved down and up by these logarithms; of some
    figures two others stand for its `ends`. `QUANTILES` are moved by so much of `brief` as well."""
    found: dict[str, Any] = {}
    for key in _APART:
        more = brief if key in QUANTILES else 0
        down, up = (widths or {}).get(key, (0.0, 0.0))
        lower, upper = (ends or {}).get(key, (key, key))
        lows = [run[lower] for run in runs if run.get(lower) is not None]
        highs = [run[upper] for run in runs if run.get(upper) is not None]
        whole = key != RATE
        low = max(0, (min(lows) + more) / math.exp(down) - more) if lows else None
        high = (max(highs) + more) * math.exp(up) - more if highs else None
        found[f"{key}_low"] = math.floor(low) if whole and low is not None else low
        found[f"{key}_high"] = math.ceil(high) if whole and high is not None else high
    return found


def of_change(
    captures: Sequence[Mapping[str, Any]],
    errors: Mapping[str, float],
    doubt: float = 1,
    fitted: Mapping[str, float] | None = None,
    *,
    crossed: bool = False,
) -> dict[str, Any]:
    """The range of the change: of each capture what was `recorded`, and all replays with it; and
    that of recordings in which others take as much as in the middle one of these (`*_alike_*`).

    `errors`: how many times as large as the replays of the recorded configuration the recordings
    are, times below `BRIEF` taken as that. `doubt`: the factor that makes the answer doubtful, 1 if
    it is not. `fitted`: how far recordings lie apart besides, estimated from one of them, and the
    share of others (`closeness.spread`). `crossed`: under another policy than recorded.
    """
    rest = (errors, doubt, fitted or {})
    found = _of_captures(captures, *rest, crossed=crossed)
    shares = [one["fitted"]["outside"] for one in captures if one.get("fitted")]
    middle = statistics.median(shares) if shares else 0.0
    same = [_beside(one, middle) for one in captures]
    rest = (errors, doubt, {**fitted, "outside": middle} if fitted else {})
    alike = _of_captures(same, *rest, crossed=crossed, near=ALIKE)
    for key in _APART:
        found |= {f"{key}_alike_{end}": alike[f"{key}_{end}"] for end in ("low", "high")}
    return found


def _beside(capture: Mapping[str, Any], share: float) -> dict[str, Any]:
    """The same capture if others had taken that share."""
    fitted = capture.get("fitted")
    if not fitted:
        return dict(capture)
    factors = {key: math.exp(moved(key, fitted["outside"], share)) for key in _APART}
    factors |= dict.fromkeys(("wait_p30", "wait_p70"), factors["wait_p50"])

    def scaled(run: Mapping[str, Any]) -> dict[str, Any]:
        values = {key: run[key] * factors[key] for key in factors if run.get(key) is not None}
        return {**run, **values}

    return {
        **capture,
        "recorded": scaled(capture["recorded"]),
        "changes": [scaled(run) for run in capture["changes"]],
        "fitted": {**fitted, "outside": share},
    }


def _of_captures(
    captures: Sequence[Mapping[str, Any]],
    errors: Mapping[str, float],
    doubt: float,
    fitted: Mapping[str, float],
    *,
    crossed: bool,
    near: float | None = None,
) -> dict[str, Any]:
    off = {key: max(abs(math.log(errors.get(key, 1))), _doubt(key, doubt)) for key in _APART}
    if len(captures) < ENOUGH:
        return _of_few(captures, off, fitted, crossed=crossed, near=near)
    each = [
        _of_few([one], off, one["fitted"], crossed=crossed, near=near)
        for one in captures
        if one.get("fitted")
    ]
    found: dict[str, Any] = {}
    for key in _APART:
        error, either = math.log(errors.get(key, 1)), _doubt(key, doubt)
        model = INTERVAL * _CROSS[key] * crossed
        further = (math.hypot(max(-error, either), model), math.hypot(max(error, either), model))
        ends = _of_next(key, captures, further)
        lows, highs = ([one[f"{key}_{end}"] for one in each] for end in ("low", "high"))
        if each and None not in (*ends, *lows, *highs):
            ends = min(
                ends,
                (statistics.median(lows), statistics.median(highs)),
                key=lambda one: _length(key, one),
            )
        low, high = ends
        found |= {f"{key}_low": low, f"{key}_high": high}
    return found


def _length(key: str, ends: tuple[float | None, float | None]) -> float:
    least = 1.0 if key == RATE else BRIEF
    low, high = (max(end or 0.0, least) for end in ends)
    return high / low


def _of_few(
    captures: Sequence[Mapping[str, Any]],
    off: Mapping[str, float],
    fitted: Mapping[str, float],
    *,
    crossed: bool,
    near: float | None,
) -> dict[str, Any]:
    """The range from captures that do not show how far apart they lie: from the lowest to the
    highest replay, and beyond them by what replays are `off`, by chance and by what others do.
    """
    runs = [run for one in captures for run in one["changes"]]
    outside = fitted.get("outside", 0.0)
    # A simulated recording, for which nothing is fitted, would be the same again.
    all_runs = [run for one in captures for run in (one["recorded"], *one["changes"])]
    few = max((run.get("few") or 0.0 for run in all_runs), default=0.0) if fitted else 0.0
    widths = {}
    for key, usual in _APART.items():
        of_few = FEW.get(key, 0.0) * math.sqrt(few)
        apart = INTERVAL * math.hypot(usual, fitted.get(key, 0.0), of_few, _CROSS[key] * crossed)
        widths[key] = tuple(
            math.hypot(off[key], apart, further) for further in from_others(key, outside, near)
        )
    found = (
        extremes(
            [_about_median(run, outside) for run in runs],
            widths,
            {"wait_p50": ("median_low", "median_high")},
            BRIEF,
        )
        if fitted
        else extremes(runs, widths)
    )
    for key, (_, up) in widths.items():
        # No factor enlarges a replay without waits.
        if found[f"{key}_high"] == 0 and (fitted or off[key]):
            found[f"{key}_high"] = math.ceil(BRIEF * math.exp(up))
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
    # Captures show the most of what each is wider by.
    usual = _APART[key] ** 2 + statistics.mean(
        ((one.get("fitted") or {}).get(key, 0.0) / 2) ** 2 for one in captures
    )
    variance = (USUAL * usual + (n - 1) * max(seen, replayed)) / free
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
