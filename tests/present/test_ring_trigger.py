"""The trigger of a flight recorder's snapshot is its first finding."""

from __future__ import annotations

from pathlib import Path

import pytest

import schedscope as ss
from schedscope import cli
from schedscope.timelines.places import listed

MS = 1_000_000
END = 400 * MS
HOG_WAITS = "a wait longer than 50ms: thread 12 (slow one) waited 234500 us"


def snapshot(tmp_path: Path, trigger: str, *, hole: bool = False) -> Path:
    """Two threads on a CPU: 12 waits for 234.6 ms, until 300 ms; with `hole` events are missing."""
    lines = [
        (0, 0, "swapper/0", "R", 11, "hog"),
        (65_400, 11, "hog", "R", 11, "hog"),
        (300_000, 11, "hog", "S", 12, "slow one"),
        (340_000, 12, "slow one", "S", 0, "swapper/0"),
        (400_000, 0, "swapper/0", "R", 11, "hog"),
    ]
    names = {0: "swapper/0", 11: "hog", 12: "slow one"}
    text = "# tracer: nop\n"
    for us, prev, name, state, following, after in lines:
        if prev != following:
            text += (
                f"{name:>16}-{prev:<7} [000] d..2.  {us / 1e6:.6f}: sched_switch: prev_comm={name}"
                f" prev_pid={prev} prev_prio=120 prev_state={state} ==> next_comm={after}"
                f" next_pid={following} next_prio=120\n"
            )
        elif not hole:
            text += (
                f"{name:>16}-{prev:<7} [000] d.h2.  {us / 1e6:.6f}: sched_waking:"
                f" comm={names[12]} pid=12 prio=120 target_cpu=000\n"
            )
    source = tmp_path / "trace.txt"
    source.write_text(text)
    folder = tmp_path / "snapshot.sched"
    tables = ss.open(source, cache=tmp_path / "cache")
    metadata = {**tables.info, "ring": {"trigger": trigger, "at": END, "cpus": []}}
    ss.Trace.from_tables(
        {name: getattr(tables, name) for name in ("switches", "wakeups", "threads", "states",
         "waits", "cpus", "losses")}, metadata
    ).to_sched(folder)  # fmt: skip
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 0
    return " ".join(capsys.readouterr().out.split())


def test_wait_that_triggered_the_snapshot_is_the_first_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = snapshot(tmp_path, HOG_WAITS)
    trace = ss.open(folder)
    found = ss.findings(trace).row(0, named=True)
    assert (found["topic"], found["level"], found["cost"]) == ("trigger", "warning", 234_500_000)
    assert found["text"] == (
        "The snapshot was taken because slow one (12) waited 234 ms for a CPU."
    )
    assert (found["ts"], found["dur"]) == (65_400_000, 234_600_000)
    assert listed(trace)[0]["topic"] == "trigger"
    assert "trigger the snapshot was taken because slow one (12) waited" in said(
        capsys, "info", str(folder)
    )
    assert "not shown" not in said(capsys, "starvation", str(folder))
    page = tmp_path / "x.html"
    words = said(capsys, "report", str(folder), "-o", str(page))
    assert "The snapshot was taken because slow one (12)" in words
    assert "The snapshot was taken because slow one (12)" in page.read_text()


def test_triggering_wait_missing_from_the_trace_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wakeup is missing, so no wait of the thread is measured."""
    folder = snapshot(tmp_path, HOG_WAITS, hole=True)
    text = (
        "he snapshot was taken because slow one (12) waited 234 ms for a CPU; the trace does not"
        " show that wait, nor any other of this thread"
    )
    assert text in ss.findings(ss.open(folder)).row(0, named=True)["text"]
    for command in ("info", "findings"):
        assert text in said(capsys, command, str(folder))
    for command in ("info", "efficiency"):
        assert "the wait of 234 ms that triggered it is not shown" in said(
            capsys, command, str(folder)
        )


def test_triggering_wait_longer_than_any_measured_is_reported_missing(tmp_path: Path) -> None:
    folder = snapshot(tmp_path, HOG_WAITS.replace("234500", "900000"))
    text = ss.findings(ss.open(folder)).row(0, named=True)["text"]
    assert text.endswith("does not show that wait: its longest wait that is measured is 235 ms.")


@pytest.mark.parametrize("reason", ["the command ended with status 3", "the file /a [b] appeared"])
def test_other_trigger_is_a_note_with_the_recorders_text(tmp_path: Path, reason: str) -> None:
    trace = ss.open(snapshot(tmp_path, reason))
    found = ss.findings(trace).row(0, named=True)
    assert (found["topic"], found["level"], found["cost"]) == ("trigger", "note", 0)
    assert found["text"] == f"The snapshot was taken because of this: {reason}."


def test_part_ending_before_the_trigger_has_no_trigger_finding(tmp_path: Path) -> None:
    trace = ss.open(snapshot(tmp_path, HOG_WAITS))
    assert "trigger" not in ss.findings(trace.between(0, "350ms"))["topic"].to_list()
    assert ss.findings(trace.between("200ms"))["topic"][0] == "trigger"
