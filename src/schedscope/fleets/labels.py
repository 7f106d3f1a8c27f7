"""Labels of traces: from the recording itself, from a table in CSV, and for all of them at once."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from schedscope.errors import StorageError, UsageError

_NAMES = ("trace", "path")


class Labels:
    """Labels of traces from outside the recordings."""

    def __init__(
        self, every: Mapping[str, str] | None = None, table: str | Path | None = None
    ) -> None:
        """`every`: labels of all traces; `table`: a CSV file with a column `trace`.

        Raises `StorageError` if the file cannot be read, `UsageError` if it is no such table.
        """
        self._every = dict(every or {})
        self._rows = {} if table is None else _rows(Path(table))

    def of(self, trace: str, own: Mapping[str, str]) -> dict[str, str]:
        """The labels of a trace; those of the table replace its own, and those of all replace both.

        A row of the table is about a trace if it names its path, its file, or its file without the
        ending.
        """
        return {**own, **self._rows.get(self._named(trace), {}), **self._every}

    def about_none(self, traces: Iterable[str]) -> list[str]:
        """Names in the table that match none of these traces.

        >>> Labels({"rack": "b7"}).about_none(["a.dat"])
        []
        """
        named = {self._named(trace) for trace in traces}
        return [name for name in self._rows if name not in named]

    def _named(self, trace: str) -> str:
        """How the table names a trace, if it does."""
        file = trace.rstrip("/").rsplit("/", 1)[-1]
        names = (trace, file, file.rsplit(".", 1)[0])
        return next((name for name in names if name in self._rows), trace)


def parsed(texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping.

    >>> parsed(["rack=b7", "note=a=b"])
    {'rack': 'b7', 'note': 'a=b'}
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--label {text}", "KEY=VALUE", "write for example --label rack=b7")
        found[key.strip()] = value
    return found


def _rows(path: Path) -> dict[str, dict[str, str]]:
    expected = "CSV with a column `trace` (a path or a file's name) and one for each label"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.reader(file, strict=True)
            head = [name.strip() for name in next(table, [])]
            key = next((head.index(name) for name in _NAMES if name in head), None)
            if key is None:
                raise UsageError(f"{path} has no column `trace`", expected)
            if len(set(head)) < len(head) or "" in head:
                raise UsageError(f"{path} has two columns of one name, or one without", expected)
            found = {}
            for row in table:
                if not row:
                    continue
                if len(row) != len(head):
                    raise UsageError(
                        f"line {table.line_num} of {path} has {len(row)} cells",
                        f"{len(head)}, as the first line",
                    )
                if row[key] in found:
                    raise UsageError(f"{path} names {row[key]} twice", "one line for each trace")
                cells = zip(head, row, strict=True)
                found[row[key]] = {
                    name: cell for name, cell in cells if name != head[key] and cell != ""
                }
            return found
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}", expected) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a table: {error}", expected) from error
