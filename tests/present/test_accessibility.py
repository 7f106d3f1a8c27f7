"""The pages have no violations for axe-core, in light and dark mode.

axe-core is not part of the repository: SCHEDSCOPE_AXE names its `axe.min.js` (`.ci/axe DIR` fetches
it with npm).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from view_server import TOKEN, server

import schedscope as ss
from schedscope import cli
from schedscope.report.focus import focus
from schedscope.report.page import page as report_page
from schedscope.report.subject import Subject

pytestmark = pytest.mark.needs("chromium", "axe-core")

FIXTURES = Path(__file__).parents[2] / "fixtures"
FIXTURE = FIXTURES / "linux-ftrace-mixed.capture"
STARVED = FIXTURES / "linux-ftrace-starved.capture"
HANDLE = "document.querySelector('.sst-picture canvas').timeline"
JUDGE = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(
  one => `${one.id} (${one.impact}): ${one.help}: `
    + one.nodes.map(node => node.target + " " + node.html.slice(0, 200) + " "
    + node.any.concat(node.all, node.none).map(check => check.message)).slice(0, 5).join(" | ")
    + ` (${one.nodes.length})`))"""


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser

    with Browser(dark=request.param == "dark") as opened:
        yield opened


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(FIXTURE, cache=tmp_path_factory.mktemp("cache"))


def complaints(browser: Any) -> list[str]:
    """axe-core's violations on the current page."""
    assert browser.errors == []
    if not browser.run("'axe' in window"):
        browser.run(Path(os.environ["SCHEDSCOPE_AXE"]).read_text(encoding="utf-8") + ";0")
    found: list[str] = browser.run(JUDGE)
    return found


def drawn(browser: Any) -> None:
    browser.wait("document.querySelector('.sst-picture canvas')?.timeline")
    browser.wait(f"{HANDLE}.state().frames > 0 && !{HANDLE}.state().asking")


def press(browser: Any, keys: str) -> None:
    for key in keys:
        browser.key(key)
        browser.wait(f"!{HANDLE}.state().asking")


def test_checker_finds_known_violations(browser: Any, tmp_path: Path) -> None:
    """An image without text, and grey on grey."""
    path = tmp_path / "bad.html"
    path.write_text("<p style='color:#aaa;background:#bbb'>faint</p><img src='data:,'>")
    browser.open(path.as_uri())
    found = " ".join(complaints(browser))
    assert "image-alt" in found
    assert "color-contrast" in found


@pytest.mark.parametrize(
    "keys",
    ["", "n", "g", "?", "q", "b"],
    ids=["at first", "a wait", "a finding", "keys", "SQL", "notes"],
)
def test_the_viewer(browser: Any, trace: ss.Trace, keys: str) -> None:
    with server(trace) as port:
        browser.open(f"http://127.0.0.1:{port}/{TOKEN}/")
        drawn(browser)
        press(browser, keys)
        assert complaints(browser) == []
        browser.open("about:blank")


def test_requests_in_the_viewer(browser: Any, tmp_path: Path) -> None:
    with server(ss.open(FIXTURES / "linux-requests.capture", cache=tmp_path)) as port:
        browser.open(f"http://127.0.0.1:{port}/{TOKEN}/")
        drawn(browser)
        press(browser, "q")
        browser.run(
            "[...document.querySelectorAll('[role=tab]')]"
            ".find(tab => tab.innerText === 'Requests').click()"
        )
        browser.wait("document.querySelector('.sst-body').innerText.includes('The slowest')")
        assert complaints(browser) == []
        browser.open("about:blank")


def test_data_quality_in_the_viewer(browser: Any, tmp_path: Path) -> None:
    with server(ss.open(FIXTURES / "linux-ftrace-lossy.capture", cache=tmp_path)) as port:
        browser.open(f"http://127.0.0.1:{port}/{TOKEN}/")
        drawn(browser)
        browser.wait("document.querySelector('.sst-quality').innerText.includes('unknown')")
        browser.run("document.querySelector('.sst-quality button').click()")
        browser.wait("document.querySelectorAll('.sst-body table').length === 2")
        assert complaints(browser) == []
        browser.open("about:blank")


def test_viewer_of_two_traces_passes(browser: Any, trace: ss.Trace) -> None:
    with server(trace, trace) as port:
        browser.open(f"http://127.0.0.1:{port}/{TOKEN}/")
        drawn(browser)
        press(browser, "c")
        assert complaints(browser) == []
        browser.open("about:blank")


def test_the_report(browser: Any, tmp_path: Path) -> None:
    starved = ss.open(STARVED, cache=tmp_path)
    path = tmp_path / "report.html"
    path.write_text(report_page(Subject(starved), focus(Subject(starved))), encoding="utf-8")
    browser.open(path.as_uri())
    drawn(browser)
    assert complaints(browser) == []


def test_the_timeline(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "timeline.html"
    words = ["timeline", str(FIXTURE), "-o", str(path), "--cache", str(tmp_path)]
    assert cli.main(words) == 0
    browser.open(path.as_uri())
    drawn(browser)
    press(browser, "n")
    assert complaints(browser) == []


def test_the_fleet(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("linux-ftrace-lossy", "linux-ftrace-starved", "linux-ftrace-mixed"):
        shutil.copytree(FIXTURES / f"{name}.capture", folder / f"{name}.capture")
    assert cli.main(["fleet", str(folder), "-o", str(tmp_path / "fleet")]) == 0
    browser.open((tmp_path / "fleet/index.html").as_uri())
    assert complaints(browser) == []
