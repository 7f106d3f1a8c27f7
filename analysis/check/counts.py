"""What several checks count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def number_of(frame: pl.LazyFrame) -> int:
    """How many rows it has."""
    return int(frame.select(pl.len()).collect().item())


def counter(trace: Trace, name: str) -> int | None:
    """What the reconstruction counted; None where the trace does not say."""
    value = (trace.info.get("reconstruction") or {}).get(name)
    return None if value is None else int(value)


def recorders(trace: Trace) -> pl.LazyFrame:
    """The recorder's own threads."""
    return trace.threads.filter("recorder").select("utid")
