"""A file without switches cannot answer who ran or waited, and is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfetto_packets import RELEASE, B, bundle, event, field, waking

import schedscope as ss
from schedscope import cli
from schedscope.errors import FormatError

FREQUENCY = 11  # cpu_frequency {state = 1, cpu_id = 2}
CLOCKS = b"".join(
    field(1, field(1, clock) + field(2, ns)) for clock, ns in ((6, 5_000), (1, 1_700_000_000 << 30))
)
FILES = {
    "frequencies.pftrace": RELEASE
    + field(1, field(6, CLOCKS))
    + bundle(0, *(event(n * 1000, 0, FREQUENCY, field(1, n)) for n in range(1, 50))),
    "wakings.pftrace": RELEASE + bundle(0, waking(100, 11, B, 0), waking(200, 11, B, 0)),
    "wakings.txt": b"# tracer: nop\n  a-11  [000] d..2.  1.000000: sched_waking: comm=b pid=2"
    b" prio=120 target_cpu=001\n" * 2,
    "exits.txt": b"# tracer: nop\n  a-11  [000] d..2.  1.000000: sched_process_exit: comm=a"
    b" pid=11 prio=120\n" * 2,
}
MORE = {
    "compare": ["again"],
    "convert": ["-o", "out"],
    "critical-path": ["--worst", "1"],
    "export": ["--to", "csv", "-o", "out"],
    "report": ["-o", "out"],
    "timeline": ["-o", "out"],
    "view": ["--no-browser"],
    "wake-chain": ["--worst", "1"],
    "whatif": ["--cpus", "3"],
}
"""What a command needs besides a trace."""
NO_TRACE = {"capture", "collectors", "doctor", "fleet", "ministat", "simulate", "top", "validate"}
COMMANDS = sorted(set(cli.commands()) - NO_TRACE)


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    path.write_bytes(FILES[str(request.param)])
    return path


def said(file: Path, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = [
        str(file) if word == "again" else str(file.parent / word) if word == "out" else word
        for word in MORE.get(command, [])
    ]
    assert cli.main([command, str(file), *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert sorted(file.parent.iterdir()) == [file]
    return err


def test_trace_without_switches_is_refused(file: Path) -> None:
    with pytest.raises(FormatError, match="has no context switches") as caught:
        ss.open(file)
    assert caught.value.hint.startswith("record them: `schedscope capture` does")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_trace_without_switches_in_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error does not mention windows, times of day or data quality."""
    path = tmp_path / "frequencies.pftrace"
    path.write_bytes(FILES[path.name])
    err = said(path, command, capsys)
    assert f"{path} has no context switches: nothing can be said of who ran and who waited" in err
    assert len(err.splitlines()) == 1
    assert not any(word in err for word in ("window", "time of day", "data quality"))
