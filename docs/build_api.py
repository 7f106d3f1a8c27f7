"""Write the Python reference from the docstrings into a folder: `python docs/build_api.py DIR`.

A warning is an error: an annotation that cannot be resolved, a public name without a docstring.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from pathlib import Path

import pdoc

import schedscope
from schedscope import _native


class SimWorld:
    """What a scheduling policy written in Python sees of the simulation; the stub lists it all."""


def main(target: Path) -> None:
    """Build, or raise at the first warning."""
    # The engine makes this class when a simulation starts; annotations name it before.
    _native.SimWorld = SimWorld  # type: ignore[misc, assignment]
    silent = [name for name in dir(schedscope) if not inspect.getdoc(getattr(schedscope, name))]
    if silent:
        raise SystemExit(f"no docstring: {', '.join(silent)}")
    warnings.simplefilter("error")
    pdoc.render.configure(docformat="markdown", show_source=False, search=False)
    names = ("schedscope.plot", "schedscope.workload")
    pdoc.pdoc("schedscope", r"!schedscope\.", *names, output_directory=target)
    page = target / "schedscope.html"
    text = page.read_text()
    missing = [
        name
        for name in dir(schedscope)
        if f'id="{name}"' not in text and not (target / "schedscope" / f"{name}.html").exists()
    ]
    if missing:
        raise SystemExit(f"not in the reference: {', '.join(missing)}")
    print(f"wrote {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
