"""DTrace lines of a Linux host, without a capture folder around them."""

from __future__ import annotations

from pathlib import Path

import pytest

import schedscope as ss

LINES = Path(__file__).parents[2] / "native" / "fuzz" / "src" / "seeds" / "dtrace-2.txt"


def test_every_line_of_a_recording_is_read(tmp_path: Path) -> None:
    trace = ss.open(LINES, cache=tmp_path)
    kinds = trace.wakeups.collect()["kind"].cast(str).value_counts().rows()
    assert sorted(kinds) == [("enqueued", 14), ("new", 8), ("waking", 15)]
    assert trace.switches.collect().height == 32
    assert trace.info["warnings"] == []


@pytest.mark.parametrize(
    ("number", "release"), [("61844", "6.18.44"), ("61899", "6.18"), ("0", None)]
)
def test_release_is_read_from_its_number(tmp_path: Path, number: str, release: str | None) -> None:
    path = tmp_path / "events.txt"
    path.write_text(LINES.read_text().replace("\t61844\t", f"\t{number}\t", 1))
    assert ss.open(path, cache=tmp_path / "cache").info["release"] == release
