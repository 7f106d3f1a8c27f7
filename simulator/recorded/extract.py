"""A workload from a trace: what the threads did, without what the scheduler did.

Each rule has a counter in the extraction report, named in parentheses.

Running, waking, sleeping:

* Running time between two waits is one `run`. Switches of a thread that stayed runnable are
  dropped, because the policy decides them (`involuntary_dropped`). A recorded yield stays.
* A wake raised by a thread is a `signal`, after as much of the waker's CPU time as it had used by
  then. In the wakee it is a `wait_for` exactly that signal (`wakes_by_threads`): under another
  policy the wakee waits until the waker gets that far.
* Two threads that wake each other, and almost no others (at most 1 wake in 20 is by a third), are
  taken to converse: the sender of a signal waits until its reader waits for it (`meetings`). A
  sender that is preempted by the thread it just woke finds the answer there when it continues, and
  the trace shows neither that it needed the answer nor a wake. Without this rule it would run ahead
  of its answers under any policy that does not preempt it. Where more threads take part, any of
  them may answer.
* Any other thread that several threads wake waits for any of them (`waits_for_anyone`), because the
  scheduler decides which child ends first and which writer writes. It waits as often as it was
  woken.
* A wake from an idle CPU or an interrupt is a `sleep` of the length seen (`wakes_external`), or
  with `external="absolute"` a `wait_until` its instant.
* A wake whose waker cannot have been running there counts as external (`wakes_unknown_waker`). So
  does a switch-in of a sleeper whose wake is not in the trace (`wakes_missing`): it slept until it
  ran.
* Only a thread that has decided to sleep is woken. If the wake comes while it is still on its way
  off the CPU, its wait began before the wake, and the rest of its burst is what the sleep costs
  (`wakes_before_sleep`). If it did not sleep at all, or an interrupt on its own CPU woke it, which
  cannot come between its last look and the switch, the wake is spurious (`wakes_spurious`).
* A wake that a thread raises within 100 us of its end, as of its parent, is its last step: no
  thread takes the CPU from it before it has ended (`do_exit`, kernel/exit.c).

Timers:

* If a thread wakes at regular intervals, however long it ran or waited, its sleeps are those of a
  periodic timer: a `wait_until` (`periodic_threads`, `periodic_waits`). At least 8 sleeps must show
  it: nine in ten distances are within 1/20 of whole periods, and twice as steady as the lengths of
  the sleeps. If these instants, taken back by whole periods, lie at most 200 us after the thread
  came onto a CPU out of an earlier sleep, it set the timer then: a `read_clock`, and the instants
  move with that moment (`clocks_read`).
* A thread that comes late to such an instant does not sleep, but its timer fires at once: an
  interrupt on its CPU wakes it while it runs, or after at most 50 us. If from one sleep to the next
  there are as many periods as such wakes and one (in nine of ten), each is a `wait_until` an
  instant that had passed (`instants_missed`), until which the thread sleeps in a replay that is
  faster. A thread of one sleep has the period of others with the same parent.
* A thread with at least three wakes, and three quarters of all, within 50 us of a clock tick sleeps
  on timers that count ticks, as the kernel's own threads do: a `sleep_ticks` of as many
  (`ticking_threads`, `ticking_sleeps`).

Pipes and sockets, where system calls were recorded with their file descriptors (`calls_recorded`):

* A write is a `put` and a read a `take` of as many bytes (`messages`). This includes messages that
  found their reader awake, which leave no wakeup (`messages_unnoticed`). The reader takes whatever
  comes, and a writer sleeps while the pipe is full.
* Wakes of threads inside reads by threads inside writes show which descriptors belong to one pipe
  (`pipes`). A descriptor that was never seen in such a wake belongs to the same pipe as that of the
  same number in a process with the same parent, or in the parent, because children have what their
  parent opened; or in a process that agrees with this one on all descriptors known of both. A sleep
  that cannot be interrupted is for the pipe's lock, and its wake says nothing about messages.
* A pipe holds what writers that slept in it found there; if none slept in any, no limit is known.
  If writers are woken above half of it, its content lies in pages of memory, each of which holds as
  many messages of the usual size as fit whole; otherwise it is a socket.
* A pipe is left out (`pipes_left_out`) if more than a tenth of what was read from it was not seen
  to be written. Two threads that converse by a pipe each way follow the rule for conversations
  instead. All other wakes, and all wakes where no calls were recorded, follow the other rules.

Mutexes, pools and barriers, where futex calls were recorded (`capture --with locks` or `syscalls`):

* A mutex that threads waited for (`mutexes`) is a `lock` where a thread began to want it and an
  `unlock` where it released it (`holds`, of which `holds_waited_for` found it held). A thread that
  took it without a call, because it was free, and was then waited for, is taken to have had it for
  as long as it usually has, but at the latest since the first thread found it held. Mutexes taken
  and released while no thread waited are in no call: how many such holds there were follows from
  how often threads lost the CPU with the mutex, if that is more often than the calls explain
  (`holds_unnoticed`); they are placed where they would have gone unnoticed. A mutex is left out
  (`mutexes_left_out`) if more than 1 in 20 of its holds contain a wait for another thread, or have
  no place. What a thread did to find a mutex held, and to come back, is what its sleep costs. Only
  words of memory that all waiters expect to hold 2 are taken for mutexes: those of glibc, musl and
  Rust while a thread waits.
* Threads of one service (their names differ in digits only) that wait on the same other word, and
  on none more often, are a pool (`queues`), as with the condition or the semaphore of a thread
  pool. Each wake `post`s a job (`jobs`): what the woken thread did until it waited there again. Any
  free thread does it. glibc's condition has two words next to each other. Other words that several
  threads wait for are not pools (`queues_left_out`): their waits are for named threads. Whatever
  else a thread of a pool waits for, or others wait for from it, is a queue with one job of no
  steps.
* A word is a barrier (`barriers`, `barrier_waits`) if, in 9 of 10 cases, the same number of
  different threads call for it between two wakes, and the threads that wake also sleep there.
* A thread that makes a call runs, even if the recording does not show that it came onto a CPU
  (`comes_missing`).

What wakes, sleeps and switches cost:

* CPU time that a wake took (from `waking` to `enqueued` on the waker's CPU) is part of the
  `signal`, and what a sleep costs is part of the `wait_for`: they are used only if a thread is
  woken, or does sleep (`wake_time`, `sleep_time`). A sleep costs twice the median of a wake, since
  it goes through the scheduler twice, but no more than the shortest bursts took as a whole
  (`sleep_cost`).
* Wakes belong to one call, like those of all threads that sleep for the end of a pipe, if less time
  passes between two than half of what the former took. Replays let no thread take the CPU before
  the last of them.
* Where calls were recorded, a wake, a sleep and a switch cost as much more as calls in which one
  happened took, from the beginning of the call to that of the thread's next, compared with its
  median call in which nothing happened. The lower quartile counts, since interrupts and cold caches
  only add. A switch costs what being preempted by the woken thread adds to a wake. It is taken out
  of all running times (`switch_cost`, `switch_time`), and replays charge it for each switch. At
  least 20 calls of each kind must show it, of threads whose calls take about the same time.

Beginning, end and gaps:

* A Linux thread is exiting from when the kernel said so (`exits_after`, in its CPU time).
* A thread that runs when the window begins has run since its start; one that is first seen waking
  was asleep until then. One that lives at the end of the window sleeps from there on
  (`cut_at_end`). With `cut="extend"`, one that wanted a CPU then still has as much to run as the
  time for which it has not slept: the length of its burst is not known, and this is as likely too
  much as too little.
* After a break in a CPU's chain of switches the running time of the thread believed to run there is
  dropped (`cpu_time_lost`), and the time until it is seen again counts as a sleep (`gaps`).

Priorities, masks, groups and ticks:

* A changed Linux priority is a `set_priority` of the thread itself. If it leaves its CPU with
  another priority than it came with, the change happened when it came. A trace that was simulated
  under a policy which computes priorities from nice and use (4BSD, ULE, O(1), Staircase) shows
  those; class and nice are then those that its threads began with, and changes are not seen.
* A real-time thread that lost the CPU to another of its priority is SCHED_RR (`round_robin`), every
  other one SCHED_FIFO. A thread with a priority below 0 is SCHED_DEADLINE, with the runtime,
  deadline and period that the recorder found; where they are unknown (`deadlines_unknown`) it has
  no limit.
* FreeBSD's interrupt and kernel threads are classes of their own (`interrupt`, `kernel`), with the
  priorities that were recorded. An interrupt comes on the CPU on which it mostly came. Nice values
  are those that the recorder found, which children inherit, and changes of them are a
  `set_priority` (`nice_changes`, see `schedscope.simulator.recorded.nice`).
* FreeBSD's sleeping kernel threads begin, in replays under 4BSD of a recording under ULE, on the
  first CPU (`recorded_under`, see `schedscope.simulator.runs.first_cpus`).
* What FreeBSD's threads had done before the recording follows from their priorities (`pasts`, and
  `first_load` of the machine, see `schedscope.simulator.recorded.pasts`).
* A thread that the recorder found with a slice of its own keeps it, and so do the threads that it
  starts (`own_slices`). Requests for a slice during the recording, and a reset on fork, are not
  seen.
* Masks are those of the trace. A kernel thread without one, whose name ends in `/N` and which ran
  only on CPU N, is bound to it (`bound_by_name`). So is a thread that waited for the only CPU it
  ran on while another one idled (`bound_by_waiting`, see
  `schedscope.simulator.recorded.inferred_affinity`). Where a thread changed its own mask and had to
  leave its CPU (`mask_changes`), it does so in the replay, and those that follow it begin with that
  mask (`bound_by_family`, see `schedscope.simulator.recorded.masks`).
* Clock ticks come when those of the host came, where its preemptions show them (`clock_hz`,
  `tick_phase`, see `schedscope.simulator.recorded.tick_phase`).
* Threads are in the control groups and sessions in which the recorder found them, with their
  weights and quotas (`groups`, see `schedscope.simulator.recorded.groups`), and move to others when
  they did (`group_moves`). Background load is in none. What the recording does not say about groups
  is reported (`groups_lacking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from schedscope.analysis.asking.needs import require_also
from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.errors import UsageError
from schedscope.simulator.recorded.background_load import background_load
from schedscope.simulator.recorded.calls import futexes, reads_and_writes
from schedscope.simulator.recorded.freebsd_priorities import KERNEL_LEVELS, Bands, bands_of
from schedscope.simulator.recorded.groups import lacking, recorded_groups
from schedscope.simulator.recorded.inferred_affinity import bound_by_waiting
from schedscope.simulator.recorded.masks import changed_masks
from schedscope.simulator.recorded.nice import NICEST, recorded_nice
from schedscope.simulator.recorded.pasts import recorded_pasts
from schedscope.simulator.recorded.tick_phase import measured_clock
from schedscope.simulator.workloads.machine import machine_of
from schedscope.simulator.workloads.workload import (
    CLASSES,
    LONGEST_SLICE,
    OPS,
    PIPES,
    SHORTEST_SLICE,
    STEPS,
    THREADS,
    Workload,
)
from schedscope.store.native_tables import coded
from schedscope.store.trace import Trace

if TYPE_CHECKING:
    from schedscope._native import StoredTable

EXTERNAL = ("relative", "absolute")
CUT = ("park", "extend")
OTHERS = ("drop", "occupy", "compete")

PAGE = 4096
"""Bytes of a page of memory where the recording does not say."""

ONE_INTERRUPT = 50_000
"""Wakes on a CPU that are further apart are of two interrupts, ns."""

MOST_ROWS = 24_000_000
"""Of switches and wakeups, from which a workload is made: its steps then take some 1 GB (41 bytes
for each row), and making them 2 GB, by the 900 MB of 10 million events."""

# The equivalent of another OS's scheduling class: class, real-time priority.
_CLASSES = {
    "stop": ("fifo", 99),
    "deadline": ("deadline", 99),
    "realtime": ("fifo", 50),
    "interrupt": ("interrupt", 50),
    "kernel": ("fifo", 10),
    "fair": ("fair", 0),
    "timeshare": ("fair", 0),
    "unknown": ("fair", 0),
    "batch": ("batch", 0),
    "idle": ("idle", 0),
}
_STRICT = ("fifo", "rr", "deadline", "interrupt", "kernel")


def extract(
    trace: Trace,
    *,
    external: str = "relative",
    cut: str = "park",
    where: pl.Expr | None = None,
    others: str = "drop",
) -> Workload:
    """The workload of `trace`: one thread for each thread that did something.

    Needs `switches` and `wakeups`. Times count from the window's start. The report is in
    `info["extraction"]`: threads, steps, and how often each rule of this module's docstring was
    used; `cpu_time` is what the programs use in total, ns.

    With `where`, an expression over the columns of `threads`, only those threads are taken; a wake
    by another one counts as external. `others`: what the rest do: "drop" (nothing), or they take
    the CPU times that they took: "occupy" before all fair threads, "compete" as one thread per CPU
    among them (`schedscope.simulator.recorded.background_load`).

    Raises `UsageError` if the trace has no switches, no such threads, or more than `MOST_ROWS`
    switches and wakeups, and `MissingEventsError` if it has no wakeups.
    """
    return extract_with_utids(trace, external=external, cut=cut, where=where, others=others)[0]


def extract_with_utids(
    trace: Trace,
    *,
    external: str = "relative",
    cut: str = "park",
    where: pl.Expr | None = None,
    others: str = "drop",
) -> tuple[Workload, pl.Series]:
    """The workload, and the utid in `trace` of each of its threads; null for background load."""
    from schedscope import _native

    if external not in EXTERNAL:
        raise UsageError(f"external={external!r}", f"one of {', '.join(EXTERNAL)}")
    if cut not in CUT:
        raise UsageError(f"cut={cut!r}", f"one of {', '.join(CUT)}")
    if others not in OTHERS:
        raise UsageError(f"others={others!r}", f"one of {', '.join(OTHERS)}")
    _refuse_long(trace)
    wakes = trace.wakeups.select("ts", "cpu", "waker_utid", "utid", "kind", "target_cpu")
    switches, wakeups, yields = pl.collect_all([trace.switches, wakes, trace.yields])
    if switches.is_empty():
        raise UsageError(f"{trace.name} has no context switches", "a trace with switches")
    # Without wakeups every sleep would include the wait for a CPU after it.
    require_also(trace, "wakeups", "a workload")
    known = trace.threads.collect()
    drop: list[int] = []
    if where is not None:
        chosen = chosen_threads(trace, where)
        drop = known.filter(~pl.col("utid").is_in(chosen.implode()))["utid"].to_list()
        if chosen.is_empty():
            raise UsageError(
                f"no thread of {trace.name} is left", "a condition that some threads meet"
            )
    classes = set(known["sched_class"].drop_nulls().cast(pl.String).to_list())
    begun_with = trace.info.get("priorities")
    linux = begun_with is None and not classes & {"timeshare", "kernel", "interrupt"}
    calls = reads_and_writes(trace, known)
    clock = measured_clock(trace, switches)
    changes, perhaps = changed_masks(trace, switches, wakeups, known)
    masks = changes["cpus"].unique(maintain_order=True)
    began_nice, nices = recorded_nice(trace, switches)
    turns = _taking_turns(switches, trace.ncpu) if linux else []
    has_waking = (wakeups["kind"] == "waking").any()
    raised = _raised_on(wakeups, known)
    facts = {
        "switches": _for_native(trace, "switches", switches),
        "wakeups": _for_native(trace, "wakeups", wakeups),
    }
    if has_waking and trace.info.get("os") == "FreeBSD":
        # Its `wakeup` probe reports sleepers only; what is common to all wakes, those of interrupt
        # threads included, is that the thread is put on a queue.
        wakeups = wakeups.filter(pl.col("kind").cast(pl.String) != "waking")
        facts["wakeups"] = _at_once(wakeups, switches)
        has_waking = False
    del switches, wakeups
    made, columns, pipes, report = _native.extract(
        {
            **facts,
            "yields": yields,
            "calls": calls,
            "futexes": futexes(trace, known),
            "masks": changes.with_columns(
                mask=pl.col("cpus").replace_strict(
                    masks, pl.int_range(len(masks), eager=True), return_dtype=pl.Int64
                )
            ),
            "nices": nices,
        },
        trace.ncpu,
        trace.window,
        external == "absolute",
        cut == "extend",
        linux,
        has_waking,
        drop,
        int(trace.info.get("page_size") or PAGE),
        None if clock is None else (clock.hz, clock.phase),
    )
    found = pl.DataFrame(columns)
    alone = found.filter(pl.col("only_cpu").is_not_null())
    homes = dict(alone.select("utid", "only_cpu").iter_rows())
    waited = bound_by_waiting(trace, perhaps | homes)
    began = dict(changes.filter("first").select("utid", pl.col("cpus").cast(pl.Int64)).iter_rows())
    waited |= began
    report["round_robin"] = len(turns)
    given = _given(trace)
    known = known.with_columns(nice=_looked_up("utid", began_nice))
    found = found.with_columns(cpu=pl.coalesce(_looked_up("utid", raised), "cpu"))
    threads = _threads(found, known, trace.ncpu, linux, waited, turns, given)
    bands = bands_of(trace)
    threads = _with_kernel_priorities(threads, found, known, bands)
    if begun_with is not None:
        threads = _with_priorities(threads, found["utid"], begun_with)
    report["threads"] = threads.height
    unknown = (threads["class"] == "deadline") & threads["dl_runtime"].is_null()
    report["deadlines_unknown"] = int(unknown.sum())
    report["own_slices"] = threads["slice"].count()
    report["calls_recorded"] = not calls.is_empty()
    report["bound_by_name"] = int(threads["named"].sum())
    report["bound_by_family"] = len(began)
    report["bound_by_waiting"] = int((threads["bound"] & ~threads["named"]).sum()) - len(began)
    report["mask_changes"] = changes.height - len(began)
    report["kernel_classes_guessed"] = not linux and begun_with is None
    steps = _steps(pl.DataFrame(made), masks)
    groups, of_threads, moves = recorded_groups(trace, found["utid"])
    pasts, began_as = recorded_pasts(
        trace,
        found["utid"],
        found["start"].is_null(),
        began_nice,
        nices,
    )
    report |= began_as
    if bands is not None:
        report["recorded_under"] = "ULE" if bands.ule else "4BSD"
    report["nice_changes"] = nices.height
    report["pasts"] = pasts["past_run"].count()
    out = _exits_after(trace, found["utid"]) if linux else pl.lit(None).alias("exits_after")
    threads = threads.with_columns(of_threads, *pasts, out).select(THREADS.names()).cast(THREADS)
    fair = ~threads["class"].cast(pl.String).is_in(_STRICT)
    report["groups"] = groups.height
    report["group_moves"] = moves.height
    report["groups_lacking"] = lacking(
        trace, found["utid"].filter(fair), threads["group"].filter(fair)
    )
    utids = found["utid"].cast(pl.UInt32)
    if others != "drop" and drop:
        more = background_load(
            trace,
            drop,
            _next_program(threads, steps),
            linux=linux,
            compete=others == "compete",
            switch=report["switch_cost"],
        )
        threads, steps = pl.concat([threads, more[0]]), pl.concat([steps, more[1]])
        utids = utids.extend_constant(None, more[0].height)
    report["steps"] = steps.height
    report["clock_hz"] = None if clock is None else clock.hz
    report["tick_phase"] = 0 if clock is None else clock.phase
    workload = Workload(
        threads,
        steps,
        replace(machine_of(trace), tick_phase=report["tick_phase"]),
        {
            "source": trace.name,
            "window": list(trace.window),
            "external": external,
            "cut": cut,
            "threads_left_out": len([u for u in drop if u >= trace.ncpu]),
            "others": others,
            "extraction": report,
        },
        pl.DataFrame(pipes, schema=PIPES, orient="row"),
        groups,
        moves,
        trace.sources,
    )
    return workload, utids


def _for_native(trace: Trace, table: str, frame: pl.DataFrame) -> StoredTable | pl.DataFrame:
    """The table on disk, if it is there, so that its rows are not held; or the `frame` of it."""
    return frame if trace.folder_of(table) is None else coded(trace, table, *frame.columns)


def _exits_after(trace: Trace, utids: pl.Series) -> pl.Series:
    """CPU time of each thread until it was reported as exiting, a little before its end."""
    until = pl.min_horizontal(pl.col("ts") + pl.col("dur"), "exit_ts")
    ran = (
        trace.states.filter(pl.col("state") == "running")
        .join(trace.threads.select("utid", "exit_ts").drop_nulls(), on="utid")
        .group_by(pl.col("utid").cast(pl.Int64))
        .agg(exits_after=(until - pl.col("ts")).clip(0).sum())
        .collect()
    )
    return (
        utids.cast(pl.Int64)
        .to_frame("utid")
        .join(ran, on="utid", how="left", maintain_order="left")["exits_after"]
    )


def _refuse_long(trace: Trace) -> None:
    tables = [table.select(pl.len()) for table in (trace.switches, trace.wakeups)]
    rows = sum(n.item() for n in pl.collect_all(tables))
    if rows > MOST_ROWS:
        raise UsageError(
            f"a workload of {rows:,} switches and wakeups",
            f"at most {MOST_ROWS:,}",
            "take a part of the trace: --since and --until, in Python trace.between(...)",
        )


def report(workload: Workload) -> dict[str, Any]:
    """The extraction report: how often each rule was used.

    Raises `UsageError` for a workload that was not extracted from a trace.
    """
    found = workload.info.get("extraction")
    if found is None:
        raise UsageError("a workload that was not extracted from a trace", "one made by `extract`")
    return dict(found)


def _next_program(threads: pl.DataFrame, steps: pl.DataFrame) -> int:
    last = steps["program"].max()
    return max(threads.height, int(last) + 1 if isinstance(last, int) else 0)


def _steps(made: pl.DataFrame, masks: pl.Series) -> pl.DataFrame:
    sets = pl.col("op") == OPS.index("set_affinity")
    made = made.with_columns(
        cpus=pl.lit(masks).gather(pl.when(sets).then(pl.col("ns"))),
        ns=pl.when(~sets).then(pl.col("ns")),
    )
    empty = {c: pl.lit(None, dtype=STEPS[c]) for c in STEPS if c not in made.columns}
    return made.with_columns(
        pl.lit(pl.Series(OPS, dtype=STEPS["op"])).gather(pl.col("op")).alias("op"),
        pl.lit(pl.Series(CLASSES, dtype=STEPS["class"])).gather(pl.col("class")).alias("class"),
        **empty,
    ).select(STEPS.names())


def _taking_turns(switches: pl.DataFrame, ncpu: int) -> list[int]:
    """Real-time threads from which one of the same priority took the CPU: not of SCHED_FIFO."""
    turn = switches.filter(
        (pl.col("prev_state") == "runnable")
        & (pl.col("prev_utid") >= ncpu)
        & (pl.col("prev_prio") < 99)
        & (pl.col("prev_prio") == pl.col("next_prio"))
        & pl.col("preempted").fill_null(True)
    )
    return [int(utid) for utid in turn["prev_utid"].unique().sort()]


def _with_priorities(
    threads: pl.DataFrame, utids: pl.Series, begun_with: Mapping[str, Sequence[Any]]
) -> pl.DataFrame:
    """`threads` with the class, nice and real-time priority that a simulation began with."""
    own = [begun_with.get(str(utid), ("fair", 0, 0)) for utid in utids]
    return threads.with_columns(
        pl.Series(name, [values[i] for values in own], dtype=THREADS[name])
        for i, name in enumerate(("class", "nice", "rt_prio"))
    )


def _with_kernel_priorities(
    threads: pl.DataFrame, found: pl.DataFrame, known: pl.DataFrame, bands: Bands | None
) -> pl.DataFrame:
    """`threads` with FreeBSD's kernel threads in a class of their own, and the priorities of these
    and of interrupt threads as they were recorded: what `rt_prio` stands for in the policies.
    """
    if bands is None:
        return threads
    sched = (
        found.cast({"utid": pl.UInt32})
        .select("utid", "prio")
        .join(
            known.select("utid", pl.col("sched_class").cast(pl.String)),
            on="utid",
            how="left",
            maintain_order="left",
        )
    )
    prio = pl.col("prio")
    kernel = pl.col("sched_class") == "kernel"
    kernel &= prio.is_between(bands.kernel, bands.first - 1)
    interrupt = pl.col("sched_class") == "interrupt"
    interrupt &= prio.is_between(0, bands.realtime - 1)
    worse = (
        pl.when(kernel)
        .then((prio - bands.kernel) * 100 / KERNEL_LEVELS)
        .otherwise(prio * 100 / bands.realtime)
        .ceil()
    )
    told = sched.select(
        kernel=kernel.fill_null(False),
        at=pl.when(kernel | interrupt).then((99 - worse).clip(1, 99)).cast(pl.UInt8),
    )
    return threads.with_columns(told).with_columns(
        pl.when("kernel").then(pl.lit("kernel")).otherwise("class").alias("class"),
        rt_prio=pl.coalesce("at", "rt_prio"),
    )


def _given(trace: Trace) -> dict[str, pl.Expr]:
    """Columns of per-thread settings: reservations by tid, slices by utid."""
    rows = trace.info.get("reservations") or []
    columns = {
        f"dl_{name}": _looked_up("tid", {row["tid"]: row[name] for row in rows})
        for name in ("runtime", "deadline", "period")
    }
    return {**columns, "slice": _looked_up("utid", _slices(trace))}


def _looked_up(column: str, values: Mapping[int, int]) -> pl.Expr:
    if not values:
        return pl.lit(None, pl.Int64)
    key = pl.col(column).cast(pl.Int64)
    return key.replace_strict(values, default=None, return_dtype=pl.Int64)


def _at_once(wakeups: pl.DataFrame, switches: pl.DataFrame) -> pl.DataFrame:
    """All wakes of one interrupt at the instant of its first, in order: its CPU, which probes slow
    down, runs no thread in between.
    """
    order = ["ts", "cpu"]
    switched = switches.select("cpu", "ts", switch="ts").sort("ts")
    raised = pl.col("waker_utid").is_null()
    rows = wakeups.sort(order, maintain_order=True).join_asof(
        switched, on="ts", by="cpu", check_sortedness=False
    )
    same = (pl.col("switch").eq_missing(pl.col("switch").shift())) & (
        pl.col("ts") - pl.col("ts").shift() < ONE_INTERRUPT
    )
    begins = (~same).fill_null(True)
    first = pl.when(begins).then("ts").forward_fill()
    apart = rows.filter(raised).with_columns(ts=first.over("cpu"))
    return (
        pl.concat([rows.filter(~raised), apart])
        .select(wakeups.columns)
        .sort("ts", maintain_order=True)
    )


def _raised_on(wakeups: pl.DataFrame, known: pl.DataFrame) -> dict[int, int]:
    """The CPU on which each interrupt thread's interrupt came most often, the lowest of several."""
    threads = known.filter(pl.col("sched_class").cast(pl.String) == "interrupt")["utid"]
    raised = wakeups.filter(
        pl.col("utid").is_in(threads.implode()),
        pl.col("waker_utid").is_null(),
        pl.col("kind").cast(pl.String) != "waking",
    )
    often = raised.group_by("utid", "cpu").len().sort("len", "cpu", descending=[True, False])
    return dict(often.unique("utid", keep="first", maintain_order=True)["utid", "cpu"].iter_rows())


def _slices(trace: Trace) -> dict[int, int]:
    """The slice of each thread that has one of its own."""
    asked = {row["tid"]: row["slice"] for row in trace.info.get("slices") or []}
    within = {tid: min(max(ns, SHORTEST_SLICE), LONGEST_SLICE) for tid, ns in asked.items()}
    return _inherited(trace, within)


def _inherited(trace: Trace, by_tid: Mapping[int, int]) -> dict[int, int]:
    """By utid, the values of the threads with these tids, and of their children, which inherit
    them.
    """
    if not by_tid:
        return {}
    threads = trace.threads.select("utid", "tid", "parent_utid").collect()
    waiting = dict(threads.select("utid", "parent_utid").drop_nulls().iter_rows())
    first = threads.filter(pl.col("parent_utid").is_null())
    found = {
        utid: by_tid[tid] for utid, tid in first.select("utid", "tid").iter_rows() if tid in by_tid
    }
    while inherited := {u: found[p] for u, p in waiting.items() if p in found}:
        found.update(inherited)
        waiting = {u: p for u, p in waiting.items() if u not in inherited}
    return found


def _threads(
    found: pl.DataFrame,
    known: pl.DataFrame,
    ncpu: int,
    linux: bool,
    waited: dict[int, int],
    turns: list[int],
    given: Mapping[str, pl.Expr],
) -> pl.DataFrame:
    """The workload's threads, with a column `bound`, and one for those bound by `name`.

    `waited`: the CPUs of those known to be bound to one; `turns`: the utids of SCHED_RR;
    `given`: columns of what single threads were found to have.
    """
    joined = found.cast({"utid": pl.UInt32}).join(
        known.rename({"prio": "last_prio"}), on="utid", how="left", maintain_order="left"
    )
    sched = pl.col("sched_class").cast(pl.String).fill_null("unknown")
    prio = pl.coalesce("prio", pl.col("last_prio").cast(pl.Int64))
    realtime = (
        (prio < 100)
        if linux
        else sched.replace_strict(
            {k: v[0] in _STRICT for k, v in _CLASSES.items()}, return_dtype=pl.Boolean
        )
    )
    rt_prio = (
        (99 - prio).clip(1, 99)
        if linux
        else sched.replace_strict({k: v[1] for k, v in _CLASSES.items()}, return_dtype=pl.Int64)
    )
    fair_class = sched.replace_strict(
        {k: v[0] if v[0] in ("batch", "idle") else "fair" for k, v in _CLASSES.items()},
        return_dtype=pl.String,
    )
    realtime = realtime.fill_null(False)
    named = pl.col("comm").str.extract(r"/(\d+)(?:[:\-].*)?$").cast(pl.Int64, strict=False)
    by_name = (
        pl.col("affinity").is_null()
        & pl.col("kernel").fill_null(False)
        & (named == pl.col("only_cpu")).fill_null(False)
    )
    home = pl.coalesce(
        pl.col("utid").replace_strict(waited, default=None, return_dtype=pl.Int64),
        pl.when(by_name).then(pl.col("only_cpu")),
    )
    everywhere = "0" if ncpu == 1 else f"0-{ncpu - 1}"
    return joined.with_row_index("program").select(
        name=pl.col("comm").fill_null(""),
        tid=pl.col("tid").cast(pl.Int64),
        pid=pl.col("pid").cast(pl.Int64),
        **{
            "class": pl.when((prio < 0) if linux else sched == "deadline")
            .then(pl.lit("deadline"))
            .when(realtime & pl.col("utid").is_in(turns))
            .then(pl.lit("rr"))
            .when(sched == "interrupt")
            .then(pl.lit("interrupt"))
            .when(realtime)
            .then(pl.lit("fifo"))
            .otherwise(fair_class)
        },
        nice=(
            pl.when(realtime)
            .then(0)
            .otherwise((prio - 120).clip(-20, NICEST) if linux else pl.col("nice"))
            .fill_null(0)
        ),
        rt_prio=pl.when(realtime).then(rt_prio).otherwise(0).fill_null(0),
        cpus=pl.when(home.is_not_null())
        .then(home.cast(pl.String))
        .otherwise(
            pl.when(pl.col("affinity") == everywhere).then(None).otherwise(pl.col("affinity"))
        ),
        start="start",
        asleep=pl.col("asleep") != 0,
        cpu="cpu",
        program="program",
        **given,
        bound=home.is_not_null(),
        named=by_name,
    )
