"""Which commands there are: files of this folder, and questions that declare theirs.

A question declares `COMMAND` in its file in `analysis/`, which is read here as text: to import it
would load Polars, and help is instant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from schedscope import analysis
from schedscope.analysis.asking import command as declaring
from schedscope.analysis.asking.command import Command

if TYPE_CHECKING:
    import argparse

    from schedscope.present.answer import Answer, Facts

_BEGINS, _ENDS = "\nCOMMAND = ", "\n)\n"
_QUOTES = '"""'


@dataclass(frozen=True)
class Entry:
    """A command: a file in `cli/`, the declaration of a question, or both."""

    name: str
    own: str | None
    """The module in `cli/`; None if the declaration says it all."""
    question: Path | None
    """The file in `analysis/` that declares it."""

    @property
    def heading(self) -> str:
        """Under which it is listed."""
        heading: str = self.declared.heading if self.question else self.module.GROUP
        return heading

    @property
    def help(self) -> str:
        """Its line in the list."""
        line: str = self.declared.help if self.question else self.module.HELP
        return line

    @property
    def example(self) -> str:
        """A session."""
        example: str = self.declared.example if self.question else self.module.EXAMPLE
        return example

    @property
    def description(self) -> str:
        """The text above its options."""
        if self.question is None:
            return (self.module.__doc__ or self.help).strip()
        _, text, _ = self._source.split(_QUOTES, 2)
        return str(ast.literal_eval(f"{_QUOTES}{text}{_QUOTES}")).strip()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Its options."""
        if self.asks:
            from schedscope.cli._asking import add_arguments

            add_arguments(self, parser)
        else:
            self.module.add_arguments(parser)

    def run(self, args: argparse.Namespace) -> Answer | Facts | int:
        """The answer, or an exit code where there is none."""
        if self.asks:
            from schedscope.cli._asking import run

            return run(self, args)
        answer: Answer | Facts | int = self.module.run(args)
        return answer

    @property
    def asks(self) -> bool:
        """Whether it runs and prints as declared; else its file in `cli/` does."""
        return self.question is not None and bool(self.declared.columns)

    @property
    def question_module(self) -> str:
        """The module whose function of its own name answers."""
        assert self.question is not None
        [root] = analysis.__path__
        inside = self.question.relative_to(root).with_suffix("").parts
        return ".".join([analysis.__name__, *inside])

    @property
    def module(self) -> ModuleType:
        """The file in `cli/`."""
        assert self.own is not None
        return import_module(self.own)

    @cached_property
    def declared(self) -> Command:
        """The declaration, evaluated alone; it uses no names but those beside `Command`."""
        begin = self._source.index(_BEGINS) + len(_BEGINS)
        text = self._source[begin : self._source.index(_ENDS, begin) + len(_ENDS)]
        found = eval(text, {"__builtins__": {}}, vars(declaring))
        assert isinstance(found, Command)
        return found

    @cached_property
    def _source(self) -> str:
        assert self.question is not None
        return self.question.read_text(encoding="utf-8")


@cache
def entries() -> dict[str, Entry]:
    """Every command by name; imports none of them."""
    own = {m.name for m in iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")}
    questions = dict(_questions())
    return {
        stem.replace("_", "-"): Entry(
            stem.replace("_", "-"),
            f"schedscope.cli.{stem}" if stem in own else None,
            questions.get(stem),
        )
        for stem in sorted(own | questions.keys())
    }


def _questions() -> Iterator[tuple[str, Path]]:
    """Files in `analysis/`, or in a folder of a question there, that declare a command."""
    for folder in map(Path, analysis.__path__):
        for path in [*folder.glob("[!_]*.py"), *folder.glob("[!_]*/[!_]*.py")]:
            if _BEGINS.encode() in path.read_bytes():
                yield path.stem, path
