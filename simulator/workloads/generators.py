"""Synthetic workloads: the shapes of the published scheduler experiments.

All are deterministic: those that draw lengths take a `seed`. Times are ns or
texts such as "10ms". Each is also on the command line, as in
`schedscope simulate hogs:17,time=500ms --policy ule-2011`.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable

from schedscope.errors import UsageError
from schedscope.simulator.workloads.builder import Builder, Time
from schedscope.simulator.workloads.workload import Workload
from schedscope.units import nanoseconds


def hogs(n: int, *, time: Time = "1s", nice: int = 0, cpus: str | None = None) -> Workload:
    """`n` threads that only compute, `time` each: the counter and loop programs.

    >>> hogs(17, time="500ms").cpu_time
    8500000000
    """
    b = Builder()
    b.threads("hog", _count("n", n), nice=nice, cpus=cpus).run(time)
    return b.workload(generator="hogs", n=n)


def nice_hogs(nices: str = "0 5 10 19", *, time: Time = "1s") -> Workload:
    """One hog for each nice value in the blank-separated list `nices`."""
    texts = str(nices).split()
    if not texts or not all(re.fullmatch(r"[+-]?[0-9]{1,2}", text) for text in texts):
        raise UsageError(f"nices {nices!r}", "nice values separated by blanks", "as in '0 5 19'")
    b = Builder()
    for text in texts:
        b.thread(f"nice{text}", nice=int(text)).run(time)
    return b.workload(generator="nice_hogs", nices=nices)


def periodic(
    n: int, *, run: Time = "1ms", sleep: Time = "9ms", times: int = 100, nice: int = 0
) -> Workload:
    """`n` threads that compute and sleep in turn, `times` times; they start 1 ms apart."""
    b = Builder()
    for i in range(_count("n", n)):
        thread = b.thread(f"periodic-{i}", nice=nice, start=i * 1_000_000)
        thread.run(run).sleep(sleep).repeat(times)
    return b.workload(generator="periodic", n=n)


def ping_pong(pairs: int = 1, *, run: Time = "10us", times: int = 1000) -> Workload:
    """Pairs of threads that wake each other in turn, as over a pipe."""
    b = Builder()
    for i in range(_count("pairs", pairs)):
        ping, pong = b.thread(f"ping-{i}"), b.thread(f"pong-{i}")
        ping.run(run).signal(pong, sync=True).wait_for(pong).repeat(times)
        pong.wait_for(ping).run(run).signal(ping, sync=True).repeat(times)
    return b.workload(generator="ping_pong", pairs=pairs)


def make(
    jobs: int, *, tasks: int = 64, run: Time = "150ms", io: Time = "3ms", seed: int = 1
) -> Workload:
    """`make -jJOBS`: a parent that keeps `jobs` compilers running until `tasks` are done.

    Each compiler computes about `run` in total (drawn, half to twice that), in bursts of about a
    tenth of it, and waits for the disk for about `io` between them. The parent computes a little
    for each fork.
    """
    rng = random.Random(seed)
    burst = max(1, nanoseconds(run) // 10)
    disk = nanoseconds(io)
    b = Builder()
    parent = b.thread("make")
    children = [b.thread(f"cc-{i}", start=None) for i in range(_count("tasks", tasks))]
    for i, child in enumerate(children):
        # Once the slots are full a finished child makes room for the next.
        if i >= _count("jobs", jobs):
            parent.wait_for()
        parent.run("300us").fork(child)
        for _ in range(rng.randint(5, 20)):
            child.run(rng.randint(burst // 2, burst + burst // 2))
            if disk:
                child.sleep(rng.randint(disk // 2, 2 * disk), disk=True)
        child.run("200us").signal(parent)
    for _ in range(min(jobs, tasks)):
        parent.wait_for()
    parent.run("1ms")
    return b.workload(generator="make", jobs=jobs, tasks=tasks, seed=seed)


def requests(
    clients: int,
    *,
    requests: int = 100,
    service: Time = "1ms",
    think: Time = "5ms",
    client: Time = "20us",
    seed: int = 1,
) -> Workload:
    """Closed-loop request and response: each client has its own server thread.

    A client computes `client`, sends, waits for the answer, thinks about `think` (drawn from 0 to
    twice that); the server computes about `service` for each request. This is the shape of sysbench
    against a database with a thread for each connection.
    """
    rng = random.Random(seed)
    work, pause = nanoseconds(service), nanoseconds(think)
    b = Builder()
    for i in range(_count("clients", clients)):
        c, s = b.thread(f"client-{i}"), b.thread(f"server-{i}")
        for _ in range(_count("requests", requests)):
            c.run(client).signal(s, sync=True).wait_for(s)
            if pause:
                c.sleep(rng.randint(0, 2 * pause))
            s.wait_for(c).run(rng.randint(work // 2, work + work // 2)).signal(c)
    return b.workload(generator="requests", clients=clients, seed=seed)


def web(
    workers: int,
    *,
    requests: int = 5000,
    service: Time = "600us",
    client: Time = "150us",
    seed: int = 1,
) -> Workload:
    """One load generator in front of `workers` server processes, as ab and httpd.

    The generator keeps one request open at each worker and sends the next when
    an answer comes: no think time.
    """
    rng = random.Random(seed)
    work = nanoseconds(service)
    b = Builder()
    ab = b.thread("ab")
    servers = [b.thread(f"httpd-{i}") for i in range(_count("workers", workers))]
    for i in range(max(_count("requests", requests), workers)):
        if i >= workers:
            ab.wait_for()
        server = servers[i % workers]
        ab.run(client).signal(server)
        server.wait_for(ab).run(rng.randint(work // 2, work + work // 2)).signal(ab)
    for _ in range(workers):
        ab.wait_for()
    return b.workload(generator="web", workers=workers, seed=seed)


def locks(
    n: int,
    *,
    free: Time = "600us",
    held: Time = "200us",
    times: int = 100,
    seed: int = 1,
) -> Workload:
    """`n` threads and one mutex: each computes about `free` without it, then about `held` with it.

    Both are drawn from half to one and a half times that, `times` times.
    """
    rng = random.Random(seed)
    without, within = nanoseconds(free), nanoseconds(held)
    b = Builder()
    mutex = b.mutex()
    for i in range(_count("n", n)):
        thread = b.thread(f"locker-{i}")
        for _ in range(_count("times", times)):
            thread.run(rng.randint(without // 2, without + without // 2)).lock(mutex)
            thread.run(rng.randint(within // 2, within + within // 2)).unlock(mutex)
    return b.workload(generator="locks", n=n, seed=seed)


def pool(
    workers: int,
    *,
    requests: int = 500,
    service: Time = "1ms",
    every: Time = "400us",
    seed: int = 1,
) -> Workload:
    """A dispatcher that puts a request into a queue once per `every`, and `workers` that serve it.

    This is how a thread pool works: a mutex guards the queue, and a worker that finds it empty
    sleeps until something is put in. A service takes about `service` (drawn from half to one and a
    half times that).
    """
    rng = random.Random(seed)
    work = nanoseconds(service)
    b = Builder()
    mutex, queue = b.mutex(), b.pipe()
    dispatcher = b.thread("dispatcher")
    for i in range(_count("requests", requests)):
        dispatcher.wait_until((i + 1) * nanoseconds(every))
        dispatcher.run("5us").lock(mutex).run("2us").unlock(mutex).put(queue, sync=False)
    for i in range(_count("workers", workers)):
        worker = b.thread(f"worker-{i}")
        for _ in range(i, requests, workers):
            worker.take(queue).lock(mutex).run("2us").unlock(mutex)
            worker.run(rng.randint(work // 2, work + work // 2))
    return b.workload(generator="pool", workers=workers, seed=seed)


def cascade(n: int = 512, *, run: Time = "1s", setup: Time = "100us") -> Workload:
    """Threads that start one another through a chain of barriers, then compute (c-ray).

    All are created at 0 and sleep; each wakes the next before it computes.
    """
    b = Builder()
    threads = [b.thread(f"ray-{i}") for i in range(_count("n", n))]
    for i, thread in enumerate(threads):
        if i:
            thread.wait_for(threads[i - 1])
        thread.run(setup)
        if i + 1 < n:
            thread.signal(threads[i + 1])
        thread.run(run)
    return b.workload(generator="cascade", n=n)


def spinners(
    n: int = 512, *, cpu: int = 0, unpin: Time = "14.5s", time: Time | None = None
) -> Workload:
    """`n` spinning threads pinned to one CPU and all unpinned at `unpin`.

    Without `time` they spin without end: give the simulation a time limit.
    """
    b = Builder()
    first = b.threads("spin", _count("n", n), cpus=str(cpu))
    if time is None:
        first.run("1s").repeat()
    else:
        first.run(time)
    # It must run at once under every policy: highest real-time priority.
    taskset = b.thread("taskset", sched="fifo", rt_prio=99)
    taskset.wait_until(unpin)
    for i in range(n):
        taskset.set_affinity(None, of=first.thread + i)
    return b.workload(generator="spinners", n=n)


def hackbench(groups: int = 10, *, fan: int = 20, loops: int = 100, run: Time = "3us") -> Workload:
    """Groups of `fan` senders and `fan` receivers; every sender writes to every receiver.

    Buffers have no limit: a sender never waits.
    """
    b = Builder()
    for g in range(_count("groups", groups)):
        receivers = b.threads(f"recv-{g}", _count("fan", fan))
        receivers.wait_for().run(run).repeat(fan * _count("loops", loops))
        senders = b.threads(f"send-{g}", fan)
        for i in range(fan):
            senders.run(run).signal(receivers.thread + i)
        senders.repeat(loops)
    return b.workload(generator="hackbench", groups=groups)


GENERATORS: dict[str, Callable[..., Workload]] = {
    f.__name__: f
    for f in (
        hogs,
        nice_hogs,
        periodic,
        ping_pong,
        make,
        requests,
        web,
        locks,
        pool,
        cascade,
        spinners,
        hackbench,
    )
}


def generate(text: str) -> Workload:
    """A workload from a text: `NAME`, `NAME:17` or `NAME:17,time=2s`.

    The first value may stand without its name.

    >>> generate("hogs:3,time=10ms").n_threads
    3
    """
    name, _, rest = text.partition(":")
    function = GENERATORS.get(name)
    if function is None:
        raise UsageError(f"generator {name!r}", f"one of {', '.join(GENERATORS)}")
    parameters = inspect.signature(function).parameters
    values: dict[str, int | str] = {}
    for i, part in enumerate(p for p in rest.split(",") if p):
        key, equals, value = part.partition("=")
        if not equals and i == 0:
            key, value = next(iter(parameters)), key
        if key not in parameters:
            raise UsageError(
                f"{name} with {part!r}", f"one of {', '.join(parameters)}", "write NAME=VALUE"
            )
        values[key] = _value(name, key, value, parameters[key].annotation)
    missing = [
        p.name
        for p in parameters.values()
        if p.default is inspect.Parameter.empty and p.name not in values
    ]
    if missing:
        raise UsageError(f"{text} without {missing[0]}", "a value for it", f"as in {name}:4")
    return function(**values)


def _value(name: str, key: str, text: str, kind: str) -> int | str:
    """What a parameter of that annotation takes: a number, or a text."""
    if kind != "int":
        return text
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise UsageError(f"{name} with {key}={text}", "a whole number", f"as in {name}:{key}=4")
    return int(text)


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} = {value!r}", "a whole number of at least 1")
    return value
