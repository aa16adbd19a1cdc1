"""Tables and progress bars. Imported when something is shown, because rich takes long to import."""

from __future__ import annotations

import sys
from typing import Any

from rich import progress, table
from rich.console import Console
from rich.text import Text

from ._terminal import bytes_text, printable_lines

# Of output that is not a terminal.
_COLUMNS = 160


class Table(table.Table):
    """A table of printable text."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(printable_lines(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def console(width: int | None = None, *, stderr: bool = False) -> Console:
    """Standard output, with the terminal's width; 160 columns if it is not a terminal."""
    if width is None and not (sys.stderr if stderr else sys.stdout).isatty():
        width = _COLUMNS
    # No markup: names from files may contain brackets.
    return Console(highlight=False, markup=False, emoji=False, width=width, stderr=stderr)


class Progress(progress.Progress):
    """A bar of bytes on standard error, which disappears at the end."""

    def __init__(self) -> None:
        super().__init__(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            _Speed(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )


class _Speed(progress.ProgressColumn):
    """Bytes per second, in the units of all other sizes."""

    def render(self, task: progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{bytes_text(speed)}/s", style="progress.data.speed")
