"""Writes docs/guide/commands.md, which describes every command, from the commands themselves.

    python tools/docs/commands.py

Needs the package with its library. A test compares the page with what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from narrowcast.cli._main import app

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "commands.md"
_NAME = "\0"  # stands for the name of a command
_START = """\
# Commands

All commands of `narrowcast`, as `narrowcast COMMAND --help` describes them. Unless a command says otherwise, the exit
status is 0, 1 after a failure, and 2 for invalid arguments, and an error is one line on standard error. `-h` and
`--help` work everywhere.
"""


def page() -> str:
    """The page."""
    root: Any = typer.main.get_command(app)
    return "\n".join([_START, *_sections(root, root.make_context("narrowcast", [], resilient_parsing=True), "##")])


def _sections(group: Any, context: Any, level: str) -> Iterator[str]:
    """The sections of the commands of a group. Commands whose sections differ only in their names share one."""
    sections: dict[str, list[str]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            own = type(context)(command, info_name=name, parent=context)
            text = "\n".join([f"{_text(command.help)}\n", *_sections(command, own, f"{level}#")])
        else:
            own = type(context)(command, info_name=_NAME, parent=context)
            text = _command(command, own).replace(f" {name} ", f" {_NAME} ")
        sections.setdefault(text, []).append(name)
    for text, names in sections.items():
        shown = names[0] if len(names) == 1 else "OPERATION"
        listed = "" if len(names) == 1 else f"\nOPERATION is one of {', '.join(f'`{name}`' for name in names)}.\n"
        yield f"{level} {context.command_path} {shown}\n\n{text.replace(_NAME, shown)}{listed}"


def _command(command: Any, context: Any) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    usage = re.sub(r"\{(\w+)\}", r"\1", usage).replace("[[", "[").replace("]]", "]")
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| {_names(record[0])} | {_cell(record[1])} |" for record in records if record]
    table = "\n".join(["| | |", "|---|---|", *rows])
    return f"{_text(command.help)}\n\n    {usage}\n\n{table}\n"


def _text(help: str | None) -> str:
    """Paragraphs of help, of one line each."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (help or "").split("\n\n")).strip()


def _names(text: str) -> str:
    """`-o, --output OUT` as code."""
    return ", ".join(f"`{name}`" for name in text.replace(" / ", ", ").split(", "))


def _cell(text: str) -> str:
    return re.sub(r"([|<>*_\[\]])", r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
