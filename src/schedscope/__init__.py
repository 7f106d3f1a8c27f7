"""schedscope: capture, analyse and replay CPU-scheduler traces.

    import schedscope as ss
    trace = ss.open("web.capture")
    ss.latency(trace, by="comm")

Everything here is loaded when first used: `import schedscope` itself touches
neither Polars nor the native engine, so that the command line answers at once
and hosts without Polars can still capture. The names are listed in `__init__.pyi`, once: for type
checkers, and for the loading here.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path


def _listed() -> dict[str, str]:
    """Where each public name is defined, by the imports in the stub beside this file."""
    text = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = re.findall(r"^from (\S+) import (\([^)]*\)|.*)$", text, re.MULTILINE)
    return {name: home for home, names in lines for name in re.findall(r"(\w+) as \w+", names)}


_HOMES = _listed()
__all__ = sorted(_HOMES)
_QUESTIONS = "schedscope.analysis."
"""Their answers show themselves in notebooks."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # takes 30 ms

        return version(__name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'schedscope' has no attribute {name!r}")
    if home == __name__:  # a module of ours, not a name in one
        return import_module(f"{home}.{name}")
    value: object = getattr(import_module(home), name)
    if home.startswith(_QUESTIONS):
        value = import_module("schedscope.notebook_frames").showing(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
