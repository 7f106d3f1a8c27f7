"""schedscope: capture, analyse and replay CPU-scheduler traces.

    import schedscope as ss
    trace = ss.open("web.capture")
    ss.runqueue_latency(trace, by="comm")

Everything here is loaded when first used: `import schedscope` itself touches
neither Polars nor the native engine, so that the command line answers at once
and hosts without Polars can still capture.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedscope.analysis.runqueue_latency import runqueue_latency
    from schedscope.analysis.survival import survival
    from schedscope.errors import (
        FormatError,
        MissingEventsError,
        SchedscopeError,
        StorageError,
        UsageError,
    )
    from schedscope.trace import Trace, convert, open

# Public name -> the module that defines it. A name added here is added to the
# imports for type checkers above, too (tests/test_layers.py compares them).
_HOMES = {
    "FormatError": "schedscope.errors",
    "MissingEventsError": "schedscope.errors",
    "SchedscopeError": "schedscope.errors",
    "StorageError": "schedscope.errors",
    "Trace": "schedscope.trace",
    "UsageError": "schedscope.errors",
    "convert": "schedscope.trace",
    "open": "schedscope.trace",
    "runqueue_latency": "schedscope.analysis.runqueue_latency",
    "survival": "schedscope.analysis.survival",
}

__all__ = [
    "FormatError",
    "MissingEventsError",
    "SchedscopeError",
    "StorageError",
    "Trace",
    "UsageError",
    "convert",
    "open",
    "runqueue_latency",
    "survival",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'schedscope' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
