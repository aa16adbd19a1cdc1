"""Lines of text that fit the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable

from ..._files.display import printable


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines of printable text. On a terminal, long ones are continued with a deeper indent."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in map(printable, lines):
        if width is None or len(line) <= width:
            print(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 5)
        for part in textwrap.wrap(line, width, subsequent_indent=indent):
            print(part)
