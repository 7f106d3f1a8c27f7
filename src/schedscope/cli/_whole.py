"""One parser with every command in it: what shell completion and the manual page are made from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedscope.extras import missing

if TYPE_CHECKING:
    from schedscope.cli._commands import Entry

_FILES = (
    "input",
    "inputs",
    "output",
    "folder",
    "file",
    "files",
    "trace",
    "again",
    "cache",
    "bundle",
)


def whole_parser(
    commands: Sequence[Entry], description: str, *, completes_files: bool = False
) -> argparse.ArgumentParser:
    """The commands as subparsers."""
    parser = argparse.ArgumentParser(prog="schedscope", description=description)
    parser.add_argument("--version", action="version", version="", help="print the version")
    parser.add_argument("--completion", metavar="SHELL", help="print a completion script")
    choose = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in commands:
        of_command = choose.add_parser(
            command.name,
            help=command.help,
            # The manual page has no place for an epilog.
            description=f"{command.description}\n\nexample:\n{command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(of_command)
        if completes_files:
            _complete_files(of_command)
    return parser


def completion(commands: Sequence[Entry], description: str, shell: str) -> str:
    """A script that teaches `shell` the commands, their options and where a file belongs."""
    try:
        import shtab
    except ImportError as error:
        raise missing("shtab") from error
    parser = whole_parser(commands, description, completes_files=True)
    text: str = shtab.complete(parser, shell=shell)
    return text


def _complete_files(command: argparse.ArgumentParser) -> None:
    import shtab

    for action in command._actions:
        if action.dest in _FILES and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
