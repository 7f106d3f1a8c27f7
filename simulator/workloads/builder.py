"""Write a workload by hand, step by step."""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.workloads.groups import GROUPS, MOVES, PERIOD, WEIGHT
from schedscope.simulator.workloads.machine import Machine
from schedscope.simulator.workloads.workload import CLASSES, PIPES, STEPS, THREADS, Workload
from schedscope.units import nanoseconds

_OPTIONS = set(THREADS) - {"name", "class", "program"}
_PASTS = [name for name in THREADS if name.startswith("past_")]

Time = int | str
"""ns, or a text such as "10ms"."""


class Builder:
    """Collects threads; `workload()` is the result.

    >>> b = Builder()
    >>> server = b.thread("server")
    >>> client = b.thread("client").run("1ms").signal(server).wait_for(server)
    >>> _ = server.wait_for().run("3ms").signal(client)
    >>> b.workload()
    Workload of 2 threads, 6 steps
    """

    def __init__(self) -> None:
        """Start with no threads."""
        self._threads: list[dict[str, Any]] = []
        self._programs: list[Program] = []
        self._pipes: list[dict[str, int | None]] = []
        self._groups: list[dict[str, Any]] = []
        self._moves: list[dict[str, Any]] = []
        self._locks = dict.fromkeys(("mutex", "condition", "barrier", "queue"), 0)

    def _lock(self, kind: str) -> int:
        self._locks[kind] += 1
        return self._locks[kind] - 1

    def mutex(self) -> int:
        """Add a mutex and return its number, for `lock`, `unlock` and `cond_wait`.

        >>> b = Builder()
        >>> m = b.mutex()
        >>> _ = b.threads("locker", 2).run("1ms").lock(m).run("1ms").unlock(m).repeat(5)
        >>> b.workload()
        Workload of 2 threads, 5 steps
        """
        return self._lock("mutex")

    def condition(self) -> int:
        """Add a condition and return its number, for `cond_wait`, `cond_signal`, ..."""
        return self._lock("condition")

    def barrier(self) -> int:
        """Add a barrier and return its number, for `barrier`."""
        return self._lock("barrier")

    def queue(self) -> int:
        """Add a queue of jobs and return its number, for `post` and `serve`."""
        return self._lock("queue")

    def job(self) -> Program:
        """Add a program that no thread has of its own, for `post`: a server of the queue runs it.

        >>> b = Builder()
        >>> queue = b.queue()
        >>> job = b.job().run("2ms")
        >>> _ = b.thread("dispatcher").run("1ms").post(queue, job).repeat(10)
        >>> _ = b.threads("worker", 2).serve(queue).repeat()
        >>> b.workload()
        Workload of 3 threads, 6 steps
        """
        program = Program(len(self._programs), len(self._threads))
        self._programs.append(program)
        return program

    def pipe(
        self,
        capacity: int | None = None,
        *,
        low: int | None = None,
        filled: int = 0,
        page: int | None = None,
    ) -> int:
        """Add a pipe (or socket, or queue) and return its number, for `put` and `take`.

        It can hold `capacity` (None: any amount), and holds `filled` at the start. A `take` that
        leaves no more than `low` in it (by default any `take`) wakes all writers that sleep because
        it is full. With `page` it is a pipe of Linux, in bytes: its content is in pages of that
        size, what is put in joins the last page if it fits there, and one writer is woken when a
        page of a full pipe has been emptied (`pipe(65536, page=4096)`).

        >>> b = Builder()
        >>> queue = b.pipe(4)
        >>> _ = b.thread("producer").run("1ms").put(queue).repeat(10)
        >>> _ = b.threads("worker", 2).take(queue).run("2ms").repeat(5)
        >>> b.workload()
        Workload of 3 threads, 6 steps
        """
        if capacity is not None and capacity < 1:
            raise UsageError(f"a pipe that holds {capacity}", "at least 1, or None for any amount")
        if page is not None and not 1 <= page <= (capacity or 0):
            raise UsageError(
                f"a pipe that holds {capacity} in pages of {page}", "at least one whole page"
            )
        low = low if low is not None else 0 if capacity is None else capacity - 1
        self._pipes.append({"capacity": capacity, "low": low, "filled": filled, "page": page})
        return len(self._pipes) - 1

    def group(
        self,
        path: str,
        *,
        weight: float = WEIGHT,
        quota: Time | None = None,
        period: Time = PERIOD,
        phase: Time = 0,
    ) -> str:
        """Add a control group and return its path, for the option `group` of threads.

        It lies in the group of the longest path above it. `weight` is that of cgroup 2: 100 is as
        much as a thread of nice 0 beside it. Its threads may use `quota` in every `period`, the
        first of which begins at `phase`; None: as much as they get.

        >>> b = Builder()
        >>> web = b.group("/web", weight=300, quota="20ms")
        >>> _ = b.thread("server", group=web).run("1s")
        >>> b.workload().groups.select("path", "quota").rows()
        [('/web', 20000000)]
        """
        times = {"period": nanoseconds(period), "phase": nanoseconds(phase)}
        limit = None if quota is None else nanoseconds(quota)
        self._groups.append({"path": path, "weight": weight, "quota": limit, **times})
        return path

    def move(self, thread: Program | int, group: str | None, at: Time) -> None:
        """At the instant `at` the thread goes to another control group, or out of all (None).

        >>> b = Builder()
        >>> job = b.thread("job").run("1s")
        >>> b.move(job, b.group("/batch"), at="200ms")
        >>> b.workload().moves.rows()
        [(200000000, 0, '/batch')]
        """
        number = thread.thread if isinstance(thread, Program) else thread
        self._moves.append({"at": nanoseconds(at), "thread": number, "group": group})

    def thread(self, name: str, **options: Any) -> Program:
        """Add one thread and return its program, to which steps are added.

        `options`: `nice`, `sched` (fifo, rr, fair, batch, idle, deadline), `rt_prio`,
        `cpus` ("0-3"), `start` (0 by default; None for one that is forked),
        `asleep` (its first step, a sleep or wait, takes no CPU), `tid`, `pid`,
        `cpu` (where it is at the start), `group` (see `group`), `slice` (its own, as a time),
        `dl_runtime`, `dl_deadline`, `dl_period` (of SCHED_DEADLINE, as times), `past_used`,
        `past_run`, `past_sleep`, `past_charged` (what it did before, as times), `exits_after`
        (CPU time after which it is on its way out, as a time).
        """
        return self.threads(name, 1, **options)

    def threads(self, name: str, n: int, **options: Any) -> Program:
        """Add `n` threads that share one program."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise UsageError(f"{n!r} threads called {name!r}", "a whole number of at least 1")
        program = Program(len(self._programs), len(self._threads))
        self._programs.append(program)
        if "class" in options:
            raise UsageError(f"class={options['class']!r}", f"sched={options['class']!r}")
        sched = options.pop("sched", "fair")
        if sched not in CLASSES:
            raise UsageError(f"scheduling class {sched!r}", f"one of {', '.join(CLASSES)}")
        row = {
            "tid": None,
            "pid": None,
            "nice": 0,
            # Schedulers without the deadline class run it as SCHED_FIFO of the highest priority.
            "rt_prio": {"deadline": 99, "interrupt": 50, "kernel": 50}.get(sched, 0),
            "cpus": None,
            "asleep": False,
            "cpu": None,
            "group": None,
            "slice": None,
            "dl_runtime": None,
            "dl_deadline": None,
            "dl_period": None,
            **dict.fromkeys((*_PASTS, "exits_after")),
            **{"start": 0, **options},
            "class": sched,
            "program": program.number,
        }
        unknown = set(row) - set(THREADS)
        if unknown:
            known = ", ".join(["sched", *(name for name in row if name in _OPTIONS)])
            raise UsageError(f"thread option {sorted(unknown)[0]!r}", f"one of {known}")
        if row["start"] is not None:
            row["start"] = nanoseconds(row["start"])
        for column in ("slice", "dl_runtime", "dl_deadline", "dl_period", *_PASTS, "exits_after"):
            if row[column] is not None:
                row[column] = nanoseconds(row[column])
        for i in range(n):
            self._threads.append({**row, "name": name if n == 1 else f"{name}-{i}"})
        return program

    def workload(self, machine: Machine | None = None, **info: Any) -> Workload:
        """The workload as it stands."""
        rows = [step for program in self._programs for step in program.steps]
        threads = _table("thread", self._threads, THREADS)
        pipes = _table("pipe", self._pipes, PIPES)
        groups = _table("group", self._groups, GROUPS)
        moves = _table("move", self._moves, MOVES)
        steps = _table("step", rows, STEPS)
        return Workload(threads, steps, machine, info, pipes, groups, moves)


def _table(what: str, rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """The rows as a frame; an error names a value that its column cannot hold."""
    try:
        return pl.DataFrame(rows, schema=schema)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        for i, row in enumerate(rows):
            for column, value in row.items():
                try:
                    pl.Series([value], dtype=schema[column], strict=True)
                except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
                    raise UsageError(
                        f"{what} {i}: {column} {value!r}",
                        f"a value of {schema[column]}",
                        "help(schedscope.workload) lists the columns and what they mean",
                    ) from error
        raise


class Program:
    """The steps of a thread (or of several alike); each method adds one."""

    def __init__(self, number: int, first_thread: int) -> None:
        """`number` of the program, and of the first thread that runs it."""
        self.number = number
        self.thread = first_thread
        self.steps: list[dict[str, Any]] = []

    def _add(self, op: str, **values: Any) -> Program:
        self.steps.append({**dict.fromkeys(STEPS), "program": self.number, "op": op, **values})
        return self

    def run(self, time: Time) -> Program:
        """Use CPU time."""
        return self._add("run", ns=nanoseconds(time))

    def sleep(self, time: Time, *, disk: bool = False) -> Program:
        """Sleep; `disk` makes it uninterruptible."""
        return self._add("sleep", ns=nanoseconds(time), disk=disk)

    def sleep_ticks(self, time: Time) -> Program:
        """Sleep until the last clock tick within this time, or else the next one.

        This is how a kernel timer that counts ticks sleeps. If the policy has no ticks, sleep for
        this time.
        """
        return self._add("sleep_ticks", ns=nanoseconds(time))

    def wait_until(self, time: Time) -> Program:
        """Sleep until an instant; no sleep if it has passed."""
        return self._add("wait_until", ns=nanoseconds(time))

    def read_clock(self, time: Time) -> Program:
        """Read the clock, from which the thread counts the instants of its later `wait_until`.

        They move by as much as it is then later than `time`, or earlier.
        """
        return self._add("read_clock", ns=nanoseconds(time))

    def wait_for(self, sender: Program | int | None = None, count: int | None = None) -> Program:
        """Wait for the next signal not yet taken, or for the `count`-th.

        The signal is one of `sender`, or of anyone.
        """
        thread = sender.thread if isinstance(sender, Program) else sender
        return self._add("wait_for", thread=thread, count=count, disk=False)

    def signal(self, to: Program | int, *, sync: bool = False, meet: bool = False) -> Program:
        """Signal a thread; `sync` says that a sleep follows at once.

        `meet`: first sleep until that thread waits for a signal from this one.
        """
        thread = to.thread if isinstance(to, Program) else to
        return self._add("signal", thread=thread, sync=sync, meet=meet)

    def put(self, pipe: int, amount: int = 1, *, sync: bool = True) -> Program:
        """Put `amount` into a pipe, sleeping while that does not fit; it wakes a sleeping reader.

        `sync`: tell the policy with the wake that this thread is about to sleep, as Linux does.
        """
        return self._add("put", pipe=pipe, count=amount, sync=sync)

    def take(self, pipe: int, amount: int = 1) -> Program:
        """Take `amount` out of a pipe, sleeping whenever it is empty."""
        return self._add("take", pipe=pipe, count=amount, disk=False)

    def lock(self, mutex: int) -> Program:
        """Take a mutex, sleeping while another thread has it."""
        return self._add("lock", mutex=mutex)

    def unlock(self, mutex: int) -> Program:
        """Release a mutex; the first thread that sleeps for it is woken, and checks whether it is
        free."""
        return self._add("unlock", mutex=mutex)

    def cond_wait(self, condition: int, mutex: int) -> Program:
        """Release a mutex, sleep until the condition is signalled, and take the mutex again."""
        return self._add("cond_wait", condition=condition, mutex=mutex)

    def cond_signal(self, condition: int) -> Program:
        """Wake the first thread that waits on a condition, if there is one."""
        return self._add("cond_signal", condition=condition)

    def cond_broadcast(self, condition: int) -> Program:
        """Wake all threads that wait on a condition."""
        return self._add("cond_broadcast", condition=condition)

    def barrier(self, barrier: int, count: int) -> Program:
        """Sleep until `count` threads have come to a barrier, this one among them."""
        return self._add("barrier", barrier=barrier, count=count)

    def post(self, queue: int, job: Program | None = None) -> Program:
        """Put a job into a queue and wake the first thread that sleeps there; None: no steps."""
        return self._add("post", queue=queue, job=None if job is None else job.number)

    def serve(self, queue: int) -> Program:
        """Take the first job out of a queue and do it, sleeping while there is none."""
        return self._add("serve", queue=queue)

    def fork(self, child: Program | int) -> Program:
        """Start a thread whose `start` is None."""
        return self._add("fork", thread=child.thread if isinstance(child, Program) else child)

    def yield_(self) -> Program:
        """Give up the CPU, staying runnable."""
        return self._add("yield")

    def set_priority(
        self, *, nice: int = 0, sched: str = "fair", rt_prio: int = 0, of: int | None = None
    ) -> Program:
        """Change class and priority, of this thread or of thread `of`."""
        return self._add("set_priority", **{"class": sched}, nice=nice, rt_prio=rt_prio, thread=of)

    def set_affinity(self, cpus: str | None, of: int | None = None) -> Program:
        """Change the allowed CPUs (None: all), of this thread or of thread `of`."""
        return self._add("set_affinity", cpus=cpus, thread=of)

    def repeat(self, times: int | None = None, *, to: int = 0) -> Program:
        """Run the steps from `to` to here `times` times in total; None: without end.

        >>> b = Builder()
        >>> _ = b.thread("t").run("1ms").repeat(3)
        >>> b.workload().steps["count"].to_list()
        [None, 2]
        """
        if times is not None and times < 1:
            raise UsageError(f"repeat {times} times", "at least once")
        return self._add("repeat", step=to, count=None if times is None else times - 1)

    def park(self) -> Program:
        """Sleep to the end of the simulation."""
        return self._add("park")

    def exit(self) -> Program:
        """End the thread here."""
        return self._add("exit")
