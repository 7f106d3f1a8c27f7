"""Names chosen by threads, hosts and files have no effect in a terminal, in CSV and JSON, in pages,
notebooks, figures and exports.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import xml.dom.minidom
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile
import polars as pl
import pytest
from test_doors import ASKED, WRITING

import schedscope as ss
from schedscope import cli

# What our own lines may contain besides text: bold, and the progress line.
OURS = re.compile(r"\x1b\[1m|\x1b\[0m|\r\x1b\[K")
DRAWN = "document.querySelector('.sst-picture canvas')?.timeline?.state().frames > 0"
QUESTIONS = [words for words in ASKED if not words.startswith(("simulate", "info"))]


@pytest.fixture(scope="module")
def trace() -> ss.Trace:
    return hostile.trace()


@pytest.fixture(scope="module")
def folder(trace: ss.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "\x1b[31m\u202e=<b>.sched"
    trace.to_sched(path)
    return path


def in_a_terminal(commands: list[list[str]], cwd: Path) -> list[str]:
    """What each command writes to a terminal of 100 columns, stdout and stderr together."""
    code = (
        "import json, sys\nfrom schedscope import cli\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    code = cli.main(words)\n"
        "    sys.stdout.flush(); print(f'@@{code}@@', flush=True)\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(commands)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    said = bytearray()
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        said += data
    os.close(ours)
    assert process.wait() == 0, said[-2000:]
    parts = re.split(r"@@(\d+)@@\r\n", said.decode().replace("\r\r\n", "\r\n"))
    assert len(parts) == 2 * len(commands) + 1, said[-2000:]
    return [f"{part}@@{code}" for part, code in zip(parts[:-1:2], parts[1::2], strict=True)]


def unseen(text: str) -> set[str]:
    """Characters in it that a terminal would interpret or not show."""
    return {c for c in OURS.sub("", text).replace("\r\n", "") if not c.isprintable()}


def test_every_command_escapes_names_for_the_terminal(folder: Path, tmp_path: Path) -> None:
    """Each command's table and the lines around it; and its error messages about names."""
    commands = [[w.split()[0], str(folder), *w.split()[1:]] for w in [*ASKED, *WRITING[:-1]]]
    outs = [str(tmp_path / f"\x1b]0;{i}\x07") for i in range(len(commands))]
    commands = [
        [out if word == "OUT" else word for word in words]
        for words, out in zip(commands, outs, strict=True)
    ]
    commands += [
        ["compare", str(folder), str(folder)],
        ["latency", str(folder), "--comm", "\x1b[2Jx"],
    ]
    commands += [["latency", "\x1b[2J\u202e.dat"], ["\x9bcommand"], ["latency", "--\x1b[2J"]]
    commands += [["ministat", "\x1b[2J"], ["validate", "\x1b[2J"], ["simulate", "\x1b[2J:x"]]
    commands += [
        ["latency", str(folder), "--by", "\x1b[2J"],
        ["latency", str(folder), "--top", "\u202e"],
    ]
    for words, said in zip(commands, in_a_terminal(commands, tmp_path), strict=True):
        assert not unseen(said), (words, unseen(said), said[:2000])
        assert "internal error" not in said, (words, said)
        if words[0] in cli.commands() and len(words) > 1 and words[1] == str(folder):
            wrong = words[-1] in ("\x1b[2J", "\u202e", "\x1b[2Jx")
            # No policy models the scheduler that the recording names.
            wrong |= words[0] in ("simulate", "whatif", "fidelity") and "--policy" not in words
            assert said.endswith("@@2" if wrong else "@@0"), (words, said[-500:])


@pytest.mark.parametrize("question", QUESTIONS)
def test_csv_has_no_formulas_and_json_no_control_characters(
    question: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = question.split()
    assert cli.main([command, str(folder), *options, "--format", "csv"]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    for row in csv.reader(io.StringIO(out)):
        for cell in row:
            number = re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", cell)
            assert number or not cell.startswith(("=", "+", "-", "@")), cell
    assert cli.main([command, str(folder), *options, "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert json.loads(out)


def test_json_keeps_names_unchanged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes only change how it is written."""
    assert cli.main(["latency", str(folder), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["comm"] for row in document["rows"]} <= set(hostile.NAMES)
    assert document["trace"] == hostile.ALL
    assert cli.main(["info", str(folder), "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["warnings"] == hostile.NAMES
    assert out.replace("\n", "").isprintable()


def test_numbers_stay_numbers_in_csv(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fairness", str(folder), "--format", "csv"]) == 0
    frame = pl.read_csv(capsys.readouterr().out.encode())
    texts = {name for name, dtype in frame.schema.items() if dtype == pl.String}
    assert texts == {"comm", "sharing", "basis"}


def test_csv_tables_are_read_back_unchanged(trace: ss.Trace, tmp_path: Path) -> None:
    """Formulas are marked as text on writing, and restored on reading."""
    ss.export(trace, tmp_path / "tables", "csv")
    raw = (tmp_path / "tables" / "threads.csv").read_text()
    assert "'=cmd" in raw
    assert "''=1" in raw
    (tmp_path / "tables" / "trace.json").unlink()
    again = ss.open(tmp_path / "tables")
    assert again.threads.collect()["comm"].to_list() == trace.threads.collect()["comm"].to_list()


# -- pages, figures, notebooks ---------------------------------------------------------


@pytest.fixture(scope="module")
def pages(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pages")
    found = {}
    for command in ("report", "timeline"):
        found[command] = place / f"{command}.html"
        assert cli.main([command, str(folder), "-o", str(found[command])]) == 0
    return found


@pytest.mark.parametrize("command", ["report", "timeline"])
def test_page_allows_only_its_own_script(command: str, pages: dict[str, Path]) -> None:
    text = pages[command].read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none';")
    assert re.search(r"script-src 'sha256-[^' ]+'$", policy)
    assert text.replace("\n", "").replace("\u00a0", "").isprintable()


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("command", ["report", "timeline"])
def test_page_runs_no_injected_script_and_fetches_nothing(
    command: str, pages: dict[str, Path], browser: Any
) -> None:
    browser.open(pages[command].as_uri())
    browser.wait(DRAWN)
    assert browser.run("window.owned") is None
    assert browser.run("document.querySelectorAll('img, svg[onload], iframe, object').length") == 0
    assert [url for url in browser.fetched if not url.startswith(("file:", "data:"))] == []
    shown = browser.run("document.body.innerText")
    assert "<script>window.owned=1</script>" in shown or command == "timeline"
    browser.fetched.clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("websockets")
    from browser import Browser

    with Browser() as opened:
        yield opened


@pytest.mark.needs("chromium")
def test_content_security_policy_blocks_injected_scripts(
    pages: dict[str, Path], browser: Any, tmp_path: Path
) -> None:
    """Even if a name were not escaped, the page would not run or fetch it."""
    text = pages["timeline"].read_text()
    door = socket.create_server(("127.0.0.1", 0))
    away = f"http://127.0.0.1:{door.getsockname()[1]}"
    smuggled = (
        "<script>window.owned=1</script><img src=x onerror='window.owned=1'>"
        f"<img src='{away}/x.png'><link rel=stylesheet href='{away}/x.css'>"
        f"<iframe src='{away}/y'></iframe><script src='{away}/z.js'></script>"
    )
    page = tmp_path / "smuggled.html"
    page.write_text(text.replace("</h1>", "</h1>" + smuggled))
    browser.open(page.as_uri())
    browser.wait(DRAWN)
    assert browser.run("window.owned") is None
    door.settimeout(0.5)
    asked = b""
    with door, suppress(TimeoutError):
        caller = door.accept()[0]
        # Chromium may connect ahead of a request that the policy then blocks.
        caller.settimeout(0.5)
        asked = caller.recv(1000)
    assert asked == b""


def test_notebook_escapes_names(trace: ss.Trace) -> None:
    html = trace._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert html.replace("\n", "").isprintable()
    assert repr(trace).replace("\n", "").isprintable()


def test_figures_are_drawn_and_svg_is_well_formed(trace: ss.Trace) -> None:
    """Dollar signs are not mathematics, and no name ends an element."""
    pytest.importorskip("matplotlib")
    from schedscope.report.svg import inline_svg

    made = {
        "latency": ss.plot.latency(ss.latency(trace, by="comm")),
        "fairness": ss.plot.fairness(ss.fairness(trace)),
        "wakers": ss.plot.wakers(ss.wakers(trace)),
        "migrations": ss.plot.residency(ss.residency(trace, by="comm")),
        "off_cpu": ss.plot.off_cpu(ss.off_cpu(trace)),
    }
    for name, axes in made.items():
        svg = inline_svg(axes, hostile.ALL)
        assert "<script" not in svg
        assert "<img" not in svg
        xml.dom.minidom.parseString(svg), name
        assert svg.replace("\n", "").replace("\t", "").isprintable(), name


@pytest.mark.parametrize("to", ["chrome", "perfetto", "trace.dat"])
def test_export_keeps_names_as_data(to: str, trace: ss.Trace, tmp_path: Path) -> None:
    ss.export(trace, tmp_path / "out", to)
    data = (tmp_path / "out").read_bytes()
    if to == "chrome":
        assert json.loads(data)
        assert data.isascii()
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", data)


def test_only_the_output_module_writes_to_the_terminal() -> None:
    """Any other writer would have to repeat the escaping."""
    root = Path(ss.__file__).parent
    own = {
        "cli/_output.py",
        "cli/_progress.py",
        "cli/__init__.py",
        "cli/collectors.py",
        "doctor.py",
    }
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        if name not in own:
            assert not re.search(r"\bprint\(|sys\.std(out|err)\.write", text), name
