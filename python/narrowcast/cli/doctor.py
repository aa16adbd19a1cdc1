"""`doctor`: checks whether `narrowcast run` works on this machine."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Annotated

import typer

from .._doctor import Section, examine, remove_stale_segments
from .._files.display import printable_lines
from ._common import print_json
from ._tables import Table, terminal_width


def doctor(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="A command to check as well.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove shared memory that killed processes left in /dev/shm.")
    ] = False,
) -> None:
    """Show NCCL, GPUs, limits, the network, programs and settings, with problems and their remedies.

    The exit status is 1 if there are problems. Frameworks are those of the Python that runs this command.
    """
    cleaned = {"removed_segments": remove_stale_segments()} if clean else {}
    sections = examine(os.environ, command or [])
    problems = [(section, problem) for section in sections for problem in section.problems]
    if json:
        report = {section.name: section.rows for section in sections}
        found = [{"section": section.name, **problem.as_json()} for section, problem in problems]
        print_json({"ok": not problems, "problems": found, **cleaned, **report})
    else:
        width = terminal_width(sys.stdout)
        for section in sections:
            if section.rows:
                _print(section, width)
        for number, (_, problem) in enumerate(problems, 1):
            print(_wrapped(f"{number}. {problem.what}.", width, "   "))
            print(_wrapped(f"   {problem.remedy}", width, "   "))
        for removed in cleaned.values():
            print(f"Removed {removed} stale segments of shared memory.")
        if not problems:
            print("No problems found.")
    if problems:
        raise typer.Exit(1)


def _print(section: Section, width: int) -> None:
    """A table, or one line for each value where a table would be too wide: paths stay whole."""
    names = list(section.rows[0])
    rows = [["-" if value is None else str(value) for value in row.values()] for row in section.rows]
    table = Table(*names, title=section.title)
    for row in rows:
        table.add_row(*row)
    if table.width() <= width:
        table.print()
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
    return textwrap.fill(
        printable_lines(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
