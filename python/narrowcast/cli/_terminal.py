"""What commands print: text without control characters, tables, and standard streams that may be closed."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from rich import table as _table
from rich.console import Console

# Of output that is not a terminal.
_COLUMNS = 160


def printable(text: str) -> str:
    """The text with control characters, invisible ones and invalid ones escaped, as `\\x1b`.

    Names from files and arguments must not control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def printable_lines(text: str) -> str:
    """As printable, but keeps the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


class Table(_table.Table):
    """A table of printable text."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(printable_lines(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def console(width: int | None = None, *, stderr: bool = False) -> Console:
    """Standard output, with the terminal's width; 160 columns if it is not a terminal."""
    if width is None and not (sys.stderr if stderr else sys.stdout).isatty():
        width = _COLUMNS
    # No markup: names from files may contain brackets.
    return Console(highlight=False, markup=False, emoji=False, width=width, stderr=stderr)


def bytes_text(count: float) -> str:
    """1536 -> "1.50 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError


class ClosedOutput(io.TextIOBase):
    """Replaces standard output that was closed when the process started. Writing to it is an error."""

    name = "standard output"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed", "standard output")

    @property
    def buffer(self) -> ClosedOutput:
        return self


def replace_closed_streams() -> None:
    """Makes standard streams usable that were closed when the process started, for which Python has None."""
    # Otherwise files that are opened later would get the descriptors of standard output and standard error.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
