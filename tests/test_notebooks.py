"""Every chapter runs from top to bottom on the bundled captures."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
CHAPTERS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_chapters() -> None:
    assert CHAPTERS


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs(path: Path) -> None:
    """Without an error, and every figure it promises is drawn."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    drawing = [
        cell
        for cell in notebook.cells
        if re.search(r"plot_|with (canvas|panels)\(", cell.source) and cell.cell_type == "code"
    ]
    for cell in drawing:
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        assert "image/png" in kinds, f"no figure from: {cell.source}"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_kept_without_outputs(path: Path) -> None:
    """Outputs are made by running it: kept ones go stale, and drown a change in noise."""
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs"), f"clear the outputs of {path.name} before committing"
