"""Groups of commands whose modules are imported when they are used, and the form of their help."""

from __future__ import annotations

import functools
import re
from typing import Any

import typer
from typer.core import TyperGroup

#: Both work everywhere.
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class CommandGroup(TyperGroup):
    """A group that prints its help if no command is given."""

    def command_names(self) -> list[str]:
        """All commands, in the order of the help."""
        raise NotImplementedError

    def load(self, name: str) -> Any:
        """The command with one of these names."""
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        return self.command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self.load(cmd_name) if cmd_name in self.command_names() else None


def new_group(name: str | None, kind: type[CommandGroup], help: str) -> typer.Typer:
    """An application of the commands of a group."""
    return typer.Typer(
        name=name,
        cls=kind,
        help=help,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        invoke_without_command=True,
        context_settings=HELP_OPTIONS,
    )


def print_help_without_command(context: typer.Context) -> None:
    """The callback of a group: prints the help if no command is given."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit()


def single_command(name: str, function: Any, *, cls: Any = None, interspersed: bool = True) -> Any:
    """A command that calls a function. interspersed: whether options may follow arguments."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {**HELP_OPTIONS, "allow_interspersed_args": interspersed}
    app.command(name, cls=cls, context_settings=settings)(function)
    return with_plain_help(typer.main.get_command(app))


def with_plain_help(command: Any) -> Any:
    """Removes the Python types that typer adds to its help: `--ranks RANKS`, not `--ranks <int range>`."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.get_help_record = functools.partial(_without_type, parameter.get_help_record)
        elif parameter.metavar is None and not parameter.is_flag:
            longest = max(parameter.opts, key=len)
            parameter.metavar = longest.lstrip("-").replace("-", "_").upper()
    return command


def _without_type(get_help_record: Any, ctx: Any) -> Any:
    record = get_help_record(ctx)
    return None if record is None else (re.sub(r" <[^<>]*>$", "", record[0]), record[1])
