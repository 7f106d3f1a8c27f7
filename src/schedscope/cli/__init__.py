"""The command line: a command for each question that declares one, and for each file here.

A question's `COMMAND = Command(...)` in `analysis/` says what its command is called, asks and
shows. Where that is not all, `cli/NAME.py` has what is special to it: `_asking` says which
functions; or `add_arguments(parser)` and `run(args)` if the declaration has no columns.

A command that is no question is a module in this folder whose name has no leading underscore
(`doctor.py` is `schedscope doctor`). It defines

* `GROUP`: the heading in the list of commands under which it stands, one of `GROUPS`;
* `HELP`: its line there;
* `EXAMPLE`: a real session, shown at the end of the command's own help;
* `add_arguments(parser)`: its options (`_options` has the shared ones);
* `run(args) -> Answer | Facts | int`: does the work and returns what it found, of which `main`
  prints the view that `--format` names; an exit code where there is nothing to print.

Its docstring is the description in the command's help. The head of the module
imports the standard library and `schedscope.cli._*` only: Polars and the
engine are imported inside `run`, so that help is instant.

Answers go to stdout through `_output`, everything else to stderr. Errors are
raised as `schedscope.errors`; `main` turns them into one sentence and an exit
code: 2 for usage, 1 for failures, 130 for Ctrl-C. No traceback reaches a user
unless `SCHEDSCOPE_DEBUG` is set.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from schedscope.cli import _complaints, _output
from schedscope.cli._commands import Entry, entries
from schedscope.cli._output import complain
from schedscope.cli._stops import heed_stops
from schedscope.errors import InternalError, SchedscopeError, UsageError
from schedscope.extras import explained
from schedscope.present.answer import Answer, Facts

DESCRIPTION = "Capture, analyse and replay CPU-scheduler traces of FreeBSD and Linux."

EPILOG = """\
a first session:
  schedscope capture -o web.capture -d 10s  record this host for 10 seconds
  schedscope findings web.capture           what is wrong, and what to try
  schedscope outliers night.capture         which minute of a long one matters
  schedscope latency web.capture --by comm  who waited for a CPU, how long
  schedscope check web.capture              how much of it can be trusted

`schedscope COMMAND --help` explains a command with an example."""

# What `schedscope` alone lists, in the order of a session; --all lists every command.
FIRST_DAY = (
    "doctor",
    "capture",
    "check",
    "findings",
    "latency",
    "wait-breakdown",
    "view",
    "compare",
)
SHELLS = ("bash", "zsh", "fish", "tcsh")

# Headings of the list of commands, in the order of a session; each command names its own.
GROUPS = (
    "record",
    "inspect the recording",
    "who waited, and why?",
    "how well was the machine used?",
    "where did threads run?",
    "everything on one page",
    "compare",
    "simulate",
    "exchange tables and traces",
)
# Entry points: these come first in their group, the others follow by name.
FIRST = ("doctor", "capture", "info", "check", "latency", "migrations", "report", "whatif")


def commands() -> dict[str, Entry]:
    """The commands by name; imports none of them."""
    return entries()


def by_group() -> dict[str, list[Entry]]:
    """The same under the headings of the help, in its order."""
    rank = {name: i for i, name in enumerate(FIRST)}
    groups: dict[str, list[Entry]] = {group: [] for group in GROUPS}
    known = entries()
    for name in sorted(known, key=lambda name: (rank.get(name, len(rank)), name)):
        groups[known[name].heading].append(known[name])
    return groups


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    heed_stops()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse, or a signal
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Point stdout at nothing, or
        # the interpreter complains once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SchedscopeError as error:
        _trace_if_asked()
        complain(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except OSError as error:
        _trace_if_asked()
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        return 1
    except MemoryError:
        _trace_if_asked()
        complain(
            "there is not enough memory for this. Hint: check that the input files are the right "
            "ones; if they are, ask about a part of the trace (--since, --until)"
        )
        return 1
    except BaseException as error:  # a Rust panic in Polars is not an Exception
        _trace_if_asked()
        if isinstance(known := explained(error), SchedscopeError):
            complain(str(known))
            return 1
        if _is_damaged_parquet(error):
            complain(
                f"a table is damaged: {' '.join(str(error).split())[:200]}; expected whole "
                "Parquet files. Hint: convert the capture again"
            )
            return 1
        complain(
            str(InternalError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
        )
        return 1


def _is_damaged_parquet(error: BaseException) -> bool:
    """Did Polars find a page that it cannot decode? A table is read only when its rows are asked
    for.
    """
    return type(error).__name__ == "ComputeError" and str(error).startswith("parquet: ")


def _dispatch(arguments: list[str]) -> int:
    known = commands()
    if arguments and arguments[0] in known:
        # Only this command's modules are loaded.
        command = known[arguments[0]]
        parser = _Parser(prog=f"schedscope {command.name}", **_texts(command))
        command.add_arguments(parser)
        args = parser.parse_args(arguments[1:])
        if "input" in vars(args):
            # NumPy starts a thread for each CPU, for linear algebra that is not used here. The
            # program that `capture` runs keeps its environment.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            _load_polars()
        answer: Answer | Facts | int = command.run(args)
        if isinstance(answer, int):
            return answer
        _output.emit(answer, getattr(args, "format", "table"))
        return answer.exit_code
    if arguments and not arguments[0].startswith("-"):
        from difflib import get_close_matches

        close = get_close_matches(arguments[0], known, 1)
        hint = f"did you mean {close[0]}?" if close else "`schedscope --all` lists the commands"
        raise UsageError(f"no command {arguments[0]!r}", hint=hint)
    if not arguments:
        first = _lines(known[name] for name in FIRST_DAY)
        _output.say(*first, "", f"{len(known) - len(first)} more: schedscope --all", "")
        _output.say(*EPILOG.splitlines())
        return 0
    if arguments == ["--all"]:
        _output.say(*_listing())
        return 0
    whole = _parser()
    args = whole.parse_args(arguments)
    if args.completion is None:
        whole.error("a command is missing")
    from schedscope.cli._whole import completion

    # Printed as it is: a script has tabs, which lines for people show as escapes.
    sys.stdout.write(completion(_ordered(), DESCRIPTION, args.completion))
    return 0


def _load_polars() -> None:
    """Every command with an input needs it, and its objects are never garbage.

    Collecting among them again and again takes a tenth of the load time.
    """
    import gc

    gc.disable()
    try:
        import_module("polars")
    finally:
        gc.enable()
    gc.freeze()


def _listing() -> list[str]:
    """The commands, one line each, by group."""
    lines = []
    for group, here in by_group().items():
        lines.append(group if group.endswith("?") else f"{group}:")
        lines += _lines(here)
    return lines


def _lines(commands: Iterable[Entry]) -> list[str]:
    space = max(map(len, entries()))
    return [f"  {command.name:<{space}}  {command.help}" for command in commands]


def _ordered() -> list[Entry]:
    return [command for here in by_group().values() for command in here]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="schedscope",
        usage="schedscope COMMAND ...",
        description=DESCRIPTION,
        epilog="\n".join([*_listing(), "", EPILOG]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--all", action="store_true", help="list every command")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument(
        "--completion",
        choices=SHELLS,
        help="print a completion script for this shell",
    )
    return parser


def manual() -> argparse.ArgumentParser:
    """The parser that `make man` hands to argparse-manpage."""
    from schedscope.cli._whole import whole_parser

    return whole_parser(_ordered(), DESCRIPTION)


def _texts(command: Entry) -> dict[str, Any]:
    example = command.example.strip("\n")
    return {
        "description": command.description,
        "epilog": f"example:\n{example}" if example else None,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


class _Parser(argparse.ArgumentParser):
    """Its errors repeat words of the command line, such as the name of a file."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Values that begin like an option, for argparse: also times, as -1ms.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        raise _complaints.of(self, message)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        # Its lookup costs 30 ms: only when asked.
        from schedscope import __version__

        print(f"schedscope {__version__}")
        parser.exit()


def _trace_if_asked() -> None:
    if os.environ.get("SCHEDSCOPE_DEBUG"):
        import traceback

        traceback.print_exc()
