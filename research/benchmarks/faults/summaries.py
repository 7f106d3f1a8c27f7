"""Every figure of every question about a damaged input, against that of the undamaged recording.

What is compared follows from the questions' own declarations: every public question that needs
nothing but a trace is asked for all threads in one row, and for each thread. Left out are answers
with a row for each event (they have a column `ts` or `ts_ready`), whose rows are waits and states,
which `comparison.py` compares, and estimates (LEFT_OUT). Findings are
compared, too. Columns of text name a row (KEYS) or describe it; columns of numbers are figures.

The reference is the answer about the undamaged recording over the window of the damaged one. Both
are asked about the threads that are first seen at the same instant in both. A sum covers a thread
from its first event to its last, so earlier time is in no bound. The depth of queues is compared
over the time that the damaged recording shows.

A figure with an upper bound (a column `NAME_high` beside it) is

* `right` if both are equal, and equal to the reference;
* `bound` if the reference lies between them;
* `flagged` if `schedscope check` warns that clocks differ: no bound of a time between two CPUs can
  hold then;
* else `wrong`, with or without another warning.

A figure without one has to be right: within 0.1 %, times within 1 us. If it is not, it is

* `admitted` if its own row says that more is unknown than in the undamaged recording (ADMITS), and
  the figure is what a part of the truth can give: a sum, a count or a maximum that is not larger,
  and, where the row has `unknown` time, not smaller by more than that; a mean or quantile not above
  the true maximum; a ratio of such sums;
* `headed` if only the headline above the table says so, and the same holds;
* `flagged` if `schedscope check` warns of something that it does not warn of in the undamaged one;
* else `wrong`.

A figure is `doubted` if it is off by no more than clocks may differ according to `check`, for each
wait; and null figures (`-`) claim nothing. The width of a bound is the upper minus the lower one,
as a share of the true figure.
"""

from __future__ import annotations

import bisect
import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import polars as pl

from faults.caution import Caution, admits, news, trusted
from faults.truth import Truth
from schedscope.errors import SchedscopeError, UsageError

if TYPE_CHECKING:
    import schedscope as ss
    from faults.comparison import Doubt

KEYS = {
    *("tid", "victim_tid", "waker_tid", "kind", "sharing", "cpu", "state", "reason", "cause"),
    *("waker_kind", "interrupt", "sched_class", "by_class", "definition", "topic", "queue"),
    *("from_cpu", "to_cpu", "cpu_a", "cpu_b", "series", "scheduler", "which", "fd", "distance"),
}
"""Columns that say what a row is about, where they are no quantities."""

RANGES = {"from", "to", "since_from", "since_to"}
"""And those of a histogram."""

LEFT_OUT = {
    "check": "it says what is doubtful",
    "definitions": "what other tools would print",
    "survival": "an estimate, under the assumption that its page states",
}

ADMITS = (
    *("unknown", "unknown_frac", "waiting_unknown", "unplaced"),
    *("n_censored", "n_excluded", "n_unseen", "n_open", "n_early", "total_censored"),
    *("max_censored", "coverage", "ts_settled"),
)
"""Columns by which a row says how much is unknown; they are no figures of what happened."""

UNKNOWN_ROWS = {"unknown", "no_queue", "others"}
"""Kinds of rows about what is not known."""

OF_WHAT_IS_SEEN = {"off_cpu"}
"""Questions whose rows are of what was seen: a row that is not there has no bounds."""

LONG = "5ms"
"""Threshold of starvation: short captures have few waits of 100 ms."""

SHARE = 0.001
_EXTREMES = ("max", "longest", "lag_max", "depth_max", "most", "lag_most")
_DEPTH = "queue_depth_summary"
_ATTRIBUTES = ("weight", "threads", "wall")
_SLACK_NS = 1_000
_MOST_KEPT = 8


@dataclass
class Counts:
    """How often each figure was right, bounded, admitted, wrong."""

    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    """By "question by column"."""
    wrong: list[str] = field(default_factory=list)
    """The wrong ones in words."""
    widths: dict[str, Counter[str]] = field(default_factory=dict)
    """Of "all" and "each" thread: how many bounds have this width, to two digits."""


Key = tuple[Any, ...]
Table = dict[Key, dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """One question, asked in one way: rows by their key, and the kind of each column."""

    rows: Table
    kinds: dict[str, str]
    high: frozenset[str]
    """Figures that have an upper bound."""
    twice: frozenset[Key] = frozenset()
    """Keys of several rows, as of threads that had a number one after the other."""


Part = tuple[int, int]
"""Which questions are asked: of so many parts this one."""

Ask = Callable[["ss.Trace", pl.Expr], pl.DataFrame]


@cache
def asks() -> dict[tuple[str, str], Ask]:
    """Each question in each way that it is asked here: (question, "all" or "each")."""
    import schedscope as ss
    from schedscope.analysis.asking.needs import QUESTIONS

    for name in dir(ss):
        getattr(ss, name)  # loads every question, which declares itself
    found: dict[tuple[str, str], Ask] = {}
    for name in sorted(QUESTIONS):
        question = getattr(ss, name, None)
        if question is None or name in LEFT_OUT:
            continue
        parameters = inspect.signature(question).parameters
        required = [p.name for p in parameters.values() if p.default is p.empty]
        if required != ["trace"] or question.__annotations__.get("return") != "pl.DataFrame":
            continue
        ways = {"all": ["all"], "each": ["tid", "thread"]} if "by" in parameters else {"all": [""]}
        for way, words in ways.items():
            found[name, way] = _asked(question, parameters, words)
    return found


def _asked(question: Callable[..., pl.DataFrame], parameters: Any, words: list[str]) -> Ask:
    known: list[dict[str, Any]] = []
    others = {"threshold": LONG} if "threshold" in parameters else {}

    def ask(trace: ss.Trace, who: pl.Expr) -> pl.DataFrame:
        options = others | ({"where": who} if "where" in parameters else {})
        if known:
            return question(trace, **options, **known[0])
        for word in words:
            by = {"by": word} if word else {}
            try:
                answer = question(trace, **options, **by)
            except UsageError:
                continue
            known.append(by)
            return answer
        return pl.DataFrame()

    return ask


def of_rows(name: str, frame: pl.DataFrame) -> Answer | None:
    """The figures of a frame; None for one with a row for each event."""
    from schedscope.present.bounds import upper_bounds
    from schedscope.present.registry import meaning

    if name == "findings":
        frame = frame.group_by("topic", maintain_order=True).agg(pl.col("cost").sum())
    if {"ts", "ts_ready"} & {*frame.columns}:
        return None
    kinds: dict[str, str] = {}
    upper = upper_bounds(frame.columns)
    for column in frame.columns:
        what = meaning(column, name)
        numeric = frame.schema[column].is_numeric()
        quantity = what is None or what.kind in ("count", "time", "share", "number", "fixed")
        if numeric and quantity and column not in RANGES and column not in upper:
            kinds[column] = what.kind if what else "number"
    keys = [name for name in frame.columns if name in KEYS | RANGES and name not in kinds]
    rows: Table = {}
    twice: set[Key] = set()
    for row in frame.iter_rows(named=True):
        key = tuple(str(row[column]) for column in keys)
        if key in rows:
            twice.add(key)
        rows[key] = row
    for key in twice:
        del rows[key]
    high = frozenset(column for column in kinds if f"{column}_high" in upper)
    return Answer(rows, kinds, high, frozenset(twice))


_OF_EVENTS: set[str] = set()
"""Questions whose answers have a row for each event, as they are found."""

Answers = dict[tuple[str, str], Answer | None]


@dataclass(frozen=True)
class Selected:
    """The threads that are compared, and the answers about them, as they are asked for."""

    trace: ss.Trace
    who: pl.Expr
    part: Part

    def answers(self, compared: Answers | None = None) -> Iterator[tuple[str, str, Answer | None]]:
        """What there is, of those that can be compared."""
        which, of = self.part
        for number, ((name, way), ask) in enumerate(asks().items()):
            if name == _DEPTH or name in _OF_EVENTS or number % of != which % of:
                continue
            if compared is not None and compared.get((name, way)) is None:
                continue
            try:
                frame = ask(self.trace, self.who)
            except SchedscopeError:
                continue
            answer = of_rows(name, frame)
            if answer is None:
                _OF_EVENTS.add(name)
            yield name, way, answer


def first_sights(trace: ss.Trace) -> dict[int, int]:
    """When each thread was first seen, of tids that one thread only had."""
    known = trace.threads.filter(pl.col("utid") >= trace.ncpu).select(
        pl.col("utid").cast(pl.UInt32), pl.col("tid").cast(pl.Int64)
    )
    first = (
        trace.states.select(pl.col("utid").cast(pl.UInt32), "ts")
        .group_by("utid")
        .agg(pl.col("ts").min())
        .join(known, on="utid")
        .filter(pl.len().over("tid") == 1)
        .collect()
    )
    return dict(first.select("tid", "ts").iter_rows())


def compare(
    damaged: ss.Trace,
    whole: ss.Trace,
    truth: Truth,
    spoken: Caution,
    before: Caution,
    doubt: Doubt,
    *,
    clocks_moved: bool,
    part: Part = (0, 1),
) -> Counts:
    """Every figure of `damaged` against that of `whole`, the undamaged recording."""
    counts = Counts()
    begin, end = (
        max(damaged.window[0], whole.window[0]),
        min(damaged.window[1], whole.window[1]),
    )
    if clocks_moved or begin >= end:
        begin, end = whole.window
    elif whole.window != (begin, end):
        whole = whole.between(f"{begin - whole.origin}ns", f"{end - whole.origin}ns")
    if not clocks_moved and damaged.window != (begin, end):
        damaged = damaged.between(f"{begin - damaged.origin}ns", f"{end - damaged.origin}ns")
    ours, theirs = first_sights(damaged), first_sights(whole)
    same = [
        tid
        for tid, ts in theirs.items()
        if tid in ours and (clocks_moved or ours[tid] <= ts) and tid not in truth.doubtful
    ]
    who = pl.col("tid").is_in(same)
    judge = Judge(
        counts, admits(spoken, before), not trusted(spoken, before),
        "clocks" in news(spoken, before), doubt, truth,
    )  # fmt: skip
    answers = _answers_of(whole, tuple(sorted(same)), part)
    for name, way, said in Selected(damaged, who, part).answers(answers):
        reference = answers.get((name, way))
        if said is not None and reference is not None:
            judge.table(name, way, said, reference)
    if "filtered" not in damaged.info and not part[0] % part[1]:
        from schedscope.analysis.threads.restrict_to_threads import restrict_to_threads

        both = [restrict_to_threads(trace, who) for trace in (damaged, whole)]
        said, true = (of_rows(_DEPTH, frame) for frame in depths(*both))
        assert said is not None
        assert true is not None
        judge.table(_DEPTH, "all", said, true)
    return counts


_kept: WeakKeyDictionary[ss.Trace, dict[object, Answers]] = WeakKeyDictionary()


def _answers_of(whole: ss.Trace, tids: tuple[int, ...], part: Part) -> Answers:
    """About the undamaged recording; most damaged ones have the same threads."""
    kept = _kept.setdefault(whole, {})
    if (tids, part) not in kept:
        if len(kept) > _MOST_KEPT:
            kept.clear()
        asked = Selected(whole, pl.col("tid").is_in(tids), part).answers()
        kept[tids, part] = {(name, way): answer for name, way, answer in asked}
    return kept[tids, part]


def depths(damaged: ss.Trace, whole: ss.Trace) -> list[pl.DataFrame]:
    """The depth of the queue over the time that the damaged recording shows, and what it was."""
    import schedscope as ss

    said = ss.queue_depth_summary(damaged, by="all", running=False)
    seen = ss.queue_depth(damaged, by="all").drop_nulls("running")
    of_level: Counter[int] = Counter()
    steps = ss.queue_depth(whole, by="all").select("ts", "dur", "waiting").rows()
    starts = [ts for ts, _, _ in steps]
    for begin, dur in seen.select("ts", "dur").iter_rows():
        first = max(bisect.bisect_right(starts, begin) - 1, 0)
        for ts, length, waiting in steps[first : bisect.bisect_left(starts, begin + dur)]:
            of_level[waiting or 0] += max(0, min(begin + dur, ts + length) - max(begin, ts))
    time = of_level.total()
    figures: dict[str, float] = {}
    if time:
        held = sorted(of_level.items())
        figures["mean"] = sum(level * dur for level, dur in held) / time
        figures["max"] = max(level for level, dur in held if dur)
        for share in (50, 90, 99):
            until = itertools.accumulate(dur for _, dur in held)
            figures[f"p{share}"] = next(
                level for (level, _), end in zip(held, until, strict=True)
                if end * 100 >= share * time
            )  # fmt: skip
    bounds = {f"{name}_high": value for name, value in figures.items()}
    named = [name for name in said.columns if name.removesuffix("_high") in figures]
    return [said.select(named), pl.DataFrame([figures | bounds])]


@dataclass
class Judge:
    counts: Counts
    admits: bool
    """Whether the headline names a gap that the undamaged recording does not have."""
    flagged: bool
    clocks: bool
    """Whether `check` warns of clocks."""
    doubt: Doubt
    truth: Truth

    def table(self, name: str, way: str, said: Answer, true: Answer) -> None:
        for key in {**said.rows, **true.rows}:
            if UNKNOWN_ROWS & {*key} or key in said.twice | true.twice:
                continue
            ours, theirs = said.rows.get(key), true.rows.get(key)
            for column, kind in {**true.kinds, **said.kinds}.items():
                if column in ADMITS:
                    continue
                pair = column in said.high or (ours is None and column in true.high)
                pair = pair and not (ours is None and name in OF_WHAT_IS_SEEN)
                sums = kind in ("count", "time") and not _is_statistic(column)
                sums = sums and column not in _ATTRIBUTES
                if (ours is None or theirs is None) and not sums:
                    continue
                low, high = self._bounds(said, key, column, pair)
                least, most = _of(theirs, column)
                if least is None:
                    continue
                how = (
                    self._pair(kind, low, high, least, most)
                    if pair
                    else self._bare(column, kind, low, least, ours, theirs)
                )
                at = f"{name} {way} {column}"
                self.counts.statuses.setdefault(at, Counter())[how] += 1
                if how == "wrong":
                    to = f" to {high}" if pair else ""
                    self.counts.wrong.append(f"{at} {key}: {low}{to}, truly {least}")
                elif pair and low is not None and least:
                    wide = math.inf if high is None else (high - low) / abs(least)
                    self.counts.widths.setdefault(way, Counter())[f"{wide:.2g}"] += 1

    def _bounds(
        self, said: Answer, key: Key, column: str, pair: bool
    ) -> tuple[float | None, float | None]:
        """Those of a figure; one in no row is 0, or in the part that is not known whose it is.

        That is in rows about unknown time, or in what is unknown of the thread in another class.
        """
        row = said.rows.get(key)
        if row is not None:
            return row[column], row[f"{column}_high"] if pair else None
        high = 0
        if pair:
            for other, unknown in said.rows.items():
                if other[:1] == key[:1] and UNKNOWN_ROWS & {*other}:
                    high += unknown[f"{column}_high"] or 0
                elif other[:1] == key[:1] and "unknown" in unknown:
                    high += (unknown[f"{column}_high"] or 0) - unknown[column]
        return 0, high

    def _pair(
        self, kind: str, low: float | None, high: float | None, least: float, most: float | None
    ) -> str:
        if low is None:
            return "null"
        high = math.inf if high is None else high
        most = math.inf if most is None else most
        off = max(_SLACK_NS if kind == "time" else 0, 1e-6 + 1e-9 * abs(least))
        if low <= most + off and least <= high + off:
            return "right" if high - low <= off else "bound"
        if self._doubted(kind, min(abs(low - most), abs(least - high))):
            return "doubted"
        return "flagged" if self.clocks else "wrong"

    def _bare(
        self,
        column: str,
        kind: str,
        said: float | None,
        true: float,
        ours: dict[str, Any] | None,
        theirs: dict[str, Any] | None,
    ) -> str:
        if said is None:
            return "null"
        slack = max(_SLACK_NS if kind == "time" else 0, SHARE * abs(true))
        if abs(said - true) <= slack:
            return "right"
        if self._doubted(kind, abs(said - true) - slack):
            return "doubted"
        part = kind not in ("count", "time") or said <= true + slack
        if _is_mean(column) and theirs is not None:
            part = said <= (theirs.get("max") or math.inf) + slack
        if part and ours is not None and _row_admits(ours, theirs or {}):
            unknown = ours.get("unknown")
            if kind != "time" or _is_statistic(column) or unknown is None:
                return "admitted"
            if true <= said + unknown + slack:
                return "admitted"
        if part and self.admits:
            return "headed"
        return "flagged" if self.flagged else "wrong"

    def _doubted(self, kind: str, off: float) -> bool:
        return off <= may_be_off(kind, self.doubt, self.truth)


def may_be_off(kind: str, doubt: Doubt, truth: Truth) -> float:
    """By how much a figure may be off by what two clocks may differ by unnoticed.

    A time by that for each wait; a count by the sleeps that are shorter, since in their place the
    trace may show none. In the last stretch, where nothing shows how far clocks differ, by whatever
    begins there. A ratio of such figures by anything.
    """
    if doubt.ns is None:
        return math.inf
    if not doubt.ns and doubt.since is None:
        return 0
    if kind not in ("time", "count"):
        return math.inf
    begun = pl.col("ts") > (truth.window[1] if doubt.since is None else doubt.since)
    late = truth.states.filter(begun)
    if kind == "count":
        brief = ~pl.col("state").is_in(["running", "runnable", "unknown"])
        brief &= pl.col("end") - pl.col("ts") <= doubt.ns
        return late.height + truth.states.filter(brief).height
    queued = late.filter(pl.col("state") == "runnable")
    last = queued.select((pl.col("end") - pl.col("ts")).sum()).item() or 0
    return doubt.ns * truth.waits.height + float(last)


def _of(row: dict[str, Any] | None, column: str) -> tuple[float | None, float | None]:
    """The true figure; one in no row is 0."""
    if row is None:
        return 0, 0
    return row[column], row.get(f"{column}_high", row[column])


def _is_mean(column: str) -> bool:
    """Or a quantile."""
    name = column.removeprefix("wait_")
    return name == "mean" or (name[:1] == "p" and name[1:].replace(".", "").isdigit())


def _is_statistic(column: str) -> bool:
    return column in _EXTREMES or _is_mean(column) or column.endswith(("_min", "_max", "_p50"))


def _row_admits(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    if "ts_settled" in ours and ours["ts_settled"] is None:
        # What the thread did before the recording still matters.
        return True
    for name in ADMITS:
        said = ours.get(name)
        if said is None:
            continue
        before = theirs.get(name)
        if name == "coverage":
            if said < (1 if before is None else before):
                return True
        elif name == "ts_settled":
            if before is not None and said > before:
                return True
        elif said > (before or 0):
            return True
    return False
