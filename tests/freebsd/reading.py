"""Decodes lines through the native engine; names threads by tid instead of utid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from schedscope import _native


def decode(path: Path, text: str | bytes, **options: str) -> Decoded:
    """The tables of `text`, written to a file below `path` first."""
    file = path / "events.txt"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Decoded(file, **options)


class Decoded:
    """The tables of one decoded input."""

    def __init__(self, path: Path, **options: str) -> None:
        tables, about = _native.decode(path, options)
        self.tables = {name: pl.DataFrame(table) for name, table in tables.items()}
        self.about: dict[str, Any] = json.loads(about)
        threads = self.tables["threads"]
        self.tids = dict(zip(threads["utid"], threads["tid"], strict=True))

    def tid(self, utid: int | None) -> int | None:
        """The tid; for idle threads their CPU's negative number less one."""
        if utid is None:
            return None
        return -1 - utid if utid < self.about["ncpu"] else self.tids[utid]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table with every utid replaced by a tid."""
        frame = self.tables[table].select(columns)
        return [
            tuple(
                self.tid(value) if name.endswith("utid") else value
                for name, value in zip(columns, row, strict=True)
            )
            for row in frame.rows()
        ]
