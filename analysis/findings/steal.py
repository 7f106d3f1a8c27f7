"""How much time did the hypervisor give to others?"""

from __future__ import annotations

from collections.abc import Iterator

from schedscope.analysis.cpus.stolen_time import between_readings, stolen_shares
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.units import duration, percent


def stolen(facts: Facts) -> Iterator[Finding]:
    """Time that the hypervisor gave to others; a thread that ran then made no progress."""
    trace = facts.trace
    shares = stolen_shares(trace)
    if not shares:
        return
    rows = trace.info["cpu_time"]
    counted = sum(int(row.get("steal") or 0) for row in rows)
    total = round(sum(shares.values()) * trace.duration)
    worst = max(shares, key=lambda cpu: shares[cpu])
    here = "here, if it took as much all along" if "origin" in trace.info else "of the recording"
    text = (
        f"The hypervisor took {percent(sum(shares.values()) / len(shares))} of this machine's CPU"
        f" time (CPU {worst}: {percent(shares[worst])}), about {duration(total)} {here}."
        f" Around the recording, the kernel counted {duration(counted)} of"
        f" {duration(sum(map(between_readings, rows)))}, in steps of 10 ms. Which threads were"
        " affected is unknown: they seem to run, or to wait behind one that runs, and make no"
        " progress."
    )
    yield Finding("steal", total, text, "info", cpu=worst)
