"""The report in a real headless Chromium: offline, in dark mode, printed, without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import schedscope as ss
from schedscope.report.focus import focus
from schedscope.report.page import page
from schedscope.report.subject import Subject

pytestmark = pytest.mark.needs("chromium")

FIXTURE = Path(__file__).parents[2] / "fixtures/linux-ftrace-starved.capture"
TIMELINE = "document.querySelector('.schedscope-timeline .sst-picture canvas').timeline"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = ss.open(FIXTURE, cache=tmp_path_factory.mktemp("cache"))
    path = tmp_path_factory.mktemp("report") / "starved.html"
    path.write_text(page(Subject(trace), focus(Subject(trace))), encoding="utf-8")
    return path


@pytest.fixture
def browser() -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser

    with Browser() as opened:
        yield opened


def drawn(browser: Any) -> None:
    canvas = "document.querySelector('.schedscope-timeline .sst-picture canvas')"
    browser.wait(f"{canvas}?.timeline?.state().frames > 0")
    assert browser.errors == []


def test_page_fetches_only_itself_and_the_timeline_works(browser: Any, report: Path) -> None:
    browser.offline()
    browser.open(report.as_uri())
    drawn(browser)
    before = browser.run(f"{TIMELINE}.state()")
    browser.run(f"{TIMELINE}.canvas.scrollIntoView({{block: 'center'}})")
    frame = browser.run(f"(r => [r.left, r.top])({TIMELINE}.canvas.getBoundingClientRect())")
    x, y = frame[0] + before["left"] + 200, frame[1] + before["axis"] + 10
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    browser.wait(f"{TIMELINE}.state().scale < {before['scale']}")
    fetched = [url for url in browser.fetched if not url.startswith("data:")]
    assert fetched == [report.as_uri()]


def test_injected_script_does_not_run(browser: Any, report: Path, tmp_path: Path) -> None:
    smuggled = '<script>document.title = "owned"</script><img src=x onerror="document.title=1">'
    path = tmp_path / "smuggled.html"
    text = report.read_text(encoding="utf-8").replace("<footer>", f"{smuggled}<footer>")
    path.write_text(text, encoding="utf-8")
    browser.open(path.as_uri())
    drawn(browser)
    assert browser.run("document.title").endswith("who waited for a CPU")


def test_page_without_scripts_has_all_but_the_timeline(browser: Any, report: Path) -> None:
    browser.scripts(False)
    browser.open(report.as_uri())
    words = browser.run("document.body.innerText").replace("\xa0", " ")
    assert "This timeline is drawn by a script, but scripts are disabled here." in words
    assert "patient (prio 139) waited 1.39 s on CPU 1 behind greedy" in words
    assert browser.run("document.querySelectorAll('figure svg').length") >= 10


@pytest.mark.parametrize("width", [1200, 400])
def test_page_has_no_horizontal_overflow(browser: Any, report: Path, width: int) -> None:
    """Tables and figures that are too wide scroll by themselves, also on a phone."""
    metrics = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    browser._call("Emulation.setDeviceMetricsOverride", **metrics)
    browser.open(report.as_uri())
    drawn(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_printed_timeline_is_light_and_is_restored(report: Path) -> None:
    pytest.importorskip("websockets")
    from browser import Browser

    corner = f"[...{TIMELINE}.canvas.getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)"
    with Browser(dark=True) as browser:
        browser.open(report.as_uri())
        drawn(browser)
        dark = browser.run(corner)
        assert max(dark) < 60
        browser.run(
            "window.seen = null; window.addEventListener('beforeprint',"
            f" () => {{ window.seen = {corner}; }})"
        )
        paper = browser.printed()
        assert browser.run("window.seen") == [255, 255, 255]
        assert browser.run(corner) == dark
    # Pages of A4, no more than a person reads.
    assert 8 <= len(re.findall(rb"/Type /Page\b", paper)) <= 20


def test_finding_link_shows_its_worst_case_in_the_timeline(browser: Any, report: Path) -> None:
    trace = ss.open(FIXTURE)
    first = ss.findings(trace).row(0, named=True)
    browser.open(report.as_uri())
    drawn(browser)
    browser.run("document.querySelector('a[data-view]').click()")
    at = first["ts"] - trace.window[0]
    browser.wait(f"{TIMELINE}.state().selection?.begin === {at}")
    now = browser.run(f"{TIMELINE}.state()")
    assert now["selection"]["lane"] == f"utid:{first['utid']}"
    assert now["first"] * now["scale"] <= at
    assert at + first["dur"] <= (now["first"] + now["bins"] + 1) * now["scale"]
    browser.wait("location.hash.includes('select=')")
    assert browser.errors == []
