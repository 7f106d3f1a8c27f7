"""Links, files, names and options of commands that pages and chapters mention exist."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import wrap
from parsers_of_commands import actions

import schedscope as ss
from schedscope.cli import commands, main

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(ROOT / name / "README.md" for name in ("native", "src", "tests")),
    *sorted(ROOT.glob("research/**/*.md")),
    ROOT / "notebooks/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("fixtures/**/*.md")),
    *sorted(ROOT.glob("packaging/**/*.md")),
]
CHAPTERS = sorted(ROOT.glob("notebooks/*.ipynb"))
# Files that a reader creates on the way.
HERS = ("before.txt", "mix.workload")
FOLDERS = (
    "analysis|collectors|docs|fixtures|native|notebooks|packaging|parsers|research"
    "|simulator|src|tests"
)


def prose(path: Path) -> str:
    """The text of a page, or of a chapter's cells."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors that headings get."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", head.strip().lower()) for head in heads)
    return {head.replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_installed_files_are_given_by_path(page: Path) -> None:
    """pipx 1.1 of Debian 12 takes the bare name of a wheel for a package of the registry."""
    for file in re.findall(r"pipx install (\S+\.whl)", prose(page)):
        assert file.strip("'\"").startswith("./"), file


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS], ids=name_of)
def test_files_and_names_exist(page: Path) -> None:
    """Paths in code, as in `fixtures/mixed_load.py`, and names, as in `ss.check`."""
    text = prose(page)
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", text):
        if "NAME" not in path:
            assert (ROOT / path).exists() or (ROOT / "src/schedscope" / path).exists(), path
    for name in re.findall(r"\bss\.([a-z]\w*)", text):
        assert hasattr(ss, name), name


def said(page: Path) -> Iterator[str]:
    """Commands in inline code of their own, or in a block."""
    text = prose(page)
    blocks = re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in "\n".join([*blocks, *re.findall(r"^    .*$", text, re.MULTILINE)]).splitlines():
        if match := re.match(r"\s*(?:[$#] )?(?:sudo )?(schedscope [a-z].*)", line):
            yield match[1]
    yield from re.findall(r"`(schedscope [a-z][^`]*)`", text)


def options(command: str) -> set[str]:
    return {word for action in actions(command) for word in action.option_strings}


@pytest.mark.parametrize("page", [*PAGES, *CHAPTERS], ids=name_of)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    for line in said(page):
        command, *words = re.sub(r"\s#.*| {3,}.*|\|.*| -- .*", "", line).split()[1:]
        if command == "COMMAND":
            continue
        assert command in commands(), line
        known = options(command)
        for word in words:
            if re.fullmatch(r"--[a-z-]+|-[A-Za-z]", word.rstrip(",;.")):
                assert word.rstrip(",;.") in known, line


@pytest.mark.parametrize("page", [p for p in PAGES if ">>> " in prose(p)], ids=name_of)
def test_examples_print_their_documented_output(page: Path) -> None:
    # Examples are in fences, which end their output.
    text = re.sub(r"^```.*$", "", prose(page), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_lines_are_wrapped_and_examples_fenced(page: Path) -> None:
    """`python docs/wrap.py` wraps them; tables, code and addresses may be longer."""
    text = page.read_text(encoding="utf-8")
    assert wrap.wrapped(text) == text
    prompts = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert ">>> " not in prompts


def words(path: Path) -> int:
    """As `wc -w` counts them."""
    return len(path.read_text(encoding="utf-8").split())


def test_the_pages_have_at_most_60000_words() -> None:
    """Measurements belong into research/data; their explanation, into research/notes."""
    pages = ROOT.glob("docs/**/*.md")
    assert sum(map(words, pages)) <= 60_000


EXPERIMENTS = sorted(
    set(re.findall(r"\(\.\./docs/([\w-]+\.md)\)", (ROOT / "research/README.md").read_text()))
)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_one_page_of_at_most_800_words(name: str) -> None:
    """Those in the table of research/README.md."""
    assert len(EXPERIMENTS) >= 9
    assert words(ROOT / "docs" / name) <= 800


def test_contributing_fits_one_screen() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60


def test_newest_version_has_at_most_one_screen_of_the_changelog() -> None:
    """Each changed number has a line of its own below that."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.split(r"\n###? ", text.partition("\n## ")[2])[0]
    assert 10 < newest.count("\n") < 65


@pytest.mark.parametrize("page", CHAPTERS, ids=name_of)
def test_a_chapters_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a reader would type them, except those about files of her own."""
    text = prose(page).partition("## The same in a terminal")[2].partition("\n## ")[0]
    lines = re.findall(r"^    (.*)$", text, re.MULTILINE)
    assert lines, "a chapter ends with its commands"
    monkeypatch.setenv("SCHEDSCOPE_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for line in lines:
        expanded = subprocess.run(
            ["bash", "-c", rf"printf '%s\0' {line}"], capture_output=True, text=True, check=True
        )
        words = expanded.stdout.split("\0")[:-1]
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[0] == "schedscope" and not any(name in line for name in HERS):
            assert main(words[1:]) == 0, line + capfd.readouterr().err
        elif words[0] == "tar":
            subprocess.run(words, check=True)


def test_the_first_page_names_every_command() -> None:
    """In code, as `schedscope NAME`, or after another command with a comma."""
    named = set(re.findall(r"[`\s]([a-z][a-z-]+)`", prose(ROOT / "README.md")))
    named |= set(re.findall(r"schedscope ([a-z][a-z-]+)", prose(ROOT / "README.md")))
    assert sorted(set(commands()) - named) == []


def test_examples_of_the_readme_print_their_documented_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every answer in README.md, line by line; notes below a table may be omitted."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SCHEDSCOPE_CACHE", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    blocks = re.findall(
        r"^```console\n(.*?)^```", prose(ROOT / "README.md"), re.MULTILINE | re.DOTALL
    )
    shown = 0
    for part in re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]:
        line, *expected = part.strip().splitlines()
        if not expected:
            continue
        words, _, pipe = line.removeprefix("schedscope ").partition(" | ")
        assert main(shlex.split(words)) == 0
        lines = capsys.readouterr().out.splitlines()
        if pipe.startswith("tail -1"):
            # Folded, a line is the same.
            lines, expected = lines[-1:], [" ".join(expected)]
        assert lines[: len(expected)] == expected
        shown += 1
    assert shown
