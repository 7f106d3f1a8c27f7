"""Make the pictures of these pages again, from the captures in fixtures/.

    PYTHONPATH=src:tests python docs/pictures/make.py [report|timeline|view|tutorials]

Needs Chromium, and for the printed page `pdftoppm` (poppler) or the package pymupdf; without
either that picture is left as it is. Each is checked to be below 250 kB: this is kept in git.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from archives import unpack
from browser import Browser

import schedscope as ss
from schedscope.report.focus import focus
from schedscope.report.page import page
from schedscope.report.subject import Subject

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
LARGEST = 250_000
# Not the first canvas, which is the overview of the whole trace.
CANVAS = "document.querySelector('.sst-picture canvas')"


def opened(browser: Any, path: Path) -> None:
    """Load a page and wait until its timeline is drawn."""
    browser.open(path.as_uri())
    browser.wait(f"{CANVAS}?.timeline?.state().frames > 0 && !{CANVAS}.timeline.state().asking")


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
        browser.wait(f"!{CANVAS}.timeline.state().asking")
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
        browser.run(f"{CANVAS}.focus()")
        for _ in range(4):
            browser.key("n")
        browser.wait(f"!{CANVAS}.timeline.state().asking")
        browser.run("document.activeElement.blur()")
        browser.screenshot(HERE / "timeline.png", box(browser, ".schedscope-timeline"))
        left, top = browser.run(f"(r => [r.left, r.top])({CANVAS}.getBoundingClientRect())")
        now = browser.run(f"{CANVAS}.timeline.state()")
        x, y = left + now["left"] + 420, top + now["axis"] + 1.5 * now["height"]
        for _ in range(6):
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-150)
        browser.wait(f"!{CANVAS}.timeline.state().asking")
        # A window of that size: to grow it for the picture would take the pointer away.
        metrics = {"width": 1200, "height": 390, "deviceScaleFactor": 1, "mobile": False}
        browser._call("Emulation.setDeviceMetricsOverride", **metrics)
        browser.mouse("mouseMoved", x + 5, y)
        browser.wait(f"{CANVAS}.timeline.state().tip")
        browser.screenshot(HERE / "timeline-near.png")


@contextmanager
def viewed(folder: Path, *words: str) -> Iterator[Any]:
    """A browser that shows what `schedscope view` with these words opens."""
    command = [sys.executable, "-m", "schedscope", "view", *words, "--no-browser"]
    with (
        subprocess.Popen(
            [*command, "--cache", str(folder)], stdout=subprocess.PIPE, text=True
        ) as server,
        Browser() as browser,
    ):
        assert server.stdout is not None
        browser.open(server.stdout.readline().strip())
        browser.wait(f"{CANVAS}?.timeline?.state().frames > 0")
        # It opens on the first finding.
        browser.wait(f"{CANVAS}.timeline.state().note.includes('Finding 1')")
        browser.wait("document.querySelector('.sst-quality').innerText.includes('unknown')")
        yield browser
        browser.wait(f"!{CANVAS}.timeline.state().asking")
        server.terminate()


def view(folder: Path) -> None:
    """The viewer with the longest wait selected, found by its thread's name."""
    with viewed(folder, str(FIXTURES / "linux-ftrace-mixed.capture")) as browser:
        browser.key("n")
        select = "(t, w) => t.picture.select('utid:' + w.utid, w.ready + 1)"
        browser.run(f"({select})({CANVAS}.timeline, {CANVAS}.timeline.about.waits[0])")
        words = "document.querySelector('.sst-body').innerText"
        browser.wait(f"{words}.includes('Who ran meanwhile')")
        browser.wait(f"!{CANVAS}.timeline.state().asking")
        browser.screenshot(HERE / "view.png")


def tutorials(folder: Path) -> None:
    """What the steps of the tutorials show: requests, the viewer, and curves of waits."""
    for name in ("orders", "cfs-and-eevdf"):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as packed:
            unpack(packed, folder)

    def runs(text: str, numbers: int) -> list[ss.Trace]:
        names = [folder / text.format(number) for number in range(1, numbers + 1)]
        return [ss.open(name, cache=folder) for name in names]

    def save(axes: Any, name: str) -> None:
        axes.figure.savefig(HERE / name, bbox_inches="tight", dpi=80)

    before, after = runs("before-{}.capture", 4), runs("after-{}.capture", 4)
    save(ss.plot.requests(ss.requests(before[0], by="request", top=8)), "p99-requests.png")
    ours = pl.col("comm").str.starts_with("orders")
    waits = ss.wait_distribution(before, after, where=ours, labels=["quota", "none"])
    save(ss.plot.wait_distribution(waits, tail=True), "p99-proof.png")
    cfs, eevdf = runs("linux-6.1-sleepers-{}.capture", 3), runs("linux-6.12-sleepers-{}.capture", 3)
    ours = pl.col("comm").str.starts_with("sleeper")
    waits = ss.wait_distribution(cfs, eevdf, where=ours, labels=["CFS", "EEVDF"])
    save(ss.plot.wait_distribution(waits), "scheduler-waits.png")
    words = [str(folder / "before-1.capture"), "--service", "orders.service"]
    with viewed(folder, *words) as browser:
        browser.wait(f"{CANVAS}.timeline.picture.lanes().some(lane => lane.startsWith('quota'))")
        browser.wait(f"!{CANVAS}.timeline.state().asking")
        browser.key("Escape")
        browser.screenshot(HERE / "p99-view.png", box(browser, ".sst-quality", ".sst-note", 2))


def main() -> int:
    """Make all, or those that are named, and say how large they are."""
    made = {each.__name__: each for each in (report, timeline, view, tutorials)}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or made:
            made[name](Path(folder))
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
