"""Five recorders at once have the same switches, and their differences are explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from archives import unpacked
from decoded import FIXTURES
from together import BPF, PROGRAMS, TRACES, compare, markdown, opened, record

import schedscope as ss

DOCS = Path(__file__).parents[2] / "research" / "notes" / "recorders-compared.md"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ss.Trace]:
    """One such recording, as the recorders wrote it."""
    folder = tmp_path_factory.mktemp("together")
    return opened(unpacked(FIXTURES / "together.tar.xz", folder, TRACES), folder / "cache")


def assert_same_switches(table: pl.DataFrame) -> None:
    """Every recorder has the reference's switches except reported losses and both edges.

    At times the kernel gives its trace events no switch from a CPU's idle thread, while BPF
    programs get it: recorders of trace events have a prev/next mismatch for each.
    """
    assert table["recorder"].to_list() == list(TRACES)
    reference = table["switches"][0]
    assert reference > 500
    for row in table.to_dicts():
        missing = row["only ftrace"] + row["only here"]
        untraced = row["in breaks"] if row["recorder"] in BPF else 0
        assert missing <= row["lost"] + untraced + reference // 50, row
        assert row["stamps apart p50"] < 20_000, row


def test_all_recorders_have_the_same_switches(packed: dict[str, ss.Trace]) -> None:
    assert_same_switches(compare(packed))


def test_waits_only_in_ftrace_belong_to_the_readers(packed: dict[str, ss.Trace]) -> None:
    """perf misses wakeups raised while a BPF program runs, here those of bpftrace and DTrace.

    The kernel's trace_call_bpf() drops an event for perf, too, if a program is already running on
    that CPU.
    """
    for row in compare(packed).to_dicts():
        if not row["lost"]:
            others = row["waits only ftrace"] - row["of readers"]
            # A mismatch makes waits across it doubtful, even if they are right.
            assert others <= row["switches"] * 4 // 100, row


def test_the_docs_show_this_recording(packed: dict[str, ss.Trace]) -> None:
    """The table in the docs is computed from the fixture, to the last digit."""
    assert markdown(compare(packed)) in DOCS.read_text()


@pytest.fixture
def recorded() -> Iterator[dict[str, ss.Trace]]:
    # Below /tmp, where tools in another tree see it, too.
    with TemporaryDirectory(prefix="together-", dir="/tmp") as name:
        folder = Path(name)
        yield opened(record(folder, 1.0), folder / "cache")


@pytest.mark.needs("root", "tracefs", "linux", *PROGRAMS)
def test_recorders_agree_on_this_host(recorded: dict[str, ss.Trace]) -> None:
    """The same on this host: one second under all five."""
    table = compare(recorded)
    print(table)
    assert_same_switches(table)
