"""Makes a busy host as quiet as an idle one for the seconds of a recording.

While `Quiet.while_recording` lasts, the other processes of the host are frozen (the freezer of
cgroup 1): for two seconds at most, and then they run for as long before they are frozen again.
`cpu.idle` would not do: a CPU that runs a thread of such a group does not look for work elsewhere
as an idle one does, so threads wait that would not wait on a quiet host.

Left alone are kernel threads, process 1, services (of no session), the heads of sessions, such as
an interactive shell, with what they forked to wait for commands, and everything of the session that
records. Only processes of the recorder's own group are moved, so all go back to one place, and so
do children forked meanwhile.

A process of its own moves them back: it reads a pipe, and when that ends, however the recorder came
to its end, all are thawed and moved back, and the group is removed. Needs root and cgroup 1.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

CONTROLLER = Path("/sys/fs/cgroup/freezer")

PAUSE = 1.0
"""For at least so many times as long as a recording took the others then run undisturbed."""

EVERY = 0.02
"""So often new processes are looked for, seconds."""

LONGEST = 2.0
"""The others are frozen for no longer, seconds."""

_BACK = """
trap '' INT TERM HUP QUIT PIPE
while read -r _; do :; done
tries=0
while [ $tries -lt 2000 ] && ! rmdir "$1" 2>/dev/null; do
    echo THAWED >"$1/freezer.state"
    while read -r pid; do echo "$pid" >"$2/cgroup.procs"; done <"$1/cgroup.procs"
    tries=$((tries + 1))
done 2>/dev/null
"""


class Quiet:
    """Freezes the others while something is recorded; a context manager."""

    def __init__(self) -> None:
        path = _group()
        if path is None or not CONTROLLER.is_dir():
            raise SystemExit("a quiet host needs the freezer of cgroup 1")
        self.home = CONTROLLER / path.lstrip("/")
        self.away = self.home / f"schedscope-away-{os.getpid()}"
        self.free_again = 0.0
        self.too_long = 0

    def __enter__(self) -> Quiet:
        self.away.mkdir()
        self.guard = subprocess.Popen(
            ["sh", "-c", _BACK, "sh", str(self.away), str(self.home)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.guard.stdin is not None
        self.guard.stdin.close()
        self.guard.wait()
        if self.too_long:
            print(f"{self.too_long} recordings took longer than the others were frozen")

    @contextlib.contextmanager
    def while_recording(self) -> Iterator[None]:
        """The others are frozen within this block, after they have run for a while."""
        known = {self.guard.pid}
        self._gather(known)
        time.sleep(max(0.0, self.free_again - time.monotonic()))
        begun = time.monotonic()
        end = threading.Event()
        beside = threading.Thread(target=self._watch, args=(known, begun + LONGEST, end))
        self._set("FROZEN")
        beside.start()
        try:
            yield
        finally:
            end.set()
            beside.join()
            self._set("THAWED")
            took = time.monotonic() - begun
            self.too_long += took > LONGEST
            self.free_again = time.monotonic() + PAUSE * min(took, LONGEST)

    def _set(self, state: str) -> None:
        (self.away / "freezer.state").write_text(state)

    def _gather(self, known: set[int]) -> None:
        """Moves those that are not `known`, and adds all that are there to these."""
        for pid in {int(one) for one in os.listdir("/proc") if one.isdigit()} - known:
            known.add(pid)
            if _is_another(pid):
                with contextlib.suppress(OSError):  # it has ended, or cannot be moved
                    (self.away / "cgroup.procs").write_text(str(pid))

    def _watch(self, known: set[int], until: float, end: threading.Event) -> None:
        """New processes are frozen, too; all are thawed when it takes too long."""
        while not end.wait(EVERY):
            if time.monotonic() > until:
                self._set("THAWED")
                return
            self._gather(known)


def _group(pid: int | str = "self") -> str | None:
    for line in Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines():
        _, name, path = line.split(":", 2)
        if name == "freezer":
            return path
    return None


def _is_another(pid: int) -> bool:
    """Whether a process of another session may be frozen."""
    try:
        parent, session = _parent_and_session(pid)
        if 2 in (pid, parent) or pid in (1, session) or session in (0, os.getsid(0)):
            return False
        if _group(pid) != _group() or _command(pid) == _command(session):
            return False
    except OSError:
        return False
    return not _is_ours(parent)


def _parent_and_session(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[1]), int(fields[3])


def _is_ours(pid: int) -> bool:
    """Whether it is this process, or below it."""
    while pid not in (0, 1, os.getpid()):
        try:
            pid, _ = _parent_and_session(pid)
        except OSError:
            return False
    return pid == os.getpid()


def _command(pid: int) -> bytes | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return None
