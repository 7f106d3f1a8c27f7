"""How far each figure of a `whatif` answer can be trusted.

A figure is no better than the replay of the recorded configuration is in that figure, and good only
if its own range says something: it has to be narrow, and to rest on more than a few waits. All are
worse if the cause that the change touches has another share of the waiting there than in the
recording, if the recording's own times without that cause contradict the answer, or if the change
is to a scheduler about which the replay of the recorded one says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schedscope.analysis.asking.policies import declared
from schedscope.simulator.changes.wait_causes import QUOTA, Shares, apart
from schedscope.simulator.policies.policy import Policy

BOUND = 1.25
"""The answer is doubtful if the replay of the recorded configuration is off by a larger factor."""

REFUSED = 2.0
"""If it is off by a larger factor, the answer is refused: replays say nothing of that service."""

BRIEF = 20_000
"""Times below this count as this when two are compared, ns."""

NARROW = 2.0
"""A figure is good if its range reaches no further than this factor from its middle."""

WAITS_FOR = {"wait_p50": 10, "wait_p99": 100}
"""Of fewer waits of a host, such a quantile is chance: of a hundred, one is the p99."""

SAME, VERSION, FAMILY = "same", "version", "family"
MODELS = (SAME, VERSION, FAMILY)
"""How far the policy of a change is from the recorded one: another preset, another scheduler."""

FEW = 10
"""Fewer waits count as so many when two numbers of waits are compared."""

VERDICTS = ("good", "doubtful", "refused")

FIGURES = ("cpu_time", "n_waits", "waiting", "wait_p50", "wait_p99")
"""What has a verdict of its own."""

RATE = "throughput"
"""In place of CPU time, of services that run for a time."""


def verdict(factor: float) -> str:
    """The verdict of a figure that is off by this factor."""
    return "good" if factor <= BOUND else "doubtful" if factor <= REFUSED else "refused"


def worst(verdicts: Sequence[str]) -> str:
    """The worst of these verdicts."""
    return max(verdicts, key=VERDICTS.index, default="good")


def times(real: float | None, replayed: float | None, floor: float) -> float:
    """How many times as large as replayed; what is less than `floor` counts as that."""
    return max(real or 0, floor) / max(replayed or 0, floor)


def factor(ratio: float) -> float:
    """The same in either direction."""
    return max(ratio, 1 / ratio)


def off(own: Mapping[str, Any], replayed: Mapping[str, Any], floor: float) -> dict[str, float]:
    """By which factor each figure of a replay is off; sums below `floor` count as that."""
    floors = {"cpu_time": floor, "waiting": floor, "n_waits": FEW, RATE: 1.0}
    return {
        key: factor(times(own[key], replayed[key], floors.get(key, BRIEF)))
        for key in (*FIGURES, RATE)
    }


def of_cause(
    recorded: Sequence[Shares], replayed: Sequence[Shares], service: str, cause: str, floor: float
) -> dict[str, Any]:
    """Columns on the share of the cause in the waiting, summed over captures."""
    first, second = (_sum([one.get(service, {}) for one in side]) for side in (recorded, replayed))
    if max(first["known"] or 0, second["known"] or 0) < floor:
        return {}  # it waits too little for causes to matter
    found = apart(first, second, cause)
    if found is None:
        return {"cause": cause} if cause == QUOTA else {}
    here, there, error = found
    if max(here, there) == 0:
        return {}
    return {
        "cause": cause,
        "cause_recorded": here,
        "cause_replayed": there,
        "cause_error": error,
    }


def _sum(parts: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for key in ("known", "throttled", "behind"):
        values = [one.get(key, 0) for one in parts]
        found[key] = None if None in values else sum(values)  # type: ignore[arg-type]
    return found


def of_test(
    tested: Sequence[Mapping[str, Mapping[str, Any]]], service: str, predicted: Mapping[str, Any]
) -> dict[str, Any]:
    """Columns on the recording's own times without the cause: how much longer waits are there than
    predicted, as those times are, if anything, the quieter ones.
    """
    found = [one[service] for one in tested if service in one]
    if not found:
        return {}
    n = sum(one["n"] for one in found)
    mean = round(sum(one["n"] * one["mean"] for one in found) / n)
    p99 = sorted(one["p99"] for one in found)[len(found) // 2]
    return {
        "tested_on": n,
        "tested_mean": mean,
        "tested_p99": p99,
        "test_error": max(1.0, times(mean, predicted["wait_mean"], BRIEF)),
        "test_p99_error": max(1.0, times(p99, predicted["wait_p99"], BRIEF)),
    }


def model_apart(recorded: str | Policy, asked: str | Policy) -> str:
    """How far a policy is from the recorded one.

    >>> model_apart("eevdf-6.12", "eevdf-7.2"), model_apart("eevdf-6.12", "bfs")
    ('version', 'family')
    """
    if recorded == asked:
        return SAME
    known = declared()
    rows = [known.get(one) if isinstance(one, str) else None for one in (recorded, asked)]
    families = {row["family"] if row else None for row in rows}
    return VERSION if len(families) == 1 and None not in families else FAMILY


def unsure(row: Mapping[str, Any], ranges: Mapping[str, Any]) -> set[str]:
    """The figures of a recorded host that are too wide, or rest on too few waits, to be good: even
    while others take as much of the CPU time as here."""
    found = {key for key, least in WAITS_FOR.items() if 0 < (row["n_waits"] or 0) < least}
    for key in (*FIGURES, RATE):
        low, high = ranges.get(f"{key}_alike_low"), ranges.get(f"{key}_alike_high")
        if low is not None and high is not None:
            floor = 1.0 if key == RATE else BRIEF
            if times(high, low, floor) > NARROW**2:
                found.add(key)
    return found
