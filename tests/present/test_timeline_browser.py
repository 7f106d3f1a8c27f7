"""The timeline in a real headless Chromium, moved by real mouse, wheel and key events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from widget_page import kernel, widget_page

import schedscope as ss
from schedscope.timelines.answer import Timeline
from schedscope.timelines.places import listed

pytestmark = pytest.mark.needs("chromium")

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures/linux-ftrace-mixed.capture"
HANDLE = "document.querySelector('.sst-picture canvas').timeline"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser

    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(FIXTURE, cache=tmp_path_factory.mktemp("cache"))


def show(browser: Any, path: Path, text: str) -> None:
    """Loads a page and waits until its timeline is drawn."""
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{text}', encoding="utf-8")
    browser.open(path.as_uri())
    browser.wait("document.querySelector('.sst-picture canvas')?.timeline")
    settled(browser)
    browser.run("document.querySelector('.sst-picture canvas').focus()")


@pytest.fixture
def page(browser: Any, trace: ss.Trace, tmp_path: Path) -> Any:
    show(browser, tmp_path / "page.html", ss.timeline_html(trace))
    return browser


def state(browser: Any) -> dict[str, Any]:
    found: dict[str, Any] = browser.run(f"{HANDLE}.state()")
    return found


def settled(browser: Any) -> dict[str, Any]:
    """The state after everything requested has arrived and was drawn."""
    frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    browser.wait(f"{HANDLE}.state().frames > 0 && !{HANDLE}.state().asking")
    browser.run(frames)
    assert browser.errors == []
    return state(browser)


def pixels(browser: Any) -> str:
    """Everything drawn, as one text."""
    text: str = browser.run(f"{HANDLE}.canvas.toDataURL()")
    return text


def spot(browser: Any, x: float, row: int) -> tuple[float, float]:
    """The screen position of lane number `row`, `x` pixels into its time."""
    now = state(browser)
    frame = browser.run(
        f"(r => [r.left, r.top])({HANDLE}.canvas.getBoundingClientRect())",
    )
    y = frame[1] + now["axis"] + (row + 0.5) * now["height"]
    return frame[0] + now["left"] + x, y


def test_the_whole_trace_is_shown_first(page: Any, trace: ss.Trace) -> None:
    now = state(page)
    assert now["exact"]
    assert now["first"] == 0
    assert (now["scale"] - 1) * now["bins"] < trace.duration <= now["scale"] * now["bins"]


def test_the_browser_sums_what_python_sums(page: Any, trace: ss.Trace) -> None:
    """Equal to the ns, at several scales, on every lane."""
    source = Timeline(trace)
    x, y = spot(page, 333, 0)
    for _ in range(4):
        now = settled(page)
        request = {key: now[key] for key in ("first", "bins", "scale")}
        for lane in source.first:
            answer, buffers = source.answer({"lanes": [lane], **request, "intervals": -1})
            (row,) = answer["lanes"]
            mine = page.run(f"{HANDLE}.sums('{lane}')")
            assert {code for code, sums in mine.items() if any(sums)} == set(row["states"])
            for code, (index, dtype) in row["states"].items():
                assert mine[code] == np.frombuffer(buffers[index], dtype=f"<{dtype}").tolist()
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)


def test_the_wheel_zooms_at_the_pointer(page: Any) -> None:
    before, drawn = state(page), pixels(page)
    x, y = spot(page, 400, 1)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    after = settled(page)
    assert before["scale"] / 4.2 < after["scale"] < before["scale"] / 3.8
    under = (before["first"] + 400) * before["scale"]
    assert abs((after["first"] + 400) * after["scale"] - under) <= 2 * after["scale"]
    assert pixels(page) != drawn
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=3000)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=3000)
    assert settled(page)["scale"] == before["scale"]


def test_dragging_and_arrows_pan(page: Any) -> None:
    x, y = spot(page, 500, 1)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    before, drawn = settled(page), pixels(page)
    page.drag(x, y, x - 130)
    after = settled(page)
    assert (after["first"], after["scale"]) == (before["first"] + 130, before["scale"])
    assert pixels(page) != drawn
    page.key("ArrowLeft")
    assert settled(page)["first"] == after["first"] - (after["bins"] + 4) // 8
    page.key("0")
    assert settled(page)["first"] == 0


def test_n_and_p_go_to_the_worst_waits(page: Any, trace: ss.Trace) -> None:
    worst = ss.worst_waits(trace, n=2)
    drawn = pixels(page)
    page.key("n")
    now = settled(page)
    begin, wait = worst["ts_ready"][0] - trace.window[0], worst["wait"][0]
    seen = now["first"] * now["scale"], (now["first"] + now["bins"]) * now["scale"]
    assert seen[0] <= begin
    assert begin + wait <= seen[1] + now["scale"]
    assert now["wait"] == 0
    assert f"{worst['comm'][0]} {worst['tid'][0]} waited" in now["note"]
    assert pixels(page) != drawn
    page.key("n")
    assert settled(page)["wait"] == 1
    page.key("p")
    assert settled(page)["wait"] == 0


def test_tooltip_shows_thread_state_duration_and_waker(page: Any, trace: ss.Trace) -> None:
    """Over a wait that a wakeup started, on the lane of the waiting thread."""
    source = Timeline(trace)
    number, wait = next(
        (i, w)
        for i, w in enumerate(source.waits)
        if w["waker"] is not None and w["waker_cpu"] is not None
    )
    for _ in range(number + 1):
        page.key("n")
    now = settled(page)
    row = page.run(f"{HANDLE}.lanes()").index(f"utid:{wait['utid']}")
    middle = (wait["ready"] + wait["wait"] / 2) / now["scale"] - now["first"]
    page.mouse("mouseMoved", *spot(page, middle, row))
    tip = settled(page)["tip"]
    assert source.lanes.name(wait["utid"]) in tip
    assert "runnable, waiting for a CPU for " in tip
    assert f"woken by {source.lanes.name(wait['waker'])} on CPU {wait['waker_cpu']}" in tip
    page.mouse("mouseMoved", 5, 5)
    assert settled(page)["tip"] == ""


def test_cpu_five_percent_busy_is_not_drawn_solid(browser: Any, tmp_path: Path) -> None:
    """1 µs of work every 20 µs for 0.1 s: a twentieth of the lane's height is coloured."""
    starts = list(range(0, 100_000_000, 20_000))
    states = pl.DataFrame(
        {
            "ts": [ts + at for ts in starts for at in (0, 1_000)],
            "dur": [1_000, 19_000] * len(starts),
            "utid": [1, 0] * len(starts),
            "state": ["running"] * 2 * len(starts),
            "cpu": [0] * 2 * len(starts),
        }
    )
    trace = ss.Trace.from_tables({"states": states}, {"ncpu": 1, "window": [0, 100_000_000]})
    show(browser, tmp_path / "five.html", ss.timeline_html(trace))
    now = settled(browser)
    top, height = round(now["axis"] + 2), round(now["height"] - 2)
    column = browser.run(
        f"[...{HANDLE}.canvas.getContext('2d')"
        f".getImageData({round(now['left'] + 300)}, {top}, 1, {height}).data]"
    )
    green = [column[i + 1] - column[i] > 20 for i in range(0, len(column), 4)]
    assert any(green)
    assert sum(green) <= 2
    assert green[-1]


def test_page_of_sums_names_its_finest_scale(browser: Any, trace: ss.Trace, tmp_path: Path) -> None:
    show(browser, tmp_path / "small.html", ss.timeline_html(trace, max_bytes=250_000))
    now = settled(browser)
    assert now["exact"]
    assert set(now["kinds"]) == {"bins"}
    assert now["scale"] % browser.run(f"{HANDLE}.about.finest") == 0
    x, y = spot(browser, 5, 0)
    for _ in range(8):
        browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    now = settled(browser)
    assert not now["exact"]
    assert re.search(r"sums over .* timeline and --since \d+us --until \d+us", now["note"])


def test_page_of_few_sums_fills_its_width_and_names_its_scale(
    browser: Any, trace: ss.Trace, tmp_path: Path
) -> None:
    show(browser, tmp_path / "tiny.html", ss.timeline_html(trace, max_bytes=160_000))
    now = settled(browser)
    finest = browser.run(f"{HANDLE}.about.finest")
    assert finest > 2 * now["scale"]  # fewer sums than pixels
    assert trace.duration <= now["scale"] * now["bins"] < 1.01 * trace.duration
    assert re.search("no more than sums over .* a larger --max-size", now["note"])


def notebook(browser: Any, path: Path, widget: Any, url: str) -> None:
    show(browser, path, widget_page(widget, url))


def test_the_widget_asks_python_for_what_it_shows(
    browser: Any, trace: ss.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real widget with messages over a real socket in a real browser."""
    pytest.importorskip("anywidget")
    monkeypatch.setattr("schedscope.timelines.answer.INTERVALS", 300)
    widget = ss.timeline(trace, lanes=["cpu:0", "cpu:1"])
    with kernel(widget) as url:
        notebook(browser, tmp_path / "widget.html", widget, url)
        now = settled(browser)
        assert (now["exact"], now["kinds"]) == (True, ["bins", "bins"])
        x, y = spot(browser, 400, 0)
        for _ in range(6):
            browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
        now = settled(browser)
        assert (now["exact"], now["kinds"]) == (True, ["intervals", "intervals"])
        browser.key("n")
        now = settled(browser)
        assert now["exact"]
        assert browser.run(f"{HANDLE}.lanes()")[2] == f"utid:{widget.about['waits'][0]['utid']}"
        browser.drag(*spot(browser, 500, 0), 300)
        assert settled(browser)["exact"]


def test_widget_works_in_a_shadow_tree(browser: Any, trace: ss.Trace, tmp_path: Path) -> None:
    """Marimo puts each output into a shadow tree, which queries of the page do not reach."""
    pytest.importorskip("anywidget")
    widget = ss.timeline(trace)
    canvas = (
        "document.querySelector('p')?.shadowRoot?.querySelector('.sst-picture canvas')?.timeline"
    )
    with kernel(widget) as url:
        path = tmp_path / "shadow.html"
        path.write_text(
            f"<!DOCTYPE html><meta charset=utf-8><body>{widget_page(widget, url, shadow=True)}"
        )
        browser.open(path.as_uri())
        browser.wait(f"{canvas}?.state().frames > 0 && {canvas}.state().exact")
        browser.run(f"{canvas}.canvas.focus()")
        browser.key("n")
        browser.wait(f"{canvas}.state().note.includes('Wait 1 of the')")
        assert browser.errors == []


def test_error_from_python_is_shown_in_the_timeline(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    trace = ss.Trace.from_tables({}, {"ncpu": 1, "window": [0, 1000]})
    widget = ss.timeline(trace)
    widget.about = {**widget.about, "lanes": ["disk:0"]}
    with kernel(widget) as url:
        notebook(browser, tmp_path / "wrong.html", widget, url)
        assert "expected cpu:N or utid:N" in settled(browser)["note"]


def test_button_of_a_finding_opens_the_timeline_there(
    browser: Any, trace: ss.Trace, tmp_path: Path
) -> None:
    from schedscope.timelines.cards import cards
    from schedscope.timelines.widget import findings_widget

    pytest.importorskip("anywidget")
    found = ss.findings(trace)
    widget = findings_widget(trace, cards(found, trace, buttons=True))
    with kernel(widget) as url:
        path = tmp_path / "cards.html"
        path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{widget_page(widget, url)}')
        browser.open(path.as_uri())
        browser.wait("document.querySelectorAll('article').length")
        assert browser.run("document.querySelectorAll('article button').length") == len(found)
        assert browser.run("!document.querySelector('.sst')"), "not before it is asked for"
        browser.run("document.querySelector('article button').click()")
        browser.wait("document.querySelector('.sst-picture canvas')?.timeline?.picture.selection")
        now = settled(browser)
        shown = (now["first"] * now["scale"], (now["first"] + now["bins"]) * now["scale"])
        first = listed(trace, found)[0]
        assert shown[0] <= first["at"] < shown[1]
        assert now["selection"]["lane"] == first["lane"]


def test_strip_shows_the_whole_trace_and_selects_a_part(page: Any) -> None:
    strip = "document.querySelector('.sst-strip')"
    before = state(page)
    row = f"{strip}.getContext('2d').getImageData({before['left']}, 25, 600, 1).data"
    page.wait(f"new Set(new Uint32Array({row}.buffer)).size > 1")  # busy and idle times
    left, top, width = page.run(f"(r => [r.left, r.top, r.width])({strip}.getBoundingClientRect())")
    begin = left + before["left"]
    x = [begin + (width - before["left"]) * part for part in (0.25, 0.5)]
    pressed = {"button": "left", "buttons": 1, "clickCount": 1}
    page.mouse("mousePressed", x[0], top + 15, **pressed)
    page.mouse("mouseMoved", x[1], top + 15, **pressed)
    page.mouse("mouseReleased", x[1], top + 15, **pressed)
    now = settled(page)
    length = now["bins"] * now["scale"]
    whole = before["bins"] * before["scale"]
    assert 0.2 * whole < length < 0.3 * whole
    assert 0.2 * whole < now["first"] * now["scale"] < 0.3 * whole
    # A click elsewhere moves the frame, at the same scale.
    page.mouse("mousePressed", begin + (width - before["left"]) * 0.8, top + 15, **pressed)
    page.mouse("mouseReleased", begin + (width - before["left"]) * 0.8, top + 15, **pressed)
    then = settled(page)
    assert then["scale"] == now["scale"]
    assert then["first"] > now["first"]
