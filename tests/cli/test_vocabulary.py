"""Each option has one meaning in all commands, and durations and sizes have units everywhere."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from schedscope import cli, collectors
from schedscope.cli import _quantities

# Options that are those of ministat(1), which has one letter for each.
AS_MINISTAT = {"ministat"}

# Renamed options: command, old words, and the new ones that they stand for.
OLDER = [
    ("capture", "--until 'wait > 50ms'", "--trigger 'wait > 50ms'"),
    ("capture", "--service", "--systemd-unit"),
    ("capture", "-b 8192", "-b 8192K"),
    ("compare", "a b --label x --label y", "a b --name x --name y"),
    ("fleet", "a -o b --keep", "a -o b --keep-converted"),
    ("fleet", "a -o b --fetch-limit 4096", "a -o b --fetch-limit 4G"),
    ("migrations", "a --list", "a --each"),
    ("report", "a --timeline-around 2.5", "a --at 2.5"),
    ("timeline", "a --max-bytes 1048576", "a --max-size 1M"),
    ("top", "--interval 2", "--every 2s"),
    ("top", "--seconds 30", "--duration 30s"),
]


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    [commands] = [
        action for action in cli.manual()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(commands.choices)


def listed() -> Iterator[tuple[str, argparse.Action]]:
    for command, parser in parsers().items():
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and action.option_strings:
                yield command, action


def kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "flag"
    if action.metavar in ("TIME", "DURATION", "SIZE"):
        return str(action.metavar)
    return "number" if action.type in (int, float) else "text"


def test_an_option_means_one_kind_of_thing_in_all_commands() -> None:
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command, action in listed():
        for name in action.option_strings:
            if command not in AS_MINISTAT or name.startswith("--"):
                kinds[name][kind(action)].append(command)
    assert len(kinds) > 80
    assert {name: dict(found) for name, found in kinds.items() if len(found) > 1} == {}


def test_short_option_always_has_the_same_meaning() -> None:
    letters: dict[str, set[str]] = defaultdict(set)
    for command, action in listed():
        short = [name for name in action.option_strings if not name.startswith("--")]
        for name in action.option_strings:
            if name.startswith("--") and command not in AS_MINISTAT:
                letters[name].add(" ".join(short))
    assert {name: found for name, found in letters.items() if len(found) > 1} == {}
    named = [short for found in letters.values() for short in found if short]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize(
    ("metavar", "good", "bad"),
    [("DURATION", ["100ms", "2s", "1m"], ["2x", "s"]), ("SIZE", ["64K", "2G"], ["2Q", "M"])],
)
def test_durations_and_sizes_take_units(metavar: str, good: list[str], bad: list[str]) -> None:
    found = [(command, action) for command, action in listed() if action.metavar == metavar]
    assert len(found) >= 5
    handed_on = {"--max-size", "--min-free", "--keep", "--buffer"}
    for command, action in found:
        if command == "capture" and handed_on.intersection(action.option_strings):
            continue  # test_the_recorder_knows_the_options_of_capture
        assert callable(action.type), (command, action.option_strings)
        for text in good:
            action.type(text)
        for text in bad:
            with pytest.raises(argparse.ArgumentTypeError, match=r"not a (duration|size)"):
                action.type(text)


def test_no_option_has_a_fixed_unit() -> None:
    metavars = {str(action.metavar) for _, action in listed()}
    assert metavars.isdisjoint({"KB", "MB", "MIB", "BYTES", "SECONDS", "MS", "NS"})


@pytest.mark.parametrize(("command", "before", "now"), OLDER)
def test_older_spelling_is_accepted_with_one_warning(
    command: str, before: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parsers()[command]
    assert vars(parser.parse_args(shlex.split(now))) != {}
    assert capsys.readouterr().err == ""
    found = vars(parser.parse_args(shlex.split(before)))
    said = capsys.readouterr().err.splitlines()
    wanted = vars(parser.parse_args(shlex.split(now)))
    if command == "capture" and before.startswith("-b"):  # the recorder prints it
        assert (found["buffer"], said) == ("8192", [])
        return
    assert found == wanted
    if "--fetch-limit" in before:
        assert said == ["schedscope: a size has a unit now: 4096 is taken as 4096M"]
        return
    old, new = (next(w for w in text.split() if w.startswith("--")) for text in (before, now))
    assert said == [f"schedscope: {old} is called {new} now"]


def test_every_older_name_is_tested() -> None:
    older = {
        (command, action.option_strings[0])
        for command, parser in parsers().items()
        for action in parser._actions
        if type(action).__name__ == "Older"
    }
    assert older == {
        (command, word)
        for command, before, now in OLDER
        for word in before.split()
        if word.startswith("--") and word not in now.split() and "fetch-limit" not in word
    }


def test_the_recorder_knows_the_options_of_capture() -> None:
    """`sh capture` reads them as `schedscope capture` does, with the same units."""
    own = {"--no-summary", "--top", "--format", "--help", "-h"}
    values = {"DURATION": "2m", "SIZE": "64M"}
    words = []
    for command, action in listed():
        if command == "capture" and not own.intersection(action.option_strings):
            value = [] if action.nargs == 0 else [values.get(str(action.metavar), "x")]
            words += [word for name in action.option_strings for word in (name, *value)]
    assert len(words) > 30
    program = ["sh", str(collectors.path())]
    done = subprocess.run([*program, *words, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def recorder(*words: str) -> str:
    """The recorder's message; it never starts recording, since it may not write there."""
    done = subprocess.run(
        ["sh", str(collectors.path()), *words, "-o", "-never"], capture_output=True, text=True
    )
    assert done.returncode == 125
    return done.stderr


@pytest.mark.parametrize("text", ["10", "0.5", "10s", "1.5s", "250ms", "2m", "1h"])
def test_the_recorder_reads_durations(text: str) -> None:
    assert recorder("-d", text) == "capture: -o -never looks like an option; try -o ./-never\n"


@pytest.mark.parametrize("words", ["-d x", "-d 1.5m", "-d 5q", "-d .", "-b 8Q", "-b M", "-b 0K"])
def test_recorder_refuses_values_without_a_valid_unit(words: str) -> None:
    option, value = words.split()
    what = {"-d": "a duration", "-b": "a size"}[option]
    assert recorder(option, value).startswith(f"capture: {option} {value} is not {what}; try ")


def test_recorder_names_the_new_option() -> None:
    said = recorder("--ring", "20s", "--until", "exit", "-b", "8192").splitlines()
    assert said[:2] == [
        "capture: --until is called --trigger now",
        "capture: a size has a unit now: -b 8192 is taken as 8192K",
    ]


def test_sizes_are_binary() -> None:
    assert [_quantities.size(text) for text in ("1K", "1M", "1G", "1T")] == [
        2**10, 2**20, 2**30, 2**40,
    ]  # fmt: skip
