"""Recordings of FreeBSD, as lines with a CPU and a time that can be taken out and moved.

Their events are not those of Linux, so `truth.py` says nothing of them: figures of a damaged
recording are compared with those of the whole one.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import Any

from faults.recording import Layout, Record, Recording

_EVENT = re.compile(rb"([A-Z])\t(\d+)\t(\d+)\t")
_KTR = re.compile(rb" *(\d+) +(\d+) +(\d+) ")
_HEAD = struct.Struct("<H")
MOST = 20_000
"""Lines that are kept of a dump of KTR."""

TSC_HZ = "999999998"
"""Cycles a second of the machine that `fixtures/freebsd-13.2` was recorded on."""


def dtrace(folder: Path, about: dict[str, Any]) -> Recording:
    """A capture folder of the D script."""
    found = [
        (int(match[3]), int(match[2]), match[1] + line[match.end(2) :])
        for line in (folder / "events.txt").read_bytes().splitlines()
        if (match := _EVENT.match(line))
    ]
    cpus = _by_cpu(found)
    return Recording(folder, cpus, _LAYOUTS, _no_losses(cpus), about, 0)


def write_dtrace(made: Recording, folder: Path) -> Path:
    """A capture folder of it; the counts of events at its end agree unless a loss is counted."""
    path = folder / "dtrace.capture"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made.folder, path, ignore=shutil.ignore_patterns("checksums"))
    lines = (made.folder / "events.txt").read_bytes().splitlines()
    out = [*takewhile(lambda line: not _EVENT.match(line), lines)]
    tail = [line for line in lines if line.startswith((b"#count", b"#end"))]
    for _, record in made.merged():
        letter, rest = record.data[2:3], record.data[3:]
        out.append(b"%s\t%d%s" % (letter, record.ts, rest))
    if not made.about["lost"]:
        kept = Counter(record.data[2:3] for _, record in made.merged())
        tail = [b"#count\t%s\t%d" % count for count in kept.items()] + tail[-1:]
    out += tail
    (path / "events.txt").write_bytes(b"\n".join(out) + b"\n")
    (path / "capture.json").write_text(json.dumps(made.about))
    return path


def ktr(path: Path) -> Recording:
    """What `ktrdump -ct` prints: the last event first, and a number for each."""
    found = []
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    for line in text.splitlines():
        if match := _KTR.match(line):
            found.append((int(match[2]), int(match[3]), line[match.end() :]))
    cpus = _by_cpu(found[::-1][:MOST])
    about = {
        "recorder": {"name": "ktr"}, "ncpu": len(cpus), "lost": [], "options": {"tsc_hz": TSC_HZ},
    }  # fmt: skip
    return Recording(path.parent, cpus, _LAYOUTS, _no_losses(cpus), about, 0)


def write_ktr(made: Recording, folder: Path) -> Path:
    """The text, a gap in the numbers for each mark."""
    out, number = [], 0
    for cpu, record in made.merged():
        number += (record.missed or 1) if record.missed is not None else 0
        out.append(b"%6d %3d %16d %s" % (number, cpu, record.ts, record.data[2:]))
        number += 1
    head = b"index  cpu timestamp        trace\n------ --- ---------------- -----\n"
    path = folder / "ktr.txt"
    path.write_bytes(head + b"\n".join(out[::-1]) + b"\n")
    return path


_LAYOUTS = {0: Layout("line", {})}


def _by_cpu(found: list[tuple[int, int, bytes]]) -> dict[int, list[Record]]:
    cpus: dict[int, list[Record]] = {}
    for cpu, ts, line in found:
        cpus.setdefault(cpu, []).append(Record(ts, _HEAD.pack(0) + line))
    for records in cpus.values():
        records.sort(key=lambda record: record.ts)
    return dict(sorted(cpus.items()))


def _no_losses(cpus: dict[int, list[Record]]) -> dict[int, dict[str, str]]:
    return {cpu: {"overrun": "0"} for cpu in cpus}
