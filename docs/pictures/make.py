"""Make the pictures of these pages again, from the captures in fixtures/.

    PYTHONPATH=src:tests python docs/pictures/make.py

Needs Chromium, and for the printed page `pdftoppm` (poppler) or the package pymupdf; without
either that picture is left as it is. Each is checked to be below 200 kB: this is kept in git.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from browser import Browser

import schedscope as ss
from schedscope.report.focus import focus
from schedscope.report.page import page
from schedscope.report.subject import Subject

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
LARGEST = 200_000
TIMELINE = "document.querySelector('.schedscope-timeline canvas')"


def opened(browser: Any, path: Path) -> None:
    """Load a page and wait until its timeline is drawn."""
    browser.open(path.as_uri())
    browser.wait(f"{TIMELINE}?.timeline?.state().frames > 0 && !{TIMELINE}.timeline.state().asking")


def box(browser: Any, first: str, last: str = "", margin: int = 12) -> tuple[Any, ...]:
    """The part of the page from one element to another."""
    rects = [
        browser.run(
            f"(r => [r.left + scrollX, r.top + scrollY, r.right + scrollX, r.bottom + scrollY])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        for selector in (first, last or first)
    ]
    left, top = min(r[0] for r in rects) - margin, min(r[1] for r in rects) - margin
    right, bottom = max(r[2] for r in rects) + margin, max(r[3] for r in rects) + margin
    return left, top, right - left, bottom - top


def report(folder: Path) -> None:
    """Findings in the light, waits and the timeline in the dark, and a printed page."""
    trace = ss.open(FIXTURES / "linux-ftrace-starved.capture", cache=folder)
    path = folder / "report.html"
    subject = Subject(trace)
    path.write_text(page(subject, focus(subject)), encoding="utf-8")
    with Browser() as browser:
        opened(browser, path)
        browser.screenshot(HERE / "report-light.png", box(browser, "header", "#wrong"))
        printed = browser.printed()
    with Browser(dark=True) as browser:
        opened(browser, path)
        # Lanes are drawn while they are in the window.
        browser.run("document.querySelector('#timeline').scrollIntoView()")
        browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        browser.wait(f"!{TIMELINE}.timeline.state().asking")
        browser.screenshot(HERE / "report-dark.png", box(browser, "#timeline", "#starved-figure"))
    (folder / "report.pdf").write_bytes(printed)
    paper(folder / "report.pdf", HERE / "report-printed.png")


def paper(pdf: Path, target: Path) -> None:
    """The first page of a PDF as a picture."""
    if program := shutil.which("pdftoppm"):
        words = [program, "-png", "-r", "90", "-singlefile", str(pdf)]
        subprocess.run([*words, str(target.with_suffix(""))], check=True)
        return
    try:
        import pymupdf
    except ImportError:
        print(f"{target.name} is left as it is: there is no pdftoppm and no pymupdf")
        return
    pymupdf.open(pdf)[0].get_pixmap(dpi=90).save(target)


def timeline(folder: Path) -> None:
    """A wait with its waker, zoomed in until the intervals have names."""
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=folder)
    path = folder / "timeline.html"
    body = ss.timeline_html(trace)
    style = "body { font: 15px/1.4 system-ui, sans-serif; margin: 16px }"
    path.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><style>{style}</style><body>{body}',
        encoding="utf-8",
    )
    with Browser() as browser:
        opened(browser, path)
        browser.run(f"{TIMELINE}.focus()")
        for _ in range(4):
            browser.key("n")
        browser.wait(f"!{TIMELINE}.timeline.state().asking")
        browser.run("document.activeElement.blur()")
        browser.screenshot(HERE / "timeline.png", box(browser, ".schedscope-timeline"))
        left, top = browser.run(f"(r => [r.left, r.top])({TIMELINE}.getBoundingClientRect())")
        now = browser.run(f"{TIMELINE}.timeline.state()")
        x, y = left + now["left"] + 420, top + now["axis"] + 1.5 * now["height"]
        for _ in range(6):
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-150)
        browser.wait(f"!{TIMELINE}.timeline.state().asking")
        # A window of that size: to grow it for the picture would take the pointer away.
        metrics = {"width": 1200, "height": 390, "deviceScaleFactor": 1, "mobile": False}
        browser._call("Emulation.setDeviceMetricsOverride", **metrics)
        browser.mouse("mouseMoved", x + 5, y)
        browser.wait(f"{TIMELINE}.timeline.state().tip")
        browser.screenshot(HERE / "timeline-near.png")


def view(folder: Path) -> None:
    """The viewer with the longest wait selected, found by its thread's name."""
    capture = FIXTURES / "linux-ftrace-mixed.capture"
    command = [sys.executable, "-m", "schedscope", "view", str(capture), "--no-browser"]
    canvas = "document.querySelector('.sst-picture canvas')"
    with (
        subprocess.Popen(
            [*command, "--cache", str(folder)], stdout=subprocess.PIPE, text=True
        ) as server,
        Browser() as browser,
    ):
        assert server.stdout is not None
        browser.open(server.stdout.readline().strip())
        browser.wait(f"{canvas}?.timeline?.state().frames > 0")
        browser.key("n")
        select = "(t, w) => t.picture.select('utid:' + w.utid, w.ready + 1)"
        browser.run(f"({select})({canvas}.timeline, {canvas}.timeline.about.waits[0])")
        words = "document.querySelector('.sst-body').innerText"
        browser.wait(f"{words}.includes('Who ran meanwhile')")
        browser.wait("document.querySelector('.sst-quality').innerText.includes('unknown')")
        browser.wait(f"!{canvas}.timeline.state().asking")
        browser.screenshot(HERE / "view.png")
        server.terminate()


def main() -> int:
    """Make all, and say how large they are."""
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder))
        timeline(Path(folder))
        view(Path(folder))
    large = []
    for path in sorted(HERE.glob("*.png")):
        size = path.stat().st_size
        print(f"{path.name:<24}{size / 1000:>8.1f} kB")
        large += [path.name] * (size > LARGEST)
    if large:
        print(f"larger than {LARGEST / 1000:.0f} kB: {', '.join(large)}")
    return int(bool(large))


if __name__ == "__main__":
    sys.exit(main())
