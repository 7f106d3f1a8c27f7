"""Coverage of the ranges of `whatif` on recordings of FreeBSD: what counts as inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from research.lab import freebsd_ranges

pytestmark = pytest.mark.research


def test_figure_beyond_its_range_is_counted_as_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting was 20 and 50 of a stated 10 to 30; a thread that waited nine times is left out."""
    row = {
        "configuration": "changed",
        "comm": "hog",
        "waiting_verdict": "good",
        "waiting_alike_low": 10,
        "waiting_alike_high": 30,
        **{f"{name}_verdict": None for name in ("cpu_time", "wait_p50", "wait_p99")},
        **{
            f"{name}_alike_{end}": None
            for name in ("cpu_time", "wait_p50", "wait_p99")
            for end in ("low", "high")
        },
    }
    answer: Callable[..., pl.DataFrame] = lambda *_, **__: pl.DataFrame([row])  # noqa: E731
    monkeypatch.setattr(freebsd_ranges.ss, "whatif", answer)
    truths: list[dict[str, dict[str, Any]]] = [
        {"hog": {"n_waits": 10, "waiting": 20}},
        {"hog": {"n_waits": 11, "waiting": 50}},
        {"hog": {"n_waits": 9, "waiting": 50}},
    ]
    told = list(freebsd_ranges.said(None, "ule", truths))  # type: ignore[arg-type]
    assert [(one["figure"], one["inside"], one["length"]) for one in told] == [
        ("waiting", True, 1.0),
        ("waiting", False, 0.4),
    ]
    frame = pl.DataFrame(told).with_columns(model=pl.lit("own"), CPUs=pl.lit("1"))
    assert freebsd_ranges.table(frame).rows() == [("own", "1", "waiting", 2, 50.0, 0.7)]
