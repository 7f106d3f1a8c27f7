"""How traces are replayed, with some threads or all: `background_choice`, run by `simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from schedscope.simulator.runs.background_choice import nearest
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.runs.run import simulate
from schedscope.store.trace import Trace


def nearest_way(
    trace: Trace,
    where: pl.Expr | None,
    others: str | Sequence[str] | None = None,
    **options: Any,
) -> Replay:
    """How `trace` is replayed, with the threads that are left out as `others` says (`nearest`)."""
    return nearest_ways([trace], [where], others, **options)[0]


def nearest_ways(
    traces: Sequence[Trace],
    wheres: Sequence[pl.Expr | None],
    others: str | Sequence[str] | None = None,
    **options: Any,
) -> list[Replay]:
    """The same of captures of one workload, all in one way."""
    return nearest(simulate, traces, wheres, others, **options)
