"""A file beside the tables that can be made again: a line of JSON, numbers, the CRC-32 of both.

A reader compares what the JSON says about the tables with the tables that are there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from schedscope.errors import StorageError
from schedscope.outputs import whole


def sealed(head: Mapping[str, Any], numbers: Iterable[bytes]) -> list[bytes]:
    """The parts of a file, in order."""
    parts, crc = [json.dumps(head).encode() + b"\n", *numbers], 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [*parts, f"{crc:08x}".encode()]


def opened(data: bytes) -> tuple[dict[str, Any], memoryview] | None:
    """The object in the JSON line, and the numbers; None if the file is damaged."""
    if data[-8:] != f"{zlib.crc32(memoryview(data)[:-8]):08x}".encode():
        return None
    line = data.find(b"\n")
    try:
        head = json.loads(data[: max(0, line)])
    except ValueError:
        return None
    return (head, memoryview(data)[line + 1 : -8]) if isinstance(head, dict) else None


def keep(path: Path, parts: Iterable[bytes]) -> None:
    """Write it whole or not at all; silently skipped where writing is not permitted."""
    with (
        suppress(OSError, StorageError),
        whole(path, [path.parent]) as made,
        made.open("wb") as file,
    ):
        file.writelines(parts)
