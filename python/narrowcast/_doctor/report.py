"""What an examination finds: sections of rows, and problems, each with its mend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong."""

    what: str
    mend: str

    def as_json(self) -> Row:
        return {"what": self.what, "mend": self.mend}


@dataclass
class Section:
    """One subject. All rows have the same keys."""

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, what: str, mend: str) -> None:
        self.problems.append(Problem(what, mend))
