"""Errors of argparse about a command line, each as one plain sentence."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from schedscope.errors import UsageError

_KINDS = {"int": "a whole number", "float": "a number"}


def of(parser: argparse.ArgumentParser, message: str) -> UsageError:
    """The error for a message of argparse about a command line that `parser` could not read."""
    name = parser.prog.removeprefix("schedscope ")
    for pattern, said in _SENTENCES:
        if match := re.fullmatch(pattern, message, re.DOTALL):
            return said(parser, name, match)
    return UsageError(f"{name}: {message}", hint="" if ". Hint: " in message else _help(parser))


def _help(parser: argparse.ArgumentParser) -> str:
    return f"see `{parser.prog} --help`"


def _needs(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    needed = match[1].split(", ")
    first = next((action for action in parser._actions if needed[0] in _names(action)), None)
    about = f", {first.help}" if first is not None and first.help and len(needed) == 1 else ""
    return UsageError(f"{name} needs {' and '.join(needed)}{about}", hint=_help(parser))


def _needs_one(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    return UsageError(f"{name} needs one of {', '.join(match[1].split())}", hint=_help(parser))


def _unknown(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    words = match[1].split()
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return UsageError(f"{name} was given more than it takes: {match[1]}", hint=_help(parser))
    known = [text for action in parser._actions for text in action.option_strings]
    close = _meant(option, known)
    return UsageError(f"{name} has no option {option}", hint=close or _help(parser))


def _wrong_value(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    return UsageError(f"{_option(match[1])} {_plain(match[3])}", _KINDS.get(match[2], match[2]))


def _wrong_choice(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    value, choices = _plain(match[2]), [_plain(choice) for choice in match[3].split(", ")]
    found = f"{_option(match[1])} {value}"
    return UsageError(found, f"one of {', '.join(choices)}", _meant(value, choices))


def _without_value(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    return UsageError(f"{_option(match[1])} needs a value", hint=_help(parser))


def _together(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    return UsageError(f"{_option(match[1])} with {_option(match[2])}", "one of them")


def _ambiguous(parser: argparse.ArgumentParser, name: str, match: re.Match[str]) -> UsageError:
    return UsageError(f"{match[1]} may be short for {match[2]}", "one of them")


_Sentence = Callable[[argparse.ArgumentParser, str, "re.Match[str]"], UsageError]
_SENTENCES: tuple[tuple[str, _Sentence], ...] = (
    (r"the following arguments are required: (.+)", _needs),
    (r"one of the arguments (.+) is required", _needs_one),
    (r"unrecognized arguments: (.+)", _unknown),
    (r"argument ([^:]+): invalid (\w+) value: (.+)", _wrong_value),
    (r"argument ([^:]+): invalid choice: (.+) \(choose from (.+)\)", _wrong_choice),
    (r"argument ([^:]+): expected .*argument.*", _without_value),
    (r"argument ([^:]+): not allowed with argument (.+)", _together),
    (r"ambiguous option: (\S+) could match (.+)", _ambiguous),
)


def _option(text: str) -> str:
    """The long name of `-o/--output`."""
    return text.rpartition("/")[2]


def _plain(text: str) -> str:
    return text.strip("'\"")


def _names(action: argparse.Action) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return [*action.option_strings, "/".join(action.option_strings), metavar, action.dest]


def _meant(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), 1)
    return f"did you mean {close[0]}?" if close else ""
