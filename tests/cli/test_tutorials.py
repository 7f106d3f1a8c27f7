"""Commands of the tutorials and of each question's page print what the page shows."""

from __future__ import annotations

import doctest
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from archives import unpack

from schedscope.cli import main

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page for page in sorted((ROOT / "docs/tutorials").glob("*.md"))}


def prose(name: str) -> str:
    return PAGES[name].read_text(encoding="utf-8")


def archives(text: str) -> list[str]:
    """The captures that the page extracts."""
    return re.findall(r"^tar xf (fixtures/\S+)$", text, re.MULTILINE)


def steps(text: str) -> list[tuple[str, str]]:
    """Each command that prints something, with its output."""
    blocks = re.findall(r"^```console\n\$ schedscope (.*?)\n(.*?)^```", text, re.M | re.DOTALL)
    return [(str(command), str(said)) for command, said in blocks]


@pytest.fixture(scope="module", params=[name for name in PAGES if archives(prose(name))])
def tutorial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    text = prose(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    for archive in archives(text):
        with tarfile.open(ROOT / archive) as packed:
            unpack(packed, folder)
    return text, folder


def test_each_step_prints_the_output_on_the_page(
    tutorial: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line of dots stands for omitted lines."""
    text, folder = tutorial
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCHEDSCOPE_CACHE", str(folder / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    found = steps(text)
    assert found
    for command, expected in found:
        assert main(shlex.split(command)) == 0, command
        said = capsys.readouterr().out
        same = doctest.OutputChecker().check_output(expected, said, doctest.ELLIPSIS)
        assert same, f"{command}\n{said}"


def test_every_picture_of_a_tutorial_is_made_by_one_command() -> None:
    made = (ROOT / "docs/pictures/make.py").read_text(encoding="utf-8")
    pictures = re.findall(r"\.\./pictures/(\S+?)\)", "".join(map(prose, PAGES)))
    assert pictures
    for picture in pictures:
        assert f'"{picture}"' in made, picture


QUESTIONS = {
    page.stem: page
    for page in sorted((ROOT / "docs/definitions").glob("*.md"))
    if "\n## Examples\n" in page.read_text(encoding="utf-8")
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", QUESTIONS)
def test_examples_print_the_output_on_their_page(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The heading of the table and its first rows; lines above and below may be omitted."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SCHEDSCOPE_CACHE", str(cache))
    monkeypatch.delenv("COLUMNS", raising=False)
    block = QUESTIONS[name].read_text(encoding="utf-8").split("\n## Examples\n")[1]
    examples = re.split(r"^\$ schedscope ", block.strip().strip("`"), flags=re.MULTILINE)[1:]
    assert examples
    for example in examples:
        command, *expected = example.strip().splitlines()
        assert main(shlex.split(command)) == 0, command
        said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert "\n".join(expected) in "\n".join(said), command
