"""What drivers of real headless browsers share, independent of browser and protocol."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools import tool
from websockets.sync.client import ClientConnection, connect

PATIENCE = 30.0


class Driven:
    """One page of 1200 x 700 CSS pixels in a browser with its own profile.

    `errors` are those of the page's scripts, `fetched` the addresses that it requested.
    """

    port_file = ""
    """Where in its profile it writes which port it listens at."""

    def __init__(self, name: str) -> None:
        program = tool(name)
        assert program is not None
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix=f"schedscope-{name}-"))
        # Files that it writes beside its profile (Chromium's socket) are there, too, and removed
        # with it.
        self._profile, self._scratch = self._folder / "profile", self._folder / "tmp"
        for folder in (self._profile, self._scratch):
            folder.mkdir()
        self._stack = ExitStack()
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._last = 0

    def _start(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [*self._program, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(self._scratch)},
            start_new_session=True,
        )
        try:
            options = {"max_size": None, "compression": None}
            self._socket: ClientConnection = self._stack.enter_context(
                connect(self._address(self._port()), **options)
            )
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _address(self, port: str) -> str:
        """The address of its protocol, from the content of the port file."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """The first messages."""
        raise NotImplementedError

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        """An unsolicited event."""
        raise NotImplementedError

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        raise NotImplementedError

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """`mousePressed`, `mouseMoved`, `mouseReleased` or `mouseWheel` at a position."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        # Its children outlive it for a moment, and write into the folder being removed.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        end = time.monotonic() + 10
        while self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=time.monotonic() < end)

    def wait(self, condition: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(f"!!({condition})"):
            assert not self.errors, self.errors
            if time.monotonic() > end:
                words = self.run("document.body.innerText")
                raise AssertionError(f"never true: {condition}\nthe page reads: {words[-3000:]}")
            time.sleep(0.03)

    def drag(self, x: float, y: float, to: float) -> None:
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", x + (to - x) * part, y, button="left", buttons=1)
        self.mouse("mouseReleased", to, y, button="left", clickCount=1)

    def _port(self) -> str:
        port = self._profile / self.port_file
        end = time.monotonic() + PATIENCE
        while not (port.exists() and port.read_text().strip()):
            assert self._process.poll() is None, f"{self._program[0]} ended at once"
            assert time.monotonic() < end, f"{self._program[0]} does not answer"
            time.sleep(0.05)
        return port.read_text()

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if "method" in message:
                self._heard(message["method"], message["params"])
            if message.get("id") == self._last:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
