"""Figures: each takes the frame that the analysis of the same name returned."""

from schedscope.extras import missing

try:
    import matplotlib  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise missing("matplotlib") from error
