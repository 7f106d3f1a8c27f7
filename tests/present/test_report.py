"""The HTML page: self-contained, true to the trace, safe with hostile names."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import shlex
from contextlib import chdir, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from ledgers import ledger, played

import schedscope as ss
from schedscope import cli, units
from schedscope.analysis.findings.finding import ADVICE
from schedscope.analysis.findings.starved import EPISODES
from schedscope.errors import UsageError
from schedscope.plot.starvation import TOP
from schedscope.report.figures import write_figures
from schedscope.report.findings import ABOUT
from schedscope.report.focus import focus
from schedscope.report.page import SECTIONS, page
from schedscope.report.subject import Subject
from schedscope.report.summary import summary
from schedscope.report.waiting import THRESHOLD, bucket_for

WORLD = """
    web  wake    100000 -> 200000 cpu0
    web  preempt 300000 -> 320000 cpu0
    db   wake    400000 -> open cpu1
"""
WINDOW = (0, 1_000_000)
FIXTURES = Path(__file__).parents[2] / "fixtures"


class Audit(HTMLParser):
    """Collects unclosed tags, and everything that would load something."""

    VOID = frozenset({"meta", "br", "img", "link", "use", "path", "rect", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            local = value is None or value.startswith(("#", "data:"))
            if name == "id" and value:
                self.names.append(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value.removeprefix("#"))
            if name in ("src", "href", "xlink:href", "srcset", "action") and not local:
                self.loads.append(f"{tag} {name}={value}")
        if tag == "script":
            self.scripts.append(dict(attrs).get("type") or "?")
        if tag in ("link", "iframe", "object", "embed"):
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["script"]:
            self.words.append(data)


def audit(text: str) -> Audit:
    parser = Audit()
    parser.feed(text)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(
        FIXTURES / "linux-ftrace-starved.capture", cache=tmp_path_factory.mktemp("cache")
    )


@pytest.fixture(scope="module")
def whole(starved: ss.Trace) -> str:
    """The page of a real capture, timeline included."""
    return page(Subject(starved), focus(Subject(starved)))


def test_starvation_legend_lists_every_name(starved: ss.Trace, whole: str) -> None:
    found = ss.starvation(starved, threshold=THRESHOLD, top=EPISODES)
    shown = ss.starvation_timeline(starved, found, found["episode"][0])
    ran = shown.filter(pl.col("kind").cast(pl.String) == "thread")
    (listed,) = re.findall(r"<details><summary>All .*?</details>", whole, flags=re.DOTALL)
    rows = re.findall(r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>", listed)
    expected = {
        units.printable(str(comm)): (
            units.duration(part.filter("waited")["dur"].sum()),
            units.duration(part["dur"].sum()),
        )
        for (comm,), part in ran.group_by("comm")
    }
    assert {html.unescape(name): times for name, *times in rows}.keys() == expected.keys()
    assert len(rows) == len(expected) > TOP
    assert f"All {len(rows)} names in the figure" in listed
    for name, _, drawn in rows:
        assert drawn == expected[html.unescape(name)][1]


def test_page_without_a_timeline_has_no_script() -> None:
    text = page(Subject(ledger(WORLD, window=WINDOW)))
    found = audit(text)
    assert (found.open, found.loads, found.scripts) == ([], [], [])
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)


def test_a_page_with_a_timeline_has_exactly_one_script_and_loads_nothing(whole: str) -> None:
    """Its data, which no browser runs, and the script that draws them; nothing else is allowed."""
    found = audit(whole)
    assert (found.open, found.loads) == ([], [])
    assert found.scripts == ["application/json", "module"]
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", whole)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', whole, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', whole)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_every_link_has_a_target_and_every_id_is_unique(whole: str) -> None:
    found = audit(whole)
    assert set(found.links) <= set(found.names)
    own = [name for name in found.names if not re.fullmatch(r"[mpC]?[0-9a-f]{9,}|.*_.*", name)]
    assert len(own) == len(set(own))


@pytest.mark.parametrize(
    "name",
    [
        "linux-ftrace-starved.capture",
        "linux-ftrace-placement.capture",
        "linux-slice-default-1.capture",
        "perfetto-compact.pftrace",
    ],
)
def test_every_finding_links_to_its_table_and_figure_and_names_its_command(name: str) -> None:
    trace = ss.open(FIXTURES / name)
    text = page(Subject(trace))
    names = set(audit(text).names)
    (wrong,) = re.findall(r"<ol class=wrong>(.*?)</ol>", text)
    items = wrong.split("<li ")[1:]
    found = ss.findings(trace)
    assert len(items) == found.height
    for item, row in zip(items, found.iter_rows(named=True), strict=True):
        links = dict(re.findall(r'<a href="#([^"]*)">(\w+)</a>', item))
        assert set(links.values()) == {"table", "figure"}, row["topic"]
        assert set(links) <= names
        said = html.unescape(item).replace("\xa0", " ")
        assert row["text"] in said
        command = f"{row['command']} {name}"
        assert f"schedscope {command}</code>" in said
        assert runs(command)
        assert re.search(r"schedscope view --at '?view=\d+-\d+\S* " + re.escape(name), said)


def runs(command: str) -> bool:
    """Whether this command prints something in the folder of the fixtures."""
    with chdir(FIXTURES), redirect_stdout(io.StringIO()) as out:
        done = cli.main([*shlex.split(command), "--format", "csv"])
    return done == 0 and out.getvalue().count("\n") > 1


def test_every_section_names_commands_that_run(starved: ss.Trace) -> None:
    text = page(Subject(starved))
    lists = re.findall(r"<p class=how>(.*?)</p>", text)
    commands = [html.unescape(c) for part in lists for c in re.findall("schedscope (.*?)<", part)]
    assert len(commands) >= 12
    for command in commands:
        assert command.endswith(" linux-ftrace-starved.capture")
        assert runs(command), command


def test_a_page_about_selected_threads_has_their_numbers_and_commands(starved: ss.Trace) -> None:
    name = ss.latency(starved, by="comm")["comm"][0]
    where, words = pl.col("comm") == name, f"--comm {name}"
    text = page(Subject(starved, where, words))
    n = starved.threads.filter(where).select(pl.len()).collect().item()
    assert f"About {n} selected thread" in text
    theirs = ss.latency(starved, where=where).row(0, named=True)
    every = ss.latency(starved).row(0, named=True)
    assert theirs["n"] < every["n"]
    assert f"<dt>waits</dt><dd>{theirs['n']:,}</dd>" in text
    assert "The selected threads waited for a CPU" in text
    lists = re.findall(r"<p class=how>(.*?)</p>", text)
    commands = [html.unescape(c) for part in lists for c in re.findall("schedscope (.*?)<", part)]
    about_all = [command for command in commands if words not in command]
    assert [command.split()[0] for command in about_all] == [
        *("timeline", "efficiency", "queue-depth", "latency", "work-conservation", "check")
    ][-len(about_all) :]
    for command in commands:
        assert runs(command), command


def test_every_topic_has_a_section(starved: ss.Trace) -> None:
    assert set(ABOUT) == set(ADVICE)
    anchors = {section(Subject(starved)).anchor for section in SECTIONS} | {
        "bounced",
        "outside",
        "",
    }
    assert {anchor for place in ABOUT.values() for anchor in place} <= anchors


def test_the_timeline_shows_the_worst_finding(starved: ss.Trace, whole: str) -> None:
    chosen = focus(Subject(starved))
    worst = ss.worst_waits(starved, n=1).row(0, named=True)
    assert chosen.since <= worst["ts_ready"]
    assert worst["ts_ready"] + worst["wait"] <= chosen.until
    assert "around the worst case of finding 1 (starvation)" in whole
    ready, half = worst["ts_ready"] - starved.origin, worst["wait"] // 2
    place = f"select=u{worst['utid']}@{ready + half}"
    assert re.search(f'<a href="#timeline" data-view="view=[^"]*{place}">timeline</a>', whole)


def test_timeline_can_be_placed_around_any_time(starved: ss.Trace) -> None:
    chosen = focus(Subject(starved), "1s")
    assert (chosen.since - starved.origin, chosen.until - starved.origin) == (
        900_000_000,
        1_100_000_000,
    )
    with pytest.raises(UsageError, match=r"expected 0\.000000 s to 2\.2"):
        focus(Subject(starved), "5s")


def test_page_states_the_numbers() -> None:
    words = " ".join(audit(page(Subject(ledger(WORLD, window=WINDOW)))).words).replace("\xa0", " ")
    assert "Threads waited for a CPU 2 times, 720 µs in total, within 1.00 ms on 2 CPUs." in words
    assert "started 0.000400 s into the trace and was unfinished after 600 µs" in words
    assert "longest >= 600 µs" in words
    for section in (
        "Summary",
        "Data quality",
        "Who waited",
        "Why did they wait",
        "Findings",
    ):
        assert section in words


def test_figures_as_files_are_those_of_the_page(
    starved: ss.Trace, whole: str, tmp_path: Path
) -> None:
    assert len(write_figures(Subject(starved), tmp_path)) == whole.count("<figure")
    assert len(list(tmp_path.glob("*.png"))) == whole.count("<figure")


def test_page_has_the_worst_parts_with_cpus_threads_and_causes(whole: str) -> None:
    section = whole.partition('<section id="idle">')[2].partition("</section>")[0]
    assert "The episodes with the most avoidable idle time" in section
    assert "<th>cause" in section
    assert re.search(r"<td[^>]*>(placed|preempted|not_pulled)", section)


def test_page_states_the_source_of_weights(whole: str) -> None:
    """On FreeBSD weights are unknown: shares due assume equal threads, and the page says so."""
    assert "Weights: those of Linux's nice levels" in html.unescape(whole)
    text = page(Subject(ss.open(FIXTURES / "freebsd-ule-synthetic.capture")))
    assert "Weights: none are known for FreeBSD" in text


def test_a_hostile_name_stays_text() -> None:
    """A thread may have any name, including fifteen bytes of markup."""
    trace = ledger("<script>x wake 100 -> 200 cpu0", window=WINDOW)
    text = page(Subject(trace), focus(Subject(trace)))
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text
    assert audit(text).scripts == ["application/json", "module"]


def test_name_with_dollar_signs_is_drawn_literally() -> None:
    trace = ledger("$\\frac$ wake 100000 -> 300000 cpu0\n$x_1$ preempt 1 -> 2 cpu1", window=WINDOW)
    text = page(Subject(trace))
    assert "$\\frac$ (1)" in text.replace("  ", " ")
    assert "$x_1$ (1)" in text.replace("  ", " ")


def test_summary_says_that_another_wait_may_be_the_longest(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path)
    most = ss.latency(trace, by="all")["max_high"].item()
    (told,) = (line for line in summary(Subject(trace)) if line.startswith("The longest wait"))
    assert told.startswith("The longest wait that was measured, 32.0 ms, was that of lto")
    assert told.endswith(f" Another may have lasted {units.duration(most)}.")


def test_summary_of_a_whole_trace() -> None:
    trace = played(
        """
        0      cpu0: idle -> sh
        100000 cpu0: waking web on 0 by sh
        400000 cpu0: sh R -> web
        500000 cpu0: web S -> sh
        """,
        ncpu=1,
        window=WINDOW,
    )
    assert summary(Subject(trace)) == [
        "Threads waited for a CPU 2 times, 400 µs in total, within 1.00 ms on one CPU. Half of the"
        " waits lasted at most 100 µs, the longest 300 µs.",
        "The longest wait, 300 µs, was that of web; it started 0.000100 s into the trace.",
        "Threads named web waited most: 75.0 % of all waiting time in 1 wait, the longest 300 µs.",
        "Of the waiting time, threads spent 75.0 % after they had been woken and 25.0 % after they"
        " had been preempted.",
        "The CPUs ran threads 100 % of the time and were idle 0 %.",
        "The start of 1 wait was not recorded; the numbers above have what is known of them.",
    ]


def test_page_of_a_trace_without_waits_says_so() -> None:
    trace = ledger("", window=WINDOW)
    assert summary(Subject(trace)) == ["No wait for a CPU was recorded from start to end."]
    assert audit(page(Subject(trace))).open == []


def test_a_trace_in_memory_gives_the_same_page(starved: ss.Trace) -> None:
    held = starved.in_memory("states")
    assert held.name == starved.name
    assert page(Subject(held)) == page(Subject(starved))


def test_the_same_trace_gives_the_same_page() -> None:
    """Byte for byte: no dates, no random identifiers."""
    assert page(Subject(ledger(WORLD, window=WINDOW))) == page(
        Subject(ledger(WORLD, window=WINDOW))
    )


@pytest.mark.parametrize("duration", [0, 1, 124, 999, 5_370_000_000, 10**15])
def test_buckets_are_round_and_few(duration: int) -> None:
    bucket = bucket_for(duration)
    assert duration / bucket <= 125
    assert str(bucket).rstrip("0") in ("1", "2", "5")


def test_the_command_writes_page_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sched = ledger(WORLD, window=WINDOW).to_sched(tmp_path / "x.sched").path
    target = tmp_path / "x.html"
    words = ["report", str(sched), "-o", str(target), "--figures", str(tmp_path / "figures")]
    assert cli.main(words) == 0
    assert "- Threads waited" in capsys.readouterr().out
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == {
        *("latency-by-comm", "latency-over-time", "latency-survival", "worst-waits"),
        *("cpu-time", "queue-depth", "residency"),
    }
    assert cli.main(words) == 2  # it exists
    assert cli.main([*words, "--force"]) == 0
