"""An ftrace capture as records that can be edited: read from a folder and written as one.

Only little-endian 64-bit captures. A record keeps its bytes as the kernel wrote them, so
what is written again differs from the original in nothing but the packing into sub-buffers.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_FIELD = re.compile(r"field:.*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")
_STATS = re.compile(r"^([^:\n]+):\s*(\S+)$", re.MULTILINE)
_MISSED = 1 << 31
_MISSED_STORED = 1 << 30
_HEAD = 16
# A time stamp in a record's head has 27 bits.
_DELTA_BITS = 27

STAMPS = ("oldest event ts", "now ts")
"""Lines of `stats` that hold a stamp, s with six decimals."""


def stamp(ns: int) -> str:
    """A stamp as `stats` has it."""
    return f"{ns // 10**9}.{ns % 10**9 // 1000:06d}"


def unstamp(text: str) -> int:
    """The ns of such a stamp."""
    return int(text.replace(".", "")) * 1000


@dataclass(frozen=True, slots=True)
class Record:
    """One event of one CPU. `missed`: a gap lies before it; the number lost there, 0 if unknown.

    `new_page`: it begins a sub-buffer, as a page that was copied whole does.
    """

    ts: int
    data: bytes
    missed: int | None = None
    new_page: bool = False

    @property
    def event_id(self) -> int:
        return int(struct.unpack_from("<H", self.data)[0])


@dataclass(frozen=True)
class Layout:
    """Where an event's fields lie, from its format file."""

    name: str
    fields: dict[str, tuple[int, int]]

    def get(self, data: bytes, name: str) -> int:
        at, size = self.fields[name]
        return int.from_bytes(data[at : at + size], "little", signed=True)

    def put(self, data: bytes, name: str, value: int) -> bytes:
        at, size = self.fields[name]
        return data[:at] + value.to_bytes(size, "little", signed=True) + data[at + size :]


@dataclass
class Recording:
    """A capture folder in memory: records of each CPU, formats, and what the host said."""

    folder: Path
    cpus: dict[int, list[Record]]
    formats: dict[int, Layout]
    stats: dict[int, dict[str, str]]
    about: dict[str, Any]
    sub_buffer_bytes: int
    # Files of `raw/` to write as they are instead of what the records pack into.
    raw: dict[int, bytes] = field(default_factory=dict)
    # What those were when the recorder listed their checksums; without it there is no list.
    listed: dict[int, bytes] = field(default_factory=dict)
    # Other recordings of the campaign, for damage that takes two.
    others: list[Recording] = field(default_factory=list, repr=False)

    def copy(self) -> Recording:
        return replace(
            self,
            cpus={cpu: list(records) for cpu, records in self.cpus.items()},
            stats={cpu: dict(lines) for cpu, lines in self.stats.items()},
            about=json.loads(json.dumps(self.about)),
            raw=dict(self.raw),
            listed=dict(self.listed),
        )

    def name(self, record: Record) -> str:
        return self.formats[record.event_id].name

    def value(self, record: Record, name: str) -> int:
        return self.formats[record.event_id].get(record.data, name)

    @property
    def window(self) -> tuple[int, int]:
        """From the first record to the last."""
        stamps = [r.ts for records in self.cpus.values() for r in (records[:1] + records[-1:])]
        return (min(stamps), max(stamps)) if stamps else (0, 0)

    def __len__(self) -> int:
        return sum(map(len, self.cpus.values()))

    def merged(self) -> Iterator[tuple[int, Record]]:
        """(cpu, record) in order of time; equal times in order of CPU."""
        rows = [
            (record.ts, cpu, at)
            for cpu, records in self.cpus.items()
            for at, record in enumerate(records)
        ]
        for _, cpu, at in sorted(rows):
            yield cpu, self.cpus[cpu][at]

    def pages(self, cpu: int) -> bytes:
        """The file of sub-buffers of one CPU."""
        if cpu in self.raw:
            return self.raw[cpu]
        return b"".join(pack(self.cpus[cpu], self.sub_buffer_bytes))


def read(folder: Path) -> Recording:
    """The recording in a capture folder; raises ValueError for kinds that are not edited here."""
    about = json.loads((folder / "capture.json").read_text())
    kind = (about["recorder"]["name"], about["endian"], about["long_bits"])
    if kind != ("ftrace", "little", 64):
        raise ValueError(f"{folder} is {kind}; expected an ftrace capture, little-endian, 64 bits")
    sub_buffer_bytes = int(about["ftrace"]["sub_buffer_bytes"])
    formats = layouts(folder)
    cpus, stats = {}, {}
    for path in folder.glob("raw/cpu[0-9]*"):
        cpu = int(re.sub(r"\D", "", path.name.removesuffix(".zst")))
        content = _expanded(path)
        pages = range(0, len(content), sub_buffer_bytes)
        cpus[cpu] = [r for at in pages for r in _page(content[at : at + sub_buffer_bytes])]
    for path in folder.glob("stats/cpu[0-9]*"):
        stats[int(path.name[3:])] = dict(_STATS.findall(path.read_text()))
    return Recording(folder, dict(sorted(cpus.items())), formats, stats, about, sub_buffer_bytes)


def write(recording: Recording, folder: Path) -> Path:
    """A capture folder of the recording, for schedscope to open."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "raw").mkdir(parents=True)
    (folder / "stats").mkdir()
    shutil.copytree(recording.folder / "events", folder / "events")
    for name in ("threads.tsv", "cpus.tsv"):
        if (recording.folder / name).exists():
            shutil.copy(recording.folder / name, folder / name)
    for cpu in sorted({*recording.cpus, *recording.raw}):
        (folder / "raw" / f"cpu{cpu}").write_bytes(recording.pages(cpu))
    for cpu, lines in recording.stats.items():
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (folder / "stats" / f"cpu{cpu}").write_text(text)
    (folder / "capture.json").write_text(json.dumps(recording.about))
    if recording.listed:
        sums = [_cksum(content, f"raw/cpu{cpu}") for cpu, content in recording.listed.items()]
        (folder / "checksums").write_text("".join(sums))
    return folder


def layouts(folder: Path) -> dict[int, Layout]:
    """Of every event that a capture folder has a format file of, by its number."""
    return dict(_format(path) for path in sorted(folder.glob("events/*/*/format")))


def _cksum(content: bytes, name: str) -> str:
    """The line that cksum prints for a file with this content."""
    ran = subprocess.run(["cksum"], input=content, capture_output=True, check=True)
    return f"{ran.stdout.decode().strip()} {name}\n"


def _expanded(path: Path) -> bytes:
    if path.suffix != ".zst":
        return path.read_bytes()
    return subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, check=True).stdout


def _format(path: Path) -> tuple[int, Layout]:
    text = path.read_text()
    number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    assert number
    fields = {name: (int(at), int(size)) for name, at, size in _FIELD.findall(text)}
    return int(number[1]), Layout(path.parent.name, fields)


def _page(page: bytes) -> Iterator[Record]:
    ts, commit = struct.unpack_from("<QQ", page)
    at, end = _HEAD, _HEAD + (commit & 0x7FFFFFF)
    missed: int | None = None
    if commit & _MISSED:
        missed = struct.unpack_from("<Q", page, end)[0] if commit & _MISSED_STORED else 0
    while at < end:
        (head,) = struct.unpack_from("<I", page, at)
        kind, delta = head & 31, head >> 5
        if kind == 29 and delta == 0:
            return
        extra = struct.unpack_from("<I", page, at + 4)[0] if kind in (0, 29, 30, 31) else 0
        if kind == 29:
            ts, at = ts + delta, at + 4 + extra
        elif kind == 30:
            ts, at = ts + (extra << _DELTA_BITS) + delta, at + 8
        elif kind == 31:
            ts, at = ts >> 59 << 59 | extra << _DELTA_BITS | delta, at + 8
        else:
            start, length = (at + 8, extra - 4) if kind == 0 else (at + 4, 4 * kind)
            ts, at = ts + delta, start + length
            yield Record(ts, page[start:at], missed)
            missed = None


def pack(records: list[Record], size: int) -> Iterator[bytes]:
    """The records as sub-buffers of `size` bytes; one with a gap before it begins a new one."""
    body, first, last, missed = bytearray(), 0, 0, None

    def page() -> bytes:
        flags, tail = 0, b""
        if missed is not None:
            flags = _MISSED
            # The kernel stores the number only where it fits behind the data.
            if missed and len(body) + 8 <= size - _HEAD:
                flags, tail = _MISSED | _MISSED_STORED, struct.pack("<Q", missed)
        return (struct.pack("<QQ", first, len(body) | flags) + body + tail).ljust(size, b"\0")

    for record in records:
        data = record.data + bytes(-len(record.data) % 4)
        need = len(data) + (4 if len(data) <= 112 else 8) + 8
        starts = record.missed is not None or record.new_page
        backwards = record.ts < last
        if body and (starts or backwards or len(body) + need > size - _HEAD):
            yield page()
            body, missed = bytearray(), None
        if not body:
            first = last = record.ts
            missed = record.missed
        delta = record.ts - last
        if delta >> _DELTA_BITS:
            low, high = delta & (1 << _DELTA_BITS) - 1, delta >> _DELTA_BITS
            body += struct.pack("<II", low << 5 | 30, high)
            delta = 0
        if len(data) <= 112:
            body += struct.pack("<I", delta << 5 | len(data) // 4) + data
        else:
            body += struct.pack("<II", delta << 5, len(data) + 4) + data
        last = record.ts
    if body:
        yield page()
