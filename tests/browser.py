"""A real headless Chromium, driven with real input events over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import urllib.request
from pathlib import Path
from typing import Any

from driven import Driven


class Browser(Driven):
    """One page of Chromium."""

    port_file = "DevToolsActivePort"

    def __init__(self, *, dark: bool = False) -> None:
        super().__init__("chromium")
        self._dark = dark
        self._start(
            "--headless=new",
            "--no-sandbox",  # tests run as root in containers
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            "--window-size=1200,700",
            f"--user-data-dir={self._profile}",
            "about:blank",
        )

    def _prepare(self) -> None:
        self._call("Runtime.enable")
        self._call("Page.enable")
        self._call("Network.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": 1200, "height": 700, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str) -> None:
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def chord(self, held: str, key: str) -> None:
        """A key pressed while another one is held."""
        bits, code = {"Control": 2, "Shift": 8}[held], {"Enter": 13}[key]
        more = {"code": key, "modifiers": bits, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def hold(self, key: str, *, down: bool) -> None:
        """Press or release a key; a mouse event needs its own `modifiers`."""
        self._call("Input.dispatchKeyEvent", type="keyDown" if down else "keyUp", key=key)

    def text(self, text: str) -> None:
        """Types text into the focused element."""
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path, clip: tuple[float, float, float, float] | None = None) -> None:
        """A screenshot of the window, or of x, y, width and height of the page, beyond the window,
        too.
        """
        more: dict[str, Any] = {}
        if clip is not None:
            x, y, width, height = clip
            area = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
            more = {"clip": area, "captureBeyondViewport": True}
        data = self._call("Page.captureScreenshot", format="png", **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def printed(self) -> bytes:
        """The page printed as PDF."""
        data = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
        return base64.b64decode(data)

    def downloads(self, folder: Path) -> None:
        """The folder for downloads."""
        self._call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def scripts(self, on: bool) -> None:
        """Enable or disable scripts for pages opened from now on."""
        self._call("Emulation.setScriptExecutionDisabled", value=not on)

    def offline(self) -> None:
        """Blocks the network from now on; files still load."""
        off = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self._call("Network.emulateNetworkConditions", **off)

    def _address(self, port: str) -> str:
        where = f"http://127.0.0.1:{port.split()[0]}/json/list"
        with urllib.request.urlopen(where, timeout=10) as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        return str(pages[0]["webSocketDebuggerUrl"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
        if method == "Network.requestWillBeSent":
            self.fetched.append(params["request"]["url"])
