"""Run `capture` in tests and find what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = ROOT / "collectors" / "capture"
INSTANCES = Path("/sys/kernel/tracing/instances")
# Recorders of other users on the same host are ignored.
MARK = "SCHEDSCOPE_TEST_MARK"


def _hear_hang_ups() -> None:
    """A shell cannot trap a signal that it inherited as ignored, as everything under nohup does."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Run:
    """One `capture`, with a mark in its environment that its children inherit."""

    started: ClassVar[list[Run]] = []

    def __init__(
        self,
        *words: str,
        cwd: Path,
        shell: tuple[str, ...] = ("sh",),
        program: Path = CAPTURE,
        environment: dict[str, str] | None = None,
        stdin: str = "",
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.cwd = cwd
        self._said = cwd / f"stderr-{self.mark}"
        self._answer = cwd / f"stdout-{self.mark}"
        with open(self._said, "w") as said, open(self._answer, "w") as answer:
            self.process = subprocess.Popen(
                [*shell, str(program), *words],
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=answer,
                stderr=said,
                text=True,
                env={**os.environ, MARK: self.mark, **(environment or {})},
                start_new_session=True,
                preexec_fn=_hear_hang_ups,
            )
        self.started.append(self)
        assert self.process.stdin is not None
        self.process.stdin.write(stdin)
        self.process.stdin.close()

    @property
    def said(self) -> str:
        """What it wrote to stderr so far."""
        return self._said.read_text(errors="replace")

    @property
    def answer(self) -> str:
        """What the command wrote to stdout so far."""
        return self._answer.read_text(errors="replace")

    def wait(self, seconds: float = 60) -> int:
        """Its exit status; one that hangs is killed and fails the test."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
            raise AssertionError(f"capture hangs; it said: {self.said}") from None

    def end(self) -> None:
        """Ask it to end if it still runs; then kill whatever remains of it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.poll()

    def until(self, text: str, seconds: float = 60) -> None:
        """Wait until stderr has the text."""
        self.eventually(lambda: text in self.said or self.process.poll() is not None, seconds)
        assert text in self.said, f"it said: {self.said}"

    def eventually(self, condition: Callable[[], Any], seconds: float = 60) -> None:
        """Wait for the condition; if it does not come, fail with capture's output and processes."""
        try:
            eventually(condition, seconds)
        except AssertionError:
            state = "runs" if self.process.poll() is None else f"ended: {self.process.returncode}"
            lines = "\n".join(f"{pid} {line}" for pid, line in self.processes())
            raise AssertionError(
                f"not in {seconds:g} s; capture {state}, said:\n{self.said}\nand left:\n{lines}"
            ) from None

    def leftovers(self) -> list[str]:
        """Command lines of processes that carry our mark."""
        return [line for _, line in self.processes()]

    def pids(self) -> list[int]:
        """Their pids."""
        return [pid for pid, _ in self.processes()]

    def processes(self) -> list[tuple[int, str]]:
        """Pid and command line of each."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"{MARK}={self.mark}" in (entry / "environ").read_text(
                    errors="replace"
                ):
                    line = (entry / "cmdline").read_text().replace("\0", " ")
                    found.append((int(entry.name), line))
            except OSError:
                continue
        return found

    def instance(self) -> list[Path]:
        """Trace instances of this run."""
        return list(INSTANCES.glob(f"schedscope-{self.process.pid}-*"))


def eventually(condition: Callable[[], Any], seconds: float = 5) -> None:
    """Wait for the condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def meta(capture: Path) -> dict[str, Any]:
    """`capture.json` of a capture."""
    content = (capture / "capture.json").read_bytes()
    content.decode("ascii")
    loaded: dict[str, Any] = json.loads(content)
    return loaded


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a `.tsv` with a header."""
    lines = path.read_text(errors="surrogateescape").rstrip("\n").split("\n")
    names = lines[0].split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]


def checksums_are_right(capture: Path) -> None:
    """The list has every file except `capture.json`, each with the checksum that cksum prints."""
    listed = (capture / "checksums").read_text().splitlines()
    names = [line.split(" ", 2)[2] for line in listed]
    files = {str(path.relative_to(capture)) for path in capture.rglob("*") if path.is_file()}
    assert sorted(names) == sorted(files - {"capture.json", "checksums"})
    sums = subprocess.run(["cksum", *names], cwd=capture, capture_output=True, text=True)
    assert sums.stdout.splitlines() == listed
