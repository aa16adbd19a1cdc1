"""The results of checks: sections with rows, and problems with their remedies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A problem, and how to solve it."""

    what: str
    remedy: str

    def as_json(self) -> Row:
        return {"what": self.what, "remedy": self.remedy}


@dataclass
class Section:
    """The rows and problems of one subject. All rows have the same keys."""

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, what: str, remedy: str) -> None:
        """Adds a problem."""
        self.problems.append(Problem(what, remedy))
