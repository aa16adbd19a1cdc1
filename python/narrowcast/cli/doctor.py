"""`doctor`: whether `narrowcast run` would work here, for whom, and what is in the way."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import Annotated

import typer
from rich.table import Table

from .._doctor import Section, examine, remove_stale_segments
from ._common import console, print_json

# Where neither a terminal nor COLUMNS says how wide the output may be.
_WIDTH = 100


def doctor(
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND...]", help="Examine this, too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove shared memory that killed processes left in /dev/shm.")
    ] = False,
) -> None:
    """Say which NCCL, GPUs, limits, programs and settings there are, and how to mend what is wrong.

    Exit status 1 when something is wrong. Frameworks are those of the Python that runs this.
    """
    cleaned = {"removed_segments": remove_stale_segments()} if clean else {}
    sections = examine(os.environ, command or [])
    problems = [(section, problem) for section in sections for problem in section.problems]
    if json:
        report = {section.name: section.rows for section in sections}
        found = [{"section": section.name, **problem.as_json()} for section, problem in problems]
        print_json({"ok": not problems, "problems": found, **cleaned, **report})
    else:
        width = _width()
        for section in sections:
            if section.rows:
                _print(section, width)
        for number, (_, problem) in enumerate(problems, 1):
            print(_wrapped(f"{number}. {problem.what}.", width, "   "))
            print(_wrapped(f"   {problem.mend}", width, "   "))
        for removed in cleaned.values():
            print(f"Removed {removed} stale segments of shared memory.")
        if not problems:
            print("No problems found.")
    if problems:
        raise typer.Exit(1)


def _width() -> int:
    """Columns of the terminal, or of what COLUMNS says."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def _print(section: Section, width: int) -> None:
    """A table, or one line for each value where a table would be too wide: paths stay whole."""
    names = list(section.rows[0])
    rows = [["-" if value is None else str(value) for value in row.values()] for row in section.rows]
    table_width = sum(max(map(len, column)) + 3 for column in zip(names, *rows, strict=True)) + 1
    if table_width <= width:
        table = Table(*names, title=section.title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console(width).print(table)
        return
    print(_wrapped(section.title, width, ""))
    for first, *others in rows:
        if len(others) == 1:
            print(_wrapped(f"  {first}: {others[0]}", width, "    "))
            continue
        print(_wrapped(f"  {first}", width, "  "))
        for name, value in zip(names[1:], others, strict=True):
            if value:
                print(_wrapped(f"    {name}: {value}", width, "      "))


def _wrapped(text: str, width: int, indent: str) -> str:
    """Broken at spaces only."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
