"""Sub-buffers that were copied in the wrong order: sorted and read once, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from faults import recording

import schedscope as ss

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-ftrace-placement.capture"
PAGE = 4096
FACTS = ("switches", "wakeups", "migrations", "states", "waits", "losses")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = recording.read(FIXTURE)
    made.sub_buffer_bytes = made.about["ftrace"]["sub_buffer_bytes"] = PAGE
    return recording.write(made, tmp_path_factory.mktemp("whole") / "whole.capture")


def changed(whole: Path, to: Path, change: Callable[[list[bytes]], list[bytes]]) -> Path:
    """The capture with the sub-buffers of CPU 0 changed."""
    made = recording.read(whole)
    made.sub_buffer_bytes = PAGE
    content = made.pages(0)
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    assert len(pages) > 10
    made.raw[0] = b"".join(change(pages))
    return recording.write(made, to / "changed.capture")


def tables(path: Path, **options: str) -> dict[str, pl.DataFrame]:
    return ss.read_tables(path, *FACTS, options=options)


def warnings(path: Path, tmp_path: Path) -> list[str]:
    return [str(text) for text in ss.open(path, cache=tmp_path / "cache").info["warnings"]]


def swapped(pages: list[bytes]) -> list[bytes]:
    pages[2], pages[7] = pages[7], pages[2]
    return pages


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pages: [*pages[:4], pages[3], *pages[4:]], "1 sub-buffers are in the file twice"),
        (lambda pages: [*pages, *pages[2:5]], "3 sub-buffers are in the file twice"),
        (swapped, "5 sub-buffers are not in order of time"),
        (lambda pages: random.Random(1).sample(pages, len(pages)), "not in order of time"),
    ],
)
def test_whole_sub_buffers_are_put_in_order(
    whole: Path, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    """Nothing is missing, so the tables are equal; and there is a warning."""
    path = changed(whole, tmp_path, change)
    expected = tables(whole)
    for name, table in tables(path).items():
        assert table.equals(expected[name]), name
    assert any(said in text for text in warnings(path, tmp_path))
    assert not any("sub-buffers" in text for text in warnings(whole, tmp_path / "whole"))


def test_a_sub_buffer_among_the_events_of_another_is_refused(whole: Path, tmp_path: Path) -> None:
    """Its timestamp is damaged: no order is consistent."""

    def later(pages: list[bytes]) -> list[bytes]:
        begin, after = (int.from_bytes(page[:8], "little") for page in (pages[5], pages[6]))
        stamp = after + (after - begin) // 2
        pages[5] = stamp.to_bytes(8, "little") + pages[5][8:]
        return pages

    path = changed(whole, tmp_path, later)
    with pytest.raises(ss.FormatError, match="sub-buffers that follow each other in time"):
        tables(path)
    losses = tables(path, salvage="1")["losses"]
    assert "truncated" in losses["reason"].cast(pl.String).to_list()


def test_a_stamp_far_ahead_of_the_next_sub_buffer_is_refused(whole: Path, tmp_path: Path) -> None:
    """A flipped bit in a record's time, after which all later ones would go back."""

    def extended(pages: list[bytes]) -> list[bytes]:
        header = 16
        first = int.from_bytes(pages[5][header : header + 4], "little")
        word = (first | 1 << 31).to_bytes(4, "little")
        pages[5] = pages[5][:header] + word + pages[5][header + 4 :]
        return pages

    path = changed(whole, tmp_path, extended)
    with pytest.raises(ss.FormatError, match="before the event ahead of it"):
        tables(path)
