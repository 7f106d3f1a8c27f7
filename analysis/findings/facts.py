"""Facts about a trace that several rules use, each computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has
from schedscope.analysis.causes.throttling import Throttling, throttling
from schedscope.analysis.check.check import check
from schedscope.analysis.isolation import runs_outside_affinity
from schedscope.analysis.queue_depth import queue_depth_summary
from schedscope.analysis.work_conservation import work_conservation

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


class Facts:
    """A trace, and the threads that findings should be about."""

    def __init__(
        self, trace: Trace, threshold: str | int, affected: pl.Series | None = None
    ) -> None:
        """Starvation begins with waits of `threshold`; `affected`: utids of the threads that count
        as affected, None for all of them."""
        self.trace, self.threshold, self.affected = trace, threshold, affected
        self.where = None if affected is None else pl.col("utid").is_in(affected.implode())

    def ask(self, analysis: Callable[..., pl.DataFrame], /, **options: Any) -> pl.DataFrame:
        """The answer about the affected threads; one about all threads is computed once."""
        if self.where is None:
            return once(analysis, self.trace, **options)
        return analysis(self.trace, where=self.where, **options)

    def mine(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows about the affected threads."""
        return frame if self.where is None else frame.filter(self.where)

    @cached_property
    def checked(self) -> list[dict[str, object]]:
        """The rows of `check`."""
        return once(check, self.trace).to_dicts()

    @cached_property
    def holes(self) -> bool:
        """Does the trace itself show that switches are missing from it?"""
        names = ("losses", "unplaced losses", "chain breaks", "unseen switch-ins")
        return any(row["check"] in names and row["found"] for row in self.checked)

    @cached_property
    def machine(self) -> dict[str, int]:
        """The row of `work_conservation` about the machine."""
        return once(work_conservation, self.trace).row(0, named=True)

    @cached_property
    def phantoms(self) -> bool:
        """Do threads seem to wait that already ran, because a switch was not recorded?"""
        if not has(self.trace, "wakeups"):
            return False
        dispatch, idle = self.machine["dispatch"], self.machine["idle"]
        return self.holes and dispatch > 0.01 * self.machine["capacity"] and dispatch > 0.1 * idle

    @cached_property
    def overloaded(self) -> dict[str, float] | None:
        """The row about the machine's queue, if it was too long for most of the time."""
        if not has(self.trace, "competitors"):
            return None
        row = once(queue_depth_summary, self.trace, by="all").row(0, named=True)
        return row if row["observed"] and row["overload_frac"] >= 0.5 else None

    @cached_property
    def outside(self) -> pl.DataFrame:
        """The rows of `runs_outside_affinity`, of which there are none without masks."""
        known = self.trace.threads.select(pl.col("affinity").is_not_null().any()).collect().item()
        trace = self.trace
        return once(runs_outside_affinity, trace) if known else pl.DataFrame({"utid": []})

    @cached_property
    def throttling(self) -> Throttling:
        """Threads that a quota held back."""
        return once(throttling, self.trace)
