"""What the parser of each command says of it: which arguments it needs, what it can select."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser

from schedscope.cli import commands


def required(command: str) -> list[str]:
    """Names of the arguments that the command does not work without."""
    parser = _parser(command)
    names = [action.dest for action in parser._actions if action.required]
    for group in parser._mutually_exclusive_groups:
        if group.required:
            names.append(" or ".join(action.dest for action in group._group_actions))
    return names


def selects(command: str) -> bool:
    """Whether its answer can be restricted to some threads and CPUs."""
    listed = {action.dest for action in actions(command) if action.help != SUPPRESS}
    return {"comm", "pid", "tid", "cpu", "process", "workload"} <= listed


def actions(command: str) -> list[Action]:
    """Its options and arguments."""
    return _parser(command)._actions


def _parser(command: str) -> ArgumentParser:
    parser = ArgumentParser()
    commands()[command].add_arguments(parser)
    return parser
