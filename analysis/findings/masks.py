"""Do masks make threads wait, or do threads run outside of them?"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schedscope.analysis.affinity import affinity
from schedscope.analysis.asking.memo import once
from schedscope.analysis.cpus.topology import cpu_text, cpus_of
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import Finding, listed, option
from schedscope.analysis.findings.quotas import throttled_of
from schedscope.analysis.interference import interference, summed
from schedscope.analysis.isolation import isolated_cpus, isolation_leaks
from schedscope.analysis.threads.same_names import SameNames
from schedscope.analysis.work_conservation import work_conservation
from schedscope.units import duration, interval, printable, several


def masked(facts: Facts) -> Iterator[Finding]:
    """Threads that may use one CPU only and waited there while another one was spare."""
    pinned = facts.machine["pinned"]
    if not pinned or facts.phantoms:
        return
    outside = facts.outside["utid"].unique().to_list()
    masks = (
        facts.trace.threads.filter(
            pl.col("affinity").str.contains(r"^\d+$"), pl.col("kernel").eq(False)
        )
        .filter(~pl.col("utid").is_in(outside))
        .select(pl.col("utid").cast(pl.UInt32), "affinity")
        .collect()
    )
    everyone = once(work_conservation, facts.trace, by="thread").join(masks, on="utid")
    everyone = everyone.filter(pl.col("waiting") > 0)
    waited = facts.mine(everyone).sort("waiting", "utid", descending=[True, False])
    held = throttled_of(facts, waited["utid"].to_list())
    # The time while a CPU idled is known only for all pinned threads together.
    most = "at most " if waited.height < everyone.height or held or outside else ""
    cost = min(pinned, int(waited["waiting"].sum()) - held)
    if waited.is_empty() or cost <= 0:
        return
    cpu = waited["affinity"][0]
    names = [printable(name or "?") for name in waited["comm"].unique(maintain_order=True)]
    names[0] += f" (CPU {cpu})"
    text = (
        f"{several(waited.height, 'thread')} whose mask allows only one CPU waited"
        f" {most}{duration(cost)} for it while another CPU was idle that no waiting thread may use."
        f" Worst affected: {listed(names)}."
    )
    every = option("pin", waited["comm"][0], cpu_text(cpus_of(facts.trace)))
    worst = waited["utid"][0]
    yield Finding("mask", cost, text, "affinity --by utid", utid=worst, whatif=every)


def crowded(facts: Facts) -> Iterator[Finding]:
    """Programs that may use one CPU only, behind threads that are seen to run elsewhere."""
    outside = facts.outside["utid"].unique().to_list()
    programs = facts.trace.threads.filter(pl.col("kernel").eq(False))
    masked = programs.filter(
        pl.col("affinity").str.contains(r"^\d+$"), ~pl.col("utid").is_in(outside)
    )
    pinned = facts.mine(masked.select("utid").collect())["utid"]
    if pinned.is_empty() or facts.trace.ncpu < 2:
        return
    rows = interference(facts.trace, where=pl.col("utid").is_in(pinned.to_list()), by="thread")
    roaming = once(affinity, facts.trace, by="utid").filter(pl.col("cpus") > 1).select("utid")
    behind = (
        rows.filter(pl.col("kind") == "thread")
        .join(roaming, on="utid", how="semi")
        .join(programs.select("utid").collect(), on="utid", how="semi")
    )
    if behind.is_empty():
        return
    victims = (
        behind.group_by("victim_utid", "victim_comm")
        .agg(pl.col("comm", "utid").sort_by("time", "utid").last())
        .rename({"comm": "by", "utid": "by_utid"})
        .join(summed(rows, behind), on="victim_utid")
        .sort("time", "victim_utid", descending=[True, False])
    )
    worst, total = victims.row(0, named=True), int(victims["time"].sum())
    most = int(victims["time_high"].sum())
    one, names = victims.height == 1, once(SameNames, facts.trace)
    text = (
        f"{several(victims.height, 'thread')} that may use only one CPU waited"
        f" {interval(total, most)} for it behind threads that also ran elsewhere."
        f" {'It is' if one else 'Worst affected:'} {printable(worst['victim_comm'] or '?')}"
        f"{names.whose([worst['victim_utid']])}, which waited"
        f" {'' if one else interval(worst['time'], worst['time_high']) + ', '}"
        f"mostly behind {printable(worst['by'] or '?')}{names.whose([worst['by_utid']])}."
    )
    command = f"interference --comm '{worst['victim_comm']}'"
    mask = facts.trace.threads.filter(pl.col("utid") == worst["victim_utid"])
    own = mask.select("affinity").collect().item()
    rest = [cpu for cpu in cpus_of(facts.trace) if str(cpu) != own]
    whatif = option("pin", worst["by"], cpu_text(rest))
    utid = worst["victim_utid"]
    yield Finding("crowding", total, text, command, utid=utid, cost_high=most, whatif=whatif)


def outside(facts: Facts) -> Iterator[Finding]:
    """Threads that ran on CPUs that their recorded mask excludes."""
    frame = facts.mine(facts.outside)
    if frame.is_empty():
        return
    worst, n = frame.row(0, named=True), frame["utid"].n_unique()
    masks = "its recorded mask" if n == 1 else "their recorded masks"
    text = (
        f"{several(n, 'thread')} ran on CPUs outside {masks}, longest"
        f" {printable(worst['comm'] or '?')} on CPU {worst['cpu']}"
        f" ({duration(worst['running'])}). A mask may have changed after it was recorded."
    )
    cost = int(frame["running"].sum())
    place = (worst["ts_first"], None, worst["utid"], worst["cpu"])
    kept = option("pin", worst["comm"], worst["affinity"])
    yield Finding("affinity", cost, text, "affinity --outside", *place, whatif=kept)


def leaks(facts: Facts) -> Iterator[Finding]:
    """Threads on isolated CPUs that may run elsewhere."""
    cpus = isolated_cpus(facts.trace)
    if not cpus:
        return
    frame = facts.mine(isolation_leaks(facts.trace, cpus)).filter("leak")
    if frame.is_empty():
        return
    worst = frame.sort("running", descending=True).row(0, named=True)
    text = (
        f"{several(frame['utid'].n_unique(), 'thread')} that may run elsewhere ran on isolated"
        f" CPUs, longest {printable(worst['comm'] or '?')} on CPU {worst['cpu']}"
        f" ({duration(worst['running'])})."
    )
    cost = int(frame["running"].sum())
    rest = [cpu for cpu in cpus_of(facts.trace) if cpu not in cpus]
    whatif = option("pin", worst["comm"], cpu_text(rest)) if rest else None
    place = (worst["ts_first"], None, worst["utid"], worst["cpu"])
    yield Finding("isolation", cost, text, "affinity --isolated", *place, whatif=whatif)
