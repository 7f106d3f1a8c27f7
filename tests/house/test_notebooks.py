"""Every chapter runs from top to bottom on the bundled captures, and prints its stored output."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import run as notebooks

FOLDER = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))


def test_chapters_exist() -> None:
    assert CHAPTERS


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_runs_and_gives_its_stored_outputs(path: Path) -> None:
    """No error in any cell; `python notebooks/run.py` updates the stored outputs.

    Figures are drawn with the installed fonts: only their presence is compared.
    """
    notebook = notebooks.executed(path)
    for cell in notebook.cells:
        if cell.cell_type == "code" and re.search(r"plot_|with (canvas|panels)\(", cell.source):
            kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
            assert "image/png" in kinds, f"no figure from: {cell.source}"
    stored = nbformat.read(path, as_version=4)
    for now, then, cell in zip(
        notebooks.printed(notebook), notebooks.printed(stored), stored.cells, strict=True
    ):
        assert now == then, cell.source


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_have_no_machine_paths(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 250_000
    assert not re.search(r'"[^"]*(/root/|/home/|/tmp/|widget-view)', text)
