"""What can be wrong with a trace: each kind of fault, its cost, and a sentence about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis._base.lock_convoys import Convoy, convoys
from schedscope.analysis._base.memo import once
from schedscope.analysis._base.needs import NEEDS, has
from schedscope.analysis._base.of_recorder import of_recorder
from schedscope.analysis._base.throttling import Throttling, throttling
from schedscope.analysis._base.topology import cpu_text, cpus_of
from schedscope.analysis.affinity import affinity
from schedscope.analysis.check.check import check
from schedscope.analysis.fairness import fairness, group_weights, jain_of
from schedscope.analysis.findings.cold_caches import kept_in_place, wakeup_migrations
from schedscope.analysis.findings.disks import disks
from schedscope.analysis.findings.finding import Finding, option
from schedscope.analysis.findings.interrupts import interrupts
from schedscope.analysis.findings.inversion import priority_inversion
from schedscope.analysis.findings.lower_weight import lower_weight
from schedscope.analysis.interference import interference
from schedscope.analysis.isolation import isolated_cpus, isolation_leaks, runs_outside_affinity
from schedscope.analysis.migration.migrations import WAITED, moves, ping_pong
from schedscope.analysis.queue_depth import queue_depth_summary
from schedscope.analysis.starvation.starvation import starvation, starvation_summary
from schedscope.analysis.wait_breakdown import wait_breakdown
from schedscope.analysis.weights import weights
from schedscope.analysis.work_conservation import idle_episodes, work_conservation
from schedscope.units import count, duration, nanoseconds, percent, printable, several

if TYPE_CHECKING:
    from schedscope.trace import Trace

EPISODES = 200
"""Episodes of starvation that are looked at one by one."""
STRETCHES = 8
"""Stretches of wasted time that the report lists."""

_MUCH = 0.2
"""Names that have this part of a cost are named."""
_NAMED = 5
"""Threads that starved longest, which are named."""
_RECORDER = 0.01
"""Of the running time: what every recorder takes to start and to end is no finding."""
_BOUNCES = 10
"""Fewer returns to a CPU are no ping-pong."""
_STOLEN = 0.01
"""Of CPU time: less is as good as none."""
_STEP = 50_000_000
"""The kernel counts stolen time in steps of 10 ms: a few may be one moment's."""
_STAYED = 0.99
"""A thread with this share of its time on one CPU may well be pinned there."""
_DOUBTFUL = 0.5
"""No scheduler lets a CPU idle for this part of a long wait for it: switches are missing."""
_CONVOY = 0.01
"""Of the window: nobody misses less time, and a lock that is wanted at all is taken at times."""
_QUEUED = 0.1
"""Of the time in which anyone waited for a lock: below this there was no queue for it."""
_LAG = 0.1
"""Shortfalls of service below this share of the window are in the table only, as are those
below the threshold of starvation: over a few turns nobody gets exactly what is due."""


class FindingRules:
    """Looks for every kind of fault in one trace."""

    def __init__(
        self, trace: Trace, threshold: str | int, affected: pl.Series | None = None
    ) -> None:
        """Starvation begins with waits of `threshold`; `affected`: utids of the threads that count
        as affected, None for all of them."""
        self.trace, self.threshold, self.affected = trace, threshold, affected
        self.where = None if affected is None else pl.col("utid").is_in(affected.implode())

    def __iter__(self) -> Iterator[Finding]:
        """All that were found, in no order."""
        yield from self._trust()
        if not has(self.trace, "wakeups"):
            return  # all others are about waits
        yield from self._starved()
        yield from self._wasted()
        yield from self._masked()
        yield from self._crowded()
        yield from lower_weight(self.trace, self.throttling.quota_of, self.where)
        yield from priority_inversion(self.trace, self.where)
        yield from self._unfair()
        yield from self._moved()
        yield from self._bounced()
        if not self.overloaded and not self.phantoms:
            yield from wakeup_migrations(self.trace, self.where)
        yield from self._outside()
        yield from self._leaks()
        yield from self._throttled()
        yield from self._stolen()
        yield from self._convoys()
        yield from interrupts(self.trace)
        yield from disks(self.trace, self.where)
        yield from self._overload()

    # ---- what several of them need ----

    def _ask(self, analysis: Callable[..., pl.DataFrame], /, **options: object) -> pl.DataFrame:
        """The answer about the affected threads; one about everybody is computed once."""
        if self.where is None:
            return once(analysis, self.trace, **options)
        return analysis(self.trace, where=self.where, **options)

    def _mine(self, frame: pl.DataFrame) -> pl.DataFrame:
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
        """Do threads seem to wait that have long run, because a switch was not recorded?"""
        if not has(self.trace, "wakeups"):
            return False
        dispatch, idle = self.machine["dispatch"], self.machine["idle"]
        return self.holes and dispatch > 0.01 * self.machine["capacity"] and dispatch > 0.1 * idle

    @cached_property
    def overloaded(self) -> dict[str, float] | None:
        """The row about the machine's queue, where it was too long for most of the time."""
        row = once(queue_depth_summary, self.trace, by="all").row(0, named=True)
        return row if row["observed"] and row["overload_frac"] >= 0.5 else None

    @cached_property
    def outside(self) -> pl.DataFrame:
        """The rows of `runs_outside_affinity`, of which there are none without masks."""
        known = self.trace.threads.select(pl.col("affinity").is_not_null().any()).collect().item()
        trace = self.trace
        return once(runs_outside_affinity, trace) if known else pl.DataFrame({"utid": []})

    # ---- trust ----

    def _trust(self) -> Iterator[Finding]:
        """Sums that are off, the recorder's share, and what the trace does not show."""
        warnings = []
        unknown, share, without = 0, "", False
        for row in self.checked:
            name, text, found = str(row["check"]), str(row["text"]), row["found"]
            number = found if isinstance(found, int) else 0
            total = row["total"] if isinstance(row["total"], int) else 0
            if row["level"] == "violated":
                said = f"The trace cannot be trusted: {name}: {text}."
                cost = number if row["unit"] == "ns" else 0
                yield Finding("sums", cost, said, "check", level="violated")
            elif name == "recorder" and number > _RECORDER * total:
                yield Finding("recorder", number, f"The recorder used CPU time: {text}.", "check")
            elif name == "unknown time":
                unknown, share = number if row["level"] == "warning" else 0, text
            elif name == "missing wakeups" and not has(self.trace, "wakeup_events"):
                without = True
            elif name in ("losses", "missing wakeups", "unseen switch-ins", "contradictions"):
                warnings += [f"{name}: {text}"] if row["level"] == "warning" else []
        sentences = []
        if unknown:
            sentences.append(f"The trace does not show what ran in {share}.")
        if without:
            sentences.append(
                "No wakeups were recorded: it is not known when sleeping threads could run again,"
                " nor how long they then waited."
            )
        if warnings:
            sentences.append(f"Events are missing: {'; '.join(warnings)}.")
        if self.phantoms:
            idle = duration(self.machine["dispatch"])
            sentences.append(
                f"CPUs were idle for {idle} with a thread on their own queue: either those threads"
                " may be throttled by a cgroup quota, or switches to them were not recorded and"
                " their waits were shorter than shown."
            )
        if not sentences:
            return
        cost = max(unknown, self.machine["dispatch"] if self.phantoms else 0)
        longest = self._longest_hole()
        record = NEEDS["wakeups"].record
        yield Finding(
            "data quality",
            cost,
            " ".join(sentences),
            "check",
            *longest,
            always=without or bool(warnings),
            advice=f"{record[0].upper()}{record[1:]}." if without else None,
        )

    def _longest_hole(self) -> tuple[int | None, int | None]:
        begin, end = self.trace.window
        rows = (
            self.trace.losses.filter(pl.col("reason") != "chain_break")
            .select(
                ts=pl.max_horizontal("ts_begin", pl.lit(begin)),
                until=pl.min_horizontal("ts_end", pl.lit(end)),
            )
            .filter(pl.col("until") > pl.col("ts"))
            .with_columns(dur=pl.col("until") - pl.col("ts"))
            .top_k(1, by="dur")
            .collect()
        )
        return (rows["ts"][0], rows["dur"][0]) if rows.height else (None, None)

    # ---- waiting ----

    def _starved(self) -> Iterator[Finding]:
        whole = self._ask(starvation_summary, by="all", threshold=self.threshold)
        n, total, threads, unfinished = whole.select("n", "total", "threads", "n_censored").row(0)
        if not n:
            return
        rows = self._ask(starvation, threshold=self.threshold, top=EPISODES)
        if self.phantoms:
            sure = rows.filter(pl.col("idle") < _DOUBTFUL * pl.col("wait"))
            n -= rows.height - sure.height
            total -= int(rows["wait"].sum()) - int(sure["wait"].sum())
            threads = sure["utid"].n_unique()
            rows = sure
        throttled = rows.filter(pl.col("throttled") >= 0.5 * pl.col("wait"))
        if throttled.height:
            # Those are of the finding about the quota.
            n -= throttled.height
            total -= int(throttled["wait"].sum())
            rows = rows.join(throttled, on="episode", how="anti", maintain_order="left")
            threads -= len(set(throttled["utid"]) - set(rows["utid"]))
        if rows.is_empty():
            return
        first = rows.row(0, named=True)
        text = (
            f"{several(threads, 'thread')} starved: {several(n, 'wait')} of"
            f" {duration(nanoseconds(self.threshold))} or more,"
            f" {'at least ' if unfinished else ''}{duration(total)} in total."
            f" The longest: {first['story']}."
        )
        behind = (
            rows.filter(pl.col("culprit").is_not_null())
            .group_by("culprit")
            .agg(pl.col("culprit_time").sum(), pl.len())
            .sort("culprit_time", "culprit", descending=[True, False])
        )
        name, time, times = behind.row(0) if behind.height > 1 else ("", 0, 0)
        if times > 1 and time > 0.2 * int(rows["wait"].sum()):
            which = "of them" if rows.height == n else f"of the {rows.height} longest"
            text += (
                f" In {count(times)} {which} {printable(name)} had the CPU longest,"
                f" {duration(time)} together."
            )
        most = (
            rows.group_by("utid")
            .agg(pl.col("wait").sum(), pl.col("comm", "tid").first())
            .sort("wait", "utid", descending=[True, False])
        )
        if most.height > 1:
            # Several threads may have one name.
            longest = [
                f"{printable(comm or '?')} ({tid}) {duration(wait)}"
                for comm, tid, wait in most.head(_NAMED).select("comm", "tid", "wait").iter_rows()
            ]
            text += f" In total they waited longest: {', '.join(longest)}."
        inversion = int(rows["inversion"].sum())
        if inversion > 0.01 * int(rows["wait"].sum()):
            text += f" For {duration(inversion)} it was a thread of a worse priority."
        yield Finding(
            "starvation", total, text, "starvation", first["ts"], first["dur"],
            utid=first["utid"], whatif=self._lighter(int(first["utid"])),
        )  # fmt: skip

    def _lighter(self, utid: int) -> str | None:
        """A larger weight for the thread that starved longest, where weights decide."""
        row = once(weights, self.trace).filter(pl.col("utid") == utid).row(0, named=True)
        if row["basis"] != "kernel table" or row["sharing"] != "fair" or row["prio"] is None:
            return None
        nice = row["prio"] - 120
        return option("set-nice", row["comm"], 0 if nice > 0 else max(nice - 5, -20))

    def _wasted(self) -> Iterator[Finding]:
        row = self.machine
        # Threads that only seem to wait cannot have been run elsewhere.
        if not row["wasted"] or self.phantoms:
            return
        every = self._ask(work_conservation, by="thread").filter(pl.col("avoidable") > 0)
        if self.where is not None and every.is_empty():
            return
        threads = every.head(20)
        stayed = self._stayed(threads)
        sure = "that may use them " if not stayed else ""
        if self.where is None:
            cost = row["wasted"]
            text = (
                f"CPUs were idle for {duration(cost)} while threads {sure}waited elsewhere,"
                f" {percent(row['wasted_idle_frac'])} of all idle time."
            )
        else:
            cost = int(every["avoidable"].sum())
            which = "that they may use " if not stayed else ""
            text = (
                f"{several(every.height, 'selected thread')} waited for {duration(cost)}, all"
                f" together, while other CPUs {which}were idle."
            )
        worst = self._ask(work_conservation, by="comm")
        if worst.height and worst["avoidable"][0]:
            name, time = worst.select("comm", "avoidable").row(0)
            text += f" Threads named {printable(name or '?')} waited most, {duration(time)}."
        if stayed:
            text += (
                f" But {_names(stayed)} ran on one CPU only: if they were pinned there"
                " after their mask was recorded, or by a mask that was not recorded, no other"
                " CPU could have run them."
            )
        yield Finding("avoidable idle time", cost, text, "work-conservation", *self._idle_longest())

    def _idle_longest(self) -> tuple[Any, ...]:
        """When, who and where it was while CPUs idled: `ts`, `dur`, `utid`, `cpu`."""
        if self.where is None:
            found = once(idle_episodes, self.trace, longer_than=0, top=STRETCHES)
        else:
            # All of them, since the worst ones may be about others.
            found = idle_episodes(self.trace, top=None, where=self.where)
            found = found.sort("waited", "ts", descending=[True, False])
        return found.select("ts", "dur", "utid", "cpu").row(0) if found.height else ()

    def _masked(self) -> Iterator[Finding]:
        """Threads that may use one CPU only and waited there while another one was spare."""
        pinned = self.machine["pinned"]
        if not pinned or self.phantoms:
            return
        outside = self.outside["utid"].unique().to_list()
        masks = (
            self.trace.threads.filter(
                pl.col("affinity").str.contains(r"^\d+$"), pl.col("kernel").eq(False)
            )
            .filter(~pl.col("utid").is_in(outside))
            .select(pl.col("utid").cast(pl.UInt32), "affinity")
            .collect()
        )
        everyone = once(work_conservation, self.trace, by="thread").join(masks, on="utid")
        everyone = everyone.filter(pl.col("waiting") > 0)
        waited = self._mine(everyone).sort("waiting", "utid", descending=[True, False])
        # The time beside an idle CPU is known of all pinned threads together.
        most = "at most " if waited.height < everyone.height else ""
        cost = min(pinned, int(waited["waiting"].sum()))
        if waited.is_empty() or not cost:
            return
        cpu = waited["affinity"][0]
        names = [printable(name or "?") for name in waited["comm"].unique(maintain_order=True)]
        text = (
            f"{several(waited.height, 'thread')} whose mask allows one CPU only waited for it"
            f" {most}{duration(cost)} while another CPU was idle and no other thread could use"
            " that."
            f" Most on CPU {cpu}: {_names(names)}."
        )
        every = option("pin", waited["comm"][0], cpu_text(cpus_of(self.trace)))
        worst = waited["utid"][0]
        yield Finding("mask", cost, text, "affinity --by utid", utid=worst, whatif=every)

    def _stayed(self, threads: pl.DataFrame) -> list[str]:
        """Names of threads that may well be pinned, if they are most of the avoidable waiting."""
        if threads.is_empty():
            return []
        asked = pl.col("utid").is_in(threads["utid"].to_list())
        kept = affinity(self.trace, by="utid", where=asked).filter(
            (pl.col("top_frac") >= _STAYED) & (pl.col("n") >= 10)
        )
        these = threads.join(kept.select("utid"), on="utid", how="semi", maintain_order="left")
        if 2 * int(these["avoidable"].sum()) < int(threads["avoidable"].sum()):
            return []
        return list(dict.fromkeys(printable(name or "?") for name in these["comm"]))

    def _crowded(self) -> Iterator[Finding]:
        """Programs that may use one CPU only, behind threads that are seen to run elsewhere."""
        outside = self.outside["utid"].unique().to_list()
        programs = self.trace.threads.filter(pl.col("kernel").eq(False))
        masked = programs.filter(
            pl.col("affinity").str.contains(r"^\d+$"), ~pl.col("utid").is_in(outside)
        )
        pinned = self._mine(masked.select("utid").collect())["utid"]
        if pinned.is_empty() or self.trace.ncpu < 2:
            return
        rows = interference(self.trace, where=pl.col("utid").is_in(pinned.to_list()), by="thread")
        roaming = once(affinity, self.trace, by="utid").filter(pl.col("cpus") > 1).select("utid")
        behind = (
            rows.filter(pl.col("kind") == "thread")
            .join(roaming, on="utid", how="semi")
            .join(programs.select("utid").collect(), on="utid", how="semi")
        )
        if behind.is_empty():
            return
        victims = (
            behind.group_by("victim_utid", "victim_comm")
            .agg(pl.col("time").sum(), by=pl.col("comm").sort_by("time").last())
            .sort("time", "victim_utid", descending=[True, False])
        )
        worst, total = victims.row(0, named=True), int(victims["time"].sum())
        one = victims.height == 1
        text = (
            f"{several(victims.height, 'thread')} that may use only one CPU waited for it"
            f" {duration(total)} behind threads that also ran elsewhere."
            f" {'It is' if one else 'Worst affected:'} {printable(worst['victim_comm'] or '?')},"
            f" {'' if one else duration(worst['time']) + ', '}"
            f"most of it behind {printable(worst['by'] or '?')}."
        )
        command = f"interference --comm '{worst['victim_comm']}'"
        mask = self.trace.threads.filter(pl.col("utid") == worst["victim_utid"])
        own = mask.select("affinity").collect().item()
        rest = [cpu for cpu in cpus_of(self.trace) if str(cpu) != own]
        whatif = option("pin", worst["by"], cpu_text(rest))
        utid = worst["victim_utid"]
        yield Finding("crowding", total, text, command, utid=utid, whatif=whatif)

    def _unfair(self) -> Iterator[Finding]:
        """Only where weights are known: elsewhere nothing is due by them."""
        frame = once(fairness, self.trace)
        known = frame.filter(pl.col("basis").cast(pl.String) == "kernel table")
        # What is due by weight is due below the quota.
        known = known.filter(~pl.col("utid").is_in(list(self.throttling.quota_of)))
        mine = self._mine(known)
        if mine.is_empty():
            return
        # In unknown time it may have caught up.
        behind = pl.col("lag") - pl.col("unknown")
        worst = mine.sort(behind, descending=True).row(0, named=True)
        lag = round(worst["lag"] - worst["unknown"])
        if lag < max(_LAG * self.trace.duration, nanoseconds(self.threshold)):
            return
        jain = jain_of(known).filter(pl.col("sharing") == worst["sharing"]).row(0, named=True)
        text = (
            f"{printable(worst['comm'] or '?')} ({worst['tid']}) received"
            f" {duration(worst['running'])} of the {duration(worst['due'])} of CPU time due by"
            " weight."
        )
        if worst["unknown"]:
            text += f" What it did in {duration(worst['unknown'])} more is unknown."
        if jain["jain"] is not None:
            text += (
                f" Jain's index of the {several(jain['n'], 'thread')} of class"
                f" {worst['sharing']} is {jain['jain']:.2f}; 1 is even."
            )
        if once(group_weights, self.trace) is None:
            text += " Weights of groups (cgroups, autogroup) are not counted and may be the reason."
        else:
            text += " Weights of control groups and sessions are counted."
        yield Finding("fairness", lag, text, "fairness", utid=worst["utid"], level="note")

    # ---- moving ----

    def _moved(self) -> Iterator[Finding]:
        """Not on a machine with too much to do: its threads wait wherever they go."""
        if self.overloaded or self.phantoms:
            return
        # What records is not there when nobody does.
        others = (
            self.trace.threads.select(pl.col("utid").cast(pl.UInt32), "comm")
            .collect()
            .join(once(of_recorder, self.trace), on="utid", how="anti")
        )
        all_moves = self._mine(moves(self.trace, None, WAITED)).join(others, on="utid")
        waited = all_moves.filter("waited")
        if waited.is_empty():
            return
        cost = int(waited["queued"].sum())
        worst = (
            waited.group_by("comm")
            .agg(pl.col("queued").sum())
            .sort("queued", "comm", descending=[True, False])
        )
        text = (
            f"{count(waited.height)} of {several(all_moves.height, 'migration')} led to another"
            f" queue: the threads moved and then waited anyway, {duration(cost)} in total."
        )
        names = [
            f"{printable(name or '?')} {duration(time)}"
            for name, time in worst.filter(pl.col("queued") >= _MUCH * cost).iter_rows()
        ]
        if names:
            text += f" Most of it: {', '.join(names)}."
        longest = waited.sort("queued", "utid", descending=[True, False]).row(0, named=True)
        most = waited.filter(pl.col("comm").eq_missing(pl.lit(worst["comm"][0], pl.String)))
        utid = most.sort("queued", "utid", descending=[True, False])["utid"][0]
        whatif = kept_in_place(self.trace, utid, worst["comm"][0]) if worst["comm"][0] else None
        place = (longest["arrived"], longest["queued"], longest["utid"], longest["to_cpu"])
        yield Finding("migration", cost, text, "migrations", *place, whatif=whatif)

    def _held_by(self, group: dict[str, Any]) -> list[int]:
        """The affected threads that this group's quota held back."""
        quota_of = self.throttling.quota_of
        kept = None if self.affected is None else set(self.affected)
        return [
            utid
            for utid, quota in quota_of.items()
            if quota == group["cgroup"] and (kept is None or utid in kept)
        ]

    def _throttled_cost(self, group: dict[str, Any]) -> int:
        """What the kernel counted; of a part of the group's threads at most what they waited."""
        counted, own = int(group["throttled"]), self._held_by(group)
        if len(own) == list(self.throttling.quota_of.values()).count(group["cgroup"]):
            return counted
        found = once(wait_breakdown, self.trace, by="utid").filter(pl.col("utid").is_in(own))
        seen = int(found["throttled"].sum() or 0)
        return min(counted, seen or int(found["wait"].sum()))

    def _throttled_waits(self, group: dict[str, Any]) -> str:
        """How much of its threads' waiting that was."""
        own = self._held_by(group)
        found = once(wait_breakdown, self.trace, by="utid").filter(pl.col("utid").is_in(own))
        waited, seen = int(found["wait"].sum()), int(found["throttled"].sum() or 0)
        if not seen:
            return " This trace does not show when; the waits of these threads include it."
        least = "at least " if self.throttling.held[own[0]] else ""
        return (
            f" Throttling accounts for {least}{duration(seen)} of the {duration(waited)} that they"
            " waited for a CPU, whatever ran meanwhile."
        )

    def _held_longest(
        self, group: dict[str, Any]
    ) -> tuple[int | None, int | None, int | None, int | None]:
        """When and where the quota held the group back longest, and who of it waited longest."""
        own = self._held_by(group)
        if not own:
            return None, None, None, None
        found = once(wait_breakdown, self.trace, by="utid").filter(pl.col("utid").is_in(own))
        utid = found.sort("wait")["utid"][-1] if found.height else None
        numbers = {self.throttling.group[utid] for utid in own} - {None}
        stretches = self.throttling.stretches.filter(pl.col("group").is_in(list(numbers)))
        if stretches.is_empty():
            return None, None, utid, None
        ts, dur, cpu = stretches.top_k(1, by="dur").select("ts", "dur", "cpu").row(0)
        return ts, dur, utid, cpu

    @cached_property
    def throttling(self) -> Throttling:
        """Who was held back by a quota."""
        return once(throttling, self.trace)

    def _throttled(self) -> Iterator[Finding]:
        """What the kernel counted of quotas, and the waits that they explain."""
        held = [group for group in self.trace.info.get("groups") or [] if group.get("throttled")]
        for group in sorted(held, key=lambda group: -group["throttled"]):
            if self.where is not None and not self._held_by(group):
                continue
            name = printable(group["cgroup"])
            quota, period = group.get("quota"), group.get("period")
            limit = f" of {duration(quota)} per {duration(period)}" if quota and period else ""
            often = ""
            if group.get("n_throttled") and group.get("n_periods"):
                periods = several(group["n_periods"], "period")
                often = f" in {count(group['n_throttled'])} of {periods}"
            text = (
                f"The CPU quota{limit} of control group {name} held its threads back for"
                f" {duration(group['throttled'])}{often}, as the kernel counted."
                f"{self._throttled_waits(group)}"
            )
            command = f"wait-breakdown --cgroup '{name.rstrip('/')}*' --by comm"
            place = self._held_longest(group)
            whatif = option("quota", group["cgroup"], "none")
            cost = self._throttled_cost(group)
            yield Finding("quota", cost, text, command, *place, whatif=whatif)

    def _stolen(self) -> Iterator[Finding]:
        """Time that the hypervisor gave to others; a thread that ran then made no progress."""
        rows = self.trace.info.get("cpu_time") or []
        stolen = {int(row["cpu"]): int(row.get("steal") or 0) for row in rows}
        total = sum(stolen.values())
        if total < max(_STOLEN * self.trace.duration * self.trace.ncpu, _STEP):
            return
        worst = max(stolen, key=lambda cpu: stolen[cpu])
        text = (
            f"The hypervisor took {duration(total)} from this machine's CPUs"
            f" ({percent(total / (self.trace.duration * self.trace.ncpu))}; CPU {worst}:"
            f" {duration(stolen[worst])}), as the kernel counted in steps of 10 ms. Which threads"
            " it hit is not known: they ran, or waited behind one that did, and made no progress."
        )
        yield Finding("steal", total, text, "info", cpu=worst)

    def _convoys(self) -> Iterator[Finding]:
        """Locks that threads queued for."""
        for convoy in self._queues():
            if convoy.waited < _CONVOY * self.trace.duration:
                continue
            if convoy.queued < _QUEUED * convoy.waited:
                continue
            lock = f"the {convoy.kind} {convoy.address:#x}"
            if convoy.pid is not None:
                lock += f" of process {convoy.pid}"
            text = (
                f"{several(convoy.threads, 'thread')} queued for {lock}:"
                f" {several(convoy.n, 'wait')}, {duration(convoy.total)} together, the longest"
                f" {duration(convoy.dur)}. Anyone waited for {duration(convoy.waited)}, two or"
                f" more for {duration(convoy.queued)}. {self._holder(convoy)}"
            )
            if convoy.own != convoy.total:
                text += f" The selected threads waited {duration(convoy.own)} of that."
            place = (convoy.ts, convoy.dur, convoy.utid)
            yield Finding("lock convoy", convoy.own, text, "off-cpu", *place)

    def _queues(self) -> list[Convoy]:
        if self.affected is None:
            return once(convoys, self.trace)
        return convoys(self.trace, affected=self.affected)

    def _holder(self, convoy: Convoy) -> str:
        if convoy.holder is None:
            return "Who held it is unknown: nobody was seen to release it."
        who = self.trace.threads.filter(pl.col("utid") == convoy.holder)
        name, tid = who.select("comm", "tid").collect().row(0)
        asleep = convoy.held - convoy.held_running - convoy.held_runnable
        unknown = f", {duration(convoy.unproved)} unknown" if convoy.unproved else ""
        text = (
            f"{printable(name or '?')} ({tid}) released it at the end of"
            f" {percent(convoy.held / convoy.waited)} of this time{unknown}; in that it ran"
            f" {duration(convoy.held_running)}, slept {duration(asleep)} and itself waited"
            f" {duration(convoy.held_runnable)} for a CPU."
        )
        if 2 * convoy.held_runnable > convoy.held:
            return text + " The holder lacks a CPU: give it a better priority, or more CPUs."
        if 2 * asleep > convoy.held:
            return text + " It sleeps with the lock: let it give the lock back before it does."
        return text + " Hold the lock for less work, or divide what it protects."

    def _bounced(self) -> Iterator[Finding]:
        frame = self._mine(once(ping_pong, self.trace)).filter(pl.col("n") >= _BOUNCES)
        if frame.is_empty():
            return
        worst = frame.row(0, named=True)
        who = f"{printable(worst['comm'] or '?')}, {count(worst['n'])} times"
        where = f"between CPU {worst['cpu_a']} and CPU {worst['cpu_b']}"
        n = frame["utid"].n_unique()
        text = (
            f"{several(n, 'thread')} moved back and forth between two CPUs"
            f" {several(int(frame['n'].sum()), 'time')}; most of all {who} {where}."
            f" They waited {duration(int(frame['wait'].sum()))} when moving back."
        )
        cost = int(frame["wait"].sum())
        whatif = option("pin", worst["comm"], worst["cpu_a"])
        utid, command = worst["utid"], "migrations --ping-pong"
        yield Finding("ping-pong", cost, text, command, utid=utid, whatif=whatif)

    def _outside(self) -> Iterator[Finding]:
        frame = self._mine(self.outside)
        if frame.is_empty():
            return
        worst, n = frame.row(0, named=True), frame["utid"].n_unique()
        them, their = ("it", "its") if n == 1 else ("them", "their")
        text = (
            f"{several(n, 'thread')} ran outside the CPUs recorded for {them}, longest"
            f" {printable(worst['comm'] or '?')} on CPU {worst['cpu']}"
            f" ({duration(worst['running'])}); or {their} mask changed after it was recorded."
        )
        cost = int(frame["running"].sum())
        place = (worst["ts_first"], None, worst["utid"], worst["cpu"])
        yield Finding("affinity", cost, text, "affinity --outside", *place)

    def _leaks(self) -> Iterator[Finding]:
        cpus = isolated_cpus(self.trace)
        if not cpus:
            return
        frame = self._mine(isolation_leaks(self.trace, cpus)).filter("leak")
        if frame.is_empty():
            return
        worst = frame.sort("running", descending=True).row(0, named=True)
        text = (
            f"{several(frame['utid'].n_unique(), 'thread')} that may run elsewhere ran on isolated"
            f" CPUs, longest {printable(worst['comm'] or '?')} on CPU {worst['cpu']}"
            f" ({duration(worst['running'])})."
        )
        cost = int(frame["running"].sum())
        rest = [cpu for cpu in cpus_of(self.trace) if cpu not in cpus]
        whatif = option("pin", worst["comm"], cpu_text(rest)) if rest else None
        place = (worst["ts_first"], None, worst["utid"], worst["cpu"])
        yield Finding("isolation", cost, text, "affinity --isolated", *place, whatif=whatif)

    def _overload(self) -> Iterator[Finding]:
        row = self.overloaded
        if row is None or self.phantoms:
            return
        text = (
            "More threads wanted to run than there are CPUs for"
            f" {percent(row['overload_frac'])} of the time, on average {row['mean']:.1f} for"
            f" {several(self.trace.ncpu, 'CPU')}. No scheduler can avoid waiting then:"
            f" threads waited {duration(row['waiting'])}."
        )
        cost = int(row["waiting"])
        enough = f"--cpus {max(ceil(row['mean']), self.trace.ncpu + 1)}"
        most = int(row["ts_max"])
        yield Finding(
            "overload", cost, text, "queue-depth --by all", most, context=True, whatif=enough
        )


def _names(names: list[str]) -> str:
    shown = names[:3]
    if len(names) > 3:
        return ", ".join(shown) + f" and {len(names) - 3} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
