"""A recording as a trace.dat of version 6, for schedscope and for trace-cmd."""

from __future__ import annotations

import struct
from pathlib import Path

from faults.recording import Recording, pack

_PAGE = 4096
_CPUSTAT, _TRACECLOCK, _UNAME, _CPUCOUNT = 2, 4, 5, 8


def encode(recording: Recording) -> bytes:
    """The file; sub-buffers are packed again into pages of 4 KiB, `raw` ones have that size."""
    events = recording.folder / "events"
    out = bytearray(b"\x17\x08\x44tracing6\0\0\x08" + struct.pack("<I", _PAGE))
    page = (events / "header_page").read_bytes().replace(b"\r", b"")
    for name, text in ((b"header_page\0", page), (b"header_event\0", _text(events))):
        out += name + struct.pack("<Q", len(text)) + text
    out += struct.pack("<I", 0)
    systems = sorted(folder for folder in events.iterdir() if folder.is_dir())
    out += struct.pack("<I", len(systems))
    for system in systems:
        formats = sorted(system.glob("*/format"))
        out += system.name.encode() + b"\0" + struct.pack("<I", len(formats))
        for path in formats:
            text = path.read_bytes()
            out += struct.pack("<Q", len(text)) + text
    # No kernel symbols, printk formats or names: events carry the names.
    out += struct.pack("<II", 0, 0) + struct.pack("<Q", 0)
    cpus = sorted(recording.cpus)
    # A missing CPU leaves its entry of the table empty.
    count = max(cpus, default=0) + 1
    out += struct.pack("<I", count) + b"options  \0"
    for number, data in _options(recording, count):
        out += struct.pack("<HI", number, len(data)) + data
    out += struct.pack("<H", 0) + b"flyrecord\0"
    clock = b"[" + str(recording.about["clock"]["name"]).encode() + b"]\0"
    at = len(out) + 16 * count + 8 + len(clock)
    contents = []
    for cpu in range(count):
        content = recording.raw.get(cpu)
        if content is None:
            content = b"".join(pack(recording.cpus.get(cpu, []), _PAGE))
        at += -at % _PAGE
        contents.append((at, content))
        out += struct.pack("<QQ", at, len(content))
        at += len(content)
    out += struct.pack("<Q", len(clock)) + clock
    for begin, content in contents:
        out += bytes(begin - len(out)) + content
    return bytes(out)


def data_begins(content: bytes) -> int:
    """Where the pages begin: what lies before describes them."""
    at = content.index(b"flyrecord\0")
    return at + -at % _PAGE


def _text(events: Path) -> bytes:
    return (events / "header_event").read_bytes()


def _options(recording: Recording, count: int) -> list[tuple[int, bytes]]:
    about = recording.about
    uname = f"{about['os']} {about['hostname'] or 'host'} {about['release']} {about['machine']}\0"
    options = [(_TRACECLOCK, b""), (_UNAME, uname.encode()), (_CPUCOUNT, struct.pack("<I", count))]
    for cpu, lines in recording.stats.items():
        text = f"CPU: {cpu}\n" + "".join(f"{key}: {value}\n" for key, value in lines.items())
        options.append((_CPUSTAT, text.encode() + b"\0"))
    return options
