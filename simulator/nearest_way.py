"""How a trace is replayed, with some threads or all: `background_choice`, run by `simulate`."""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope.simulator.background_choice import nearest
from schedscope.simulator.replay import Replay
from schedscope.simulator.run import simulate
from schedscope.store.trace import Trace


def nearest_way(
    trace: Trace, where: pl.Expr | None, others: str | None = None, **options: Any
) -> Replay:
    """How `trace` is replayed, with the threads that are left out as `others` says (`nearest`)."""
    return nearest(simulate, trace, where, others, **options)
