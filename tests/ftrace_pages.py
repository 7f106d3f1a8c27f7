"""A second reader of ftrace sub-buffers, short and slow, to check the fast one.

Little-endian 64-bit captures only, with the fields where the capture's own format files put them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_FIELD = re.compile(r"field:.*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")


@dataclass(frozen=True)
class Record:
    ts: int
    cpu: int
    event: str
    fields: dict[str, int | str]


def records(capture: Path, page_bytes: int = 4096) -> list[Record]:
    """Every record of a capture folder, CPU by CPU."""
    formats = dict(_format(path) for path in capture.glob("events/*/*/format"))
    found = []
    for path in sorted(capture.glob("raw/cpu[0-9]*")):
        content = path.read_bytes()
        for at in range(0, len(content), page_bytes):
            found += _page(content[at : at + page_bytes], int(path.name[3:]), formats)
    return found


Formats = dict[int, tuple[str, dict[str, tuple[int, int]]]]


def _format(path: Path) -> tuple[int, tuple[str, dict[str, tuple[int, int]]]]:
    text = path.read_text()
    number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    assert number
    fields = {name: (int(at), int(size)) for name, at, size in _FIELD.findall(text)}
    return int(number[1]), (path.parent.name, fields)


def _page(page: bytes, cpu: int, formats: Formats) -> list[Record]:
    ts, commit = struct.unpack_from("<QQ", page)
    at, end = 16, 16 + (commit & 0x7FFFFFF)
    found = []
    while at < end:
        (header,) = struct.unpack_from("<I", page, at)
        kind, delta = header & 31, header >> 5
        if kind == 29 and delta == 0:
            break
        if kind in (29, 30, 31) or kind == 0:
            (extra,) = struct.unpack_from("<I", page, at + 4)
        match kind:
            case 29:  # discarded
                ts += delta
                at += 4 + extra
                continue
            case 30:  # more time than 27 bits hold
                ts += (extra << 27) + delta
                at += 8
                continue
            case 31:  # absolute time, 59 bits
                ts = ts >> 59 << 59 | extra << 27 | delta
                at += 8
                continue
            case 0:
                start, length = at + 8, extra - 4
            case words:
                start, length = at + 4, 4 * words
        ts += delta
        at = start + length
        found.append(_record(page[start:at], ts, cpu, formats))
    return found


def _record(data: bytes, ts: int, cpu: int, formats: Formats) -> Record:
    event, layout = formats[struct.unpack_from("<H", data)[0]]
    fields: dict[str, int | str] = {}
    for name, (at, size) in layout.items():
        raw = data[at : at + size]
        if size == 16:
            fields[name] = raw.split(b"\0")[0].decode(errors="replace")
        else:
            fields[name] = int.from_bytes(raw, "little", signed=True)
    return Record(ts, cpu, event, fields)
