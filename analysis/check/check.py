"""How far can a trace be trusted?

First what must hold for every trace: the running, idle and unknown time of each
CPU adds up to the window; the intervals of each thread adjoin; running time is
the same summed over CPUs and over threads; every switch-in has one wait row; the
parts of each wait (`wait-breakdown`) add up to it, and waits to the time runnable.
Then what is missing: lost events, prev/next mismatches, missing wakeups, clocks
that disagree; and the recorder's own share. The last line, `rests on`, says what
no check can see in this trace: what counted lost events, if anything did, and how
far clocks may differ unnoticed. Each line is

  ok        nothing found
  note      found, and excluded from results: at most 1 % of what it concerns
  warning   enough to move results (missing wakeups: above 0.03 %; the recorder: above 5 % of
            running time)
  violated  a sum does not add up: results are wrong

With a selection these lines stay as they are, since every result rests on the whole
recording. Lines about the selected threads follow: how much of the CPU time was theirs,
which of their waits are not measured, and for how long it is unknown what they did or why
they waited.

Exit code: 0 if no check is violated, else 1; with --strict also 1 for warnings,
for scripts that should stop at a poor trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.command import Command
from schedscope.analysis.asking.memo import once
from schedscope.analysis.asking.needs import has, needs
from schedscope.analysis.check.conservation import conservation
from schedscope.analysis.check.counts import counter, number_of, recorders
from schedscope.analysis.check.missing_wakeups import missing_wakeups, woken_by_comers
from schedscope.analysis.check.row import SCHEMA, WARN_SHARE, CheckRow, of, part, unanswered
from schedscope.analysis.check.selection import selection, withheld
from schedscope.analysis.cpus.accounting import Tiling, tiling
from schedscope.analysis.cpus.offline import offline
from schedscope.analysis.recording.clock_doubt import clock_doubt
from schedscope.analysis.recording.recorded_threads import filtered, recorded_threads
from schedscope.store.losses import BROKEN_CHAINS, IS_BREAK
from schedscope.store.native_tables import coded
from schedscope.units import count, duration, percent, several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

WARN_DROPPED = 0.0003
"""A whole recording lacks no wakeup: above this share of them, events are being dropped. Of one
in a thousand at random, fewer than this go missing only by an unlikely chance."""

WARN_UNKNOWN = 0.05
"""Above this share of the CPUs' time where nothing was lost: some kernels leave out switches."""

_AFTER_SLEEP = "switch-ins after a sleep"

RESTS_ON = "rests on"
"""The row of what no check can see."""

_COUNTS = {
    "ftrace": "the kernel's counts of lost events",
    "trace-cmd": "the kernel's counts of lost events",
    "perfetto": "the kernel's and Perfetto's counts of lost events",
    "perf": "perf's records of lost events",
    "bpftrace": "bpftrace's counts of lost events, which leave out those raised inside a probe",
    "dtrace": "DTrace's counts of lost events, which leave out those raised inside a probe",
}
"""Who says, by recorder, that events were lost; elsewhere nobody does."""

_NO_DOUBT = ("is woken for every line", "was never tried with this script", "synthetic:")
"""In warnings that say what a recording cost or is, and not that it is wrong."""

FEW = 2
"""Threads found where no switch put them that are no finding: recorders start one by one."""

MANY = 10
"""Switches to an idle thread without one from it that are no accident."""


COMMAND = Command(
    heading="inspect the recording",
    help="how far a trace can be trusted, and a verdict",
    example="""\
  schedscope check web.capture
  schedscope check web.capture --service nginx.service
  schedscope check --strict web.capture && schedscope latency web.capture
""",
    page="docs/trace-model.md",
)


@needs()
def check(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per check of the trace: what was found, and how serious it is.

    * `check`: its name; `level`: `ok`, `note`, `warning` or `violated`;
    * `found`, `total`: how much was found, and of how much, in `unit` (rows or ns); null where the
      trace cannot answer;
    * `text`: the same in words.

    The first five are the sums of docs/trace-model.md, Conservation: they hold
    for every input, so anything found there is `violated`. The others are
    `note` up to 1 % of what they concern and `warning` beyond; for missing
    wakeups the line is 0.03 %. Waits count by their time, not by their number, and the line is
    20 %: where some of it is not measured, results are bounds. So a note needs no action.

    The last row, `rests on`, finds nothing: it says what no check of a trace can see.

    `where` selects threads by columns of `threads`. All other rows stay those of the whole
    recording, because results about some threads rest on it, too. The rows about these threads
    stand before the last one: `selected threads` (their share of the running time),
    `selected waits` (those that are not measured), `selected time` (for how long it is unknown what
    they did) and `selected reasons` (for how much of their waiting it is unknown what the CPU did
    meanwhile).
    """
    tiles = tiling(trace)
    alike = _clocks_alike(trace)
    breaks = _chain_breaks(trace)
    findings = [
        *conservation(trace, tiles),
        _offline(trace),
        _filter(trace),
        _unknown_time(trace, tiles),
        _losses(trace),
        _unplaced_losses(trace),
        breaks,
        _contradictions(trace),
        _unseen_switch_ins(trace),
        _missing_wakeups(trace),
        _missing_wakings(trace),
        _missing_migrations(trace),
        _spurious_wakeups(trace),
        _wakeups_without_enqueue(trace),
        _clock_inversions(trace, alike),
        _start_skew(trace),
        _open_waits(trace),
        _recorder(trace, tiles),
        _stored_files(trace),
        _warnings(trace),
        *([] if where is None else selection(trace, where, tiles)),
        _rests_on(trace, alike, breaks),
    ]
    return pl.DataFrame([vars(finding) for finding in findings], schema=SCHEMA)


def standing(findings: pl.DataFrame) -> str:
    """How far the trace that `check` judged can be trusted: the verdict's first words."""
    levels = set(findings["level"])
    if "violated" in levels:
        return "Do not trust this trace"
    return "Use with care" if "warning" in levels else "Trustworthy as far as a trace can tell"


def verdict(findings: pl.DataFrame) -> str:
    """What `check` found, in a few words, for a reader who has to decide."""

    def named(level: str) -> str:
        rows = findings.filter(pl.col("level") == level).select("check", "text").iter_rows()
        return "; ".join(f"{check}: {text}" for check, text in rows)

    first = standing(findings)
    if violated := named("violated"):
        return f"{first}: sums do not add up. {violated}."
    if warnings := named("warning"):
        return f"{first}. {warnings}."
    found = "all checks pass and no gaps were found"
    if named("note"):
        found = "all checks pass; sums allow for the small gaps"
    on = findings.filter(pl.col("check") == RESTS_ON)["text"]
    return f"{first}: {found}. It rests on {'; '.join(on)}."


def _uncounted(trace: Trace) -> str:
    cut = "origin" in trace.info
    return "counted only for the whole trace" if cut else "the trace does not count them"


def _offline(trace: Trace) -> CheckRow:
    """CPUs that the host does not use: they raise no events and run nothing."""
    gone = offline(trace)
    each = gone.group_by("cpu").agg(pl.col("dur").sum()).sort("cpu")
    text = ", ".join(f"CPU {cpu} for {duration(dur)}" for cpu, dur in each.iter_rows())
    return part(
        "offline", int(gone["dur"].sum()), trace.duration * trace.ncpu,
        text or "no CPU, as far as the trace shows", unit="ns", warn=None,
    )  # fmt: skip


def _filter(trace: Trace) -> CheckRow:
    """Threads of which a filter of the recorder left out the events."""
    chosen = recorded_threads(trace)
    threads = number_of(trace.threads.filter(pl.col("utid") >= trace.ncpu))
    if chosen is None:
        return part("filter", 0, threads, "no sign of one that left out events of threads", warn=0)
    text = f"{filtered(trace)}; record all threads, and select some of them afterwards"
    row = part("filter", threads - len(chosen), threads, text, warn=0)
    row.level = "warning"
    return row


def _unknown_time(trace: Trace, tiles: Tiling) -> CheckRow:
    """CPU time for which it is unknown what ran, except that of offline CPUs."""
    total = trace.duration * trace.ncpu - int(offline(trace)["dur"].sum())
    unknown = max(0, total - tiles.known)
    text = f"{duration(unknown)} of CPU time ({percent(unknown / total if total else 0)})"
    row = part("unknown time", unknown, total, text, unit="ns")
    # What a CPU did before its first event is unknown in every recording.
    begin, end = trace.window
    starts = [cpu.get("first_ts") for cpu in trace.info.get("per_cpu") or []]
    before = sum(max(0, int(end if first is None else first) - begin) for first in starts)
    lost = number_of(trace.losses.filter(~IS_BREAK, pl.col("ts_end") > pl.col("ts_begin")))
    few = WARN_SHARE if lost else WARN_UNKNOWN
    if row.level == "warning" and unknown - before <= few * total:
        row.level = "note"
    return row


def _losses(trace: Trace) -> CheckRow:
    """Stretches with lost events, by reason; their share of the CPUs' time decides."""
    end = trace.window[1]
    span = pl.min_horizontal("ts_end", end) - pl.col("ts_begin")
    cpus = pl.when(pl.col("cpu").is_null()).then(trace.ncpu).otherwise(1)
    losses = (
        trace.losses.filter(~IS_BREAK)
        .group_by("reason")
        .agg(
            pl.len(),
            pl.col("count").cast(pl.Int128).sum(),
            (pl.max_horizontal(span, 0) * cpus).sum().alias("span"),
        )
        .sort("reason")
        .collect()
    )
    total = trace.duration * trace.ncpu
    # Losses may overlap; a CPU cannot lose more than all of its time.
    lost = min(int(losses["span"].sum()), total)
    texts = [
        f"{several(n, reason.replace('_', ' '))}"
        + (f" ({several(events, 'event')})" if events else "")
        for reason, n, events, _ in losses.iter_rows()
    ]
    text = "none reported"
    if texts:
        share = percent(lost / total if total else 0)
        text = f"{', '.join(texts)}, in {duration(lost)} of CPU time ({share})"
    finding = part("losses", lost, total, text, unit="ns")
    if texts and finding.level == "ok":
        finding.level = "note"
    return finding


def _unplaced_losses(trace: Trace) -> CheckRow:
    """Losses without a time: results cannot exclude them."""
    unplaced = trace.info.get("unplaced_losses") or []
    lost = sum(loss.get("count") or 1 for loss in unplaced)
    text = "none reported"
    if lost:
        text = f"{several(lost, 'event')} lost, and the trace does not say when"
    return part("unplaced losses", lost, max(lost, trace.events), text, warn=0)


def _chain_breaks(trace: Trace) -> CheckRow:
    """Switches whose outgoing thread is not the one that came in before.

    A CPU that comes back online starts a new chain: that is not a mismatch.
    """
    back = offline(trace).filter("broken").select("cpu", ts_begin="ts")
    breaks = trace.losses.filter(IS_BREAK).join(back.lazy(), on=["cpu", "ts_begin"], how="anti")
    per_cpu = (
        breaks.group_by("cpu")
        .agg(len=BROKEN_CHAINS.sum())
        .sort("len", "cpu", descending=[True, False])
        .collect()
    )
    # A damaged table may hold any count; a row of ours holds at most this.
    found = min(int(per_cpu["len"].sum()), (1 << 63) - 1)
    text = of(found, number_of(trace.switches), "switch", plural="switches")
    if found and trace.ncpu > 1:
        cpu, most = per_cpu.row(0)
        text += f", {count(most)} on CPU {cpu}"
    if found and (mute := _mute_idle(trace)):
        cpus = ", ".join(str(cpu) for cpu in mute)
        text += f"; on CPU {cpus} every switch from idle is missing"
        if trace.info.get("os") == "Linux":
            text += " (BPF programs may see what trace events miss: -t bpftrace, -t dtrace)"
    habit = min(found, counter(trace, "unreported_leavings") or 0)
    if habit:
        text += f"; {count(habit)} of them are one switch each, which this kernel never reports"
    row = part("chain breaks", found, number_of(trace.switches), text)
    if row.level == "warning" and found - habit <= WARN_SHARE * number_of(trace.switches):
        row.level = "note"
    return row


def _mute_idle(trace: Trace) -> list[int]:
    """CPUs with repeated switches to idle and none away from it."""
    idle = (
        trace.switches.group_by("cpu")
        .agg(
            into=(pl.col("next_utid") == pl.col("cpu")).sum(),
            out=(pl.col("prev_utid") == pl.col("cpu")).sum(),
        )
        .filter(pl.col("into") >= MANY, pl.col("out") == 0)
    )
    return idle.sort("cpu").collect()["cpu"].to_list()


def _contradictions(trace: Trace) -> CheckRow:
    """Threads with an event that contradicts their earlier ones."""
    found = counter(trace, "contradictions")
    if found is None:
        return unanswered("contradictions", "rows", _uncounted(trace))
    total = number_of(trace.switches)
    return part("contradictions", found, total, of(found, total, "switch", plural="switches"))


def _unseen_switch_ins(trace: Trace) -> CheckRow:
    """Threads found on a CPU that no switch was seen to put there."""
    found = counter(trace, "unseen_switch_ins")
    if found is None:
        return unanswered("unseen switch-ins", "rows", _uncounted(trace))
    total = (counter(trace, "switch_ins") or 0) + found
    row = part("unseen switch-ins", found, total, of(found, total, "switch-in"))
    # A missing switch causes a prev/next mismatch on its CPU, or lies in a gap.
    if found > FEW and not number_of(trace.losses) and not trace.info.get("unplaced_losses"):
        row.level = "warning"
        row.text += "; the source reports no missing events, so a gap went unreported or the"
        row.text += " CPUs' clocks differ"
    return row


def _missing_wakeups(trace: Trace) -> CheckRow:
    """Switch-ins of a sleeping thread without a recorded wakeup."""
    counted = missing_wakeups(trace)
    if counted is None:
        return unanswered("missing wakeups", "rows", _uncounted(trace))
    found, own, taken = counted
    # The switch-ins that should have followed a wakeup.
    woken = pl.col("cause").is_in(["wake", "new"]) & pl.col("ts_run").is_not_null()
    total = number_of(trace.waits.filter(woken)) + found + own + taken
    text = of(found, total, "switch-in after a sleep", " without a wakeup", plural=_AFTER_SLEEP)
    if not has(trace, "wakeup_events"):
        text = f"no wakeups were recorded: {text}"
    if own:
        text += f"; {count(own)} more in the recorder's own threads, whose wakeups it excludes"
    if taken:
        text += f"; {count(taken)} more in stopper threads, woken by a CPU that came online"
    return part("missing wakeups", found, total, text, warn=WARN_DROPPED)


def _missing_wakings(trace: Trace) -> CheckRow:
    """Enqueues without a recorded `waking`; and what a wait means where there is no `waking` at
    all.
    """
    if trace.info.get("os") == "FreeBSD":
        return unanswered("missing wakings", "rows", "FreeBSD also enqueues without a wakeup")
    if not trace.info.get("has_waking", True):
        text = "the trace has no `waking` events: waits start when the thread is enqueued"
        return unanswered("missing wakings", "rows", text)
    wake = pl.col("cause") == "wake"
    # Recorders turn their events on one after the other. The table is in order of time: the rest
    # of it is not read.
    first = trace.wakeups.filter(pl.col("kind") == "waking").select("ts").head(1).collect()
    since = pl.col("ts_enqueued") >= pl.lit(first["ts"].first(), pl.Int64)
    unseen = wake & pl.col("ts_ready").is_null() & since
    found, total = trace.waits.select(unseen.sum(), wake.sum().alias("n")).collect().row(0)
    # A recorded `waking` may have been detached from its wait because of doubt.
    found = min(found, _without_waking(trace)) if found else 0
    taken = min(found, woken_by_comers(trace, unseen)) if found else 0
    found -= taken
    text = of(found, total, "wakeup", " without a `waking`")
    # A gap or an unrecorded run hides the first step of a wakeup that spans its end.
    explained = (counter(trace, "unseen_switch_ins") or 0) + number_of(trace.losses)
    if found and explained:
        some = "" if found <= explained else f"{count(explained)} of them "
        text += f", {some}perhaps because a switch-in is missing or events were lost"
    if taken:
        text += f"; {count(taken)} more in stopper threads, woken by a CPU that came online"
    row = part("missing wakings", found, total, text)
    if found - explained > WARN_DROPPED * total:
        row.level = "warning"
    return row


def _without_waking(trace: Trace) -> int:
    """Enqueues not directly preceded by a `waking` of the thread, whatever it did meanwhile.

    However long before: the CPU that is asked to put it on its queue may come late.
    """
    from schedscope import _native

    return _native.lone_enqueues(coded(trace, "wakeups", "utid", "kind"))


def _spurious_wakeups(trace: Trace) -> CheckRow:
    """Wakeups of threads that ran or waited already: kernels do that, so never a warning."""
    found = counter(trace, "spurious_wakeups")
    if found is None:
        return unanswered("spurious wakeups", "rows", _uncounted(trace))
    total = number_of(trace.wakeups)
    text = of(found, total, "wakeup event", " for threads already awake")
    return part("spurious wakeups", found, total, text, warn=None)


def _missing_migrations(trace: Trace) -> CheckRow:
    """Threads that ran from another queue than the one they were put on, without a recorded
    migration.

    Which CPU they waited for meanwhile is not known: their waits stand, their queue does not.
    """
    if trace.info.get("os") == "FreeBSD" or not trace.info.get("has_waking", True):
        why = "only Linux with `waking` events reports every move"
        return unanswered("missing migrations", "rows", why)
    found = counter(trace, "unseen_moves")
    if found is None:
        return unanswered("missing migrations", "rows", _uncounted(trace))
    total = number_of(trace.migrations)
    text = "none missing"
    if found:
        text = (
            f"{several(found, 'wait')} ended on another CPU's queue without a recorded migration: "
            f"which CPU these threads waited for is unknown"
        )
    return part("missing migrations", found, total + found, text, warn=0)


_WOKEN = pl.col("ts_waking").is_not_null() & pl.col("ts_run").is_not_null()
_UNQUEUED = _WOKEN & pl.col("ts_enqueued").is_null()


def _woken(trace: Trace) -> tuple[int, int]:
    """Waits with a `waking` that ended: those without an enqueue, and all."""
    unqueued, every = trace.waits.select(_UNQUEUED.sum(), _WOKEN.sum().alias("n")).collect().row(0)
    return unqueued, every


def _wakeups_without_enqueue(trace: Trace) -> CheckRow:
    """Waits that have the first step of a wakeup but not the second, although it is recorded."""
    if not trace.info.get("has_enqueued", True):
        text = "the trace has no `enqueued` wakeups: placement and queue are null"
        return unanswered("unmatched wakeups", "rows", text)
    found, total = once(_woken, trace)
    text = of(found, total, "`waking`", " without an enqueue", plural="`waking` events")
    return part("unmatched wakeups", found, total, text, warn=WARN_DROPPED)


def _clocks(trace: Trace) -> CheckRow | None:
    """CPUs whose clocks differ, as the reader found (docs/trace-model.md, Clocks)."""
    offsets = trace.info.get("clock_offsets") or []
    if not offsets:
        return None
    texts = []
    for one in offsets:
        others = "CPU 0's" if trace.ncpu == 2 else "the others'"
        clock = f"the clock of CPU {one['cpu']}"
        ahead = one.get("ahead")
        if ahead is None and one["breaks"] == one["breaks_left"]:
            times = several(one["breaks"], "time")
            texts.append(
                f"{times}, events of CPU {one['cpu']} and of other CPUs are in an order that is "
                f"impossible, and no correction of its clock explains it: its events are from "
                f"another recording, or a filter left some out (as that of `trace-cmd record -F` "
                f"or -P does), or its clock is far off; no wait is measured"
            )
            continue
        if ahead is None:
            texts.append(
                f"{clock} runs ahead of or behind {others} by an amount that changes: no wait is "
                f"measured, and results that combine times of two CPUs are wrong ({_order(one)})"
            )
            continue
        least, most = ahead
        way = "ahead of" if least + most >= 0 else "behind"
        near, far = sorted((abs(least), abs(most)))
        texts.append(
            f"{clock} was {duration(near)} to {duration(far)} {way} {others}, and its times were "
            f"corrected by the mean of these; waits that begin on one clock and end on another "
            f"are not measured ({_order(one)})"
        )
    found = sum(one["breaks"] for one in offsets[:1])
    text = "; ".join(texts)
    return CheckRow("clocks", "warning", found, number_of(trace.switches), "rows", text)


def _order(offset: dict[str, Any]) -> str:
    left = offset["breaks_left"]
    events = several(offset["breaks"], "event")
    rest = count(left) if left else "none"
    return f"{events} recorded before an event that must precede them, {rest} after the correction"


def _enqueued_late(trace: Trace) -> tuple[int, int]:
    """Waits whose enqueue was recorded after their end: how many, and by how much at most."""
    suspects = trace.waits.filter(_UNQUEUED).select("utid", "ts_run").sort("ts_run").collect()
    # Mostly there are few of them: the wakeups of others need no sort.
    whose = suspects["utid"].unique().implode()
    following = (
        trace.wakeups.filter(pl.col("utid").is_in(whose)).select("utid", "ts", "kind").sort("ts")
    )
    late = (
        suspects.lazy()
        .join_asof(
            following,
            left_on="ts_run",
            right_on="ts",
            by="utid",
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        )
        .filter(pl.col("kind") == "enqueued")
        .select(pl.len(), (pl.col("ts") - pl.col("ts_run")).max().alias("most"))
        .collect()
    )
    found, most = late.row(0)
    return found, most or 0


def _clock_inversions(trace: Trace, alike: str) -> CheckRow:
    """Effects before their cause: enqueues recorded after the switch-in that they led to.

    The two come from two CPUs. An enqueue after its effect means that the CPUs' clocks differ.
    """
    if clocks := _clocks(trace):
        return clocks
    unqueued, total = once(_woken, trace)
    found, most = _enqueued_late(trace) if unqueued else (0, 0)
    text = of(found, total, "wakeup", " enqueued after their switch-in")
    if not trace.info.get("has_waking", True):
        text = "without `waking` events, no event must precede another"
    if found:
        text += f", by up to {duration(most)}: the CPUs' clocks differ"
    elif alike:
        text += f"; {alike}"
    return part("clock inversions", found, total, text)


def _clocks_alike(trace: Trace) -> str:
    """How far the clocks of two CPUs may differ unnoticed, in words; empty where it is known."""
    if trace.ncpu < 2:
        return ""
    doubt = clock_doubt(trace)
    if not doubt.pairs:
        return "no CPU pair wakes threads both ways, so nothing shows whether clocks agree"
    possible = trace.ncpu * (trace.ncpu - 1) // 2
    compared = f" ({count(doubt.pairs)} of {count(possible)} pairs compared)"
    return (
        f"clocks that differ by up to {duration(doubt.furthest)}, or by more for up to "
        f"{duration(doubt.longest)}, would not show"
        f"{'' if doubt.pairs == possible else compared}"
    )


def _rests_on(trace: Trace, alike: str, breaks: CheckRow) -> CheckRow:
    """What no check of this trace can see, and what that rests on."""
    recorder = trace.metadata("recorder", "name")
    text = _COUNTS.get(str(recorder), "")
    if not text and trace.info.get("header_counts"):
        text = "the header's counts of events, which leave out what a full buffer turned away"
    if not text:
        text = (
            "the assumption that no event was lost, as nothing in the trace counts lost events: a "
            "gap across which every CPU keeps its thread would not show"
        )
    elif breaks.found:
        mismatches = several(breaks.found, "prev/next mismatch", "prev/next mismatches")
        text += f" (incomplete: {mismatches})"
    if alike and not trace.info.get("clock_offsets"):
        text += f", and on clocks that agree: {alike}"
    if trace.info.get("os") != "FreeBSD" and not trace.info.get("has_waking", True):
        text += "; with no `waking` events, waits start when the thread is enqueued"
    return unanswered(RESTS_ON, "rows", text)


def _start_skew(trace: Trace) -> CheckRow:
    """How much later than the first the last CPU's record begins; an idle CPU may be late."""
    first = trace.switches.group_by("cpu").agg(pl.col("ts").min()).sort("ts").collect()
    silent = trace.ncpu - first.height
    skew = int(first["ts"][-1] - first["ts"][0]) if first.height else 0
    text = f"all CPUs start within {duration(skew)}"
    if first.height and skew > WARN_SHARE * trace.duration:
        text = f"CPU {first['cpu'][-1]} begins {duration(skew)} after CPU {first['cpu'][0]}"
    if not first.height:
        text = "no CPU has a switch"
    elif silent:
        text += f"; {several(silent, 'CPU')} without a switch"
    finding = part("start skew", skew, trace.duration, text, unit="ns", warn=None)
    finding.level = "note" if silent or skew > WARN_SHARE * trace.duration else "ok"
    if not first.height:
        finding.level = "warning"
    return finding


def _open_waits(trace: Trace) -> CheckRow:
    """Waits with an unrecorded start or end; the recorder's own waits appear in no result."""
    own = pl.col("utid").is_in(recorders(trace).select("utid").collect()["utid"].implode())
    return withheld("censored waits", trace, ~own)


def _recorder(trace: Trace, tiles: Tiling) -> CheckRow:
    """CPU time of the recorder's own threads."""
    known = int(trace.threads.select(pl.col("recorder").is_not_null().sum()).collect().item())
    if not known:
        text = "the trace does not show which threads belong to the recorder"
        return unanswered("recorder", "ns", text)
    found, total = tiles.recorder, tiles.of_threads
    share = percent(found / total if total else 0)
    text = f"the recorder used {duration(found)} of {duration(total)} running time ({share})"
    return part("recorder", found, total, text, unit="ns", warn=None)


def _stored_files(trace: Trace) -> CheckRow:
    """Files of a capture folder that are no longer as its recorder wrote them."""
    stored = trace.info.get("checksums") or {}
    damaged, files = stored.get("damaged") or [], stored.get("files")
    if files is None:
        text = "not compared: the source has no checksums"
        return unanswered("stored files", "rows", text)
    text = f"{several(files, 'file')}, unchanged since recorded"
    if damaged:
        text = of(len(damaged), files, "file", " changed since they were recorded")
        text += f": {', '.join(damaged)}"
    return part("stored files", len(damaged), files, text, warn=0)


def _warnings(trace: Trace) -> CheckRow:
    """Warnings of the recorder or the parser for the reader."""
    warnings = [str(text) for text in trace.info.get("warnings") or []]
    text = "; ".join(warnings) or "none"
    row = part("warnings", len(warnings), len(warnings), text, warn=0)
    if all(any(words in text for words in _NO_DOUBT) for text in warnings):
        row.level = "note" if warnings else "ok"
    return row
