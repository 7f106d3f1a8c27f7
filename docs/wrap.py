"""Wrap the prose of the pages at 100 columns: `python docs/wrap.py [FILE...]`, all by default.

Paragraphs with a longer line are filled again. Headings, tables, HTML, fenced and indented code
stay as they are, and so do code spans and addresses, which are not broken.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

WIDTH = 100
_ITEM = re.compile(r"(\s*)([*+-]|\d+\.)(\s+)")
# What would be a list item, a heading or a quotation at the head of a line.
_MARK = re.compile(r"([*+>-]|#+|\d+[.)])$")


def wrapped(text: str) -> str:
    """The page with its paragraphs filled."""
    out: list[str] = []
    paragraph: list[str] = []
    fenced = listed = False

    def flush() -> None:
        out.extend(_filled(paragraph))
        paragraph.clear()

    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            flush()
            fenced = not fenced
            out.append(line)
        elif fenced:
            out.append(line)
        elif not line.strip():
            flush()
            out.append(line)
        elif _ITEM.match(line):
            flush()
            listed = True
            paragraph.append(line)
        elif not paragraph and (_alone(line) or (line.startswith("    ") and not listed)):
            out.append(line)
        else:
            listed = listed and (bool(paragraph) or line.startswith(" "))
            paragraph.append(line)
    flush()
    return "\n".join(out)


def _alone(line: str) -> bool:
    """Rows of tables, headings, HTML, quotations and definitions of links."""
    return re.match(r"\s*(\||#|<|>|\[[^\]]+\]:)", line) is not None


def _filled(lines: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in lines) or any(line.endswith("  ") for line in lines):
        return lines
    item = _ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]  # type: ignore[index]
    rest = " " * len(first)
    words = _words(" ".join(line.strip() for line in lines)[len(first.strip()) :].strip())
    filled, line = [], first
    for word in words:
        if len(line) + len(word) + (line not in (first, rest)) > WIDTH and line.strip():
            filled.append(line)
            line = rest
        line += word if line in (first, rest) else f" {word}"
    return [*filled, line]


def _words(text: str) -> list[str]:
    """What may stand on a line of its own: code spans whole, no mark at the head of a line."""
    found: list[str] = []
    for word in re.findall(r"(?:`[^`]*`|[^\s`])+|`", text):
        if found and _MARK.match(word):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def main() -> None:
    """Wrap these files, or every page."""
    root = Path(__file__).parents[1]
    named = [Path(name) for name in sys.argv[1:]]
    pages = [*root.glob("*.md"), *root.glob("*/README.md")]
    for folder in ("docs", "fixtures", "packaging", "research"):
        pages += root.glob(f"{folder}/**/*.md")
    for path in named or dict.fromkeys(pages):
        text = path.read_text(encoding="utf-8")
        if (new := wrapped(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrapped {path}")


if __name__ == "__main__":
    main()
