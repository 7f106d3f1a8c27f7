"""The timeline in a real JupyterLab: a kernel, a server, a browser, real wheel and key events."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import schedscope as ss

pytestmark = pytest.mark.needs("chromium")

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures/linux-ftrace-mixed.capture"
HANDLE = "document.querySelector('.sst-picture canvas').timeline"
PAPER = "document.querySelector('.jp-WindowedPanel-outer')"


def notebook(folder: Path) -> None:
    code = f"import schedscope as ss\nss.timeline(ss.open({str(FIXTURE)!r}, cache={str(folder)!r}))"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, folder / "timeline.ipynb")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab of this Python, with one notebook in it."""
    for name in ("jupyterlab", "anywidget", "ipykernel", "websockets"):
        pytest.importorskip(name)
    notebook(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.token=x", "--LabApp.news_url=None"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={tmp_path}"),
    ]
    # Its settings and its kernels' files go into the test's folder.
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME")}
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            words, stdout=log, stderr=log, env={**os.environ, **own, "PYTHONPATH": path}
        )
    try:
        end = time.monotonic() + 60
        while not re.search(r"http://\S*/lab", (tmp_path / "log").read_text()):
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, "JupyterLab does not answer"
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/timeline.ipynb?token=x"
    finally:
        server.terminate()
        server.wait(30)


def state(browser: Any) -> dict[str, Any]:
    browser.wait(f"!{HANDLE}.state().asking")
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: dict[str, Any] = browser.run(f"{HANDLE}.state()")
    return found


def run_first_cell(browser: Any) -> None:
    """As a person does: click into it, Shift and Enter; again if it was not ready yet."""
    cell = "document.querySelector('.jp-CodeCell')"
    editor = f"{cell}?.querySelector('.cm-content')"
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8}
    drawn = "document.querySelector('.sst-picture canvas')?.timeline?.state().frames > 0"
    browser.wait(editor)
    end = time.monotonic() + 120
    while not browser.run(f"!!({drawn})"):
        said = browser.run(f"{cell}.innerText")
        assert time.monotonic() < end, said
        # Before the kernel is ready, the cell is taken and returned.
        if "[ ]" in said:
            x, y = browser.run(f"(r => [r.left + 50, r.top + 8])({editor}.getBoundingClientRect())")
            browser.mouse("mousePressed", x, y, button="left", clickCount=1)
            browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
            if browser.run(f"{editor}.contains(document.activeElement)"):
                browser._call("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
                browser._call("Input.dispatchKeyEvent", type="keyUp", **enter)
        time.sleep(2)


def test_pan_zoom_hover_and_jump_in_jupyterlab(
    lab: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from browser import Browser

    monkeypatch.setattr("driven.PATIENCE", 120.0)
    trace = ss.open(FIXTURE, cache=tmp_path)
    with Browser() as browser:
        browser._call("Page.navigate", url=lab)
        run_first_cell(browser)
        first = state(browser)
        assert first["exact"]
        assert first["first"] == 0
        browser.run(f"{HANDLE}.canvas.scrollIntoView({{block: 'center'}})")
        scrolled = browser.run(f"{PAPER}.scrollTop")
        left, top = browser.run(f"(r => [r.left, r.top])({HANDLE}.canvas.getBoundingClientRect())")
        x, y = left + first["left"] + 300, top + first["axis"] + 1.5 * first["height"]
        for _ in range(3):
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
        near = state(browser)
        assert near["exact"]
        assert near["scale"] < first["scale"] / 10
        browser.drag(x, y, x - 150)
        assert state(browser)["first"] == near["first"] + 150
        browser.mouse("mouseMoved", x - 100, y)
        assert re.search(r"(running|idle) for .* from .* on\nCPU 1", state(browser)["tip"])
        cells = browser.run("document.querySelectorAll('.jp-Cell').length")
        browser.key("n")
        now = state(browser)
        worst = ss.worst_waits(trace, n=1).row(0, named=True)
        assert f"{worst['comm']} {worst['tid']} waited 645 ms" in now["note"]
        assert now["tip"] == ""
        for key in ("p", "ArrowUp", "ArrowDown", "0"):
            browser.key(key)
        assert state(browser)["scale"] == first["scale"]
        # The notebook's own wheel and keys are unaffected.
        assert browser.run(f"{PAPER}.scrollTop") == scrolled
        assert browser.run("document.querySelectorAll('.jp-Cell').length") == cells
        assert browser.errors == []
