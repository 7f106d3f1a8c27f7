"""Tables of measurements: kept as CSV in research/data, printed or drawn.

    python -m research.results                       what there is
    python -m research.results lab-cells 6.12        the rows that have the word
    python -m research.results scale-memory -o memory.png --column '500 M: MB'

Each table says when, at which commit and on which machine it was measured, where that is known.
`predictions`, `closeness` and `campaign` are computed from the rows that their programs keep.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
ABOUT = ("measured_on", "commit", "machine")
Rows = list[dict[str, str]]


def parse(lines: Iterable[str]) -> Rows:
    """The rows of a Markdown table, in plain text.

    >>> parse(["| a | b |", "|---|--:|", "| **1,234** | `x` |"])
    [{'a': '1234', 'b': 'x'}]
    """
    table = [_cells(line) for line in lines if line.startswith("|")]
    if len(set(table[0])) < len(table[0]):
        raise ValueError(f"two columns of one name: {table[0]}")
    return [dict(zip(table[0], row, strict=True)) for row in table[2:]]


def _cells(line: str) -> list[str]:
    # A bar inside a cell is escaped.
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip() for cell in cells)
    return [re.sub(r"(?<=\d),(?=\d{3}\b)", "", cell).replace("\\|", "|") for cell in plain]


def keep(name: str, rows: Rows, *, key: str = "", folder: Path = FOLDER, **about: str) -> Path:
    """Write a table; with `key`, rows of other values of that column stay.

    `about` is when, at which commit and on which machine, of all its rows.
    """
    path = folder / f"{name}.csv"
    rows = [{**about, **row} for row in rows]
    if key and path.exists():
        new = {row[key]: row for row in rows}
        before = read(path)
        rows = [new.pop(row[key], row) for row in before] + list(new.values())
    part = path.with_suffix(".new")
    with part.open("w", newline="", encoding="utf-8") as file:
        columns = dict.fromkeys(column for row in rows for column in row)
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)
    return path


def read(path: Path) -> Rows:
    """The rows of a kept table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def computed() -> Mapping[str, list[str]]:
    """Tables that follow from kept rows, as Markdown."""
    from research.lab import closeness, predictions_page

    sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
    campaign = import_module("campaign.table")

    return {
        **predictions_page.tables(),
        **closeness.kept_tables(),
        **campaign.kept_tables(),
    }


def table(name: str) -> Rows:
    """A kept or computed table. Raises `SystemExit` if there is none of this name."""
    path = FOLDER / f"{name}.csv"
    if path.exists():
        return read(path)
    lines = computed().get(name)
    if lines is None:
        raise SystemExit(f"no table {name!r}; python -m research.results lists them")
    return parse(lines)


def text(rows: Rows) -> str:
    """Columns as wide as what they hold; what is the same in all rows stands above them."""
    columns = list(rows[0])
    same = [name for name in columns if name in ABOUT and len({row[name] for row in rows}) == 1]
    head = "; ".join(rows[0][name] for name in same if rows[0][name])
    columns = [name for name in columns if name not in same]
    lines = [columns, *([row[name] or "" for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join([*([head] if head else []), *body])


def number(cell: str) -> float | None:
    """The first number of a cell.

    >>> number("512 [3, 4]"), number("+7.11%"), number("-")
    (512.0, 7.11, None)
    """
    found = re.search(r"[-+]?\d+(?:\.\d+)?", cell or "")
    return float(found[0]) if found else None


def figure(rows: Rows, column: str, path: Path) -> None:
    """One numeric column as dots, a row for each row of the table."""
    from matplotlib.figure import Figure

    if column not in rows[0]:
        raise SystemExit(f"no column {column!r}; there are {', '.join(rows[0])}")
    names = [name for name in rows[0] if name not in ABOUT and name != column]
    # The first columns that tell all rows apart.
    labels: list[str] = []
    for width in range(1, len(names) + 1):
        labels = [" ".join(row[name] or "" for name in names[:width]) for row in rows]
        if len(set(labels)) == len(rows):
            break
    shown = zip(labels, (number(row[column]) for row in rows), strict=True)
    known = [(label[:60], value) for label, value in shown if value is not None]
    drawn = Figure(figsize=(8, 1.2 + 0.22 * len(known)), layout="constrained")
    axes = drawn.subplots()
    axes.plot([value for _, value in known], range(len(known)), "o", ms=4)
    axes.set_yticks(range(len(known)), [label for label, _ in known], fontsize=7)
    axes.invert_yaxis()
    axes.grid(axis="x", linewidth=0.4)
    axes.set_xlabel(column)
    drawn.savefig(path, dpi=150)


def main() -> int:
    """Print a table, or draw one of its columns."""
    parser = argparse.ArgumentParser(
        prog="python -m research.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help="a table (default: list them)")
    parser.add_argument("words", nargs="*", help="only rows that have all of these words")
    parser.add_argument("-o", "--output", type=Path, metavar="FIGURE", help="draw into this file")
    parser.add_argument("--column", help="what is drawn")
    given = parser.parse_args()
    if given.output and not given.column:
        parser.error("--output needs the --column that is drawn")
    if not given.name:
        print("\n".join(sorted([*(path.stem for path in FOLDER.glob("*.csv")), *computed()])))
        return 0
    rows = [
        row
        for row in table(given.name)
        if all(any(word in (cell or "") for cell in row.values()) for word in given.words)
    ]
    if not rows:
        print("no such row", file=sys.stderr)
        return 1
    if given.output:
        figure(rows, given.column, given.output)
    else:
        print(text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
