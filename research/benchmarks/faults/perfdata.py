"""A perf.data file as records that can be taken out and moved in time."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.recording import Record, Recording, layouts

_SAMPLE, _LOST = 9, 2
_IDENTIFIER, _IP, _TID, _TIME, _ADDR = 1 << 16, 1, 2, 4, 8
_ID, _CPU, _PERIOD, _STREAM_ID, _RAW = 64, 128, 256, 512, 1024
_SIZES = struct.Struct("<II")
_NAME = re.compile(rb"name: (sched_\w+)\nID: (\d+)\n")


@dataclass(frozen=True)
class Sample:
    """One record of the data section; its event is None for other records."""

    data: bytes
    event: str | None = None
    cpu: int | None = None
    time: int | None = None
    time_at: int = 0
    raw_at: int = 0


@dataclass
class PerfFile:
    """What lies before the records, they themselves, and what lies behind."""

    head: bytes
    records: list[Sample]
    tail: bytes
    sample_type: int

    def encode(self, records: list[Sample]) -> bytes:
        """The file with these records instead."""
        body = b"".join(record.data for record in records)
        head = bytearray(self.head)
        at, size = struct.unpack_from("<QQ", head, 40)
        struct.pack_into("<Q", head, 48, len(body))
        moved = len(body) - size
        tail = bytearray(self.tail)
        # Behind the records: a table of (offset, size), one for each bit of the header's bitmap.
        bits = sum(
            int.from_bytes(head[72:104][i : i + 8], "little").bit_count() for i in (0, 8, 16, 24)
        )
        for entry in range(bits):
            (offset,) = struct.unpack_from("<Q", tail, 16 * entry)
            struct.pack_into("<Q", tail, 16 * entry, offset + moved)
        assert at == len(head)
        return bytes(head) + body + bytes(tail)


Edit = Callable[[PerfFile, random.Random], bytes]


def read(content: bytes) -> PerfFile:
    """Take a perf.data apart; all its events must have one layout, as perf sched record's have."""
    attrs_at = struct.unpack_from("<Q", content, 24)[0]
    at, size = struct.unpack_from("<QQ", content, 40)
    (sample_type,) = struct.unpack_from("<Q", content, attrs_at + 24)
    names = {int(number): name.decode() for name, number in _NAME.findall(content)}
    records, end = [], at + size
    head, tail = content[:at], content[end:]
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", content, at)
        data = content[at : at + length]
        records.append(_sample(data, sample_type, names) if kind == _SAMPLE else Sample(data))
        at += length
    return PerfFile(head, records, tail, sample_type)


def _sample(data: bytes, sample_type: int, names: dict[int, str]) -> Sample:
    at, time_at, cpu = 8, 0, None
    for bit in (_IDENTIFIER, _IP, _TID, _TIME, _ADDR, _ID, _STREAM_ID, _CPU, _PERIOD):
        if sample_type & bit:
            if bit == _TIME:
                time_at = at
            elif bit == _CPU:
                (cpu,) = struct.unpack_from("<I", data, at)
            at += 8
    (event,) = struct.unpack_from("<H", data, at + 4)
    (time,) = struct.unpack_from("<Q", data, time_at)
    return Sample(data, names.get(event), cpu, time, time_at, at + 4)


def recording(folder: Path, about: dict[str, Any]) -> Recording:
    """A capture folder of perf: a record's bytes are the event's, and behind them the sample's."""
    file = read((folder / "perf.data").read_bytes())
    cpus: dict[int, list[Record]] = {}
    for sample in file.records:
        if sample.cpu is not None and sample.time is not None:
            sizes = _SIZES.pack(len(sample.data), sample.time_at)
            content = sample.data[sample.raw_at :] + sample.data + sizes
            cpus.setdefault(sample.cpu, []).append(Record(sample.time, content))
    for records in cpus.values():
        records.sort(key=lambda record: record.ts)
    stats = {cpu: {"overrun": "0"} for cpu in cpus}
    made = Recording(folder, dict(sorted(cpus.items())), layouts(folder), stats, about, 0)
    about["window"] = dict(zip(("begin", "end"), made.window, strict=True))
    return made


def write(made: Recording, folder: Path) -> Path:
    """A capture folder of it, with perf's own records of lost events."""
    path = folder / "perf.capture"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made.folder, path)
    file = read((path / "perf.data").read_bytes())
    records = [record for record in file.records if record.time is None]
    for cpu, record in made.merged():
        size, at = _SIZES.unpack(record.data[-_SIZES.size :])
        data = record.data[-_SIZES.size - size : -_SIZES.size]
        data = data[:at] + struct.pack("<Q", record.ts) + data[at + 8 :]
        sample = Sample(data, cpu=cpu, time=record.ts, time_at=at)
        if record.missed is not None:
            records.append(_lost(file, sample, record.missed or 1))
        records.append(sample)
    (path / "perf.data").write_bytes(file.encode(records))
    (path / "capture.json").write_text(json.dumps(made.about))
    return path


def _window(file: PerfFile) -> tuple[int, int]:
    times = [record.time for record in file.records if record.time is not None]
    return min(times), max(times)


def _lost(file: PerfFile, after: Sample, count: int) -> Sample:
    """The kernel's record of lost events, in place of those that followed `after`."""
    assert after.time is not None
    assert after.cpu is not None
    trailer = b""
    for bit in (_TID, _TIME, _ID, _STREAM_ID, _CPU, _IDENTIFIER):
        if file.sample_type & bit:
            value = {_TIME: after.time, _CPU: after.cpu, _IDENTIFIER: _id(file, after)}.get(bit, 0)
            trailer += struct.pack("<Q", value)
    body = struct.pack("<QQ", _id(file, after), count) + trailer
    return Sample(struct.pack("<IHH", _LOST, 0, 8 + len(body)) + body)


def _id(file: PerfFile, sample: Sample) -> int:
    has = file.sample_type & _IDENTIFIER
    return int(struct.unpack_from("<Q", sample.data, 8)[0]) if has else 0


def hole(marked: bool) -> Edit:
    """Records of one CPU for up to half of the time missing, with a record of it or without."""

    def edit(file: PerfFile, rng: random.Random) -> bytes:
        begin, end = _window(file)
        length = int((end - begin) * rng.uniform(0.02, 0.5))
        at = rng.randint(begin, end - length)
        cpu = rng.choice(sorted({r.cpu for r in file.records if r.cpu is not None}))
        gone = [r for r in file.records if r.cpu == cpu and at <= (r.time or 0) < at + length]
        ids = set(map(id, gone))
        records = []
        for record in file.records:
            if id(record) not in ids:
                records.append(record)
            elif marked and record is gone[-1]:
                records.append(_lost(file, record, len(gone)))
        return file.encode(records)

    return edit


def absent(file: PerfFile, rng: random.Random) -> bytes:
    """All records of one CPU missing."""
    cpu = rng.choice(sorted({r.cpu for r in file.records if r.cpu is not None}))
    return file.encode([r for r in file.records if r.cpu != cpu])


def dropped(event: str, share: float) -> Edit:
    """Some of the records of one event missing."""

    def edit(file: PerfFile, rng: random.Random) -> bytes:
        kept = [r for r in file.records if r.event != event or rng.random() >= share]
        return file.encode(kept)

    return edit


def truncated(file: PerfFile, rng: random.Random) -> bytes:
    """The file ends anywhere behind its first record."""
    content = file.encode(file.records)
    return content[: rng.randint(len(file.head) + 1000, len(content) - 1)]


def shifted(ns: int) -> Edit:
    """The stamps of one CPU later or earlier."""

    def edit(file: PerfFile, rng: random.Random) -> bytes:
        cpu = rng.choice(sorted({r.cpu for r in file.records if r.cpu is not None}))
        by = ns * rng.choice([-1, 1])

        def moved(record: Sample) -> Sample:
            if record.cpu != cpu or record.time is None:
                return record
            data, at = record.data, record.time_at
            return Sample(data[:at] + struct.pack("<Q", record.time + by) + data[at + 8 :])

        return file.encode([moved(record) for record in file.records])

    return edit


EDITS: dict[str, Edit] = {
    "nothing": lambda file, _: file.encode(file.records),
    "hole, marked": hole(marked=True),
    "hole, unmarked": hole(marked=False),
    "CPU absent": absent,
    "1% of switch dropped": dropped("sched_switch", 0.01),
    "10% of switch dropped": dropped("sched_switch", 0.1),
    "1% of waking dropped": dropped("sched_waking", 0.01),
    "10% of waking dropped": dropped("sched_waking", 0.1),
    "file truncated": truncated,
    "clock of a CPU 10 us off": shifted(10_000),
    "clock of a CPU 1 ms off": shifted(1_000_000),
}
"""What is done to a perf.data, by name."""
