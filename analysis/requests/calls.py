"""Requests, as the system calls of a server show them: data read, and an answer written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.causes.system_calls import READS, WRITES, names
from schedscope.analysis.recording.lost_events import losses_of_any_event

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

_READS = (*READS, "recvmmsg")
_WRITES = (*WRITES, "sendmmsg", "sendfile")
_POLLS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6")
_KINDS = {
    **{"read": _READS, "write": _WRITES, "poll": _POLLS},
    **{"close": ("close",), "accept": ("accept", "accept4"), "connect": ("connect",)},
}
_CONNECTS = (0, -4, -115)
"""What `connect` returns if there will be a connection: also EINTR and EINPROGRESS."""


def _calls(trace: Trace) -> pl.DataFrame:
    """Calls that returned something, closes, and connects that did not fail: `utid`, `pid`,
    `entered`, `returned`, `fd` (of an accept the new one), `what`."""
    known = names(trace.info.get("machine"))
    kinds = {
        number: what
        for number, name in known.items()
        for what, group in _KINDS.items()
        if name in group
    }
    return (
        trace.system_calls.select(
            "utid", "ts", "number", "value", "arg0", enter=pl.col("step").cast(pl.String) == "enter"
        )
        .sort("ts", maintain_order=True)
        .with_columns(
            back=pl.col("enter").shift(-1).over("utid").not_(),
            same=pl.col("number").shift(-1).over("utid") == pl.col("number"),
            returned=pl.col("ts").shift(-1).over("utid"),
            value=pl.col("value").shift(-1).over("utid"),
        )
        .filter(pl.col("enter") & pl.col("back") & pl.col("same"))
        .filter(pl.col("number").is_in(list(kinds)))
        .with_columns(
            what=pl.col("number").replace_strict(
                list(kinds), list(kinds.values()), default=None, return_dtype=pl.String
            )
        )
        .filter(
            pl.when(pl.col("what") == "connect")
            .then(pl.col("value").is_in(_CONNECTS))
            .otherwise((pl.col("value") > 0) | (pl.col("what") == "close"))
        )
        .join(trace.threads.select("utid", "pid"), on="utid", how="left")
        .select(
            *("utid", "pid", "returned", "what"),
            entered="ts",
            fd=pl.when(pl.col("what") == "accept").then("value").otherwise("arg0"),
        )
        .sort("returned", "entered", maintain_order=True)
        .collect()
    )


def answered(trace: Trace, readers: pl.Series, *, same: bool) -> pl.DataFrame:
    """One row per request that one of the threads `readers` read.

    `utid` (read it), `writer`, `fd`, `ts`, `dur`, `read` (when the first read had returned),
    `wrote` (when the last write was entered), `at_least` (the data was there before the thread
    asked), `handed` (when the reader woke the writer; null if they are one or that was not seen),
    `freed` (when the writer had answered what it worked on since `handed`, or else since `read`;
    null if they are one, or it answered nothing else meanwhile),
    `censored` (no answer when last observed), `lost` (events are missing meanwhile). `same`:
    answers go to the descriptor that was read, and what a process reads from a connection that it
    opened itself is no request.
    """
    calls = _calls(trace)
    ends = calls.filter(pl.col("what") != "poll").filter(
        pl.col("pid").is_not_null() & pl.col("fd").is_not_null()
    )
    if same:
        # A number that was closed and given again is another connection; so is one that an accept
        # returns, if that was closed in a way that is not looked for.
        bounds = pl.col("what").is_in(["close", "accept"])
        key = ["pid", "fd"]
        ends = ends.with_columns(life=bounds.cum_sum().over(key), last_life=bounds.sum().over(key))
        conn = [*key, "life"]
        # The side that opened the connection is the client: it gets no requests on it.
        ends = ends.filter(~(pl.col("what") == "connect").any().over(conn))
    else:
        ends = ends.with_columns(life=pl.lit(0), last_life=pl.lit(0))
        conn = ["utid"]
    ends = ends.filter(pl.col("what").is_in(["read", "write"]))
    begins = (pl.col("what") == "read") & (
        pl.col("what").shift(1).over(conn).fill_null("write") == "write"
    )
    ends = ends.with_columns(number=begins.cum_sum().over(conn)).filter(pl.col("number") > 0)
    found = (
        ends.group_by(*conn, "number", maintain_order=True)
        .agg(
            **({} if same else {"fd": pl.col("fd").first()}),
            **({"utid": pl.col("utid").first()} if same else {}),
            writer=pl.col("utid").filter(pl.col("what") == "write").last(),
            entered=pl.col("entered").first(),
            read=pl.col("returned").first(),
            wrote=pl.col("entered").filter(pl.col("what") == "write").last(),
            until=pl.col("returned").filter(pl.col("what") == "write").last(),
            open=(pl.col("life") == pl.col("last_life")).first(),
        )
        # A descriptor that is only read is a file or a stream.
        .filter(pl.col("writer").is_not_null().any().over(conn))
        # Closed without an answer: it is not a request.
        .filter(pl.col("writer").is_not_null() | pl.col("open"))
    )
    answers = found.select("writer", freed="until").drop_nulls().sort("freed")
    found = found.filter(pl.col("utid").is_in(readers.implode()))
    looks = _looks(trace, calls)
    found = _begun(found, looks)
    found = _freed(_handed(trace, found, looks), answers)
    window_end = trace.window[1]
    until = pl.col("until").fill_null(window_end)
    losses = (
        losses_of_any_event(trace)
        .select("ts_begin", hole_end="ts_end")
        .sort("ts_begin")
        .with_columns(pl.col("hole_end").cum_max())
        .collect()
    )
    return (
        found.with_columns(dur=until - pl.col("ts"), last=until)
        .sort("last", maintain_order=True)
        .join_asof(losses, left_on="last", right_on="ts_begin", strategy="backward")
        .with_columns(
            censored=pl.col("until").is_null(),
            lost=(pl.col("hole_end") > pl.col("ts")).fill_null(value=False),
        )
        .select(
            *("utid", "writer", "fd", "ts", "dur", "read", "wrote"),
            *("at_least", "handed", "freed", "censored", "lost"),
        )
        .sort("ts", "utid", maintain_order=True)
    )


def _wakings(trace: Trace) -> pl.LazyFrame:
    return trace.waits.filter(pl.col("ts_waking").is_not_null()).select(
        "utid", woken="ts_waking", waker="waker_utid"
    )


def _looks(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """When threads asked for input: `utid`, `what` (read or poll), `entered`, `returned`, `woken`
    (when it was woken in the call; null if it did not sleep there), `room` (the thread that woke it
    was reading itself: it made room in the socket, and the input came some time before the woken
    thread ran, which is `woken` then)."""
    reads = [n for n, name in names(trace.info.get("machine")).items() if name in _READS]
    before = trace.system_calls.select(
        waker="utid", at="ts",
        reading=(pl.col("step").cast(pl.String) == "enter") & pl.col("number").is_in(reads),
    )  # fmt: skip
    wakings = (
        trace.waits.filter(pl.col("ts_waking").is_not_null())
        .select("utid", "ts_run", woken="ts_waking", waker="waker_utid")
        .sort("woken")
        .join_asof(
            before.sort("at"), left_on="woken", right_on="at", by="waker", strategy="backward",
            check_sortedness=False,
        )
        .select("utid", "woken", "ts_run", room=pl.col("reading").fill_null(value=False))
    )  # fmt: skip
    return (
        calls.lazy()
        .filter(pl.col("what").is_in(["read", "poll"]))
        .select("utid", "what", "entered", "returned")
        .join_asof(
            wakings,
            left_on="returned", right_on="woken", by="utid", strategy="backward",
            coalesce=False, check_sortedness=False,
        )
        .with_columns(inside=pl.col("woken") > pl.col("entered"))
        .with_columns(
            woken=pl.when("inside").then(pl.when("room").then("ts_run").otherwise("woken")),
            room=pl.col("room") & pl.col("inside"),
        )
        .drop("inside", "ts_run")
        .collect()
    )  # fmt: skip


def _begun(found: pl.DataFrame, looks: pl.DataFrame) -> pl.DataFrame:
    """With `ts`, when the thread was woken for it, or else entered the read: then `at_least`."""
    reads = looks.filter(pl.col("what") == "read").select(
        "utid", reads="returned", woken_in_read="woken", room_in_read="room"
    )
    # The thread's previous poll, unless it read something since.
    before = looks.select(
        "utid", before="what", polled="returned", woken_in_poll="woken", room_in_poll="room"
    )
    in_poll = pl.when(pl.col("before") == "poll")
    read = pl.col("woken_in_read").is_not_null()
    room = pl.when(read).then("room_in_read").otherwise(in_poll.then("room_in_poll"))
    return (
        found.sort("read", maintain_order=True)
        .join_asof(
            reads, left_on="read", right_on="reads", by="utid", strategy="backward",
            coalesce=False, check_sortedness=False,
        )
        .sort("entered", maintain_order=True)
        .join_asof(
            before, left_on="entered", right_on="polled", by="utid", strategy="backward",
            coalesce=False, check_sortedness=False,
        )
        .with_columns(woken=pl.coalesce("woken_in_read", in_poll.then("woken_in_poll")), room=room)
        .with_columns(
            ts=pl.coalesce("woken", "entered"),
            at_least=pl.col("woken").is_null() | pl.col("room").fill_null(value=False),
        )
    )  # fmt: skip


def _handed(trace: Trace, found: pl.DataFrame, looks: pl.DataFrame) -> pl.DataFrame:
    """With `handed`, when the reader first woke the writer, between the read and the write.

    Once the reader slept for other input, it wakes the writer for that.
    """
    slept = (
        looks.filter(pl.col("woken").is_not_null())
        .select("utid", next_input="entered")
        .sort("next_input")
    )
    woke = (
        _wakings(trace)
        .select(writer="utid", utid="waker", handed="woken")
        .filter(pl.col("utid").is_not_null())
        .sort("handed")
        .collect()
    )
    last = pl.min_horizontal("wrote", "next_input")
    seen = (pl.col("handed") <= last) & (pl.col("writer") != pl.col("utid"))
    return (
        found.sort("read", maintain_order=True)
        .join_asof(
            woke, left_on="read", right_on="handed", by=["utid", "writer"],
            strategy="forward", coalesce=False, check_sortedness=False,
        )
        .join_asof(
            slept, left_on="read", right_on="next_input", by="utid",
            strategy="forward", coalesce=False, check_sortedness=False,
        )
        .with_columns(handed=pl.when(seen).then("handed"))
    )  # fmt: skip


def _freed(found: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """With `freed`, when the writer had last answered something else, after it was handed this."""
    return (
        found.sort("wrote", maintain_order=True, nulls_last=True)
        .join_asof(
            answers, left_on="wrote", right_on="freed", by="writer", strategy="backward",
            coalesce=False, check_sortedness=False,
        )
        .with_columns(
            freed=pl.when(
                (pl.col("freed") > pl.coalesce("handed", "read"))
                & (pl.col("writer") != pl.col("utid"))
            ).then("freed")
        )
    )  # fmt: skip
