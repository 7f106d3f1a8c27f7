"""Traces of other tools that are not read: one sentence names the format, and what to open."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from decoded import FIXTURES

import schedscope as ss

LINES = "\n".join((FIXTURES / "text-tracefs.txt").read_text().splitlines()[:40])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{\n\t"linux-perf-json-version": 1,\n', "samples do not name their events"),
        (json.dumps({"systemTraceEvents": LINES}), "with the lines of ftrace in a string"),
        (json.dumps({"traceEvents": [{"ph": "X", "ts": 1}], "z": LINES}), "a Chrome trace in JSON"),
        (json.dumps([{"ph": "X", "ts": 1, "name": LINES}]), "a Chrome trace in JSON"),
        ('{"type": "attached_probes", "data": {"probes": 1}}\n', "is JSON"),
    ],
)
def test_json_of_other_tools_is_refused_by_name(text: str, found: str, tmp_path: Path) -> None:
    """Also where its strings look like lines of a trace."""
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ss.FormatError, match=found):
        ss.open(path)


@pytest.mark.parametrize("head", [b"\xc1\x1f\xfc\xc1", b"\x57\x1d\xd1\x75", b"/* CTF 1.8 */"])
def test_a_folder_of_ctf_is_named(head: bytes, tmp_path: Path) -> None:
    """Its metadata in packets or as text; any other folder is no capture."""
    (tmp_path / "metadata").write_bytes(head + bytes(60))
    known = head != b"\xc1\x1f\xfc\xc1"
    found = "Common Trace Format" if known else "not a capture"
    with pytest.raises(ss.FormatError, match=found):
        ss.open(tmp_path)


def test_pages_without_formats_are_named(tmp_path: Path) -> None:
    """Output of `cat trace_pipe_raw` cannot be read without its formats."""
    stored = FIXTURES / "linux-ftrace-mixed.capture" / "raw" / "cpu0.zst"
    path = tmp_path / "cpu0"
    path.write_bytes(
        subprocess.run(["zstd", "-dc", stored], check=True, capture_output=True).stdout
    )
    with pytest.raises(ss.FormatError, match=r"trace_pipe_raw.*trace-cmd restore"):
        ss.open(path)
    path.write_bytes(bytes(8192))
    with pytest.raises(ss.FormatError, match="no known format"):
        ss.open(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Attaching 2 probes...\n[1]   165 |@@@@  |\n", "what a script of bpftrace printed"),
        (
            "    time    cpu  task name       wait time  sch delay   run time\n",
            "the table of `perf sched timehist`",
        ),
        (
            " ----\n  Task                  |   Runtime ms  | Switches | Avg delay ms    |\n",
            "the table of `perf sched latency`",
        ),
        (
            '     0.000 make/18 sched:sched_waking(comm: "perf", pid: 22800 (perf), prio: 120)\n',
            "the text of `perf trace`",
        ),
        ("  *A0       66242.871246 secs A0 => make:18\n", "the map of `perf sched map`"),
        ("a,b\n1,2\n", r'no known format \(it starts with "a,b"\)'),
        ("\x01\x02", r"no known format \(it starts with bytes 01 02\)"),
    ],
)
def test_tables_that_other_tools_print_are_named(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text)
    with pytest.raises(ss.FormatError, match=found):
        ss.open(path)
