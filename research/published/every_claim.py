"""Published results of scheduler experiments, each run again on the models."""

from __future__ import annotations

from research.published import (
    builds,
    counters,
    one_cpu,
    ported_ule,
    saw_tooth,
    wasted_cores,
)
from research.published.claims import Claim


def claims() -> list[Claim]:
    """All of them, by number."""
    modules = (saw_tooth, builds, counters, one_cpu, ported_ule, wasted_cores)
    return sorted((c for m in modules for c in m.CLAIMS), key=lambda c: c.ids)
