"""What the viewer shows about the trace itself: how far to trust it, and where events are
missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.memo import once
from schedscope.analysis.check.check import check, standing, verdict
from schedscope.analysis.check.row import LEVEL
from schedscope.errors import SchedscopeError
from schedscope.present.columns import choose, conventional
from schedscope.present.headline import COMPLETE, gaps
from schedscope.timelines.tables import table

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

MOST = 200
"""Stretches with missing events that are listed, the longest first."""


def quality(trace: Trace, *, brief: bool = False) -> dict[str, Any]:
    """The verdict of `check` and the gaps in a line, its checks, and where events are missing.

    `level` is the worst of the checks; None, with the reason as the line, where tables of other
    programs lack what is checked. With `brief` nothing is checked: the line has the gaps alone.
    """
    try:
        complete = COMPLETE if trace.whole is None else f"{COMPLETE} in this part"
        missing = "; ".join(gaps(trace) or [complete])
        if brief:
            return {
                "level": None,
                "line": f"not checked yet; {missing}",
                "verdict": "",
                "tables": [],
            }
        found = once(check, trace)
    except (SchedscopeError, pl.exceptions.ColumnNotFoundError) as error:
        reason = str(error).splitlines()[0]
        return {"level": None, "line": f"not checked: {reason}", "verdict": "", "tables": []}
    begin, end = trace.window
    checks = table(
        found.sort(pl.col("level").to_physical(), descending=True, maintain_order=True),
        choose(found, ["level", "check", "text"]),
        title="Checks, the worst first",
        python="ss.check(trace)",
        begin=begin,
    )
    ts = pl.max_horizontal("ts_begin", begin)
    losses = (
        trace.losses.with_columns(ts=ts, dur=pl.min_horizontal("ts_end", end) - ts)
        .select("ts", "dur", "cpu", "reason", "count")
        .sort("dur", "ts", descending=[True, False])
        .collect(engine="streaming")
    )
    stretches = table(
        losses,
        conventional(losses, origin=trace.origin),
        title="Where events may be missing, the longest first",
        python="trace.losses.collect()",
        begin=begin,
        most=MOST,
    )
    worst = found["level"].to_physical().max()
    return {
        "level": None if worst is None else LEVEL.categories[int(str(worst))],
        "line": f"{standing(found)}; {missing}",
        "verdict": verdict(found),
        "tables": [checks, *([stretches] if losses.height else [])],
    }
