"""The viewer as a user has it: the real command, a real browser, real keys and clicks."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from archives import under_sched_ext
from view_server import TOKEN, server

import schedscope as ss
from schedscope.analysis.check.check import verdict
from schedscope.parsers.schema import TABLES
from schedscope.present.headline import gaps
from schedscope.store import overview_writer
from schedscope.timelines import lanes as lanes_module
from schedscope.timelines.answer import Timeline
from schedscope.timelines.lanes import STATES
from schedscope.timelines.places import listed, places
from schedscope.timelines.threads import as_rows, thread_list

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures/linux-ftrace-mixed.capture"
HANDLE = "document.querySelector('.sst-picture canvas').timeline"
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
PATIENCE = 30
PANEL = "document.querySelector('.sst-body').innerText"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def trace(cache: Path) -> ss.Trace:
    return ss.open(FIXTURE, cache=cache)


@pytest.fixture(scope="module")
def address(trace: ss.Trace, cache: Path) -> Iterator[str]:
    """The address that the real command prints."""
    pytest.importorskip("uvicorn")
    words = [sys.executable, "-m", "schedscope", "view", str(FIXTURE), "--no-browser"]
    process = subprocess.Popen([*words, "--cache", str(cache)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(30)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("chromium", marks=pytest.mark.needs("chromium")),
        pytest.param("firefox", marks=pytest.mark.needs("firefox-esr")),
    ],
)
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser
    from firefox import Firefox

    with Browser() if request.param == "chromium" else Firefox() as opened:
        yield opened


def settled(browser: Any) -> dict[str, Any]:
    browser.wait(f"{HANDLE}?.state().frames > 0 && !{HANDLE}.state().asking")
    browser.run(FRAMES)
    assert browser.errors == []
    found: dict[str, Any] = browser.run(f"{HANDLE}.state()")
    return found


def visit(browser: Any, address: str) -> Any:
    """Shows all of the trace, unless the address has a part."""
    browser.open("about:blank")
    browser.open(address if "#" in address else f"{address}#view=all")
    browser.wait("document.querySelector('.sst-picture canvas')?.timeline")
    settled(browser)
    return browser


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    return visit(browser, address)


def type_text(browser: Any, text: str) -> None:
    browser.text(text)


def enter(browser: Any, key: str = "Enter") -> None:
    browser.key(key)


def search(browser: Any, text: str, option: str = "") -> None:
    """`/`, a text, and the first option that starts with it (else the first), by keyboard alone."""
    browser.key("/")
    type_text(browser, text)
    options = "[...document.querySelectorAll('.sst-found [role=option]')]"
    browser.wait(
        "!document.querySelector('.sst-found[aria-busy]')"
        f" && {options}.some(o => o.innerText.startsWith({json.dumps(option)}))"
    )
    number = browser.run(f"{options}.findIndex(o => o.innerText.startsWith({json.dumps(option)}))")
    for _ in range(number):
        browser.key("ArrowDown")
    enter(browser)
    settled(browser)


def click(browser: Any, x: float, y: float) -> None:
    browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseReleased", x, y, button="left", clickCount=1)


def press(browser: Any, text: str, kind: str = "button") -> None:
    """Clicks the first element with this text, once nothing moves it.

    Again if something moved it just then.
    """
    found = (
        f"[...document.querySelectorAll({kind!r})].find(b => b.offsetParent"
        f" && b.innerText.trim().startsWith({json.dumps(text)}))"
    )
    for _ in range(5):
        browser.wait(found)
        before = None
        for _ in range(100):
            browser.run(f"{found}.scrollIntoView({{block: 'center'}})")
            browser.run(FRAMES)  # the click must hit what has been drawn, not what will be
            place = browser.run(
                "(r => [r.left + Math.min(20, r.width / 2), r.top + r.height / 2])"
                f"({found}.getBoundingClientRect())"
            )
            if place == before:
                break
            before = place
        browser.run(
            "(b => { window.missed = true;"
            # A button that moves between press and release gets no click.
            f" b.addEventListener('{'click' if kind == 'button' else 'pointerdown'}',"
            " () => window.missed = false, {once: true}); })"
            f"({found})"
        )
        click(browser, *place)
        if not browser.run("window.missed"):
            return
    raise AssertionError(f"{text!r} is never where it was")


def spot(browser: Any, at: int, lane: str) -> tuple[float, float]:
    """The screen position of this instant of a lane."""
    now = settled(browser)
    left, top = browser.run(f"(r => [r.left, r.top])({HANDLE}.canvas.getBoundingClientRect())")
    row = browser.run(f"{HANDLE}.lanes()").index(lane)
    x = at / now["scale"] - now["first"] + 0.5
    return left + now["left"] + x, top + now["axis"] + (row + 0.5) * now["height"]


def worst(trace: ss.Trace) -> dict[str, Any]:
    return ss.worst_waits(trace, n=1).row(0, named=True)


def test_keys_work_without_a_click_first(page: Any) -> None:
    whole = settled(page)
    assert page.run("document.activeElement === document.body")
    page.key("w")
    near = settled(page)
    assert near["scale"] < whole["scale"]
    page.key("d")
    assert settled(page)["first"] > near["first"]
    page.key("a")
    assert settled(page)["first"] == near["first"]
    page.key("ArrowRight")
    assert settled(page)["first"] > near["first"]
    page.key("s")
    page.key("s")
    assert settled(page)["scale"] == whole["scale"]
    page.key("n")
    assert settled(page)["wait"] == 0
    page.key("0")
    assert settled(page)["first"] == 0
    page.key("?")
    page.wait("!document.querySelector('.sst-help').hidden")
    enter(page, "Escape")
    page.wait("document.querySelector('.sst-help').hidden")


def test_search_finds_a_thread_and_shows_its_longest_wait(page: Any, trace: ss.Trace) -> None:
    """A thread without a lane: a search adds the lane, the time and the facts."""
    shown = page.run(f"{HANDLE}.lanes()")
    waits = trace.waits.filter(pl.col("censored") == "none").join(trace.threads, on="utid")
    rows = waits.sort("wait", descending=True).collect().iter_rows(named=True)
    row = next(row for row in rows if f"utid:{row['utid']}" not in shown)
    name = f"{row['comm']} {row['tid']}"
    search(page, str(row["tid"]), name)
    lane = f"utid:{row['utid']}"
    assert lane in page.run(f"{HANDLE}.lanes()")
    page.wait(f"{PANEL}.includes('waiting for a CPU for') && {PANEL}.includes({json.dumps(name)})")
    now = settled(page)
    begin = row["ts_ready"] - trace.window[0]
    assert now["first"] * now["scale"] <= begin
    assert begin + row["wait"] <= (now["first"] + now["bins"] + 1) * now["scale"]


def test_enter_before_the_answer_takes_the_first_result(page: Any, trace: ss.Trace) -> None:
    """A user types faster than a busy server answers; Escape discards the request."""
    wait = worst(trace)
    lane, name = f"utid:{wait['utid']}", f"{wait['comm']} {wait['tid']}"
    page.run(
        "{const ask = window.fetch; window.held = [];"
        " window.fetch = (...words) => words[1]?.body?.includes('\"threads\"')"
        " ? new Promise(done => held.push(() => done(ask(...words)))) : ask(...words);"
        " window.answer = () => held.splice(0).forEach(go => go());}"
    )
    page.key("/")
    type_text(page, name)
    page.wait("held.length > 0")
    enter(page)
    assert settled(page)["selection"] is None
    page.run("answer()")
    page.wait(f"{HANDLE}.state().selection?.lane === '{lane}'")
    assert page.run("document.querySelector('.sst-found').hidden")
    # Cancelled before the answer: nothing opens, and nothing moves.
    page.run(f"{HANDLE}.picture.select(null)")
    page.key("/")
    type_text(page, name)
    page.wait("held.length > 1")  # the old text, and this one
    enter(page)
    enter(page, "Escape")
    page.run("answer()")
    page.run(f"{HANDLE}.picture.learn([])")
    settled(page)
    assert page.run("document.querySelector('.sst-found').hidden")
    assert settled(page)["selection"] is None


def test_process_adds_its_threads_as_a_folding_group(page: Any, trace: ss.Trace) -> None:
    threads = trace.threads.filter(pl.col("process_name").is_not_null()).collect()
    many = threads.group_by("pid", "process_name").len().sort("len", "pid")[-1].row(0)
    head = f"{many[1]} {many[0]}"
    search(page, head, head)
    page.wait(f"{HANDLE}.lanes().includes('head:{head}')")
    lanes = page.run(f"{HANDLE}.lanes()")
    mine = {f"utid:{utid}" for utid in threads.filter(pl.col("pid") == many[0])["utid"]}
    at = lanes.index(f"head:{head}") + 1
    assert set(lanes[at : at + len(mine)]) == mine
    assert page.run("document.querySelector('.sst-order').value") == "process"
    # The lanes from before, and the one added by key, fold as well.
    page.key("p")
    known = trace.threads.filter(pl.col("pid").is_not_null()).collect()["utid"]
    page.wait(
        f"(known => {{ let head = ''; return {HANDLE}.lanes().every(lane =>"
        " lane.startsWith('head:') ? (head = lane)"
        " : head !== 'head:process unknown' || !known.includes(lane)); })"
        f"({json.dumps([f'utid:{utid}' for utid in known])})"
    )
    page.run(f"document.querySelector('[aria-label=\"threads of {head}\"]').focus()")
    enter(page)
    page.wait(f"!{HANDLE}.lanes().some(lane => {json.dumps(sorted(mine))}.includes(lane))")
    assert f"head:{head}" in page.run(f"{HANDLE}.lanes()")


def test_lanes_are_pinned_removed_filtered_and_ordered(page: Any, trace: ss.Trace) -> None:
    lanes = page.run(f"{HANDLE}.lanes()")
    rows = "document.querySelectorAll('.sst-names div')"
    page.run(f"{rows}[3].querySelector('button').click()")
    assert page.run(f"{HANDLE}.lanes()")[0] == lanes[3]
    page.run(f"{rows}[1].querySelectorAll('button')[1].click()")
    assert lanes[0] not in page.run(f"{HANDLE}.lanes()")
    search(page, "rustc", "only these")
    left = page.run(f"{HANDLE}.lanes()")
    text = trace.threads.filter(
        pl.concat_str(pl.col("comm", "process_name", "cmdline"), ignore_nulls=True).str.contains(
            "rustc"
        )
    )
    found = set(text.select("utid").collect()["utid"])
    assert {int(key[5:]) for key in left if key.startswith("utid:")} == found
    page.run(
        "{const o = document.querySelector('.sst-order'); o.value = 'cpu';"
        " o.dispatchEvent(new Event('change'));}"
    )
    page.wait(f"{HANDLE}.lanes().includes('head:CPU 1')")
    assert settled(page)["note"]


def test_lanes_are_grouped_by_cache_and_node(browser: Any, trace: ss.Trace) -> None:
    names = [name for name in trace.info["rows"] if name != "cpus"]
    tables = {name: getattr(trace, name).collect() for name in names}
    topology = trace.cpus.collect().with_columns(
        llc=pl.col("cpu").cast(pl.Int32), numa_node=pl.when(pl.col("cpu") == 0).then(3)
    )
    apart = ss.Trace.from_tables({**tables, "cpus": topology}, trace.info)
    ran = {row["utid"]: row["cpu"] for row in as_rows(thread_list(apart))["rows"]}
    with server(apart) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        shown = browser.run(f"{HANDLE}.lanes()")
        for by, heads in (
            ("llc", {0: "LLC 0, CPUs 0", 1: "LLC 1, CPUs 1"}),
            ("node", {0: "node 3, CPUs 0", 1: "node unknown"}),
        ):
            browser.run(
                f"{{const o = document.querySelector('.sst-order'); o.value = '{by}';"
                " o.dispatchEvent(new Event('change'));}"
            )
            browser.wait(f"{HANDLE}.lanes().includes('head:{heads[0]}')")
            expected: dict[str, list[str]] = {}
            for lane in shown:
                kind, number = lane.split(":")
                cpu = int(number) if kind == "cpu" else ran[int(number)]
                expected.setdefault(f"head:{heads[cpu]}", []).append(lane)
            rows = [row for head, lanes in expected.items() for row in (head, *lanes)]
            assert browser.run(f"{HANDLE}.lanes()") == rows
        # Another browser sees the same; a trace without a topology does not offer it.
        browser.wait("location.hash.includes('by=node')")
        visit(browser, browser.run("location.href"))
        assert browser.run(f"{HANDLE}.lanes()") == rows
    with server(ss.Trace.from_tables(tables, trace.info)) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/#by=node")
        offered = browser.run("[...document.querySelector('.sst-order').options].map(o => o.value)")
        assert offered == ["none", "process", "cgroup", "cpu"]
        assert browser.run(f"{HANDLE}.lanes()") == shown


def test_lanes_with_a_height_are_added_and_exact(page: Any, trace: ss.Trace) -> None:
    page.run(
        "{const more = document.querySelector('.sst-more'); more.value = '0';"
        " more.dispatchEvent(new Event('change'));}"
    )
    page.wait(f"{HANDLE}.lanes().includes('depth:1')")
    search(page, "switches all", "switches per second on all")
    assert page.run(f"{HANDLE}.lanes()")[:5] == ["cpu:0", "cpu:1", "depth:0", "depth:1", "rate:all"]
    page.key("n")
    now = settled(page)
    assert now["kinds"][2] == "levels"
    begin = trace.window[0] + now["first"] * now["scale"]
    row = 200
    low = begin + row * now["scale"]
    part = (
        ss.queue_depth(trace)
        .filter(pl.col("cpu") == 1, pl.col("ts") < low + now["scale"])
        .filter(pl.col("ts") + pl.col("dur") > low)
        .with_columns(
            time=pl.min_horizontal(pl.col("ts") + pl.col("dur"), low + now["scale"])
            - pl.max_horizontal("ts", low)
        )
    )
    mean = (part["depth"] * part["time"]).sum() / now["scale"]
    assert page.run(f"{HANDLE}.heights('depth:1').mean[{row}]") == pytest.approx(mean)
    assert page.run(f"{HANDLE}.heights('depth:1').max[{row}]") == part["depth"].max()
    # In words under the pointer, and as a step with a click.
    x, y = spot(page, low + now["scale"] // 2 - trace.window[0], "depth:1")
    page.mouse("mouseMoved", x, y)
    page.wait(f"{HANDLE}.state().tip.includes('threads on average, at most')")
    click(page, x, y)
    page.wait(f"/thread(s)? wants? to run here/.test({PANEL})")
    page.wait("location.hash.includes('rate')")
    hash_now = page.run("location.href")
    visit(page, hash_now)
    page.wait(f"{HANDLE}.lanes().includes('rate:all')")
    settled(page)


def test_lane_of_interrupts_is_as_high_as_the_shown_values(browser: Any, trace: ss.Trace) -> None:
    """2 % of the time are visible; the scale is the next round number."""
    begin, _ = trace.window
    rows = [(begin + i * 100_000_000, 0, "hard", 7, 30_000) for i in range(16)]
    irqs = pl.DataFrame(rows, TABLES["irqs"].schema, orient="row")
    tables = {name: getattr(trace, name).collect() for name in TABLES if name != "irqs"}
    traced = ss.Trace.from_tables({**tables, "irqs": irqs}, trace.info)
    with server(traced) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/#view=0-{trace.duration}&lanes=irq:0")
        browser.wait(f"{HANDLE}.lanes()[0] === 'irq:0'")
        settled(browser)
        browser.wait(f"{HANDLE}.state().kinds[0] === 'levels'")
        for stretch, least, largest in ((trace.duration, 0.01, 0.1), (10_000_000, 1, 1)):
            browser.run(f"{HANDLE}.picture.between(0, {stretch})")
            settled(browser)
            found = browser.run(f"{HANDLE}.heights('irq:0')")
            most = max(mean for mean in found["mean"] if mean is not None)
            assert most <= found["full"] <= 2.5 * most
            assert least <= found["full"] <= largest


def test_dispatch_queues_have_lanes_and_a_wait_says_which_it_passed(
    browser: Any, tmp_path: Path
) -> None:
    """The thread waited longest, most of it in the scheduler's second queue."""
    dispatched = ss.open(under_sched_ext(tmp_path), cache=tmp_path / "cache")
    worst = ss.worst_waits(dispatched, n=1).row(0, named=True)
    with server(dispatched) as port:
        lanes = f"dsq:3.u{worst['utid']}"
        whole = f"view=0-{dispatched.duration}&lanes={lanes}"
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/#{whole}")
        browser.wait(f"{HANDLE}.state().kinds[0] === 'levels'")
        settled(browser)
        shown = browser.run(f"[...{HANDLE}.heights('dsq:3').max]")
        full = browser.run(f"{HANDLE}.heights('dsq:3').full")
        depth = ss.dispatch_depth(dispatched).filter(queue="user 2")["depth"].max()
        assert max(shown) == full == depth
        middle = worst["ts_ready"] - dispatched.window[0] + worst["wait"] // 2
        x, y = spot(browser, middle, "dsq:3")
        browser.mouse("mouseMoved", x, y)
        browser.wait(f"{HANDLE}.state().tip.includes('threads on average, at most')")
        click(browser, x, y)
        browser.wait(f"/dispatch queue user 2: [0-9]+ threads? in it/.test({PANEL})")
        click(browser, *spot(browser, middle, f"utid:{worst['utid']}"))
        browser.wait(f"/in the dispatch queues\\s+[^]*user 2: [0-9.]+ ms/.test({PANEL})")


def test_a_process_expands_into_its_threads(page: Any, trace: ss.Trace) -> None:
    """From one of its threads, selected."""
    wait, threads = worst(trace), trace.threads.collect()
    pid = threads.filter(pl.col("utid") == wait["utid"])["pid"].item()
    own = threads.filter(pl.col("pid") == pid)
    assert own.height > 1
    page.key("n")
    middle = wait["ts_ready"] - trace.window[0] + wait["wait"] // 2
    click(page, *spot(page, middle, f"utid:{wait['utid']}"))
    press(page, f"{own['process_name'][0]} {pid}", ".sst-body dd button")
    lanes = json.dumps([f"utid:{utid}" for utid in own["utid"]])
    page.wait(f"{lanes}.every(lane => {HANDLE}.lanes().includes(lane))")
    assert page.run("document.querySelector('.sst-order').value") == "process"


def test_four_hundred_lanes_are_drawn_and_scrolled(page: Any, trace: ss.Trace) -> None:
    """Every thread of the recording; the axis stays visible."""
    search(page, "0", "all ")
    search(page, "1", "all ")
    count = page.run(f"{HANDLE}.lanes().length")
    assert count > 150
    page.run("scrollTo(0, 1500)")
    settled(page)
    column = f"[...{HANDLE}.canvas.getContext('2d').getImageData"
    before = page.run(f"-{HANDLE}.canvas.getBoundingClientRect().top")
    assert before > 500
    inks = page.run(f"new Set({column}(170, {round(before)}, 1000, 20).data]).size")
    assert inks > 2, "the axis is drawn over the lanes"
    page.key("w")
    settled(page)


def test_click_selects_and_links_navigate(page: Any, trace: ss.Trace) -> None:
    wait = worst(trace)
    lane, begin = f"utid:{wait['utid']}", wait["ts_ready"] - trace.window[0]
    page.key("n")
    click(page, *spot(page, begin + wait["wait"] // 2, lane))
    page.wait(f"{PANEL}.includes('Who ran meanwhile')")
    now = settled(page)["selection"]
    assert (now["lane"], now["begin"]) == (lane, begin)
    words = page.run(PANEL)
    assert f"{wait['comm']} {wait['tid']}: waiting for a CPU for 645 ms" in words
    assert "[object" not in words
    parts = ss.wait_breakdown(trace, by="wait", top=1).row(0, named=True)
    assert f"({100 * parts['behind_better'] / parts['wait']:.1f} %)" in words
    assert "ss.interference(trace.between(0.911442454, " in words
    (prio,) = trace.threads.filter(pl.col("utid") == wait["utid"]).collect()["prio"]
    assert f"fair, {prio} (nice {prio - 120})" in words
    press(page, "how far behind")
    page.wait(f"{HANDLE}.lanes().includes('lag:{wait['utid']}')")
    page.wait(f"{HANDLE}.state().kinds.at(-1) === 'levels'")
    mine = ss.virtual_lag_series(trace, where=pl.col("utid") == wait["utid"])
    most = page.run(f"Math.max(...{HANDLE}.heights('lag:{wait['utid']}').max)")
    assert 0 < most <= mine["lag"].max() // 1000
    press(page, "critical path")
    page.wait(f"{PANEL}.includes('Critical path up to the end')")
    press(page, "what followed")
    page.wait(f"{PANEL}.includes('Wakeups that followed, of the ')")
    # The first row of who ran during the wait: its lane.
    thread = page.run("document.querySelector('.sst-table td button').innerText")
    press(page, thread, ".sst-table td button")
    utid = ss.interference(
        trace.between("911442454ns", f"{911442454 + 644950041}ns"),
        where=pl.col("utid") == wait["utid"],
    )["utid"][0]
    page.wait(f"{HANDLE}.lanes().includes('utid:{utid}')")
    page.key("f")
    framed = settled(page)
    assert (
        framed["first"] * framed["scale"]
        < begin
        < (framed["first"] + framed["bins"]) * framed["scale"]
    )
    page.key(".")
    page.wait(f"{HANDLE}.state().selection.begin > {begin}")
    page.key(",")
    page.wait(f"{HANDLE}.state().selection.begin === {begin}")


def test_selected_wait_links_to_its_waker(page: Any, trace: ss.Trace) -> None:
    row = (
        trace.waits.filter(pl.col("censored") == "none", pl.col("waker_utid") >= trace.ncpu)
        .sort("wait", descending=True).head(1).join(trace.threads, on="utid").collect()
        .row(0, named=True)
    )  # fmt: skip
    search(page, str(row["tid"]), f"{row['comm']} {row['tid']}")
    at = row["ts_ready"] - trace.window[0]
    page.run(f"{HANDLE}.picture.select('utid:{row['utid']}', {at})")
    page.wait(f"{PANEL}.includes('woken by')")
    waker = page.run(f"{HANDLE}.picture.thread({row['waker_utid']})")
    press(page, waker, ".sst-body dd button")
    page.wait(f"{HANDLE}.state().selection.lane === 'utid:{row['waker_utid']}'")
    page.wait(f"{PANEL}.includes('Whom it woke meanwhile')")
    assert f"{row['comm']}" in page.run(PANEL)


def test_findings_are_stepped_through_by_key_and_button(page: Any, trace: ss.Trace) -> None:
    found = ss.findings(trace).to_dicts()
    assert [row["topic"] for row in found] == ["starvation", "real-time", "overload"]
    worst, real_time, overload = found
    current = "document.querySelector('.sst-findings [aria-current]')?.innerText"
    page.key("g")
    page.wait(f"{current}?.startsWith('starvation (warning)')")
    at = worst["ts"] - trace.window[0]
    page.wait(f"{HANDLE}.state().selection.begin === {at}")
    now = settled(page)
    assert now["selection"]["lane"] == f"utid:{worst['utid']}"
    assert now["first"] * now["scale"] <= at
    assert at + worst["dur"] <= (now["first"] + now["bins"] + 1) * now["scale"]
    assert "Finding 1 of 3: starvation" in now["note"]
    assert worst["text"] in page.run(PANEL)
    opened = places(trace, ss.findings(trace))[0].view(trace)
    assert f"schedscope view {trace.name} --at '{opened}'" in page.run(current)
    assert f"Try: {worst['advice']}" in page.run(PANEL)
    # The list stays in front of the selection; the facts are one tab away.
    press(page, "Selection", ".sst-tabs button")
    page.wait(f"{PANEL}.includes('Who ran meanwhile')")
    press(page, "next finding")
    page.wait(f"{current}?.startsWith('real-time')")
    page.wait(f"{HANDLE}.state().selection.lane === 'utid:{real_time['utid']}'")
    page.key("g")
    page.wait(f"{current}?.startsWith('overload')")
    middle = "s => (s.first + s.bins / 2) * s.scale"
    off = f"Math.abs(({middle})({HANDLE}.state()) - {overload['ts'] - trace.window[0]})"
    page.wait(f"{off} < 2 * {HANDLE}.state().scale")
    page.key("G")
    page.wait(f"{current}?.startsWith('real-time')")
    press(page, "starvation", ".sst-findings button")
    page.wait(f"{current}?.startsWith('starvation')")


def test_command_of_a_finding_opens_the_viewer_at_it(
    browser: Any, address: str, trace: ss.Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    from schedscope.cli import main

    assert main(["findings", str(trace.path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    calls = [line for line in lines if line[1:3] == ["view", str(trace.path)]]
    (first,) = shlex.split(calls[0][-1])
    visit(browser, f"{address}#{first}")
    worst = ss.findings(trace).row(0, named=True)
    browser.wait(f"{HANDLE}.state().selection?.begin === {worst['ts'] - trace.window[0]}")
    assert settled(browser)["selection"]["lane"] == f"utid:{worst['utid']}"


def test_commands_quote_the_name_of_the_trace(browser: Any, tmp_path: Path) -> None:
    """They are copied into a shell."""
    path = tmp_path / "my trace's.capture"
    shutil.copytree(ROOT / "fixtures/linux-ftrace-starved.capture", path)
    with server(ss.open(path, cache=tmp_path / "cache")) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        browser.key("g")
        codes = "[...document.querySelectorAll('.sst-findings code')].map(code => code.innerText)"
        browser.wait(f"{codes}.length")
        for command in browser.run(codes):
            assert shlex.split(command)[2] == path.name


def test_data_quality_is_shown_above_the_timeline(browser: Any, cache: Path) -> None:
    """The verdict and the unknown share at once; a click shows the checks and links to gaps."""
    lossy = ss.open(ROOT / "fixtures/linux-ftrace-lossy.capture", cache=cache)
    line = "document.querySelector('.sst-quality').innerText"
    with server(lossy) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        before = browser.run(f"{HANDLE}.canvas.getBoundingClientRect().top")
        browser.wait(f"{line}.startsWith('Data quality: Use with care; ')")
        assert browser.run(line).endswith("; ".join(gaps(lossy)))
        assert "27.4 % of CPU time unknown" in browser.run(line)
        assert browser.run(f"{HANDLE}.canvas.getBoundingClientRect().top") == before
        press(browser, "Data quality", ".sst-quality button")
        browser.wait(f"{PANEL}.includes('Where events may be missing')")
        found = ss.check(lossy)
        assert verdict(found) in browser.run(PANEL)
        rows = "[...document.querySelectorAll('.sst-body table')[0].rows].slice(1)"
        listed = browser.run(f"{rows}.map(row => [...row.cells].map(cell => cell.innerText))")
        assert sorted(row[1] for row in listed) == sorted(found["check"])
        assert [row[0] for row in listed[:3]] == ["warning", "warning", "warning"]
        overrun = lossy.losses.filter(pl.col("reason") == "overrun").sort("ts_begin").collect()
        begin = overrun["ts_begin"][0] - lossy.window[0]
        press(browser, f"{(overrun['ts_begin'][0] - lossy.origin) / 1e9:.6f} s", ".sst-body button")
        browser.wait(f"{HANDLE}.state().selection?.lane === 'cpu:{overrun['cpu'][0]}'")
        now = settled(browser)
        assert now["first"] * now["scale"] <= begin <= (now["first"] + now["bins"]) * now["scale"]


def test_a_range_is_summed_and_analysed(page: Any, trace: ss.Trace) -> None:
    x, y = spot(page, 400_000_000, "cpu:0")
    top = page.run(f"{HANDLE}.canvas.getBoundingClientRect().top") + 8
    page.drag(x, top, x + 120)
    page.wait(f"{PANEL}.includes('share of all waiting')")
    begin, end = settled(page)["range"]
    assert abs(begin - 400_000_000) < 3_000_000
    cut = trace.between(f"{begin}ns", f"{end}ns")
    running = cut.states.filter(
        pl.col("state") == "running", pl.col("cpu") == 0, pl.col("utid") >= trace.ncpu
    )
    spent = running.select(pl.col("dur").sum()).collect().item()
    cell = page.run("document.querySelector('.sst-table tbody tr td:nth-child(2)').innerText")
    assert cell == f"{float(f'{spent / 1e6:.3g}'):g} ms"
    # The same with Shift inside the lanes.
    page.hold("Shift", down=True)
    for kind, at in (("mousePressed", x), ("mouseMoved", x + 30), ("mouseReleased", x + 30)):
        page.mouse(kind, at, y, button="left", buttons=1, clickCount=1, modifiers=8)
    page.hold("Shift", down=False)
    page.wait(f"{HANDLE}.state().range[1] - {HANDLE}.state().range[0] < {(end - begin) // 3}")
    # The same for a lane outside the window, as in a link: the lanes' parts are requested.
    page.run(f"{HANDLE}.picture.between(1400000000, 1400100000)")
    settled(page)
    page.run(f"{HANDLE}.picture.setRange([{begin}, {end}])")
    first = "document.querySelector('.sst-table tbody tr')"
    page.wait(f"{PANEL}.includes('share of all waiting')")
    page.wait(f"{first}.cells[1].innerText === {cell!r}")
    ran = cut.states.filter(pl.col("state") == "running", pl.col("cpu") == 0)
    unknown = end - begin - ran.select(pl.col("dur").sum()).collect().item()
    said = page.run(f"{first}.cells[{first}.cells.length - 1].innerText")
    assert said == f"{float(f'{unknown / 1e6:.3g}'):g} ms"


def test_unknown_time_has_its_own_column(page: Any, trace: ss.Trace) -> None:
    """The time of a thread that the trace does not have, without that before its creation."""
    page.run(f"{HANDLE}.picture.setRange([0, {trace.duration}])")
    page.wait(f"{PANEL}.includes('Totals of the lanes shown')")
    cells = page.run(
        "[...document.querySelectorAll('.sst-table')[0].querySelectorAll('tbody tr')].map(row =>"
        " [row.cells[0].innerText, row.cells[row.cells.length - 1].innerText])"
    )
    rows = trace.states.filter(pl.col("state") == "unknown").join(trace.threads, on="utid")
    unknown = rows.select(pl.format("{} {}", "comm", "tid")).collect().to_series()
    unknown_threads = {name for name, cell in cells if cell and not name.startswith("CPU")}
    threads = {name for name, _ in cells if not name.startswith("CPU")}
    assert unknown_threads == threads & set(unknown)
    assert unknown_threads < threads
    # A state without time in any lane has no column.
    empty = page.run(
        "(table => [...table.rows[0].cells].filter((_, i) => [...table.rows].slice(1)"
        ".every(row => !row.cells[i].innerText)).map(cell => cell.innerText))"
        "(document.querySelector('.sst-table table'))"
    )
    assert empty == []


def test_undo_and_the_address_restore_a_view(page: Any, trace: ss.Trace, address: str) -> None:
    page.key("n")
    page.wait("location.hash.startsWith('#view=')")
    first = settled(page)
    search(page, "cpu 1", "CPU 1")
    x, y = spot(page, round((first["first"] + 300) * first["scale"]), "cpu:1")
    click(page, x, y)
    page.wait("location.hash.includes('select=c1')")
    x, y = spot(page, round((first["first"] + 200) * first["scale"]), "cpu:1")
    before = json.dumps(page.run("location.hash"))
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    page.wait(f"location.hash !== {before}")
    near, address_now = settled(page), page.run("location.href")
    lanes = page.run(f"{HANDLE}.lanes()")
    # Another browser.
    visit(page, address_now)
    page.wait(f"{HANDLE}.state().selection")
    there = settled(page)
    assert abs(there["first"] - near["first"]) <= 2
    assert there["scale"] == near["scale"]
    assert there["selection"]["lane"] == "cpu:1"
    assert page.run(f"{HANDLE}.lanes()") == lanes
    # And back, step by step.
    page.key("0")
    page.wait(f"location.hash && {HANDLE}.state().first === 0")
    page.run("new Promise(done => setTimeout(done, 500))")
    page.key("n")
    page.run("new Promise(done => setTimeout(done, 500))")
    page.key("u")
    page.wait(f"{HANDLE}.state().first === 0")
    page.key("u")
    page.wait(f"Math.abs({HANDLE}.state().first - {near['first']}) <= 2")
    page.key("U")
    page.wait(f"{HANDLE}.state().first === 0")


def saved(browser: Any, folder: Path, kind: str) -> Path:
    """The downloaded file, once it is complete."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        browser.run(FRAMES)
        if found := [path for path in folder.glob(f"*.{kind}") if path.stat().st_size]:
            return found[0]
    raise AssertionError(f"no {kind} in {list(folder.iterdir())}")


def test_the_view_is_saved_as_png_and_svg(page: Any, trace: ss.Trace, tmp_path: Path) -> None:
    """All lanes, also those outside the window; names stay text."""
    page.downloads(tmp_path)
    page.key("n")
    page.wait(f"{HANDLE}.state().selection?.lane === 'utid:{worst(trace)['utid']}'")
    settled(page)
    width, height = page.run(f"[{HANDLE}.canvas.width, {HANDLE}.canvas.height]")
    page.key("e")
    path = saved(page, tmp_path, "png")
    assert path.name.startswith("linux-ftrace-mixed-")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == width
    assert int.from_bytes(data[20:24], "big") == height + 52
    page.key("E")
    drawing = ElementTree.parse(saved(page, tmp_path, "svg")).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = ["".join(text.itertext()) for text in drawing.iter(f"{space}text")]
    wait = worst(trace)
    assert f"{wait['comm']} {wait['tid']}" in texts
    assert "waiting for a CPU" in texts
    assert texts[-7] == f"linux-ftrace-mixed.capture, {settled(page)['note'].split(',')[0]}"
    assert len(list(drawing.iter(f"{space}image"))) == len(page.run(f"{HANDLE}.lanes()"))
    assert not list(drawing.iter(f"{space}script"))
    # The screen is drawn again.
    page.key("0")
    assert settled(page)["first"] == 0


def test_two_traces_are_aligned_below_each_other(browser: Any, trace: ss.Trace) -> None:
    other = ss.open(ROOT / "fixtures/linux-ftrace-starved.capture")
    both = "[...document.querySelectorAll('canvas')].filter(c => c.timeline).map(c => c.timeline)"
    first, second = worst(trace), worst(other)
    starts = first["ts_ready"] - trace.window[0], second["ts_ready"] - other.window[0]
    shown = f"{both}.map(t => t.view.first * t.view.scale)"
    scales = f"new Set({both}.map(t => t.view.scale)).size === 1"
    with server(trace, other) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        # Aligned at the starts: both whole, and then both zoomed in.
        browser.wait(f"{scales} && {shown}.every(at => at === 0)")
        longest = max(trace.duration, other.duration)
        assert browser.run(f"{both}[0].view.scale * {both}[0].view.bins") >= longest
        browser.key("w")
        browser.key("d")
        browser.wait(f"{scales} && {shown}[0] > 0 && {shown}[0] === {shown}[1]")
        # Each is answered from its own trace.
        rows = zip((0, 1), (first, second), starts, strict=True)
        for number, row, start in rows:
            at = start + row["wait"] // 2
            lane = f"utid:{row['utid']}"
            browser.run(f"{both}[{number}].picture.show(['{lane}'])")
            browser.run(f"{both}[{number}].picture.select('{lane}', {at})")
            browser.wait(f"{both}[{number}].state().selection.begin === {start}")
            panel = f"document.querySelectorAll('.sst-body')[{number}].innerText"
            browser.wait(f"{panel}.includes({json.dumps(row['comm'])})")
        browser.key("=")
        shift = starts[1] - starts[0]
        browser.wait(f"{both}[0].picture.shift === {shift}")
        apart = f"{shown}[1] - {shown}[0] - {shift}"
        browser.wait(f"{scales} && Math.abs({apart}) <= {both}[0].view.scale")
        browser.key("s")
        browser.wait(f"{scales} && Math.abs({apart}) <= {both}[0].view.scale")
        # Differing threads, in a range of the first trace and the one below it.
        end = starts[0] + 1_000_000
        browser.run(f"{both}[0].picture.setRange([{starts[0]}, {end}])")
        browser.key("c")
        table = "document.querySelector('.sst-between')?.innerText"
        browser.wait(f"{table}?.includes({json.dumps(second['comm'])})")
        assert "+1.00 ms" in browser.run(table)
        # Another browser sees both unchanged.
        browser.wait("location.hash.includes('shift=')")
        visit(browser, browser.run("location.href"))
        browser.wait(f"{both}[0].picture.shift === {shift}")
        browser.wait(f"{scales} && Math.abs({apart}) <= {both}[0].view.scale")
        press(browser, "align at the starts")
        browser.wait(f"{scales} && Math.abs({shown}[0] - {shown}[1]) <= {both}[0].view.scale")


def test_saved_comparison_has_the_differences(
    browser: Any, trace: ss.Trace, tmp_path: Path
) -> None:
    """Both timelines and the bars between them, with the focus on either."""
    other = ss.open(ROOT / "fixtures/linux-ftrace-starved.capture")
    both = "[...document.querySelectorAll('canvas')].filter(c => c.timeline)"
    bars = "document.querySelector('.sst-picture canvas').balance()"
    with server(trace, other) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        browser.downloads(tmp_path)
        browser.wait(f"{bars} && {bars}[0].some(pair => pair[0] !== null && pair[1] !== null)")
        settled(browser)
        between = "document.querySelector('canvas[aria-label^=Differences]')"
        high = browser.run(f"[...{both}, {between}].reduce((sum, c) => sum + c.height, 0)")
        browser.key("e")
        data = saved(browser, tmp_path, "png").read_bytes()
        ratio = browser.run("window.devicePixelRatio")
        assert int.from_bytes(data[20:24], "big") == high + 4 * 26 * ratio
        browser.run(f"{both}[1].focus()")
        browser.key("E")
        path = saved(browser, tmp_path, "svg")
        assert "linux-ftrace-mixed-" in path.name
        assert "-and-linux-ftrace-starved-" in path.name
        space = "{http://www.w3.org/2000/svg}"
        drawing = ElementTree.parse(path).getroot()
        texts = ["".join(text.itertext()) for text in drawing.iter(f"{space}text")]
        said = browser.run(f"{between}.getAttribute('aria-label')")
        assert said.removeprefix("Differences of the two traces. ") in texts
        assert texts.count("running") == 2  # beside the bars, and the meaning of the colour
        first, middle, second = drawing.findall(f"{space}g")
        for side, part in enumerate((first, second)):
            lanes = browser.run(f"{both}[{side}].timeline.lanes()")
            assert len(list(part.iter(f"{space}image"))) == len(lanes)
        assert len(list(middle.iter(f"{space}rect"))) > 100


def test_two_traces_are_stretched_and_their_differences_marked(
    browser: Any, trace: ss.Trace
) -> None:
    other = ss.open(ROOT / "fixtures/linux-ftrace-starved.capture")
    both = "[...document.querySelectorAll('canvas')].filter(c => c.timeline).map(c => c.timeline)"
    bars = "document.querySelector('.sst-picture canvas').balance()"
    first, second = (0, trace.duration), (other.duration // 4, other.duration // 2)
    with server(trace, other) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        browser.run(f"{both}[1].picture.setRange({list(second)})")
        browser.key("x")
        pace = (second[1] - second[0]) / trace.duration
        browser.wait(f"Math.abs({both}[1].view.scale - {both}[0].view.scale * {pace}) <= 1")
        browser.wait("location.hash.includes('match=')")
        for key in ("w", "d", ""):
            if key:
                browser.key(key)
            else:  # another browser sees both unchanged
                time.sleep(0.5)
                visit(browser, browser.run("location.href"))
                browser.wait(f"{both}[0].picture.match")
            browser.run(FRAMES)
            views = browser.run(f"{both}.map(t => t.view)")
            middles = [(v["first"] + v["bins"] / 2) * v["scale"] for v in views]
            there = second[0] + (middles[0] - first[0]) * pace
            assert abs(middles[1] - there) <= 2 * views[1]["scale"]
        # A bar is the mean number of threads in its pixels, in each of the two.
        browser.wait(f"{bars}?.step && !{both}[0].state().asking")
        time.sleep(0.5)
        views, step = browser.run(f"{both}.map(t => t.view)"), browser.run(f"{bars}.step")
        shown = browser.run(bars)
        at = len(shown[0]) // 2
        for side, (of, view) in enumerate(zip((trace, other), views, strict=True)):
            low = of.window[0] + (view["first"] + at * step) * view["scale"]
            high = low + step * view["scale"]
            inside = pl.min_horizontal(pl.col("ts") + pl.col("dur"), high) - pl.max_horizontal(
                "ts", low
            )
            time_in = of.states.filter(
                pl.col("utid") >= of.ncpu, pl.col("ts") < high, pl.col("ts") + pl.col("dur") > low
            ).select("state", time=inside)
            for row, state in enumerate(("running", "runnable")):
                spent = time_in.filter(pl.col("state") == state).select("time").sum().collect()
                threads = spent["time"][0] / (high - low)
                assert shown[row][at][side] == pytest.approx(threads, abs=0.01)
        # Threads whose name is missing in the other trace are marked, and the table says so.
        browser.key("c")
        table = "document.querySelector('.sst-between').innerText"
        browser.wait(f"{table}.includes('only in the second')")
        rows = [row.split("\t") for row in browser.run(table).splitlines() if "\tonly in" in row]
        names = [set(t.threads.collect()["comm"]) for t in (trace, other)]
        for row in rows:
            here, there_too = (row[0] in found for found in names)
            assert (row[-1] == "only in the first") == (here and not there_too)
            assert (row[-1] == "only in the second") == (there_too and not here)
        assert "◆ a name" in browser.run("document.body.innerText")
        press(browser, "align at the starts")
        browser.wait(f"!location.hash.includes('match=') && !{both}[0].picture.match")


def test_notes_are_kept_with_the_trace(page: Any, address: str, trace: ss.Trace) -> None:
    page.key("b")
    page.wait("document.activeElement.matches('.sst-notes input')")
    type_text(page, "here <b>it</b> began")
    enter(page)
    assert trace.path is not None
    path = trace.path.with_suffix(".notes.json")
    # The page may close at once.
    page.open("about:blank")
    end = time.monotonic() + PATIENCE
    while json.loads(path.read_text())[0]["text"] == "" and time.monotonic() < end:
        time.sleep(0.03)
    assert json.loads(path.read_text())[0]["text"] == "here <b>it</b> began"
    visit(page, address)
    press(page, "notes")
    page.wait("document.querySelector('.sst-notes input').value === 'here <b>it</b> began'")
    press(page, "delete")
    page.wait("!document.querySelector('.sst-notes')")
    end = time.monotonic() + PATIENCE
    while json.loads(path.read_text()) and time.monotonic() < end:
        page.run(FRAMES)
    assert json.loads(path.read_text()) == []


def test_sql_tab_has_the_schema_and_linked_rows(page: Any, trace: ss.Trace) -> None:
    page.key("q")
    page.wait(f"document.querySelectorAll('.sst-schema details').length === {len(TABLES)}")
    page.run("document.querySelector('.sst-body textarea').focus()")
    page.chord("Control", "Enter")
    page.wait(f"{PANEL}.includes('20 rows')")
    wait = worst(trace)
    press(page, "", ".sst-table td button")
    page.wait(f"{HANDLE}.state().selection?.lane === 'utid:{wait['utid']}'")
    press(page, "SQL", ".sst-tabs button")
    page.run("document.querySelector('.sst-body textarea').value = 'select * from read_csv(1)'")
    press(page, "run")
    page.wait("document.querySelector('.sst-body [role=alert]')?.innerText.includes('read_csv')")


def test_a_query_can_be_cancelled(page: Any) -> None:
    page.key("q")
    page.wait(f"document.querySelectorAll('.sst-schema details').length === {len(TABLES)}")
    endless = "SELECT 1" + " UNION ALL SELECT 1" * 500
    page.run(f"document.querySelector('.sst-body textarea').value = '{endless}'")
    press(page, "run")
    page.wait("document.querySelector('.sst-body p button:not(.sst-acts button)')")
    press(page, "cancel")
    page.wait("document.querySelector('.sst-body [role=alert]')?.innerText === 'cancelled'")


def test_arriving_schema_moves_no_button(page: Any) -> None:
    """A user about to press a button must not miss it."""
    page.run(
        "(asked => { window.fetch = async (...all) => {"
        " const answer = await asked(...all);"
        " if (String(all[1]?.body).includes('schema')) await new Promise(go => window.tables = go);"
        " return answer; }; })(window.fetch)"
    )
    search(page, "e", "all ")  # more lanes than the window holds: details stand at its lower end
    page.run("window.scrollTo(0, 0)")
    page.key("q")
    page.wait("window.tables")
    place = "document.querySelector('.sst-ask button').getBoundingClientRect().top"
    before = page.run(place)
    page.run("window.tables()")
    page.wait(f"document.querySelectorAll('.sst-schema details').length === {len(TABLES)}")
    assert page.run(place) == before


def test_requests_tab_links_to_the_slowest_request(browser: Any, cache: Path) -> None:
    """A tab lists requests; a click on the slowest shows its instant and thread."""
    trace = ss.open(ROOT / "fixtures/linux-requests.capture", cache=cache)
    slowest = ss.requests(trace, by="request", top=1).row(0, named=True)
    with server(trace) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        browser.key("q")
        press(browser, "Requests", "[role=tab]")
        browser.wait(f"{PANEL}.includes('The slowest requests')")
        assert "ss.requests(trace, by='request', top=50)" in browser.run(PANEL)
        when = f"{(slowest['ts'] - trace.origin) / 1e9:.6f} s"
        press(browser, when, ".sst-body button")
        now = settled(browser)
        assert now["selection"]["lane"] == f"utid:{slowest['utid']}"
        middle = slowest["ts"] - trace.window[0] + slowest["dur"] // 2
        assert now["selection"]["at"] == middle
        assert now["first"] * now["scale"] < middle < (now["first"] + now["bins"]) * now["scale"]
        # Of one process alone.
        press(browser, "Requests", "[role=tab]")
        choose = "document.querySelector('.sst-body select')"
        browser.wait(f"{choose} !== null")
        browser.run(f"{choose}.value = '1', {choose}.dispatchEvent(new Event('change'))")
        browser.wait(f"{PANEL}.includes('The slowest requests of python3')")
        assert "where=pl.col('process_name') == 'python3'" in browser.run(PANEL)


def test_requests_are_marked_on_the_axis_and_a_click_selects_one(browser: Any, cache: Path) -> None:
    """The slowest of all: the text of the tooltip, and the range and lane after a click."""
    trace = ss.open(ROOT / "fixtures/linux-requests.capture", cache=cache)
    slowest = ss.requests(trace, by="request", top=1).row(0, named=True)
    with server(trace) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        browser.wait(f"{HANDLE}.requests().length === 50")
        begin = slowest["ts"] - trace.window[0]
        x = browser.run(
            "(({canvas, view, state}, at) => canvas.getBoundingClientRect().left + state().left"
            " + (at / view.scale - view.first) / state().ratio)"
            f"({HANDLE}, {begin + slowest['dur'] // 2})"
        )
        y = browser.run(f"{HANDLE}.canvas.getBoundingClientRect().top") + 10
        browser.mouse("mouseMoved", x, y)
        browser.wait(f"{HANDLE}.state().tip.includes('number 1 of the slowest')")
        click(browser, x, y)
        browser.wait(f"{HANDLE}.state().range")
        now = settled(browser)
        assert now["range"] == [begin, begin + slowest["dur"]]
        assert f"utid:{slowest['utid']}" in browser.run(f"{HANDLE}.lanes()")


def test_page_fetches_only_from_the_viewer(page: Any, address: str) -> None:
    """From no server but those of these tests; a saved picture is a blob of the page."""
    assert any(url.startswith(address) for url in page.fetched)
    own = re.compile(r"about:|data:|(blob:)?http://127\.0\.0\.1:\d+/")
    strange = [url for url in page.fetched if not own.match(url)]
    assert strange == []


def test_viewer_opens_at_the_worst_case_of_the_first_finding(
    browser: Any, address: str, trace: ss.Trace
) -> None:
    browser.open("about:blank")
    browser.open(address)
    browser.wait(f"{HANDLE}?.picture.selection")
    state = settled(browser)
    first = listed(trace)[0]
    assert state["selection"]["lane"] == first["lane"]
    shown = [state["first"] * state["scale"], (state["first"] + state["bins"]) * state["scale"]]
    assert shown == pytest.approx(first["shown"], abs=2 * state["scale"])
    assert f"Finding 1 of {len(listed(trace))}" in state["note"]
    assert "Findings" in browser.run(PANEL)


def test_ended_server_is_reported_in_the_page(browser: Any, trace: ss.Trace, cache: Path) -> None:
    words = [sys.executable, "-m", "schedscope", "view", str(FIXTURE), "--no-browser"]
    with subprocess.Popen([*words, "--cache", str(cache)], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        visit(browser, p.stdout.readline().strip())
        p.terminate()
        p.wait(30)
    browser.run(f"{HANDLE}.picture.show(['utid:30'])")
    browser.wait(f"{HANDLE}.state().note.includes('does not answer: was it ended?')")


def test_long_trace_is_shown_coarsely_first_and_then_exactly(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPUs are exact at every zoom; a thread's lane shows that it is being read."""
    monkeypatch.setattr(overview_writer, "LEAST", 0)
    monkeypatch.setattr(overview_writer, "_CHUNK", 32)
    monkeypatch.setattr(overview_writer, "_LEAST_BINS", 1)
    monkeypatch.setattr(overview_writer, "_ROWS_PER_STRETCH", 1)
    monkeypatch.setattr(lanes_module, "MOST_ROWS", 7_000)
    may, read = Event(), lanes_module.Lanes._load
    monkeypatch.setattr(
        lanes_module.Lanes, "_load", lambda self, keys: may.wait() and read(self, keys)
    )
    trace = ss.open(FIXTURE, cache=tmp_path)
    try:
        with server(trace) as port:
            visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
            now = settled(browser)
            assert now["refining"]
            assert not now["exact"]
            assert "some lanes are being read: until then they show sums over" in now["note"]
            rows = Timeline(trace).lanes.get(["cpu:0", "cpu:1"])
            for key in "wwwwwwsswwwwwwwwwwddaassssss":
                browser.key(key)
                now = settled(browser)
                edges = (np.arange(now["bins"] + 1) + now["first"]) * now["scale"]
                for cpu, lane in enumerate(rows):
                    found = browser.run(f"{HANDLE}.sums('cpu:{cpu}')")
                    wanted = {str(code): ns.tolist() for code, ns in lane.binned(edges).items()}
                    mine = {code: ns for code, ns in found.items() if any(ns)}
                    assert mine == wanted
            browser.key("0")
            may.set()
            # The checks would take long: they wait for a click; the gaps are known.
            line = "document.querySelector('.sst-quality').innerText"
            browser.wait(f"{line}.startsWith('Data quality: not checked yet; ')")
            assert browser.run(line).endswith("0.39 % of CPU time unknown")
            press(browser, "Data quality", ".sst-quality button")
            browser.wait(f"{line}.startsWith('Data quality: Trustworthy as far as')")
            browser.wait(f"{HANDLE}.state().exact && !{HANDLE}.state().refining")
            browser.wait(f"!{HANDLE}.state().note.includes('being read')")
            # The same for queues: zoomed out once their sums are made, zoomed in from the rows.
            browser.run(f"{HANDLE}.picture.arrange({{chosen: ['depth:0', 'rate:all']}})")
            browser.wait(f"{HANDLE}.state().exact")
            whole = Timeline(trace).levels
            for key in "0wwwwwwwwwwww":
                browser.key(key)
                browser.wait(f"{HANDLE}.state().exact")
                now = settled(browser)
                for lane in ("depth:0", "rate:all"):
                    found = browser.run(f"[...{HANDLE}.heights('{lane}').sum]")
                    wanted = whole.picture(lane, now["first"], now["bins"], now["scale"])
                    assert wanted.sums is not None
                    assert found == wanted.sums["sum"].tolist()
    finally:
        may.set()


def test_two_long_traces_stay_aligned_and_differences_need_a_click(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LEAST", 0), ("_CHUNK", 32), ("_LEAST_BINS", 1)):
        monkeypatch.setattr(overview_writer, name, value)
    monkeypatch.setattr(overview_writer, "_ROWS_PER_STRETCH", 1)
    monkeypatch.setattr(lanes_module, "MOST_ROWS", 3_000)
    names = ("linux-ftrace-mixed", "linux-ftrace-starved")
    one, two = (ss.open(ROOT / f"fixtures/{name}.capture", cache=tmp_path) for name in names)
    both = "[...document.querySelectorAll('canvas')].filter(c => c.timeline).map(c => c.timeline)"
    bars = "document.querySelector('.sst-picture canvas').balance()"
    with server(one, two) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        grains = browser.run(f"{both}.map(t => t.about.grain)")
        assert None not in grains
        assert grains[0] != grains[1]
        for key in "wwdws":
            browser.key(key)
            browser.run(FRAMES)
            views = browser.run(f"{both}.map(t => t.view)")
            assert views[0]["scale"] == views[1]["scale"]
            assert views[0]["first"] == views[1]["first"]
        assert browser.run(bars) is None
        browser.key("0")
        press(browser, "show what differs, pixel by pixel", ".sst-picture button")
        browser.wait(f"{bars} && !{bars}.refining && {bars}[1].some(pair => pair[0] !== null)")
        browser.run(FRAMES)
        # All of the first trace: the time that its threads waited, in total.
        step, view = browser.run(f"{bars}.step"), browser.run(f"{both}[0].view")
        waiting = [pair[0] for pair in browser.run(bars)[1] if pair[0] is not None]
        runnable = one.states.filter(
            pl.col("state") == "runnable", pl.col("utid") >= one.ncpu
        ).select(pl.col("dur").sum())
        found = sum(waiting) * step * view["scale"]
        assert found == pytest.approx(runnable.collect().item(), rel=0.02)


def test_viewer_handles_four_hundred_threads(browser: Any, tmp_path: Path) -> None:
    """A real capture of a pool: all of its lanes at once, by process, and the links from one."""
    trace = ss.open(ROOT / "fixtures/linux-ftrace-pool.capture", cache=tmp_path / "cache")
    pool = trace.threads.filter(pl.col("comm").str.contains(r"^pool-\d\d\.")).collect()
    assert pool.height == 400
    keys = [f"utid:{utid}" for utid in pool["utid"]]
    with server(trace) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        # Search finds those of one process.
        browser.run("document.querySelector('.sst-find').focus()")
        type_text(browser, "pool-07.")
        browser.wait("document.querySelectorAll('.sst-found [role=option]').length >= 20")
        browser.run("document.querySelector('.sst-find').blur()")
        browser.run(
            f"{HANDLE}.picture.arrange({{chosen: ['cpu:0', 'cpu:1', ...{keys}], by: 'process'}})"
        )
        browser.wait(f"{HANDLE}.lanes().filter(lane => lane.startsWith('head:')).length >= 20")
        browser.wait(f"{HANDLE}.state().kinds.filter(kind => kind !== 'none').length >= 402")
        heads = browser.run(f"{HANDLE}.lanes().filter(lane => lane.startsWith('head:'))")
        assert len({head for head in heads if head.startswith("head:pool-")}) == 20
        for lane in (keys[0], keys[211], keys[-1]):
            mine = trace.states.filter(pl.col("utid") == int(lane[5:]))
            waited = mine.filter(pl.col("state") == "runnable").select(pl.col("dur").sum())
            sums = browser.run(f"{HANDLE}.sums({lane!r})")
            runnable = str(STATES.index("runnable"))
            assert sum(sums.get(runnable, [])) == pytest.approx(waited.collect().item(), abs=1)
        # Each key moves 400 lanes; nothing is lost in either direction.
        before = settled(browser)
        for key in "wwddssaa0":
            browser.key(key)
            settled(browser)
        assert settled(browser)["scale"] == before["scale"]
        # From a wait to what followed from it.
        chained = trace.waits.filter(
            pl.col("waker_utid").is_in(pool["utid"].implode()), pl.col("cause") == "wake"
        ).collect()
        waker, ts = chained["waker_utid"][0], chained["ts_ready"][0] - trace.window[0]
        browser.run(f"{HANDLE}.picture.select('utid:{waker}', {ts - 1})")
        press(browser, "what followed")
        browser.wait(
            f"{PANEL}.includes('Wakeups that followed') && {PANEL}.includes('waits so far')"
        )
        browser.downloads(tmp_path)
        browser.key("E")
        drawing = ElementTree.parse(saved(browser, tmp_path, "svg")).getroot()
        texts = {
            "".join(text.itertext()) for text in drawing.iter("{http://www.w3.org/2000/svg}text")
        }
        names = {f"{comm} {tid}" for comm, tid in pool.select("comm", "tid").iter_rows()}
        assert names <= texts


# -- a page that carries its data -----------------------------------------------------------


@pytest.fixture
def paper(browser: Any, trace: ss.Trace, tmp_path: Path) -> Any:
    from schedscope.cli import main

    path = tmp_path / "page.html"
    assert main(["timeline", str(trace.path), "-o", str(path)]) == 0
    browser.run("localStorage.clear()") if browser.run("location.protocol") == "file:" else None
    # Requests of the previous page do not count for this one.
    browser.open("about:blank")
    browser.fetched.clear()
    return visit(browser, path.as_uri())


def test_saved_page_searches_selects_and_sums_by_itself(paper: Any, trace: ss.Trace) -> None:
    """What needs the recording names the command that has it."""
    paper.run("localStorage.clear()")
    shown = paper.run(f"{HANDLE}.lanes()")
    waits = trace.waits.filter(pl.col("censored") == "none").join(trace.threads, on="utid")
    rows = waits.sort("wait", descending=True).collect().iter_rows(named=True)
    row = next(row for row in rows if f"utid:{row['utid']}" not in shown)
    search(paper, str(row["tid"]), f"{row['comm']} {row['tid']}")
    paper.wait(f"{PANEL}.includes('waiting for a CPU for')")
    assert "schedscope view linux-ftrace-mixed" in paper.run(PANEL)
    assert "0.39 % of CPU time unknown" in paper.run("document.querySelector('.sst-quality').title")
    assert set(settled(paper)["kinds"]) == {"intervals"}
    paper.run(f"{HANDLE}.picture.setRange([400000000, 500000000])")
    paper.wait(f"{PANEL}.includes('Totals of the lanes shown')")
    paper.key("b")
    paper.wait("document.activeElement.matches('.sst-notes input')")
    type_text(paper, "note")
    enter(paper)
    paper.wait("location.hash.includes('note')")
    address = paper.run("location.href")
    paper.run("localStorage.clear()")
    visit(paper, address)
    paper.wait(f"{HANDLE}.state().range?.[0] === 400000000")
    paper.wait(f"{HANDLE}.keep.notes().length === 1")
    fetched = [url for url in paper.fetched if not url.startswith(("data:", "about:"))]
    # Firefox does not report files.
    assert {re.sub("#.*", "", url) for url in fetched} <= {re.sub("#.*", "", address)}
    assert paper.errors == []


def test_hostile_names_stay_text(browser: Any) -> None:
    """Scripts, markup and control characters as names: searched, grouped, selected, queried."""
    import hostile

    evil = hostile.trace()
    with server(evil) as port:
        visit(browser, f"http://127.0.0.1:{port}/{TOKEN}/")
        search(browser, "script", "all ")
        for by in ("process", "cgroup", "cpu"):
            browser.run(f"{HANDLE}.picture.arrange({{by: {by!r}}})")
            settled(browser)
        lane = browser.run(f"{HANDLE}.lanes().find(key => key.startsWith('utid:'))")
        browser.run(f"{HANDLE}.picture.select({lane!r}, {HANDLE}.about.waits[0].ready)")
        browser.wait(f"{PANEL}.includes('trace.between')")
        browser.run(f"{HANDLE}.picture.setRange([0, 100000000])")
        browser.wait(f"{PANEL}.includes('share of all waiting')")
        browser.key("q")
        browser.run(
            "document.querySelector('.sst-body textarea').value = 'select comm from threads'"
        )
        press(browser, "run")
        browser.wait(f"{PANEL}.includes('<script>window.owned=1</script>')")
        assert browser.run("window.owned") is None
        assert browser.run("document.querySelectorAll('img, svg, .sst script').length") == 0
        words = browser.run("document.body.innerText")
        assert not set(words) & set("\x1b\x9b\u202e\u2066\u200b\x07")
        assert settled(browser)["frames"] > 0
