"""A real headless Chromium, driven with real input events over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tools import tool
from websockets.sync.client import ClientConnection, connect

PATIENCE = 30.0


class Browser:
    """One page of 1200 x 700 CSS pixels."""

    def __init__(self, *, dark: bool = False) -> None:
        program = tool("chromium")
        assert program is not None
        self._profile = tempfile.mkdtemp(prefix="schedscope-chromium-")
        self._process = subprocess.Popen(
            [
                *program,
                "--headless=new",
                "--no-sandbox",  # tests run as root in containers
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
                "--window-size=1200,700",
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack = ExitStack()
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._last = 0
        try:
            self._socket = self._connect()
            self._call("Runtime.enable")
            self._call("Page.enable")
            self._call("Network.enable")
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self._call("Emulation.setEmulatedMedia", features=[scheme])
            metrics = {"width": 1200, "height": 700, "deviceScaleFactor": 1, "mobile": False}
            self._call("Emulation.setDeviceMetricsOverride", **metrics)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
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
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(f"!!({condition})"):
            assert not self.errors, self.errors
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.03)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x: float, y: float, to: float) -> None:
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", x + (to - x) * part, y, button="left", buttons=1)
        self.mouse("mouseReleased", to, y, button="left", clickCount=1)

    def key(self, key: str) -> None:
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def chord(self, held: str, key: str) -> None:
        """A key, while another one is held."""
        bits, code = {"Control": 2, "Shift": 8}[held], {"Enter": 13}[key]
        more = {"code": key, "modifiers": bits, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def hold(self, key: str, *, down: bool) -> None:
        """Press a key, or let it go; the mouse is told of it by its own `modifiers`."""
        self._call("Input.dispatchKeyEvent", type="keyDown" if down else "keyUp", key=key)

    def text(self, text: str) -> None:
        """Typed where the focus is."""
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path, clip: tuple[float, float, float, float] | None = None) -> None:
        """What the window shows; or x, y, width and height of the page, beyond the window, too."""
        more: dict[str, Any] = {}
        if clip is not None:
            x, y, width, height = clip
            area = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
            more = {"clip": area, "captureBeyondViewport": True}
        data = self._call("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def printed(self) -> bytes:
        """The page as PDF, as a person would print it."""
        data = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
        return base64.b64decode(data)

    def downloads(self, folder: Path) -> None:
        """Where files go that a page gives to the person."""
        self._call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def scripts(self, on: bool) -> None:
        """Whether pages opened from now on may run any."""
        self._call("Emulation.setScriptExecutionDisabled", value=not on)

    def offline(self) -> None:
        """No network from now on, but for files."""
        off = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self._call("Network.emulateNetworkConditions", **off)

    def _connect(self) -> ClientConnection:
        port = Path(self._profile) / "DevToolsActivePort"
        end = time.monotonic() + PATIENCE
        while not (port.exists() and port.read_text().strip()):
            assert self._process.poll() is None, "chromium ended at once"
            assert time.monotonic() < end, "chromium does not answer"
            time.sleep(0.05)
        number = port.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=10) as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        address = pages[0]["webSocketDebuggerUrl"]
        return self._stack.enter_context(connect(address, max_size=None, compression=None))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:2000])
            if message.get("method") == "Network.requestWillBeSent":
                self.fetched.append(message["params"]["request"]["url"])
            if message.get("id") == self._last:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
