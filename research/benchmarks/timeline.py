"""The timeline on a long trace: time and bytes of an answer, frames per second while it moves.

    python research/benchmarks/timeline.py TRACE
    python research/benchmarks/timeline.py TRACE --check     and fail beyond the limits

TRACE is best a .sched folder of 10 M events (research/benchmarks/analyses.py generates one). First
the answers alone: the very first builds the lanes, the others zoom in around the worst wait. Then
the widget in a headless Chromium that draws in software, its messages over a real socket: wheel and
drag events go in one by one, and frames are counted by the page itself. `work` is the CPU time of
the page's main thread for one of them, whatever else the host does: 33 ms of it are 30 frames per
second. Frames per second are meaningful on an idle host only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import schedscope as ss
from schedscope.timelines.answer import Timeline

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from browser import Browser
from widget_page import kernel, widget_page

LIMIT_WORK_MS = 1000 / 30
LIMIT_ANSWER_S = 0.25
LIMIT_BYTES = 2_000_000
PIXELS = 1_000
HANDLE = "document.querySelector('.sst-picture canvas').timeline"


def cpu() -> float:
    return time.process_time()


def answers(source: Timeline) -> list[tuple[str, float, int, int]]:
    """The step, CPU seconds, bytes, and intervals that were sent individually."""
    duration = source.lanes.duration
    middle = source.waits[0]["ready"] if source.waits else duration // 2
    rows = []
    whole = -(-duration // PIXELS)
    views = [("everything, lanes built", 0, whole), ("everything", 0, whole)]
    for part in (10, 100, 1_000, 10_000, 100_000):
        scale = max(1, duration // part // PIXELS)
        views.append((f"1/{part:,} of it", max(0, middle // scale - PIXELS // 2), scale))
    for name, first, scale in views:
        # A picture asks for half a screen more on either side.
        request = {"lanes": source.first, "first": max(0, first - PIXELS // 2), "scale": scale}
        begin = cpu()
        answer, buffers = source.answer({**request, "bins": 2 * PIXELS})
        spent = cpu() - begin
        sent = sum(
            len(buffers[row["durs"][0]]) // {"u1": 1, "u2": 2, "u4": 4, "f8": 8}[row["durs"][1]]
            for row in answer["lanes"]
            if row["kind"] == "intervals"
        )
        rows.append((name, spent, sum(map(len, buffers)), sent))
    return rows


def spot(browser: Any) -> tuple[float, float]:
    left, top = browser.run(f"(r => [r.left, r.top])({HANDLE}.canvas.getBoundingClientRect())")
    return left + 600, top + 40


def work(browser: Any) -> float:
    """CPU seconds of the page's main thread so far."""
    metrics = browser._call("Performance.getMetrics")["metrics"]
    return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")


def moving(browser: Any, events: int, move: Any) -> tuple[float, float]:
    """Frames per second, and ms of CPU time for each, while `move(i)` goes on."""
    before, spent = browser.run(f"{HANDLE}.state().frames"), work(browser)
    begin = time.perf_counter()
    for i in range(events):
        move(i)
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - begin
    frames = browser.run(f"{HANDLE}.state().frames") - before
    return frames / seconds, 1000 * (work(browser) - spent) / max(1, frames)


def frames(trace: ss.Trace, events: int) -> list[tuple[str, float, float]]:
    widget = ss.timeline(trace)
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        kernel(widget) as url,
        Browser() as browser,
    ):
        path = Path(folder) / "page.html"
        text = f'<!DOCTYPE html><meta charset="utf-8"><body>{widget_page(widget, url)}'
        path.write_text(text, encoding="utf-8")
        browser._call("Performance.setTimeDomain", timeDomain="threadTicks")
        browser._call("Performance.enable")
        browser.open(path.as_uri())
        browser.wait("document.querySelector('.sst-picture canvas')?.timeline")
        browser.wait(f"{HANDLE}.state().frames > 0 && !{HANDLE}.state().asking")
        x, y = spot(browser)

        def wheel(i: int) -> None:
            step = -40 if i % 60 < 30 else 40
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=step)

        def drag(i: int) -> None:
            way = x + 5 * (i % 60 if i % 120 < 60 else 60 - i % 60)
            browser.mouse("mouseMoved", way, y, button="left", buttons=1)

        rows.append(("wheel, in and out of everything", *moving(browser, events, wheel)))
        browser.key("n")
        browser.wait(f"!{HANDLE}.state().asking")
        for _ in range(4):
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=200)
        browser.wait(f"!{HANDLE}.state().asking")
        browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        rows.append(("drag, around the worst wait", *moving(browser, events, drag)))
        browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
        assert not browser.errors, browser.errors
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--events", type=int, default=240, help="input events for each movement")
    parser.add_argument("--check", action="store_true", help="fail beyond the limits")
    args = parser.parse_args()
    trace = ss.open(args.trace)
    source = Timeline(trace)
    rows = answers(source)
    intervals = sum(len(lane.starts) for lane in source.lanes.get(source.first))
    print(f"{trace.events:,} events; {len(source.first)} lanes with {intervals:,} intervals")
    print(f"\n{'answer':<34}{'CPU':>10}{'size':>12}{'intervals':>11}")
    for name, spent, size, sent in rows:
        print(f"{name:<34}{1000 * spent:>7.1f} ms{size / 1000:>9.1f} kB{sent:>11,}")
    print(f"\n{'movement':<34}{'frames':>10}{'work':>12}")
    moved = frames(trace, args.events)
    for name, rate, own in moved:
        print(f"{name:<34}{rate:>8.1f}/s{own:>9.2f} ms")
    slow = [name for name, spent, size, _ in rows[1:] if spent > LIMIT_ANSWER_S]
    large = [name for name, _, size, _ in rows if size > LIMIT_BYTES]
    jerky = [name for name, _, own in moved if own > LIMIT_WORK_MS]
    for what, names in (("slow", slow), ("large", large), ("jerky", jerky)):
        if names:
            print(f"{what}: {', '.join(names)}")
    print(f"median answer {1000 * median(spent for _, spent, _, _ in rows[1:]):.1f} ms")
    return int(args.check and bool(slow or large or jerky))


if __name__ == "__main__":
    sys.exit(main())
