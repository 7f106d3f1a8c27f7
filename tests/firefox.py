"""A real headless Firefox, driven with real input events over WebDriver BiDi.

It offers what `browser.Browser` does, as far as tests of the viewer use it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from driven import Driven

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


class Firefox(Driven):
    """One page of Firefox."""

    port_file = "WebDriverBiDiServer.json"

    def __init__(self, *, dark: bool = False) -> None:
        super().__init__("firefox-esr")
        (self._profile / "user.js").write_text(_PREFERENCES.format(dark=int(dark)))
        self._at = (0.0, 0.0)
        words = ["--headless", "--no-remote", "--profile", str(self._profile)]
        self._start(*words, "--remote-debugging-port=0", "about:blank")

    def _prepare(self) -> None:
        self._call("session.new", capabilities={})
        # The first window never has the focus, without which Enter presses no button.
        self._context = self._call("browsingContext.create", type="window")["context"]
        events = ["log.entryAdded", "network.beforeRequestSent"]
        self._call("session.subscribe", events=events)
        viewport = {"width": 1200, "height": 700}
        self._call("browsingContext.setViewport", context=self._context, viewport=viewport)

    def open(self, url: str) -> None:
        self._call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        found = self._call(
            "script.evaluate",
            expression=script,
            target={"context": self._context},
            awaitPromise=True,
        )
        assert found["type"] == "success", found["exceptionDetails"]["text"]
        return _plain(found["result"])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        steps: list[dict[str, Any]] = []
        # Always before a press: navigation discards the mouse position.
        if kind in ("mouseMoved", "mousePressed") or (
            kind == "mouseReleased" and (x, y) != self._at
        ):
            # Whole pixels: this browser's protocol accepts no others.
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

    def key(self, key: str) -> None:
        value = _KEYS.get(key, key)
        # A capital letter is typed with Shift.
        self._type([value], shift=len(key) == 1 and key.isalpha() and key.isupper())

    def text(self, text: str) -> None:
        """Types text into the focused element."""
        self._type(list(text), shift=False)

    def chord(self, held: str, key: str) -> None:
        """A key pressed while another one is held."""
        self.hold(held, down=True)
        self.key(key)
        self.hold(held, down=False)

    def downloads(self, folder: Path) -> None:
        """The folder for downloads."""
        wanted = {"type": "allowed", "destinationFolder": str(folder)}
        self._call("browser.setDownloadBehavior", downloadBehavior=wanted)

    def hold(self, key: str, *, down: bool) -> None:
        """Press or release a key."""
        step = {"type": "keyDown" if down else "keyUp", "value": _KEYS[key]}
        self._perform({"type": "key", "id": "keys", "actions": [step]})

    def screenshot(self, path: Path) -> None:
        """A screenshot of the window."""
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

    def _address(self, port: str) -> str:
        return f"ws://127.0.0.1:{json.loads(port)['ws_port']}/session"

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        wrong = method == "log.entryAdded" and params["level"] == "error"
        if wrong and params["type"] == "javascript":
            self.errors.append(str(params["text"])[:2000])
        if method == "network.beforeRequestSent":
            self.fetched.append(params["request"]["url"])


def _plain(value: dict[str, Any]) -> Any:
    """A protocol value as JSON; None for what JSON cannot hold."""
    kind, content = value["type"], value.get("value")
    if kind in ("array", "nodelist", "htmlcollection"):
        return [_plain(each) for each in content or []]
    if kind == "object":
        return {name: _plain(each) for name, each in content or []}
    if kind in ("string", "boolean") or (kind == "number" and not isinstance(content, str)):
        return content
    return 0 if content == "-0" else None
