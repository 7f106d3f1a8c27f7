"""Print the list of result columns: `python docs/columns.py`; `make docs` keeps it in dist/api."""

from __future__ import annotations

from collections.abc import Iterable

from schedscope.present.registry import Kind, Meaning, meanings

_SHOWN: dict[Kind, str] = {
    "text": "text",
    "right": "text or list",
    "id": "identifier",
    "count": "count",
    "time": "duration",
    "at": "seconds after the start",
    "share": "per cent",
    "number": "number, four digits",
    "fixed": "number, two decimals",
}

HEAD = """\
# The columns of answers

Every column that an analysis or a command returns, from `src/schedscope/present/registry.py`: its
name in frames, JSON and CSV, the heading above it in tables, the unit of its values, how a table
shows it, and what it means. Columns `p50`, `p90`, ... are quantiles of what the `mean` measures.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [
        HEAD,
        "## In every answer\n",
        *_table(m for m in meanings().values() if not m.question),
    ]
    questions = dict.fromkeys(m.question for m in meanings().values() if m.question)
    parts.append("\n## Where the question decides\n")
    parts += _table((m for q in questions for m in meanings().values() if m.question == q), True)
    return "\n".join(parts) + "\n"


def _table(rows: Iterable[Meaning], questions: bool = False) -> list[str]:
    head = ["question"] * questions + ["name", "heading", "unit", "shown as", "meaning"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        cells = [row.question.replace("_", " ")] * questions
        cells += [f"`{row.name}`", row.heading, row.unit, _SHOWN[row.kind], row.doc]
        lines.append(_line(cells))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
