"""The HTML page: complete in itself, true to the trace, safe with hostile names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ledgers import ledger, played

from schedscope import cli
from schedscope.report.page import bucket_for, page
from schedscope.report.summary import summary

WORLD = """
    web  wake    100000 -> 200000 cpu0
    web  preempt 300000 -> 320000 cpu0
    db   wake    400000 -> open cpu1
"""
WINDOW = (0, 1_000_000)


class Audit(HTMLParser):
    """Collects tags left open, and everything that would load something."""

    VOID = frozenset({"meta", "br", "img", "link", "use", "path", "rect", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            local = value is None or value.startswith(("#", "data:"))
            if name in ("src", "href", "xlink:href", "srcset", "action") and not local:
                self.loads.append(f"{tag} {name}={value}")
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def audit(text: str) -> Audit:
    parser = Audit()
    parser.feed(text)
    parser.close()
    return parser


def test_the_page_needs_nothing_and_is_well_formed() -> None:
    text = page(ledger(WORLD, window=WINDOW))
    found = audit(text)
    assert found.open == []
    assert found.loads == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)


def test_the_page_says_the_numbers() -> None:
    words = " ".join(audit(page(ledger(WORLD, window=WINDOW))).words)
    assert "Threads waited for a CPU 2 times, 120 µs in all, within 1.00 ms on 2 CPUs." in words
    assert "began 0.000400 s into the trace and had not ended after 600 µs" in words
    for section in (
        "In short",
        "How far to trust it",
        "Who waited",
        "Why did they wait",
        "What is wrong?",
    ):
        assert section in words


def test_a_hostile_name_stays_text() -> None:
    """A thread may call itself anything; fifteen bytes of markup among it."""
    trace = ledger("<script>x wake 100 -> 200 cpu0", window=WINDOW)
    text = page(trace)
    assert "<script" not in text
    assert "&lt;script&gt;x" in text


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
    assert summary(trace) == [
        "Threads waited for a CPU 2 times, 400 µs in all, within 1.00 ms on one CPU. Half of the"
        " waits lasted at most 100 µs, one in a hundred longer than 300 µs.",
        "The longest wait, 300 µs, was that of web; it began 0.000100 s into the trace.",
        "Threads named web waited most: 75.0 % of all waiting time in 1 waits, of which one in a"
        " hundred lasted longer than 300 µs.",
        "Of the waiting time threads spent 75.0 % after they had been woken and 25.0 % after they"
        " had been preempted.",
        "The CPUs ran threads 100 % of the time and were idle 0 %.",
        "0 further waits had not ended when they went out of sight, and of 1 the begin was not"
        " seen; neither count in the figures above.",
    ]


def test_a_trace_without_waits_says_so() -> None:
    trace = ledger("", window=WINDOW)
    assert summary(trace) == ["No thread was seen waiting for a CPU from begin to end."]
    assert audit(page(trace)).open == []


def test_the_same_trace_gives_the_same_page() -> None:
    """Byte for byte: no dates, no random identifiers."""
    assert page(ledger(WORLD, window=WINDOW)) == page(ledger(WORLD, window=WINDOW))


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
    assert len(list((tmp_path / "figures").glob("*.png"))) == 4
    assert cli.main(words) == 2  # it exists
    assert cli.main([*words, "--force"]) == 0
