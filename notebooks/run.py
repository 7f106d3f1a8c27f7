"""Run the chapters and store what they print and draw.

Stored outputs are small and say nothing about the machine: figures have 64 colours, paths of caches
and addresses of objects are replaced, warnings and widgets are left out.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
KEPT = ("text/plain", "text/html", "text/markdown", "image/png")
COLOURS = 64


def executed(path: Path) -> Any:
    """The chapter with the outputs of a fresh run, in the form in which they are stored."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as cache:
        before = os.environ.get("SCHEDSCOPE_CACHE")
        os.environ["SCHEDSCOPE_CACHE"] = cache
        try:
            resources = {"metadata": {"path": str(FOLDER)}}
            NotebookClient(notebook, timeout=300, resources=resources).execute()
        finally:
            os.environ.pop("SCHEDSCOPE_CACHE")
            if before is not None:
                os.environ["SCHEDSCOPE_CACHE"] = before
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [_stored(output, cache) for output in cell.outputs if _kept(output)]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def printed(notebook: Any) -> list[list[str]]:
    """What each cell printed, as text, and that it drew a figure: what two runs have in common."""
    return [
        [
            text
            for output in cell.get("outputs", [])
            for text in (
                [output.text]
                if output.output_type == "stream"
                else [
                    "figure" if kind == "image/png" else str(output.data[kind])
                    for kind in ("text/plain", "text/markdown", "image/png")
                    if kind in output.data
                ]
            )
        ]
        for cell in notebook.cells
    ]


def _kept(output: Any) -> bool:
    if output.output_type == "stream":
        return bool(output.name == "stdout")
    return any(kind in output.data for kind in KEPT)


def _stored(output: Any, cache: str) -> Any:
    if output.output_type == "stream":
        output.text = _anywhere(output.text, cache)
        return output
    output.metadata = {}
    output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
    for kind, data in output.data.items():
        output.data[kind] = _smaller(data) if kind == "image/png" else _anywhere(data, cache)
    return output


def _anywhere(text: str, cache: str) -> str:
    text = text.replace(os.path.realpath(cache), "~/.cache/schedscope")
    # Chapters convert into folders of their own, which are gone after the run.
    text = re.sub(r"(?:/[\w.+-]+)*/tmp[a-z0-9_]{8}\b", "~/.cache/schedscope", text)
    text = text.replace(cache, "~/.cache/schedscope").replace(str(FOLDER.parent.resolve()), "..")
    # A copy's name begins with a number made of its source's path.
    text = re.sub(r"(~/\.cache/schedscope/)[0-9a-f]{12}-", r"\1", text)
    return re.sub(r"\b0x[0-9a-f]{6,}", "0x...", text)


def _smaller(png: str) -> str:
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    target = io.BytesIO()
    picture.quantize(COLOURS).save(target, "PNG", optimize=True)
    return base64.b64encode(target.getvalue()).decode()


def main() -> None:
    """Run these chapters, or all, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chapter", nargs="*", type=Path, help="a notebook (default: all)")
    named = parser.parse_args().chapter
    if missing := [str(path) for path in named if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    for path in named or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
        print(f"{path.name:<40}{path.stat().st_size / 1000:>8.1f} kB")


if __name__ == "__main__":
    main()
