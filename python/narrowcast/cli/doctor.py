"""`doctor`: whether `narrowcast run` would work here, for whom, and what is in the way."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.table import Table

from .._doctor import Section, examine
from ._common import console, print_json


def doctor(
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND...]", help="Examine this, too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Say which NCCL, GPUs, limits, programs and settings there are, and how to mend what is wrong.

    Exit status 1 when something is wrong. Frameworks are those of the Python that runs this.
    """
    sections = examine(os.environ, command or [])
    problems = [(section, problem) for section in sections for problem in section.problems]
    if json:
        report = {section.name: section.rows for section in sections}
        found = [{"section": section.name, **problem.as_json()} for section, problem in problems]
        print_json({"ok": not problems, "problems": found, **report})
    else:
        out = console()
        for section in sections:
            if section.rows:
                out.print(_table(section))
        for number, (_, problem) in enumerate(problems, 1):
            out.print(f"{number}. {problem.what}.\n   {problem.mend}")
        if not problems:
            out.print("Nothing is wrong.")
    if problems:
        raise typer.Exit(1)


def _table(section: Section) -> Table:
    table = Table(*section.rows[0], title=section.title, title_justify="left")
    for column in table.columns:
        column.overflow = "fold"
    for row in section.rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    return table
