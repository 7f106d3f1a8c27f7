"""How much time did the hypervisor give to others?"""

from __future__ import annotations

from collections.abc import Iterator

from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.units import duration, percent

_STOLEN = 0.01
"""Of CPU time: less is as good as none."""
_STEP = 50_000_000
"""The kernel counts stolen time in steps of 10 ms: a few may be one moment's."""


def stolen(facts: Facts) -> Iterator[Finding]:
    """Time that the hypervisor gave to others; a thread that ran then made no progress."""
    rows = facts.trace.info.get("cpu_time") or []
    stolen = {int(row["cpu"]): int(row.get("steal") or 0) for row in rows}
    total = sum(stolen.values())
    if total < max(_STOLEN * facts.trace.duration * facts.trace.ncpu, _STEP):
        return
    worst = max(stolen, key=lambda cpu: stolen[cpu])
    text = (
        f"The hypervisor took {duration(total)} from this machine's CPUs"
        f" ({percent(total / (facts.trace.duration * facts.trace.ncpu))}; CPU {worst}:"
        f" {duration(stolen[worst])}), as the kernel counted in steps of 10 ms. Which threads were"
        " affected is unknown: they seem to run, or to wait behind one that runs, and make no"
        " progress."
    )
    yield Finding("steal", total, text, "info", cpu=worst)
