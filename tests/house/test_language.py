"""User-facing text keeps to the terms of the field: phrases that were replaced do not return."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = [
    path
    for folder in ("src/schedscope", "analysis", "parsers", "simulator", "collectors")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(part.is_symlink() for part in path.parents)
]
TEXT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
CHAPTERS = sorted(ROOT.glob("notebooks/*.ipynb"))

# What stood there -> what says it.
BANNED = {
    r"\bend of sight\b": "unfinished when last observed",
    r"\bbegin not seen\b|\bbegin was not seen\b": "start not recorded",
    r"\bfrom begin to end\b": "from start to end",
    r"\b(?:the|its|their|whose|a) begin\b(?! \w+ing)": "start",
    r"\bbreaks? in the chain\b": "prev/next mismatches",
    r"\bevery sum holds\b": "all checks pass",
    r"\bnobody to be fair to\b": "nothing to compare",
    r"\bcloser to their due\b|\bnever as far off\b": "smaller lag",
    r"\bnobody selected\b": "for this selection",
    r"\boff the CPU is on none\b": "off-CPU time has no CPU",
    r"\bwhere before, not seen\b": "previous CPU unknown",
    r"\bowed most\b|\bahead most\b": "max lag, min lag",
    r"\bbarred to\b": "not allowed for",
    r"\bno stories\b": "summary only",
    r"\bof all chance\b": "random seed",
    r"\bthe policy's own view\b": "policy internals",
    r"\bnoises\b": "intervals",
    r"\bthat threads play\b": "thread groups",
    r"\bleaves no time\b": "is empty",
    r"\bis no (?:folder|file|program|directory)\b": "is not a ...",
    r"\bcannot be had\b": "unavailable",
    r"\bdearer\b": "higher overhead",
    r"\bon (?:its|their) ways? back\b": "when moving back",
    r"\bno other number here\b": "not included elsewhere",
    r"\bcounts and is said\b": "counted and flagged",
    r"\bidle on the way\b": "dispatch delay",
    r"\bidle while needed\b": "avoidable idle time",
    r"\btrust: ": "data quality: ",
    r"\bnobody knows\b": "unknown",
    r"\bmay get what\b": "may see what",
    r"\bgive a larger\b": "use a larger",
    r"\b(?:out of|lost from) sight\b|\bfirst sight\b": "when last observed, when first seen",
    r"\btells? of\b|\bis told of\b": "reports, shows",
    r"\b(?:whoever|whose ever) (?:ran|was)\b": "whatever ran, whichever thread was",
    r"\bfrom strangers\b": "untrusted",
    r"\bworst off\b": "worst affected",
    r"\bwhat is left of\b": "what remains of",
    r"\bhangs on\b": "depends on",
    r"\bthe parts? they play\b": "their group",
    r"\bone's own\b": "your own, its own",
}


def sentences(path: Path) -> Iterator[str]:
    """Text literals of a program but for docstrings, except that a command's is its help."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    declares = any(ast.unparse(node).startswith("COMMAND = Command(") for node in tree.body)
    if declares or (path.parent.name == "cli" and not path.name.startswith("_")):
        yield ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "0" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            yield str(node.value)


def markdown(path: Path) -> Iterator[str]:
    """Prose of a page or a chapter, without code."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    else:
        text = path.read_text()
    yield re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def offences(text: str) -> list[str]:
    flat = " ".join(text.split()) + " "
    return [
        f"{found[0]!r}: say {better!r}"
        for banned, better in BANNED.items()
        if (found := re.search(banned, flat))
    ]


@pytest.mark.parametrize("path", [*CODE, *TEXT, *CHAPTERS], ids=lambda path: path.name)
def test_no_banned_phrase(path: Path) -> None:
    read = sentences if path.suffix == ".py" else markdown
    assert [found for text in read(path) for found in offences(text)] == []


def test_the_phrases_are_found_where_they_stand() -> None:
    """The test itself sees what it is about, across line breaks and in f-strings."""
    assert offences("left out: begin\n   not seen")
    assert offences("the begin of the trace")
    assert not offences("threads begin to wait")
    assert not offences("the beginning")
