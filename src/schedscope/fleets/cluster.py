"""Where the work is done: processes of this host, or the workers of a Dask cluster.

Local processes talk over TLS with keys made for this run: a scheduler that answers every user of
the host would let them run programs as this one. They end with the process that started them,
however it ends.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security, as_completed
from distributed.scheduler import KilledWorker

from schedscope.errors import SchedscopeError, StorageError, UsageError
from schedscope.fleets.task import task

WAIT_S = 20
"""How long the workers of a cluster may take to answer."""
ATTEMPTS = 4
"""Workers that may end over a trace before it is given up."""

_CONFIG = {
    "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
    # A worker has one trace at a time: if it dies, that trace is the suspect.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # One process has one CPU: Polars would start a thread for each.
    "distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS": 1,
    "distributed.logging.distributed": "critical",
    # Dask's constant monitoring costs more than summarising a short trace, and is not needed here.
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
}


_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_KEYS = f"{_TLS}CA_FILE, {_TLS}CLIENT__CERT and {_TLS}CLIENT__KEY"


class _Client(Client):  # type: ignore[misc]
    """Closed where it was made, and only there.

    One that could not connect is closed again by Dask when it is collected, which takes 40 s and
    prints a traceback.
    """

    def __del__(self) -> None:
        pass


class Workers:
    """Workers that summarise traces."""

    def __init__(self, client: Client, scratch: Path | None) -> None:
        """`scratch`: where they keep what is temporary; their own folders if None."""
        self._client = client
        self._scratch = scratch

    @property
    def count(self) -> int:
        """The number of traces that they summarise at a time."""
        return sum(self._client.nthreads().values())

    def pids(self) -> list[int]:
        """Process ids of the workers, on whichever host they are."""
        return list(self._client.run(os.getpid).values())

    def summaries(
        self,
        traces: Iterable[str],
        *,
        keep: bool,
        options: dict[str, str],
        limit: int,
        select: dict[str, Any] | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each trace and what `task` says of it, in the order in which they are done.

        Raises `StorageError` if the scheduler is lost.
        """
        scratch = None if self._scratch is None else str(self._scratch)
        futures = {}
        for trace in traces:
            future = self._client.submit(
                _on_worker, trace, scratch, keep, options, limit, select, pure=False
            )
            futures[future] = trace
        for future in as_completed(list(futures), loop=self._client.loop):
            trace = futures.pop(future)
            try:
                # If the worker ended with the result, another makes it again: this waits for it.
                answer = future.result()
            except CancelledError as error:
                raise StorageError(
                    "the scheduler of the workers was lost",
                    "one that runs until all traces are summarised",
                    "run it again: what is finished is kept",
                ) from error
            except Exception as error:
                answer = {"error": _failure(trace, error), "full": False}
            yield trace, answer


def _on_worker(
    trace: str,
    scratch: str | None,
    keep: bool,
    options: dict[str, str],
    limit: int,
    select: dict[str, Any] | None = None,
) -> dict[str, Any]:
    if scratch is None:
        from distributed import get_worker

        # Dask removes it with the worker.
        scratch = get_worker().local_directory
    return task(trace, scratch, keep, options, limit, select)


def _failure(trace: str, error: Exception) -> str:
    if isinstance(error, KilledWorker):
        return (
            f"{trace}: {ATTEMPTS} workers ended while they summarised it; expected one that has"
            " the memory for it. Hint: use fewer --jobs, each of which then has more memory"
        )
    return f"{trace}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


@contextmanager
def workers(scheduler: str | None, jobs: int, scratch: Path) -> Iterator[Workers]:
    """The workers of the cluster at the address `scheduler`, or `jobs` processes of this host."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is not None:
        with _remote(scheduler) as client:
            yield Workers(client, None)
        return
    with dask.config.set(_CONFIG), _local(jobs, scratch) as client:
        yield Workers(client, scratch)


@contextmanager
def _remote(scheduler: str) -> Iterator[Client]:
    from schedscope.store import cache

    try:
        client = _Client(scheduler, timeout=WAIT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:200] or type(error).__name__
        hint = "start one with `dask scheduler`, and workers with `dask worker`"
        if scheduler.startswith("tls:"):
            hint = f"{hint}; its authority and this client's key are named by {_KEYS}"
        raise UsageError(
            f"no scheduler at {scheduler}: {text}",
            "the address of a Dask scheduler, as in tcp://host:8786 or tls://host:8786",
            hint,
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WAIT_S)
        except TimeoutError as error:
            raise UsageError(
                f"the scheduler at {scheduler} has no workers",
                "at least one",
                f"start some with `dask worker {scheduler}`",
            ) from error
        theirs = client.run(_version, on_error="return")
        strange = {each for each, found in theirs.items() if found != cache.version()}
        if strange:
            raise UsageError(
                f"{len(strange)} of {len(theirs)} workers have no schedscope, or another one:"
                f" {min(strange)}",
                "the same version on every worker",
                "install it there and start them again",
            )
        yield client


def _version() -> dict[str, Any]:
    from schedscope.store import cache

    return cache.version()


@contextmanager
def _local(jobs: int, scratch: Path) -> Iterator[Client]:
    cluster: LocalCluster | None = None
    try:
        with _ctrl_c_is_ours():
            cluster = LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                security=Security.temporary(),
                silence_logs=logging.CRITICAL,
                local_directory=str(scratch),
            )
            client = _Client(cluster, set_as_default=False)
    except (OSError, RuntimeError) as error:
        _end(cluster)
        if isinstance(error, SchedscopeError):
            raise
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise StorageError(
            f"cannot start {jobs} processes: {text}",
            hint='a program of your own must call it below `if __name__ == "__main__":`',
        ) from error
    except BaseException:
        _end(cluster)
        raise
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=1)
        _end(cluster)


def _end(cluster: LocalCluster | None) -> None:
    """End all workers, whatever they are doing: finished results are kept, others discarded."""
    if cluster is None:
        return
    for nanny in list(cluster.workers.values()):
        process = getattr(nanny, "process", None)
        nanny.auto_restart = False
        if process is not None and process.pid:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    with suppress(Exception):
        cluster.close(timeout=5)


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Ctrl-C goes to every process of the terminal; the workers shall not see it, or die of it.

    Threads and processes inherit what is blocked: those started in here never get the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Starts multiprocessing's helper process now: its start unblocks the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
