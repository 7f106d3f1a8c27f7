"""Were there too few CPUs for the load?"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.offline import online_cpus
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.quotas import throttled_of
from schedscope.analysis.latency import latency
from schedscope.units import duration, interval, percent, several

_MOST = 4
"""The advice is at most so many times the CPUs that there are."""


def overload(facts: Facts) -> Iterator[Finding]:
    """More threads than CPUs for most of the time: it explains the others."""
    row = facts.overloaded
    if row is None or facts.phantoms:
        return
    now = len(online_cpus(facts.trace))
    everyone = once(latency, facts.trace, quantiles=())["total", "total_high"].row(0)
    text = (
        f"For {interval(row['overload_frac'], row['overload_frac_high'], percent)} of the time,"
        " more threads wanted to run than there are CPUs:"
        f" {interval(row['mean'], row['mean_high'], '{:.1f}'.format)} on average for"
        f" {several(now, 'CPU')}. No scheduler can avoid waiting then: threads waited"
        f" {interval(*everyone)} in total."
    )
    if facts.affected is not None:
        own = facts.ask(latency, quantiles=())["total", "total_high"].row(0)
        text += f" The selected threads waited {interval(*own)} of that."
    if held := throttled_of(facts, list(facts.throttling.quotas_of)):
        least = "at least " if facts.throttling.guessed else ""
        text += (
            f" CPU quotas account for {least}{duration(held)} of all waiting, which more CPUs would"
            " not change."
        )
    # Advising more CPUs than any machine has would not help.
    enough = f"--cpus {min(max(ceil(row['mean']), now + 1), _MOST * now)}"
    most = int(row["ts_max"])
    yield Finding(
        "overload", everyone[0], text, "queue-depth --by all", most, cost_high=everyone[1],
        context=True, whatif=enough,
    )  # fmt: skip
