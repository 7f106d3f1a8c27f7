"""Text keeps to the terms of the field: phrases that were replaced do not return.

User-facing text everywhere; comments, docstrings and test names in the folders of `FOLDERS`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
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


# --- Comments, docstrings and test names ---

# To cover a folder, add it here.
FOLDERS = (
    "tests",
    "native",
    "analysis",
    "src/schedscope",
    "simulator",
    "parsers",
    "collectors",
    "research",
)

# What stood in comments and docstrings -> what says it.
BANNED_REMARKS = {
    r"\b[Nn]obody\b": "no thread, no process; unknown",
    r"\b[Ww]hoever\b": "the thread that, any thread",
    r"\b[Ss]omebody\b": "a thread, another program",
    r"\b[Ww]hom\b": "the thread that",
    r"\b(?:[Oo]ut of|[Ff]irst|[Ll]ost|lost from) sight\b": "unknown; first event",
    r"\bowed\b": "lag, due",
    r"\b(?:is|are|was|were|be|been|not) told\b": "reported, recorded",
    r"\btells? (?:of|nothing|when|where|who|whether|which|that|how|it)\b": "shows, reports",
    r"\b(?:nothing|no call) tells\b": "unknown",
    r"\bas (?:\w+ ){0,3}tells?\b": "as recorded, as in",
    r"\bin vain\b": "without effect, futile",
    r"\b[Aa]new\b": "again",
    r"\bnaive twin": "naive implementation",
    r"\ba person can (?:work|follow|count)\b": "worked out by hand",
    r"\bheard of\b": "has an event",
    r"(?:^|[.:] )Nor \w+": "say both in one sentence",
    r"\bhangs? on\b": "depends on",
    r"\bfor want of\b": "for lack of",
    r"\bfor ever\b": "forever, without end",
    r"\bpassed over\b": "skipped",
    r"\bheld against\b": "compared with",
    r"\bbe had\b": "available",
    r"\b(?:the|its|their|whose|a) begin\b(?! \w+ing)": "start",
}

# What stood in names of tests, behind `test_` -> what says it.
BANNED_NAMES = {
    r"^(?:who|whom|whose|whoever|whatever|whichever)_": "the thread, the process, the file",
    r"^(?:what|it|they|those|these)_": "begin with the subject by its name",
    r"^(?:of|nor|neither|as|so|such|in_how)_": "begin with the subject",
    r"^(?:without|with)_": "begin with the subject; the condition comes last",
    r"_tells?(?:_|$)|_told(?:_|$)": "reports, shows, distinguishes",
    r"_said(?:_|$)": "reported",
    r"_(?:is|are)_one_sentence|in_a_sentence": "is_reported_in_one_sentence",
    r"_(?:is|are)_not_there|_is_none(?:_|$)|_that_cannot_be(?:_(?:is|are)_|$)": "unknown, invalid",
    r"_(?:is|are)_no_": "is_not_a",
    r"_for_ever(?:_|$)|_in_vain|_anew(?:_|$)": "unbounded, futile, again",
    r"nobody|somebody|whoever|_whom_": "no thread, another process",
    r"_of_(?:its|their|ones)_own|_ones_own": "its own, separate",
    r"^impossible_(?:questions|requests)": "invalid_arguments_are_refused",
    r"as_people_read_it|for_programs|for_people": "command_prints_its_table, json, csv",
    r"_sight(?:_|$)|_owed_": "unknown, lag",
}


def covered_files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            built = name.startswith("native/target/")
            linked = any(part.is_symlink() for part in path.parents)
            if path.suffix in (".py", ".rs", ".sh") and not built and not linked:
                yield path


def remarks(path: Path) -> str:
    """Comments and docstrings of a file without code in them, in one line."""
    text = path.read_text()
    if path.suffix == ".rs":
        lines = (line.strip() for line in text.splitlines())
        found = [line.lstrip("/! ") for line in lines if line.startswith("//")]
    elif path.suffix == ".sh":
        lines = (line.strip() for line in text.splitlines())
        found = [line.lstrip("# ") for line in lines if line.startswith("#")]
    else:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        found = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
        found += [ast.get_docstring(node) or "" for node in nodes]
    return re.sub(r"`[^`]*`", "``", " ".join(" ".join(found).split()))


def names_of_tests(text: str) -> list[str]:
    return re.findall(r"^ *(?:async )?def test_(\w+)", text, re.MULTILINE)


def banned(text: str, phrases: dict[str, str]) -> list[str]:
    return [
        f"...{text[max(0, found.start() - 30) : found.end() + 30]}...: say {better!r}"
        for phrase, better in phrases.items()
        for found in re.finditer(phrase, text)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_banned_phrase_in_comments_docstrings_and_test_names(folder: str) -> None:
    found = {}
    for path in covered_files():
        if path.is_relative_to(ROOT / folder) and path != Path(__file__):
            names = names_of_tests(path.read_text()) if path.suffix == ".py" else []
            wrong = banned(remarks(path), BANNED_REMARKS)
            wrong += [one for name in names for one in banned(name, BANNED_NAMES)]
            if wrong:
                found[path.relative_to(ROOT).as_posix()] = wrong
    assert found == {}


def test_banned_phrases_are_found_in_python_rust_and_shell(tmp_path: Path) -> None:
    """In comments and docstrings, across lines, and in names; not in code or plain sentences."""
    python, rust, shell = tmp_path / "x.py", tmp_path / "x.rs", tmp_path / "x.sh"
    python.write_text(
        'def f():\n    """First\n    sight."""\n    told = "whoever"  # in\n    # vain\n'
    )
    rust.write_text(
        '/// It is\n/// told to nobody.\nlet whoever = "anew"; // not a line of its own\n'
    )
    assert len(banned(remarks(python), BANNED_REMARKS)) == 2
    shell.write_text("whoever=1\n    # Is held\n    # against a sum that nobody has.\n")
    assert len(banned(remarks(rust), BANNED_REMARKS)) == 2
    assert len(banned(remarks(shell), BANNED_REMARKS)) == 2
    assert banned("who_reads_for_ever_is_an_error_only_without_an_end", BANNED_NAMES)
    assert not banned("unbounded_reader_is_refused_without_until", BANNED_NAMES)
