"""The timeline's colours and patterns differ for every colour vision and in greyscale.

Simulation of colour blindness: Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", 2009, severity 1. Distances are CIE 1976 in L*a*b*,
contrasts those of WCAG 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import schedscope as ss
from schedscope.timelines.script import script

COLOURS = Path(__file__).parents[2] / "src/schedscope/timelines/colours.js"
Colour = npt.NDArray[np.float64]

SIMULATED: dict[str, list[list[float]]] = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "none": np.eye(3).tolist(),
}
STATES = ("RUNNING", "RUNNABLE", "BLOCKED", "STOPPED")


def palette(name: str) -> dict[str, str]:
    """The colours of `LIGHT` or `DARK` as they are declared."""
    found = re.search(rf"const {name} = \{{(.*?)\n\}};", COLOURS.read_text(), re.DOTALL)
    assert found
    first, _, second = found[1].partition("second:")
    colours = dict(re.findall(r"\[?(\w+)\]?: \"(#[0-9a-f]{6})\"", first))
    return colours | {
        f"{key} 2": value for key, value in re.findall(r"\[(\w+)\]: \"(#[0-9a-f]{6})\"", second)
    }


def linear(colour: str) -> Colour:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Colour) -> Colour:
    xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    ) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / np.array([0.95047, 1, 1.08883]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, eye: str) -> float:
    matrix = np.array(SIMULATED[eye])
    return float(np.linalg.norm(lab(matrix @ linear(one)) - lab(matrix @ linear(other))))


@pytest.mark.parametrize("eye", SIMULATED)
@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_states_differ_with_every_colour_vision(name: str, eye: str) -> None:
    """At least 15 apart: 2.3 is just noticeable side by side."""
    colours = palette(name)
    for one, other in combinations(STATES, 2):
        assert distance(colours[one], colours[other], eye) > 15, (one, other)
    for state in STATES:
        assert distance(colours[state], colours["lane"], eye) > 30, state


@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_states_differ_in_greyscale(name: str) -> None:
    """In lightness alone; similar ones have different patterns."""
    colours = palette(name)
    light = {state: lab(linear(colours[state]))[0] for state in STATES}
    for one, other in combinations(STATES, 2):
        assert abs(light[one] - light[other]) > 10, (one, other)


@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_contrasts_suffice(name: str) -> None:
    """3 for drawings, 4.5 for text; a pattern is compared with its own colour."""
    colours = palette(name)
    for state in (*STATES, "SLEEPING", "hatch", "arrow", "mark"):
        assert contrast(colours[state], colours["lane"]) >= 3, state
    for text in ("text", "faint"):
        assert contrast(colours[text], colours["back"]) >= 4.5, text
    for state in STATES[1:]:
        assert contrast(colours[state], colours[f"{state} 2"]) >= 2, state
    # Names of CPUs in the running part of a thread's lane, and a range's length in its mark.
    assert contrast(colours["RUNNING"], colours["back"]) >= 4.5
    assert contrast(colours["mark"], colours["back"]) >= 4.5


def test_script_is_one_module_without_comments() -> None:
    text = script()
    assert not re.search(r"^\s*(//|/\*\*.*\*/$)", text, re.MULTILINE)
    assert text.count("export default") == 1
    assert len(text) < 136_000, "every page carries it"


# -- as drawn -------------------------------------------------------------------------------

FIXTURE = Path(__file__).parents[2] / "fixtures/linux-ftrace-mixed.capture"
HANDLE = "document.querySelector('.sst-picture canvas').timeline"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours")
    trace = ss.open(FIXTURE, cache=folder)
    path = folder / "page.html"
    style = "<style>:root{color-scheme:light dark} body{color:CanvasText;background:Canvas}</style>"
    path.write_text(
        f'<!DOCTYPE html><meta charset="utf-8">{style}<body data-alone>{ss.timeline_html(trace)}',
        encoding="utf-8",
    )
    return path


@pytest.fixture
def browser() -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser

    with Browser() as opened:
        yield opened


def lane(browser: Any, path: Path, **features: str) -> set[str]:
    """The drawn colours in the lane of the thread with the longest wait, around that wait."""
    media = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    browser._call("Emulation.setEmulatedMedia", features=media)
    browser.open("about:blank")
    browser.open(path.as_uri())
    browser.wait("document.querySelector('.sst-picture canvas')?.timeline?.state().frames > 0")
    browser.key("n")
    browser.wait(f"{HANDLE}.state().wait === 0 && !{HANDLE}.state().asking")
    browser.run("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")
    assert browser.errors == []
    now = browser.run(f"{HANDLE}.state()")
    row = browser.run(f"{HANDLE}.lanes().indexOf('utid:' + {HANDLE}.about.waits[0].utid)")
    y = now["axis"] + row * now["height"] + 8
    data = browser.run(
        f"[...{HANDLE}.canvas.getContext('2d').getImageData({now['left'] + 400}, {y}, 40, 8).data]"
    )
    return {"#{:02x}{:02x}{:02x}".format(*data[i : i + 3]) for i in range(0, len(data), 4)}


@pytest.mark.needs("chromium")
def test_waiting_is_drawn_in_both_of_its_colours(browser: Any, path: Path) -> None:
    for scheme, name in (("light", "LIGHT"), ("dark", "DARK")):
        colours = palette(name)
        drawn = lane(browser, path, prefers_color_scheme=scheme)
        assert {colours["RUNNABLE"], colours["RUNNABLE 2"]} <= drawn


@pytest.mark.needs("chromium")
def test_a_kernel_thread_at_rest_is_drawn_lighter_than_one_asleep(browser: Any, path: Path) -> None:
    """A dashed line against a solid one: neither state is the focus of a trace."""
    trace = ss.open(FIXTURE, cache=path.parent)
    lane(browser, path)
    parts = {}
    for state in ("sleeping", "parked"):
        rows = trace.states.filter(state=state).select("utid", "ts", "dur").collect()
        utid, ts, dur = rows.sort("dur").row(-1)
        begin = ts - trace.window[0]
        browser.run(f"{HANDLE}.picture.show(['utid:{utid}'])")
        browser.run(f"{HANDLE}.picture.between({begin}, {begin + dur})")
        browser.wait(f"!{HANDLE}.state().asking && {HANDLE}.lanes().includes('utid:{utid}')")
        browser.run("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")
        now = browser.run(f"{HANDLE}.state()")
        y = now["axis"] + browser.run(f"{HANDLE}.lanes().indexOf('utid:{utid}')") * now["height"]
        at = f"{now['left'] + 200}, {y + 4}, 400, {now['height'] - 6}"
        data = browser.run(f"[...{HANDLE}.canvas.getContext('2d').getImageData({at}).data]")
        pixels = np.array(data, dtype=np.uint8).reshape(-1, 4)[:, :3]
        colours = ["#{:02x}{:02x}{:02x}".format(*pixel) for pixel in pixels]
        assert set(colours) == {palette("LIGHT")["lane"], palette("LIGHT")["SLEEPING"]}
        parts[state] = colours.count(palette("LIGHT")["SLEEPING"]) / (2 * 400)
    assert parts["sleeping"] == 1
    assert parts["parked"] == pytest.approx(3 / 8, abs=0.01)


@pytest.mark.needs("chromium")
def test_forced_colours_keep_patterns(browser: Any, path: Path) -> None:
    drawn = lane(browser, path, forced_colors="active", prefers_color_scheme="light")
    assert {"#000000", "#ffffff"} <= drawn
    assert not drawn & (set(palette("LIGHT").values()) - {"#ffffff"})


@pytest.mark.needs("chromium")
def test_forced_colours_keep_the_selected_tab_readable(browser: Any, path: Path) -> None:
    """The browser would put its own background behind the letters, in their own colour."""
    lane(browser, path, forced_colors="active", prefers_color_scheme="light")
    browser.key("q")
    style = "getComputedStyle(document.querySelector('.sst-tabs [aria-selected=true]'))"
    browser.wait(f"{style}.forcedColorAdjust === 'none'")
    assert browser.run(f"{style}.color !== {style}.backgroundColor")


@pytest.mark.needs("chromium")
def test_a_low_window_shows_details_below_the_picture(browser: Any, path: Path) -> None:
    """320 x 256 CSS pixels, as a screen of 1280 x 1024 at 400 %."""
    metrics = {"width": 320, "height": 256, "deviceScaleFactor": 1, "mobile": False}
    browser._call("Emulation.setDeviceMetricsOverride", **metrics)
    lane(browser, path)
    browser.key("q")
    box = "document.querySelector('.sst-panel').getBoundingClientRect()"
    browser.wait(f"{box}.top >= {HANDLE}.canvas.getBoundingClientRect().bottom")
    browser.wait(f"{box}.top < window.innerHeight")
    assert browser.run("document.documentElement.scrollWidth") <= 340


@pytest.mark.needs("chromium")
def test_legend_names_every_drawn_state(browser: Any, path: Path) -> None:
    lane(browser, path)
    words = browser.run("document.querySelector('.sst-key').innerText")
    for word in (
        "running", "waiting for a CPU", "blocked", "stopped", "sleeping",
        "kernel thread at rest", "idle", "unknown", "a colour per thread", "arrow: wakeup",
    ):  # fmt: skip
        assert word in words, word


@pytest.mark.needs("chromium")
def test_narrow_window_with_large_letters_hides_nothing(browser: Any, path: Path) -> None:
    """320 CSS pixels, as a window of 1280 at 400 %: nothing overflows to the right."""
    metrics = {"width": 320, "height": 600, "deviceScaleFactor": 1, "mobile": False}
    browser._call("Emulation.setDeviceMetricsOverride", **metrics)
    lane(browser, path)
    wide = browser.run("document.documentElement.scrollWidth")
    assert wide <= 340, wide


@pytest.mark.needs("chromium")
def test_every_control_has_an_accessible_name(browser: Any, path: Path) -> None:
    lane(browser, path)
    bare = browser.run(
        "[...document.querySelectorAll('button, input, select, textarea')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.innerText.trim())).length"
    )
    assert bare == 0
    assert "Timeline of" in browser.run(f"{HANDLE}.canvas.getAttribute('aria-label')")
