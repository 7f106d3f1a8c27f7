"""Packages that a plain install does not have: what each is for, and the command that adds it.

Extras and their packages are those of pyproject.toml, read there in a checkout and else from the
metadata of the installed package. The commands name packages, never `schedscope[...]`: that would
ask a registry for schedscope itself.
"""

from __future__ import annotations

import re
import shlex
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from schedscope.errors import MissingExtraError

PURPOSES = {
    "plot": "figures and reports",
    "notebooks": "Jupyter, with a timeline in it",
    "perfetto": "Google's own reader of Perfetto files",
    "fleet": "summaries of many traces",
    "metrics": "`top --metrics`, for Prometheus",
}
"""What each extra is for."""


@lru_cache(maxsize=1)
def declared() -> dict[str, list[str]]:
    """The packages of each extra, as in "matplotlib>=3.9"; those of every install under "".

    >>> declared()["plot"]
    ['matplotlib>=3.9']
    """
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        import tomllib

        about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        found = {"": about["dependencies"], **about["optional-dependencies"]}
    else:
        from importlib.metadata import PackageNotFoundError, requires

        found = {}
        try:
            lines = requires("schedscope") or []
        except PackageNotFoundError:  # run from a folder that was not installed
            lines = []
        for line in lines:
            package, _, marker = line.partition(";")
            extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", marker)
            found.setdefault(extra[1] if extra else "", []).append(package.strip())
    # `all` names the other extras.
    return {extra: packages for extra, packages in found.items() if extra != "all"}


def absent(extra: str) -> list[str]:
    """The packages of an extra that are not installed, as in "matplotlib>=3.9"."""
    return [package for package in declared().get(extra, []) if not _installed(_module(package))]


def installing(packages: Sequence[str]) -> str:
    """The command that adds these packages to the Python that runs this.

    >>> installing(["matplotlib>=3.9"]).endswith("install 'matplotlib>=3.9'")
    True
    """
    words = " ".join(map(shlex.quote, packages))
    python = shlex.quote(sys.executable or "python3")
    if _belongs_to_the_system():
        return "apt-get install " + " ".join(f"python3-{_name(package)}" for package in packages)
    if _installed("pip"):
        return f"{python} -m pip install {words}"
    return f"uv pip install --python {python} {words}"


def missing(package: str) -> MissingExtraError:
    """The error for a package of an extra, or of every install, that is not installed."""
    extra, needed = _home(package)
    command = installing(absent(extra) or [needed])
    if not extra:
        return MissingExtraError(
            f"{package}, which schedscope needs, is not installed", "", command
        )
    purpose = f", for {PURPOSES[extra]}" if extra in PURPOSES else ""
    expected = f"the packages of the extra `{extra}`{purpose}"
    return MissingExtraError(f"{package} is not installed", expected, command)


def explained(error: BaseException) -> BaseException:
    """`error`, or what is missing if it is the import of a declared package that failed."""
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name or "").partition(".")[0]
        if any(package == _module(one) for packages in declared().values() for one in packages):
            return missing(package)
    return error


def _home(package: str) -> tuple[str, str]:
    """The extra that brings the package with the fewest others, and which version of it."""
    homes = [
        (len(packages), extra, one)
        for extra, packages in declared().items()
        for one in packages
        if _module(one) == package
    ]
    _, extra, needed = min(homes, default=(0, "", package))
    return extra, needed


def _name(package: str) -> str:
    found = re.match(r"[\w.-]+", package)
    return found[0] if found else package


def _module(package: str) -> str:
    """What it is imported as."""
    return _name(package).replace("-", "_")


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # None in sys.modules: the import is blocked on purpose
        return False


def _belongs_to_the_system() -> bool:
    """Does the distribution's package manager own this Python, so that pip refuses?"""
    marked = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    return marked and sys.prefix == sys.base_prefix
