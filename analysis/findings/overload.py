"""Were there too few CPUs for the load?"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from schedscope.analysis.cpus.offline import online_cpus
from schedscope.analysis.findings.facts import Facts, wanted
from schedscope.analysis.findings.finding import Finding
from schedscope.analysis.findings.quotas import throttled_of
from schedscope.units import duration, percent, several

_MOST = 4
"""The advice is at most so many times the CPUs that there are."""


def overload(facts: Facts) -> Iterator[Finding]:
    """More threads than CPUs for most of the time: it explains the others."""
    row = facts.overloaded
    if row is None or facts.phantoms:
        return
    now = len(online_cpus(facts.trace))
    # Includes time in which it is unknown what some CPU did, and so how many threads wanted to run.
    waited = int(row["waiting"]) + int(row["waiting_unknown"])
    text = (
        f"For {percent(row['overload_frac'])} of the time, more threads wanted to run than there"
        f" are CPUs: {row['mean']:.1f} on average for {several(now, 'CPU')}. No"
        f" scheduler can avoid waiting then: threads waited {duration(waited)} in total."
    )
    if facts.affected is not None:
        _, own = wanted(facts.trace, facts.affected)
        text += f" The selected threads waited {duration(own)} of that."
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
        "overload", waited, text, "queue-depth --by all", most, context=True, whatif=enough
    )
