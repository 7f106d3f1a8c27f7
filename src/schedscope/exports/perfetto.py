"""The rows of a Perfetto trace, prepared with Polars for the native writer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from schedscope.exports.blocks import Block, blocks

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

NULL = -(2**63)
"""Stands for "not known" in columns of priorities and CPUs (as in the writer)."""

# Bits of Linux 4.14 and later; R+ is 256. 0x8000: no kernel has it, ours for "not known".
_BITS = {
    "running": 0,
    "runnable": 0,
    "sleeping": 1,
    "blocked": 2,
    "stopped": 4,
    "parked": 0x80,
    "dead": 0x10,
    "unknown": 0x8000,
}
_PREEMPTED = 256
_CLONE_THREAD = 0x10000
# Field numbers and order among events of one time: births and renames before
# the switches that use them.
_SWITCH, _WAKING, _WAKEUP, _WAKEUP_NEW, _MIGRATE, _NEWTASK, _RENAME, _EXIT, _LOST = range(9)
_BEGIN, _END, _COUNTER = 1, 2, 4
_GROUP_TRACK, _COUNTER_TRACK, _THREAD_TRACK = 0, 1, 2
_MODERN = "5.0.0"
_LAST = 2**40


Frames = dict[str, pl.DataFrame]
"""The frames of `native/encode/src/perfetto`, by name; those that are absent are empty."""


def perfetto_blocks(
    trace: Trace, *, waits: bool, chosen: pl.Series | None = None
) -> Iterator[tuple[Frames, list[str]]]:
    """What the writer needs, block after block, each with the texts that are new in it.

    With `chosen` the waits of these utids only.
    """
    names = _Names()
    threads = _threads(trace)
    known = _names_over_time(trace, threads, names)
    lives = _lives(trace, threads, names)
    losses = _losses(trace)
    depth = _Depth(trace)
    slices = _WaitSlices(trace, threads, names, chosen)
    frames = _about(trace, threads, names)
    for block in blocks(trace):
        frames["ftrace"] = _ftrace(trace, block, threads, known, [*lives, losses])
        points = [depth.points(block)]
        if waits:
            tracks, of_waits = slices.of(block)
            frames["tracks"] = pl.concat(
                [frames["tracks"], tracks] if "tracks" in frames else [tracks]
            )
            points.append(of_waits)
        frames["points"] = pl.concat(points).sort("ts", maintain_order=True)
        yield frames, names.new()
        frames = {}


def _about(trace: Trace, threads: pl.DataFrame, names: _Names) -> Frames:
    """What does not depend on time."""
    # Threads created in the window are introduced by their forks.
    listed = threads.filter(
        (pl.col("utid") >= trace.ncpu) & pl.col("start_ts").is_null()
    ).with_columns(comm=names.index(pl.col("comm")))
    # A process has its main thread's name: on Linux the one of the same number; FreeBSD numbers
    # threads and processes apart, and the first thread listed is taken.
    main = (
        pl.col("pid") > 0 if trace.info.get("os") == "FreeBSD" else pl.col("tid") == pl.col("pid")
    )
    processes = (
        listed.filter(main)
        .unique("pid", keep="first", maintain_order=True)
        .select("pid", ppid=pl.lit(0, pl.Int64), comm="comm")
    )
    return {
        "cpus": _cpus(trace, names),
        "processes": processes,
        "threads": listed.select("tid", "pid", "comm"),
        "tracks": _cpu_tracks(trace, names),
    }


class _Names:
    """Texts by number: each is written into the frames as its index."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._given = 0

    def add(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    def index(self, column: pl.Expr) -> pl.Expr:
        return column.map_elements(self.add, return_dtype=pl.UInt32)

    def new(self) -> list[str]:
        """The texts added since the last call."""
        texts = list(islice(self._index, self._given, None))
        self._given += len(texts)
        return texts


def _threads(trace: Trace) -> pl.DataFrame:
    """utid -> the ids to write: idle is 0, threads without a usable tid get one above all
    others.
    """
    threads = trace.threads.collect()
    made = 2**22 + pl.col("utid").cast(pl.Int64)
    tid = pl.col("tid").cast(pl.Int64)
    tid = pl.when(tid.is_null() | (tid >= 2**31)).then(made).otherwise(tid)
    idle = pl.col("utid") < trace.ncpu
    return threads.with_columns(
        tid=pl.when(idle).then(0).otherwise(tid),
        comm=pl.when(idle).then(pl.format("swapper/{}", "utid")).otherwise("comm"),
        comm_first=pl.when(idle).then(pl.format("swapper/{}", "utid")).otherwise("comm_first"),
    ).with_columns(
        pid=pl.when(pl.col("pid").is_null() | idle)
        .then("tid")
        .otherwise(pl.col("pid").cast(pl.Int64))
    )


def _names_over_time(trace: Trace, threads: pl.DataFrame, names: _Names) -> pl.DataFrame:
    """(utid, ts, comm): the name from ts on."""
    first = threads.select(
        "utid", ts=pl.lit(NULL, pl.Int64), comm=pl.coalesce("comm_first", "comm")
    )
    renamed = trace.renames.collect().select("utid", "ts", "comm")
    both = pl.concat([first, renamed]).sort("ts", maintain_order=True)
    return both.with_columns(comm=names.index(pl.col("comm")))


def _named(
    events: pl.DataFrame, utid: str, known: pl.DataFrame, threads: pl.DataFrame, suffix: str = ""
) -> pl.DataFrame:
    """Adds tid and name of the thread in column `utid`, at the event's time."""
    named = events.join_asof(
        known.rename({"comm": f"comm{suffix}"}),
        on="ts",
        by_left=utid,
        by_right="utid",
        check_sortedness=False,
    )
    ids = threads.select(pl.col("utid").alias(utid), pl.col("tid").alias(f"tid{suffix}"))
    return named.join(ids, on=utid, how="left", maintain_order="left")


def _prio(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int64).fill_null(NULL)


def _cpu(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int64).fill_null(NULL)


_COLUMNS: dict[str, Any] = {
    "ts": pl.Int64,
    "cpu": pl.UInt32,
    "kind": pl.UInt32,
    "current": pl.Int64,
    "interrupt": pl.UInt32,
    "tid": pl.Int64,
    "prio": pl.Int64,
    "comm": pl.UInt32,
    "state": pl.Int64,
    "tid2": pl.Int64,
    "prio2": pl.Int64,
    "comm2": pl.UInt32,
    "to": pl.Int64,
}


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    absent = [pl.lit(0).alias(name) for name in _COLUMNS if name not in frame.columns]
    return frame.with_columns(absent).select(
        pl.col(name).cast(dtype).fill_null(0) for name, dtype in _COLUMNS.items()
    )


def _ftrace(
    trace: Trace,
    block: Block,
    threads: pl.DataFrame,
    known: pl.DataFrame,
    others: Sequence[pl.DataFrame],
) -> pl.DataFrame:
    """The block's events; `others`: births, exits and losses of all time."""
    switches = block.rows(trace, "switches").collect()
    switches = _named(switches, "prev_utid", known, threads)
    switches = _named(switches, "next_utid", known, threads, "2").with_columns(
        kind=pl.lit(_SWITCH),
        current="tid",
        prio=_prio("prev_prio"),
        prio2=_prio("next_prio"),
        state=pl.when(pl.col("preempted").fill_null(False) & (pl.col("prev_state") == "runnable"))
        .then(_PREEMPTED)
        .otherwise(
            pl.col("prev_state").cast(pl.String).replace_strict(_BITS, return_dtype=pl.Int64)
        ),
    )
    kinds = {"waking": _WAKING, "enqueued": _WAKEUP, "new": _WAKEUP_NEW}
    running = threads.select(running="utid", current="tid")
    wakeups = _named(block.rows(trace, "wakeups").collect(), "utid", known, threads)
    wakeups = wakeups.with_columns(running=pl.coalesce("current_utid", "waker_utid"))
    wakeups = wakeups.join(running, on="running", how="left", maintain_order="left").with_columns(
        current=pl.col("current").fill_null(NULL),
        kind=pl.col("kind").cast(pl.String).replace_strict(kinds, return_dtype=pl.UInt32),
        interrupt=pl.col("waker_utid").is_null().cast(pl.UInt32),
        prio=_prio("prio"),
        to=_cpu("target_cpu"),
    )
    migrations = _named(
        block.rows(trace, "migrations").collect(), "utid", known, threads
    ).with_columns(
        kind=pl.lit(_MIGRATE), prio=pl.lit(NULL), state=_cpu("from_cpu"), to=_cpu("to_cpu")
    )
    births, exits, losses = (frame.filter(block.holds(pl.col("ts"))) for frame in others)
    renames = block.rows(trace, "renames").drop("comm").collect()
    renames = _named(renames, "utid", known, threads).with_columns(
        kind=pl.lit(_RENAME), current="tid"
    )
    switches, wakeups = _in_causal_order(switches, wakeups)
    parts = [births, renames, exits, switches, wakeups, migrations, losses]
    shaped = [
        _shaped(part).with_columns(
            part["order"] if "order" in part.columns else pl.lit(order, pl.Int64).alias("order")
        )
        for part, order in zip(parts, (0, 0, 0, 0, 0, _LAST, _LAST), strict=True)
    ]
    rows = pl.concat(shaped).sort("cpu", "ts", "order", maintain_order=True)
    return rows.drop("order")


def _losses(trace: Trace) -> pl.DataFrame:
    """A row behind the last event before each hole; a hole of all CPUs has a row for each."""
    holes = trace.losses.filter(pl.col("reason") == "overrun").collect()
    everywhere = pl.lit(list(range(trace.ncpu)), pl.List(pl.UInt16))
    cpus = pl.when(pl.col("cpu").is_null()).then(everywhere).otherwise(pl.concat_list("cpu"))
    rows = holes.select(pl.col("ts_begin").alias("ts"), cpus.alias("cpu")).explode("cpu")
    return rows.with_columns(kind=pl.lit(_LOST))


def _in_causal_order(
    switches: pl.DataFrame, wakeups: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Adds `order` among rows of one CPU and instant, as simulations have many of.

    A wakeup stands before the switch that takes its waker off the CPU, or brings the woken thread
    on; else after the switch that brings its waker on, or takes the woken thread off; else last.
    """
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    new = _differs("cpu", 1) | _differs("ts", 1)
    first = pl.when(new).then(row).forward_fill()
    switches = switches.sort("cpu", "ts", maintain_order=True)
    switches = switches.with_columns(order=10 * (row - first) + 10)
    place = ["cpu", "ts", "prev_utid", "next_utid", pl.col("order").alias("at")]
    tied = wakeups.with_row_index("row").join(switches.select(place), on=["cpu", "ts"])
    waker, woken = pl.col("running"), pl.col("utid")
    before = (waker == pl.col("prev_utid")).fill_null(False)
    brought = woken == pl.col("next_utid")
    after = (waker == pl.col("next_utid")).fill_null(False) | (woken == pl.col("prev_utid"))
    order = (
        pl.when(before | brought)
        .then(pl.col("at") - 5)
        .when(after)
        .then(pl.col("at") + 5)
        .otherwise(_LAST - 1)
    )
    placed = tied.select("row", order=order).group_by("row").agg(pl.col("order").min())
    wakeups = (
        wakeups.with_row_index("row")
        .join(placed, on="row", how="left", maintain_order="left")
        .with_columns(pl.col("order").fill_null(_LAST - 1))
        .drop("row")
    )
    return switches, wakeups


def _differs(column: str, by: int) -> pl.Expr:
    """From the row before (1) or after (-1); there may be none."""
    return pl.col(column).ne_missing(pl.col(column).shift(by))


def _lives(trace: Trace, threads: pl.DataFrame, names: _Names) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Forks and exits. The tables do not say on which CPU they were.

    A birth stands where the thread is first woken and an exit where it is switched out for good,
    so that they precede those even at the same instant.
    """
    parents = threads.select(parent_utid="utid", current="tid", parent_pid="pid")
    born = threads.filter(pl.col("start_ts").is_not_null())
    ended = threads.filter(pl.col("exit_ts").is_not_null())
    first = _cpu_of(trace, "wakeups", "utid", "first", born["utid"])
    final = _cpu_of(trace, "switches", "prev_utid", "last", ended["utid"])
    born = born.join(parents, on="parent_utid", how="left", maintain_order="left").join(
        first, on="utid", how="left", maintain_order="left"
    )
    births = born.with_columns(
        ts="start_ts",
        kind=pl.lit(_NEWTASK),
        comm=names.index(pl.coalesce("comm_first", "comm")),
        state=pl.when(pl.col("pid") == pl.col("parent_pid")).then(_CLONE_THREAD).otherwise(0),
    ).sort("ts")
    exits = (
        ended.join(final, on="utid", how="left", maintain_order="left")
        .with_columns(
            ts="exit_ts",
            kind=pl.lit(_EXIT),
            current="tid",
            comm=names.index(pl.col("comm")),
            prio=_prio("prio"),
        )
        .sort("ts")
    )
    return births, exits


def _cpu_of(
    trace: Trace, table: str, column: str, which: Literal["first", "last"], utids: pl.Series
) -> pl.DataFrame:
    """The CPU of the first or last row of a table for each of these threads, named in `column`."""
    found = pl.DataFrame(schema={"utid": pl.UInt32, "cpu": pl.UInt16})
    for block in blocks(trace) if len(utids) else ():
        rows = block.rows(trace, table).select(pl.col(column).alias("utid"), "cpu")
        more = rows.filter(pl.col("utid").is_in(utids.implode())).collect()
        found = pl.concat([found, more]).unique("utid", keep=which, maintain_order=True)
    return found


_TRACKS = {
    "uuid": pl.Int64,
    "parent": pl.Int64,
    "name": pl.UInt32,
    "kind": pl.UInt32,
    "tid": pl.Int64,
    "pid": pl.Int64,
}


def _cpu_tracks(trace: Trace, names: _Names) -> pl.DataFrame:
    group = 1
    tracks = [(group, 0, names.add("Runnable threads"), _GROUP_TRACK, 0, 0)]
    tracks += [
        (2 + cpu, group, names.add(f"runnable on CPU {cpu}"), _COUNTER_TRACK, 0, 0)
        for cpu in range(trace.ncpu)
    ]
    return pl.DataFrame(tracks, schema=_TRACKS, orient="row")


def _cpus(trace: Trace, names: _Names) -> pl.DataFrame:
    """Where each CPU is, in words: Perfetto has no concept of cores and caches."""
    places = {"core": "core", "llc": "LLC", "package": "package", "numa_node": "NUMA node"}
    known = trace.cpus.select("cpu", "capacity", *places).collect()
    rows = {row["cpu"]: row for row in known.to_dicts()}
    texts = [
        ", ".join(
            f"{word} {rows[cpu][column]}"
            for column, word in places.items()
            if cpu in rows and rows[cpu][column] is not None
        )
        for cpu in range(trace.ncpu)
    ]
    capacities = [rows[cpu]["capacity"] if cpu in rows else None for cpu in range(trace.ncpu)]
    return pl.DataFrame(
        {
            "processor": pl.Series([names.add(text) for text in texts], dtype=pl.UInt32),
            "capacity": pl.Series(capacities, dtype=pl.Int64).fill_null(NULL),
        }
    )


def _thread_track(utid: int) -> int:
    return 2**32 + utid


class _Depth:
    """Runnable threads for each CPU, block after block: a point where the number changes."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        cpus = pl.Series("cpu", range(trace.ncpu), dtype=pl.UInt16)
        self._now = pl.DataFrame({"cpu": cpus}).with_columns(before=pl.lit(0, pl.Int64))
        # Each CPU has a point where the window begins.
        self._first = self._now.select(
            ts=pl.lit(trace.window[0], pl.Int64), cpu="cpu", value="before"
        )

    def points(self, block: Block) -> pl.DataFrame:
        queued = (
            block.around(self._trace, "states")
            .filter(
                (pl.col("state") == "runnable")
                & pl.col("cpu").is_not_null()
                & (pl.col("utid") >= self._trace.ncpu)
            )
            .select("ts", "cpu", end=pl.col("ts") + pl.col("dur"))
            .filter(block.holds(pl.col("ts")) | block.holds(pl.col("end")))
            .collect()
        )
        steps = pl.concat(
            [
                queued.select("ts", "cpu", step=pl.lit(1, pl.Int64)),
                queued.select(pl.col("end").alias("ts"), "cpu", step=pl.lit(-1, pl.Int64)),
            ]
        )
        changes = (
            steps.filter(block.holds(pl.col("ts")))
            .sort("cpu", "ts")
            .join(self._now, on="cpu", how="left", maintain_order="left")
            .with_columns(value=pl.col("before") + pl.col("step").cum_sum().over("cpu"))
            # The number after all steps of one instant, if it has changed.
            .filter(_differs("cpu", -1) | _differs("ts", -1))
            .filter(
                pl.col("value")
                != pl.when(_differs("cpu", 1)).then("before").otherwise(pl.col("value").shift(1))
            )
        )
        last = changes.select("cpu", pl.col("value").alias("before"))
        self._now = pl.concat([self._now, last]).unique("cpu", keep="last", maintain_order=True)
        points = pl.concat([self._first, changes.select("ts", "cpu", "value")])
        self._first = self._first.clear()
        return points.select(
            "ts",
            track=pl.col("cpu").cast(pl.Int64) + 2,
            kind=pl.lit(_COUNTER, pl.UInt32),
            value="value",
            name=pl.lit(0, pl.UInt32),
        )


class _WaitSlices:
    """A slice for each wait of some threads on their tracks, block after block."""

    def __init__(
        self, trace: Trace, threads: pl.DataFrame, names: _Names, chosen: pl.Series | None
    ) -> None:
        self._trace = trace
        self._names = names
        self._of = pl.lit(True) if chosen is None else pl.col("utid").is_in(chosen.implode())
        # The threads that have no track yet.
        self._left = threads.select("utid", "tid", "pid")

    def of(self, block: Block) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The tracks that begin in the block, and the starts and ends of waits in it."""
        names = self._names
        waits = (
            block.around(self._trace, "waits")
            .filter(self._of, pl.col("ts_ready").is_not_null() & pl.col("wait").is_not_null())
            .select("utid", "cause", ts="ts_ready", end=pl.col("ts_ready") + pl.col("wait"))
            .filter(
                pl.col("end") > pl.col("ts"),
                block.holds(pl.col("ts")) | block.holds(pl.col("end")),
            )
            .collect()
        )
        causes = {
            cause: names.add(f"wait ({cause})")
            for cause in waits["cause"].cast(pl.String).unique().to_list()
        }
        points = waits.select(
            "ts",
            "end",
            track=pl.col("utid").cast(pl.Int64) + _thread_track(0),
            value=pl.lit(0, pl.Int64),
            name=pl.col("cause")
            .cast(pl.String)
            .replace_strict(causes or {"": 0}, return_dtype=pl.UInt32),
        )
        columns = ["ts", "track", "kind", "value", "name"]
        begins = points.with_columns(kind=pl.lit(_BEGIN, pl.UInt32))
        ends = points.with_columns(kind=pl.lit(_END, pl.UInt32), ts="end")
        both = pl.concat([ends.select(columns), begins.select(columns)])
        # An end before the start of the next wait at the same time.
        return self._new_tracks(waits["utid"]), both.filter(block.holds(pl.col("ts")))

    def _new_tracks(self, utids: pl.Series) -> pl.DataFrame:
        waiting = pl.col("utid").is_in(utids.unique().implode())
        new = self._left.filter(waiting)
        self._left = self._left.filter(~waiting)
        return new.select(
            uuid=pl.col("utid").cast(pl.Int64) + _thread_track(0),
            parent=pl.lit(0, pl.Int64),
            name=pl.lit(self._names.add("waits for a CPU"), pl.UInt32),
            kind=pl.lit(_THREAD_TRACK, pl.UInt32),
            tid="tid",
            pid="pid",
        )


def host(trace: Trace) -> tuple[str, str, str]:
    """Release, machine and version, as the writer calls them."""
    info = trace.info
    os_name, release = str(info.get("os") or ""), str(info.get("release") or "")
    numbers = [int(n) for n in re.findall(r"\d{1,9}", release)[:2]]
    # Readers choose the letters of prev_state by the release; ours are those of 4.14 on.
    modern = os_name == "Linux" and numbers >= [4, 14]
    system = "simulation" if "simulation" in info else f"{os_name or 'unknown system'} {release}"
    version = f"{system.strip()}, written by schedscope"
    return (release if modern else _MODERN, str(info.get("machine") or ""), version)


def wall(trace: Trace) -> tuple[int, int] | None:
    """An instant of our clock, and the time of day then."""
    pairs = trace.metadata("clock", "pairs")
    if not pairs:
        return None
    clock, wall = pairs[0]
    return int(clock), int(wall)
