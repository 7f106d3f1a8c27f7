"""What a reader sees beside the figures: the doubts of the headline, and what `check` warns of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import schedscope as ss

_MORE_UNKNOWN = 0.005
"""The share of CPU time by which `unknown` must grow to be news to a reader of the headline."""


@dataclass(frozen=True)
class Caution:
    """What a reader sees beside the figures: warnings of `check`, gaps in the headline."""

    # By the name of the check: how many rows or ns it is about.
    warnings: dict[str, int]
    doubts: tuple[str, ...]
    unknown: float


def caution(trace: ss.Trace) -> Caution:
    """Checks that warn, and how often; the doubts of the headline, without their numbers."""
    from schedscope.analysis.check.check import check
    from schedscope.present.headline import gaps

    findings = check(trace).filter(pl.col("level").is_in(["warning", "violated"]))
    doubted = tuple(re.sub(r"[\d.,]+", "N", doubt) for doubt in gaps(trace))
    per_cpu = trace.info.get("per_cpu") or []
    unknown = sum(cpu.get("unknown", 0) for cpu in per_cpu)
    named = any("unknown" in doubt for doubt in doubted) and trace.duration
    share = unknown / (trace.duration * max(1, trace.ncpu)) if named else 0
    found = dict(findings.select("check", pl.col("found").fill_null(1)).iter_rows())
    return Caution(found, doubted, share)


def news(said: Caution, whole: Caution) -> list[str]:
    """What check warns of beyond what it warned of in the undamaged recording."""
    return sorted(name for name, n in said.warnings.items() if n > whole.warnings.get(name, 0))


def trusted(said: Caution, whole: Caution) -> bool:
    """Does check warn of nothing more than in the undamaged recording?"""
    return not news(said, whole)


def admits(said: Caution, whole: Caution) -> bool:
    """Does the headline name a gap that the undamaged recording does not have?"""

    def plain(doubt: str) -> str:
        return re.sub(r"s\b", "", doubt)

    news = set(map(plain, said.doubts)) - set(map(plain, whole.doubts))
    news = {doubt for doubt in news if "unknown" not in doubt}
    return bool(news) or said.unknown - whole.unknown > _MORE_UNKNOWN
