"""Random but valid runs of threads under ULE or 4BSD, on a `Machine`."""

from __future__ import annotations

from freebsd.writer import IDLE, Machine
from hypothesis import strategies as st

FIRST_TID = 100400


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Machine, int]:
    """A machine after up to 60 decisions, and the end of its window."""
    scheduler = draw(st.sampled_from(["ULE", "4BSD"]))
    ncpu = draw(st.integers(1, 4))
    machine = Machine(ncpu, scheduler, noload=draw(st.booleans()))
    threads = draw(st.integers(1, 5))
    for n in range(threads):
        machine.thread(FIRST_TID + n, f"thread {n}", process="work")
    ts = machine.begin + 100
    for _ in range(draw(st.integers(1, 60))):
        ts += draw(st.sampled_from([4, 5, 100, 1_000]))
        cpu = draw(st.integers(0, ncpu - 1))
        _decide(draw, machine, ts, cpu)
    end = ts + draw(st.sampled_from([4, 500]))
    machine.finish(end)
    return machine, end


def _decide(draw: st.DrawFn, machine: Machine, ts: int, cpu: int) -> None:
    ule = machine.scheduler == "ULE"
    busy = not machine.current[cpu].kind & IDLE
    mine = [t for t in machine.threads.values() if not t.kind & IDLE]
    ready = [t.tid for t in mine if t.state == "runnable" and _here(machine, t.cpu, cpu)]
    queued = [t.tid for t in mine if t.state == "runnable" and t.cpu >= 0]
    at_rest = [t.tid for t in mine if t.state not in ("running", "runnable", "dead")]
    elsewhere = [t.tid for t in mine if t.state == "running" and t.cpu != cpu]
    everyone = range(machine.ncpu)
    choices = []
    if at_rest:
        choices += ["wake"] * 3
    if ready:
        choices += ["run"] * 3
    if busy:
        choices += ["rest", "rest", "remain", "fork"]
        if elsewhere:
            choices += ["vain"]
        if ready:
            choices += ["preempt", "yield", "exit"]
        choices += ["leave"]
        if ule and machine.ncpu > 1:
            choices += ["moved"]
    if queued and ule and not machine.noload:
        choices += ["steal", "requeue"]
    if not choices:
        return
    match draw(st.sampled_from(choices)):
        case "wake":
            machine.wake(
                ts, cpu, draw(st.sampled_from(at_rest)), draw(st.sampled_from(everyone)),
                probe=draw(st.booleans()), interrupts=draw(st.sampled_from([0, 0, 1])),
            )  # fmt: skip
        case "run" | "preempt" if ready:
            machine.switch(ts, cpu, draw(st.sampled_from(ready)), "preempt")
        case "yield":
            machine.switch(ts, cpu, draw(st.sampled_from(ready)), "yield")
        case "rest" if ready and draw(st.booleans()):
            machine.switch(ts, cpu, draw(st.sampled_from(ready)), _rest(draw), "piperd")
        case "rest":
            machine.switch(ts, cpu, None, _rest(draw), "select")
        case "remain":
            machine.remain(ts, cpu)
        case "vain":
            machine.wake_in_vain(ts, cpu, draw(st.sampled_from(elsewhere)))
        case "fork":
            tid = FIRST_TID + 50 + len(machine.threads)
            machine.thread(tid, "child", process="work")
            machine.wake(ts, cpu, tid, draw(st.sampled_from(everyone)), new=True)
        case "exit":
            machine.exit(ts, cpu, draw(st.sampled_from(ready)))
        case "leave":
            machine.exit(ts, cpu, None)
        case "moved":
            other = (cpu + 1) % machine.ncpu
            machine.switch(ts, cpu, None, "preempt", move=other)
        case "steal":
            tid = draw(st.sampled_from(queued))
            others = [c for c in everyone if c != machine.threads[tid].cpu]
            if others:
                machine.steal(ts, cpu, tid, draw(st.sampled_from(others)))
        case "requeue":
            machine.requeue(ts, cpu, draw(st.sampled_from(queued)), 130)


def _rest(draw: st.DrawFn) -> str:
    return str(draw(st.sampled_from(["sleep", "sleep hard", "lock", "suspend", "iwait"])))


def _here(machine: Machine, queue: int, cpu: int) -> bool:
    """Whether `cpu` may run a thread of `queue`; any CPU may if the queue is unknown."""
    return queue in (cpu, -1) or machine.scheduler == "4BSD" or machine.noload
