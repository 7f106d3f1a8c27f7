"""Policies written in Python."""

from __future__ import annotations

from collections import deque

import pytest

from schedscope.errors import UsageError
from schedscope.simulator.policies.policy import Policy
from schedscope.simulator.runs.run import policy_series, simulate
from schedscope.simulator.workloads.generators import hogs, requests


class Fifo(Policy):
    """One queue, first come first served: the built-in fifo for threads of one class."""

    name = "py-fifo"
    series = ("length",)

    def init(self, w):  # type: ignore[no-untyped-def]
        self.queue = deque()

    def enqueue(self, w, cpu, t, how):  # type: ignore[no-untyped-def]
        self.queue.append(t)
        w.record(0, t, len(self.queue))

    def dequeue(self, w, cpu, t):  # type: ignore[no-untyped-def]
        self.queue.remove(t)

    def pick_next(self, w, cpu):  # type: ignore[no-untyped-def]
        return self.queue.popleft() if self.queue else None


def test_python_fifo_equals_the_native_one() -> None:
    load = requests(5, requests=10)
    mine = simulate(load, policy=Fifo(), cpus=2)
    native = simulate(load, policy="fifo", cpus=2)
    assert mine.switches.collect().equals(native.switches.collect())
    assert mine.info["scheduler"]["name"] == "py-fifo"


def test_policy_series_of_python_policies_are_kept() -> None:
    trace = simulate(hogs(3, time="1ms"), policy=Fifo(), cpus=1, record=True)
    frame = policy_series(trace)
    assert frame.columns == ["ts", "series", "utid", "cpu", "value"]
    assert set(frame["series"].cast(str).to_list()) == {"length"}
    # The idle CPU chooses after each event: it takes hog-0 before hog-1 arrives.
    assert frame["value"].to_list() == [1.0, 1.0, 2.0]


def test_an_exception_in_a_hook_reaches_the_caller() -> None:
    class Broken(Fifo):
        def pick_next(self, w, cpu):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"):
        simulate(hogs(1), policy=Broken())


def test_invalid_pick_is_an_error() -> None:
    class Forgetful(Fifo):
        def pick_next(self, w, cpu):  # type: ignore[no-untyped-def]
            return 0

    with pytest.raises(UsageError, match=r"picked thread 0"):
        simulate(hogs(2, time="1ms"), policy=Forgetful(), cpus=2)


def test_world_cannot_be_used_outside_hooks() -> None:
    kept = []

    class Keeper(Fifo):
        def init(self, w):  # type: ignore[no-untyped-def]
            super().init(w)
            kept.append(w)

    simulate(hogs(1, time="1ms"), policy=Keeper())
    with pytest.raises(RuntimeError, match="inside a hook"):
        _ = kept[0].now


def test_unknown_thread_is_an_index_error() -> None:
    class Curious(Fifo):
        def init(self, w):  # type: ignore[no-untyped-def]
            super().init(w)
            w.nice(99)

    with pytest.raises(IndexError, match="no thread 99"):
        simulate(hogs(1), policy=Curious())


def test_run_with_unpicked_threads_is_not_finished() -> None:
    class Forgetful(Fifo):
        def pick_next(self, w, cpu):  # type: ignore[no-untyped-def]
            return self.queue.popleft() if self.queue and self.queue[0] != 1 else None

    words = r'at 5000000 ns .* still has 2 threads queued: 1 \("hog-1"\); 2 \("hog-2"\)'
    for until in (None, "1s"):
        with pytest.raises(UsageError, match=words):
            simulate(hogs(3, time="5ms"), policy=Forgetful(), cpus=1, until=until)


@pytest.mark.parametrize("answer", [-1, "x", 1.5])
def test_non_numeric_pick_is_an_error_naming_the_hook(answer: object) -> None:
    class Odd(Fifo):
        def pick_next(self, w, cpu):  # type: ignore[no-untyped-def]
            return answer

    with pytest.raises(UsageError, match=f"pick_next of the policy answered {answer!r}"):
        simulate(hogs(1, time="1ms"), policy=Odd())


def test_invalid_calls_are_refused() -> None:
    load = hogs(1, time="1ms")

    class Backwards(Fifo):
        hz = -5

    with pytest.raises(UsageError, match="the policy's hz is -5"):
        simulate(load, policy=Backwards())
    with pytest.raises(UsageError, match="the class Fifo; expected an instance of it"):
        simulate(load, policy=Fifo)  # type: ignore[arg-type]
    for slip in (
        {"policy": 5},
        {"seed": -1},
        {"seed": 1.5},
        {"until": -5},
        {"until": 6_000_000_000},
        {"until": 1.5},
        {"max_events": 0},
        {"max_events": 1.5},
    ):
        with pytest.raises(UsageError):
            simulate(load, **{"policy": "rr", **slip})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a simulation of 5"):
        simulate(5)  # type: ignore[arg-type]
