"""Figures: each takes the frame that the analysis of the same name returned."""

from schedscope.errors import UsageError

try:
    import matplotlib  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise UsageError(
        "figures need matplotlib, which is not installed",
        "the extra `plot`",
        "pip install 'schedscope[plot]'",
    ) from error
