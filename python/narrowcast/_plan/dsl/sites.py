"""The location of statements in the user's program."""

from __future__ import annotations

import os
import sys
from operator import index
from pathlib import Path
from typing import NamedTuple, SupportsIndex

from ...errors import InvalidArgumentError

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
#: `origin` of a step is the line number, plus this for each file before the one that it is in.
LINES_PER_FILE = 1_000_000


class Site(NamedTuple):
    """A line of a program."""

    file: str
    line: int

    def __str__(self) -> str:
        path = Path(self.file)
        if path.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
        return f"{path}:{self.line}"


class PlanError(InvalidArgumentError):
    """A statement of a program is invalid. The message begins with its file and line; `site` has both."""

    def __init__(self, message: str, site: Site | None = None) -> None:
        self.site = site if site is not None else here()
        super().__init__(f"{self.site}: {message}")


def whole(what: str, number: SupportsIndex) -> int:
    """A whole number of any type. Raises PlanError for anything else."""
    try:
        return index(number)
    except TypeError:
        raise PlanError(f"{what} must be a whole number, not {number!r}") from None


def here() -> Site:
    """The innermost line of the running program that is outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


class Origins:
    """The numbers by which steps name lines: those of the first file are its line numbers."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def number(self, site: Site) -> int:
        """The number of a line."""
        return self._files.setdefault(site.file, len(self._files)) * LINES_PER_FILE + site.line

    def site(self, number: int) -> Site | None:
        """The line with a number; None for unknown numbers."""
        index, line = divmod(number, LINES_PER_FILE)
        return Site(list(self._files)[index], line) if number > 0 and index < len(self._files) else None
