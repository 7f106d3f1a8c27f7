"""Every change that a finding suggests is accepted by `whatif`, on every kept recording."""

from __future__ import annotations

import argparse
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from archives import unpack

import schedscope as ss
from schedscope.cli import _change
from schedscope.simulator.changes.change import change
from schedscope.simulator.runs.replay import replay

FIXTURES = Path(__file__).parents[2] / "fixtures"
PACKED = ("findings", "cfs-and-eevdf", "lab/amd64-6.12-quota", "lab/amd64-6.1-perf")
"""Archives with recordings whose findings suggest something else than those of single files."""


def suggested(trace: ss.Trace) -> Iterator[tuple[str, str]]:
    rows = ss.findings(trace).filter(pl.col("whatif").is_not_null())
    yield from rows.select("topic", "whatif").iter_rows()


def taken(trace: ss.Trace) -> set[str]:
    """The topics whose suggestions were accepted."""
    topics = set()
    way = None
    for topic, words in suggested(trace):
        parser = argparse.ArgumentParser()
        _change.add_change(parser, "")
        command, *options = shlex.split(words)
        assert command == "whatif"
        way = way or replay(trace)
        changed = change(way, **_change.asked(parser.parse_args(options)))
        assert changed.words
        topics.add(topic)
    return topics


CAPTURES = sorted(FIXTURES.glob("*.capture"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.release if at % 3 else ())
        for at, path in enumerate(CAPTURES)
    ],
)
def test_suggested_changes_of_recordings_can_be_replayed(path: Path) -> None:
    taken(ss.open(path))


def test_suggested_changes_of_packed_recordings_can_be_replayed(tmp_path: Path) -> None:
    topics = set()
    for name in PACKED:
        folder = tmp_path / name
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            unpack(archive, folder)
        for path in sorted(folder.rglob("*.capture")):
            topics |= taken(ss.open(path))
    assert topics >= {"mask", "crowding", "weight", "quota", "overload", "migration", "starvation"}
