"""The flight recorder, polled repeatedly: what happened since the last time.

Each answer is a trace of two snapshots on end, and the part of it that is new. Snapshots are asked
for, joined and removed here; recording, cleaning up after itself and decoding are the work of
`capture --ring` and `open`.

The window of a snapshot ends when it is asked for, but what its CPUs recorded until they had been
read is in its files, too, and missing from the next; and what one recorded from then on, while
others were read, is in the files of the next, before its window. Two on end therefore have
everything, and the first of them shows what every thread did when the second began.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from schedscope import collectors
from schedscope.errors import StorageError
from schedscope.invoking_user import FORGOTTEN
from schedscope.outputs import temporary

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

PATIENCE = 60
"""Seconds in which the recorder starts, or gives what it was asked for, on a busy host."""

_NICE = -10
_PREFIX = "schedscope-top-"
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Interval:
    """What happened in `[begin, end)`, ns, the end of the window of `trace`.

    `gap`: ns between the interval before and this one, of which nothing is known; `None` of the
    first one. `throttled`: for how long, ns, quotas had held each control group back at its end.
    """

    trace: Trace
    begin: int
    end: int
    gap: int | None
    throttled: dict[str, int] = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """Whether it begins where the interval before ended."""
        return self.gap == 0


@contextmanager
def folder() -> Iterator[Path]:
    """A folder in memory, where there is any; it does not outlive this process for long."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else temporary()
    _clean(place)
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _clean(place: Path) -> None:
    """Removes what killed processes left behind."""
    for left in place.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        ours = left.is_dir() and not left.is_symlink() and left.lstat().st_uid == os.geteuid()
        if ours and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def recorder(place: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """The flight recorder, ready, with room for `seconds`; ended in order whatever happens.

    It sees the end of a pipe if this process is killed, and then cleans up by itself.
    """
    words = ["sh", str(collectors.path()), "--lifeline", "--ring", f"{max(2, math.ceil(seconds))}s"]
    words += ["-o", str(_ring(place))]
    reading, writing = os.pipe()

    def prepare() -> None:
        # Ctrl-C at the terminal is for this process. On an overloaded host the recorder must not
        # wait like other threads; where sessions share CPU time, its own gets more weight.
        os.setsid()
        with suppress(OSError):
            os.nice(_NICE)
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(_NICE))
        os.dup2(reading, 4)
        os.set_inheritable(4, True)

    # Only this process reads its snapshots, so they belong to root.
    environment = {name: text for name, text in os.environ.items() if name not in FORGOTTEN}
    child = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace", preexec_fn=prepare, close_fds=False, env=environment,
    )  # fmt: skip
    os.close(reading)
    said: list[str] = []
    ready = threading.Event()

    def listen() -> None:
        assert child.stderr is not None
        for line in child.stderr:
            said.append(line.strip().removeprefix("capture: "))
            del said[:-20]
            if "a snapshot: kill" in line:
                ready.set()
        ready.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        if not ready.wait(PATIENCE) or "a snapshot: kill" not in " ".join(said):
            raise StorageError(f"the recorder did not start: {said[-1] if said else 'no reason'}")
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
        # Any process still alive sees the end of the pipe.
        os.close(writing)
        listener.join(1)


def _ring(place: Path) -> Path:
    return place / "top.ring"


def intervals(
    child: subprocess.Popen[str], place: Path, length: float, share: float = 1
) -> Iterator[Interval]:
    """One after the other, about `length` seconds each; one that comes late is longer.

    They are further apart where it would else cost more than `share` of a CPU to record and read
    them, `costs` of what follows included; then there are gaps, if the ring is shorter.
    """
    import schedscope as ss
    from schedscope.store import looked_at

    before: Path | None = None
    end = 0
    due = time.monotonic() + length
    number = 0
    asked = spent = 0.0
    while True:
        # The first one loads what the others need.
        if number > 1:
            due = max(due, asked + (sum(costs(child).values()) - spent) / share)
        time.sleep(max(0.0, due - time.monotonic()))
        asked, spent = time.monotonic(), sum(costs(child).values())
        due = max(due + length, asked + length / 2)
        child.send_signal(signal.SIGUSR1)
        number += 1
        part = place / f"{number}.capture"
        _written(child, _ring(place)).rename(part)
        follows = before is not None and _begins_at_once(part)
        whole = part
        if before is not None and follows:
            whole = _joined(before, part, place / f"{number}.joined.capture")
        cache = place / f"{number}.cache"
        cache.mkdir()
        try:
            # Examining clocks takes longer than all the rest, and a second of events shows little.
            # On the recorded host, a second thread would make others wait.
            with looked_at.in_memory():
                trace = ss.open(whole, cache=cache, options={"clocks": "yes"}, jobs=1)
                begin = end if follows else trace.window[0]
                gap = None if before is None else max(0, begin - end)
                end = trace.window[1]
                yield Interval(trace, begin, end, gap, _throttled(part))
        finally:
            shutil.rmtree(cache, ignore_errors=True)
            if whole != part:
                shutil.rmtree(whole, ignore_errors=True)
            if before is not None:
                shutil.rmtree(before, ignore_errors=True)
        before = part


def _written(child: subprocess.Popen[str], ring: Path) -> Path:
    """The snapshot that was asked for."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := sorted(ring.glob("*.capture")):
            return found[0]
        if child.poll() is not None:
            raise StorageError("the recorder ended: someone stopped it, or the disk is full")
        if why := _refused(ring):
            place = ring.parent.parent
            hint = "a shorter --every needs less room"
            raise StorageError(f"the recorder took no snapshot in {place}: {why}; {hint}")
        time.sleep(0.01)
    raise StorageError(f"the recorder wrote nothing for {PATIENCE} s")


def _refused(ring: Path) -> str:
    """Why the last snapshot failed, if it did: what the recorder answers to `--snapshot`."""
    with suppress(OSError):
        number, _, why = (ring / ".scratch" / "answer").read_text(errors="replace").partition("\n")
        if not number.endswith(" 0"):
            return why.strip()
    return ""


def costs(child: subprocess.Popen[str]) -> dict[str, float]:
    """CPU seconds of the recorder, with what it started and has ended, and of this process."""
    try:
        stat = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8", errors="replace")
        ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    except (OSError, ValueError):  # it has ended
        ticks = 0
    return {"recorder": ticks / os.sysconf("SC_CLK_TCK"), "reader": time.process_time()}


def _throttled(part: Path) -> dict[str, int]:
    """How long quotas had held each control group back when the snapshot was taken, ns."""
    with (part / "groups.tsv").open(encoding="utf-8", errors="replace") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    named = (dict(zip(rows[0], row, strict=False)) for row in rows[1:])
    return {
        row["cgroup"]: int(row["throttled"]) * 1000
        for row in named
        if row.get("throttled", "").isdigit()
    }


def _begins_at_once(part: Path) -> bool:
    """Whether the ring held everything since the snapshot before."""
    about = json.loads((part / "capture.json").read_text(encoding="utf-8"))
    return bool(about["complete"]) and all(cpu["begin"] is None for cpu in about["ring"]["cpus"])


def _joined(first: Path, second: Path, target: Path) -> Path:
    """Two snapshots on end as one capture folder."""
    # Its checksums are of the second part alone.
    shutil.copytree(second, target, ignore=shutil.ignore_patterns("checksums"))
    for file in (target / "raw").iterdir():
        whole = (first / "raw" / file.name).read_bytes() + file.read_bytes()
        file.write_bytes(whole)
    about = json.loads((target / "capture.json").read_text(encoding="utf-8"))
    earlier = json.loads((first / "capture.json").read_text(encoding="utf-8"))
    about["window"]["begin"] = earlier["window"]["begin"]
    # Where its ring had already wrapped, the first part begins late.
    about["ring"]["cpus"] = earlier["ring"]["cpus"]
    about["lost"] = [*earlier["lost"], *about["lost"]]
    (target / "capture.json").write_text(json.dumps(about), encoding="utf-8")
    return target
