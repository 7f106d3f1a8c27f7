"""Errors in three parts: what was found and where, what was expected, what to do now."""

from __future__ import annotations


class SchedscopeError(Exception):
    """Base of every error that schedscope raises on purpose.

    `found` says what was found and where (file, line or byte), `expected` what
    should have been there, `hint` what to do now. The last two may be empty.
    """

    def __init__(self, found: str, expected: str = "", hint: str = "") -> None:
        """Keep the three parts; `str()` joins them into one sentence."""
        self.found = found
        self.expected = expected
        self.hint = hint
        text = found
        if expected:
            text += f"; expected {expected}"
        if hint.startswith("did you mean"):
            text += f": {hint}" if not expected else f"; {hint}"
        elif hint:
            text += f". Hint: {hint}"
        super().__init__(text)


class FormatError(SchedscopeError):
    """The bytes are not what the format says."""


class StorageError(SchedscopeError):
    """The operating system refused to read or write."""


class UsageError(SchedscopeError):
    """The caller asked for something impossible."""


class MissingEventsError(SchedscopeError):
    """The trace lacks events that this analysis needs; says how to re-record."""


class MissingExtraError(SchedscopeError):
    """An optional package is not installed; names the extra that installs it."""


class InternalError(SchedscopeError):
    """A bug in schedscope itself, not in its input or its caller: please report it."""

    def __init__(self, found: str, expected: str = "", hint: str = "") -> None:
        """The same three parts; the hint says how to report it if nothing better is given."""
        super().__init__(
            f"internal error: {found}",
            expected,
            hint
            or "this is a bug in schedscope: set SCHEDSCOPE_DEBUG=1 to see where, and report it",
        )
