"""Packages that a plain install does not have: which extra brings each, and for what."""

from __future__ import annotations

from schedscope.errors import MissingExtraError

EXTRAS = {
    "matplotlib": ("plot", "figures and reports"),
    "scipy": ("compare", "comparing recordings"),
    "starlette": ("view", "the viewer in a browser"),
    "uvicorn": ("view", "the viewer in a browser"),
    "anywidget": ("notebooks", "a timeline in a notebook"),
    "dask": ("fleet", "summaries of many traces"),
    "distributed": ("fleet", "summaries of many traces"),
    "ddsketch": ("fleet", "summaries of many traces"),
    "fsspec": ("fleet", "summaries of many traces"),
    "cryptography": ("fleet", "summaries of many traces"),
    "perfetto": ("perfetto", "Google's own reader of Perfetto files"),
}
"""By the package's name: the extra, and what it is for."""


def missing(package: str) -> MissingExtraError:
    """The error for a package of `EXTRAS` that is not installed."""
    extra, purpose = EXTRAS[package]
    return MissingExtraError(
        f"{package} is not installed",
        f"the extra `{extra}`, for {purpose}",
        f"pip install 'schedscope[{extra}]'",
    )


def explained(error: BaseException) -> BaseException:
    """`error`, or what is missing if it is the import of a package of `EXTRAS` that failed."""
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name or "").partition(".")[0]
        if package in EXTRAS:
            return missing(package)
    return error
