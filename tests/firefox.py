"""A real headless Firefox, driven with real input events over WebDriver BiDi.

It offers what `browser.Browser` does, as far as tests of the viewer use it.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import browser as chromium
from tools import tool
from websockets.sync.client import ClientConnection, connect

_KEYS = {
    "Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013",
    "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011", "Shift": "\ue008",
    "Tab": "\ue004", "Control": "\ue009",
}  # fmt: skip
_PREFERENCES = """
user_pref("app.normandy.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("ui.systemUsesDarkTheme", {dark});
"""


class Firefox:
    """One page of 1200 x 700 CSS pixels."""

    def __init__(self, *, dark: bool = False) -> None:
        program = tool("firefox-esr")
        assert program is not None
        self._profile = Path(tempfile.mkdtemp(prefix="schedscope-firefox-"))
        (self._profile / "user.js").write_text(_PREFERENCES.format(dark=int(dark)))
        words = ["--headless", "--no-remote", "--profile", str(self._profile)]
        self._process = subprocess.Popen(
            [*program, *words, "--remote-debugging-port=0", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack = ExitStack()
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._last = 0
        self._at = (0.0, 0.0)
        try:
            self._socket = self._connect()
            self._call("session.new", capabilities={})
            # The first window never has the focus, without which Enter presses no button.
            self._context = self._call("browsingContext.create", type="window")["context"]
            events = ["log.entryAdded", "network.beforeRequestSent"]
            self._call("session.subscribe", events=events)
            viewport = {"width": 1200, "height": 700}
            self._call("browsingContext.setViewport", context=self._context, viewport=viewport)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Firefox:
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
        self._call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        found = self._call(
            "script.evaluate",
            expression=script,
            target={"context": self._context},
            awaitPromise=True,
        )
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        return _plain(found["result"])

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + chromium.PATIENCE
        while not self.run(f"!!({condition})"):
            assert not self.errors, self.errors
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.03)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        steps: list[dict[str, Any]] = []
        if kind != "mouseWheel" and ((x, y) != self._at or kind == "mouseMoved"):
            # Whole pixels: the protocol of this browser knows no others.
            place = {"x": int(x), "y": int(y)}
            steps.append({"type": "pointerMove", **place, "duration": 0})
            self._at = (x, y)
        if kind == "mousePressed":
            steps.append({"type": "pointerDown", "button": 0})
        elif kind == "mouseReleased":
            steps.append({"type": "pointerUp", "button": 0})
        elif kind == "mouseWheel":
            scroll = {name: int(more[name]) for name in ("deltaX", "deltaY")}
            steps = [{"type": "scroll", "x": int(x), "y": int(y), **scroll}]
            self._perform({"type": "wheel", "id": "wheel", "actions": steps})
            return
        self._perform({"type": "pointer", "id": "mouse", "actions": steps})

    def drag(self, x: float, y: float, to: float) -> None:
        self.mouse("mousePressed", x, y)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", x + (to - x) * part, y)
        self.mouse("mouseReleased", to, y)

    def key(self, key: str) -> None:
        value = _KEYS.get(key, key)
        # A capital letter is typed with Shift.
        self._type([value], shift=len(key) == 1 and key.isalpha() and key.isupper())

    def text(self, text: str) -> None:
        """Typed where the focus is."""
        self._type(list(text), shift=False)

    def chord(self, held: str, key: str) -> None:
        """A key, while another one is held."""
        self.hold(held, down=True)
        self.key(key)
        self.hold(held, down=False)

    def downloads(self, folder: Path) -> None:
        """Where files go that a page gives to the person."""
        wanted = {"type": "allowed", "destinationFolder": str(folder)}
        self._call("browser.setDownloadBehavior", downloadBehavior=wanted)

    def hold(self, key: str, *, down: bool) -> None:
        """Press a key, or let it go."""
        step = {"type": "keyDown" if down else "keyUp", "value": _KEYS[key]}
        self._perform({"type": "key", "id": "keys", "actions": [step]})

    def screenshot(self, path: Path) -> None:
        """What the window shows."""
        data = self._call("browsingContext.captureScreenshot", context=self._context)["data"]
        path.write_bytes(base64.b64decode(data))

    def _type(self, values: list[str], *, shift: bool) -> None:
        steps = [
            {"type": kind, "value": value} for value in values for kind in ("keyDown", "keyUp")
        ]
        if shift:
            held = {"value": _KEYS["Shift"]}
            steps = [{"type": "keyDown", **held}, *steps, {"type": "keyUp", **held}]
        self._perform({"type": "key", "id": "keys", "actions": steps})

    def _perform(self, source: dict[str, Any]) -> None:
        self._call("input.performActions", context=self._context, actions=[source])

    def _connect(self) -> ClientConnection:
        port = self._profile / "WebDriverBiDiServer.json"
        end = time.monotonic() + chromium.PATIENCE
        while not (port.exists() and port.read_text().strip()):
            assert self._process.poll() is None, "firefox ended at once"
            assert time.monotonic() < end, "firefox does not answer"
            time.sleep(0.05)
        number = json.loads(port.read_text())["ws_port"]
        address = f"ws://127.0.0.1:{number}/session"
        return self._stack.enter_context(connect(address, max_size=None, compression=None))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=chromium.PATIENCE))
            if message.get("method") == "log.entryAdded":
                entry = message["params"]
                if entry["type"] == "javascript" and entry["level"] == "error":
                    self.errors.append(str(entry["text"])[:2000])
            if message.get("method") == "network.beforeRequestSent":
                self.fetched.append(message["params"]["request"]["url"])
            if message.get("id") == self._last:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result


def _plain(value: dict[str, Any]) -> Any:
    """What the protocol describes, as JSON would have it; None for what has no JSON."""
    kind, content = value["type"], value.get("value")
    if kind in ("array", "nodelist", "htmlcollection"):
        return [_plain(each) for each in content or []]
    if kind == "object":
        return {name: _plain(each) for name, each in content or []}
    if kind in ("string", "boolean") or (kind == "number" and not isinstance(content, str)):
        return content
    return 0 if content == "-0" else None
