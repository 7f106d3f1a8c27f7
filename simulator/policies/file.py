"""A policy of your own that is given by its file: `path/to/file.py:Class`."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

from schedscope.errors import UsageError
from schedscope.simulator.policies.policy import Policy


def policy_in_file(text: str) -> Policy | None:
    """A new object of the policy that `text` names by its file; None if it names no file.

    The class may be left out if the file defines one. The file is run as Python code.

    Raises `UsageError` if there is no such file or class, or if the file cannot be run.
    """
    asked = re.fullmatch(r"(.+\.py)(?::(\w*))?", text)
    if asked is None:
        return None
    path, wanted = Path(asked[1]), asked[2]
    if not path.is_file():
        raise UsageError(f"no file {str(path)!r}", "path/to/file.py:Class", f"for policy {text!r}")
    try:
        found = runpy.run_path(str(path))
    except Exception as error:
        raise UsageError(f"{path} does not run: {_said(error, path)}", "Python code") from error
    classes = {
        name: value
        for name, value in found.items()
        if isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == "<run_path>"
    }
    names = " or ".join(f"{path}:{name}" for name in classes) or "a class derived from Policy"
    if not wanted:
        if len(classes) != 1:
            raise UsageError(f"policy {text!r} names no class", names)
        (wanted,) = classes
    if wanted not in classes:
        raise UsageError(f"{path} defines no policy {wanted!r}", names)
    return _made(classes[wanted], path)


def _made(kind: type[Policy], path: Path) -> Policy:
    try:
        return _reporting(kind, path)()
    except Exception as error:
        raise UsageError(
            f"{kind.__name__}() of {path} raised {_said(error, path)}",
            "a class that is made without arguments",
        ) from error


def _reporting(kind: type[Policy], path: Path) -> type[Policy]:
    """The class with hooks that say where they failed, in place of a traceback."""

    def guarded(name: str) -> Any:
        own = getattr(kind, name)

        def hook(self: Policy, w: Any, *args: Any) -> Any:
            try:
                return own(self, w, *args)
            except UsageError:
                raise
            except Exception as error:
                at = f"at {w.now} ns" + (f" with {', '.join(map(repr, args))}" if args else "")
                raise UsageError(
                    f"{name} of {kind.__name__}, called {at}, raised {_said(error, path)}",
                    "a hook that returns",
                    f"its arguments are {', '.join(list(inspect.signature(own).parameters)[1:])}",
                ) from error

        return hook

    hooks = [n for n, f in vars(Policy).items() if inspect.isfunction(f) and not n.startswith("_")]
    return type(kind.__name__, (kind,), {name: guarded(name) for name in hooks})


def _said(error: Exception, path: Path) -> str:
    """What was raised, and in which line of the file."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trail = error.__traceback__
    while trail is not None:
        if trail.tb_frame.f_code.co_filename == str(path):
            line = trail.tb_lineno
        trail = trail.tb_next
    where = f" in line {line}" if line else ""
    return f"{type(error).__name__}{where}: {error}"
