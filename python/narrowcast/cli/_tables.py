"""Tables that fit the terminal, and never cut a number.

rich takes a second for 1,300 rows, and an encoded model of 40 GiB has 10,000 frames.
"""

from __future__ import annotations

import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from .._files.display import printable, printable_lines

# If the output is not a terminal and COLUMNS is not set.
_COLUMNS = 80
# Longer texts are folded before columns are left out.
_FOLD_FROM = 40
_LEAST_FOLDED = 12


class Column(NamedTuple):
    """A column of a table."""

    title: str
    is_number: bool = False  #: aligned to the right
    folds: bool = False  #: long texts are broken into lines
    rank: int = 0  #: 0: always shown; of the others, the one with the highest rank is left out first


class Table:
    """A table of printable text."""

    def __init__(self, *columns: Column | str, title: str | None = None) -> None:
        self._columns = [Column(column) if isinstance(column, str) else column for column in columns]
        self._title = title
        self._rows: list[list[str]] = []
        self._section_ends: set[int] = set()

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: str | Sequence[str], end_section: bool = False) -> None:
        """Adds a row. A cell that is a sequence has several lines. end_section: draw a line after the row."""
        if len(cells) != len(self._columns):
            raise ValueError(f"a row has {len(cells)} cells, but the table has {len(self._columns)} columns")
        lines = [[cell] if isinstance(cell, str) else cell for cell in cells]
        # Names from files may contain ends of lines, which must not look like rows.
        self._rows.append(["\n".join(map(printable, one)) for one in lines])
        if end_section:
            self._section_ends.add(len(self._rows))

    def print(self, *, to_stderr: bool = False) -> None:
        """Prints the table with the width of the terminal."""
        stream = sys.stderr if to_stderr else sys.stdout
        print("\n".join(self.lines(terminal_width(stream), _is_unicode(stream))), file=stream)

    def width(self) -> int:
        """The width with all columns and without folding."""
        return sum(width + 3 for width in self._natural_widths()) + 1

    def lines(self, width: int, is_unicode: bool = True) -> Iterator[str]:
        """The lines of the table, of at most `width` columns if the columns that are always shown fit."""
        natural = self._natural_widths()
        shown = self._shown(natural, width)
        widths = _folded([natural[i] for i in shown], [self._columns[i] for i in shown], width)
        edges = _Edges(widths, is_unicode)
        if self._title:
            yield from textwrap.wrap(self._title, width)
        yield edges.top()
        numbers = [self._columns[i].is_number for i in shown]
        yield from edges.cells([[self._columns[i].title] for i in shown], numbers, heading=True)
        yield edges.below_heading()
        folds = [self._columns[i].folds for i in shown]
        for number, row in enumerate(self._rows, 1):
            cells = [_lines_of(row[i], own, fold) for i, own, fold in zip(shown, widths, folds, strict=True)]
            yield from edges.cells(cells, numbers)
            if number in self._section_ends and number < len(self._rows):
                yield edges.between()
        yield edges.bottom()

    def _natural_widths(self) -> list[int]:
        widths = [text_width(column.title) for column in self._columns]
        for row in self._rows:
            for i, cell in enumerate(row):
                own = text_width(cell) if "\n" not in cell else max(map(text_width, cell.split("\n")))
                widths[i] = max(widths[i], own)
        return widths

    def _shown(self, natural: list[int], width: int) -> list[int]:
        """The columns that are shown."""
        shown = list(range(len(self._columns)))

        def needed() -> int:
            return 1 + sum(3 + min(natural[i], _FOLD_FROM if self._columns[i].folds else natural[i]) for i in shown)

        while needed() > width:
            last = max(shown, key=lambda i: self._columns[i].rank)
            if not self._columns[last].rank:
                break
            shown.remove(last)
        return shown


def _folded(widths: list[int], columns: list[Column], width: int) -> list[int]:
    """The widths after folding columns until the table fits."""
    widths = list(widths)
    excess = 1 + sum(own + 3 for own in widths) - width
    while excess > 0:
        able = [i for i, column in enumerate(columns) if column.folds and widths[i] > _LEAST_FOLDED]
        if not able:
            break
        widest = max(able, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1
    return widths


def _lines_of(cell: str, width: int, folds: bool) -> list[str]:
    if not folds or (text_width(cell) <= width and "\n" not in cell):
        return cell.split("\n")
    lines = [textwrap.wrap(line, _characters(line, width), break_on_hyphens=False) or [""] for line in cell.split("\n")]
    return [part for own in lines for part in own]


def _characters(line: str, width: int) -> int:
    """How many characters of a line surely fit: some take two columns."""
    return width if line.isascii() else max(1, width // 2)


class _Edges:
    """The lines around cells."""

    def __init__(self, widths: list[int], is_unicode: bool) -> None:
        self._widths = widths
        self._heading, self._row = ("┃", "│") if is_unicode else ("|", "|")
        self._rules = ("┏━┳┓", "┡━╇┩", "├─┼┤", "└─┴┘") if is_unicode else ("+-++",) * 4

    def top(self) -> str:
        return self._rule(0)

    def below_heading(self) -> str:
        return self._rule(1)

    def between(self) -> str:
        return self._rule(2)

    def bottom(self) -> str:
        return self._rule(3)

    def _rule(self, number: int) -> str:
        left, line, middle, right = tuple(self._rules[number])
        return left + middle.join(line * (width + 2) for width in self._widths) + right

    def cells(self, cells: list[list[str]], numbers: list[bool], *, heading: bool = False) -> Iterator[str]:
        edge = self._heading if heading else self._row
        for line in range(max(map(len, cells), default=0)):
            texts = [
                _padded(cell[line] if line < len(cell) else "", width, is_number)
                for cell, width, is_number in zip(cells, self._widths, numbers, strict=True)
            ]
            yield f"{edge} {f' {edge} '.join(texts)} {edge}"


def _padded(text: str, width: int, is_number: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if is_number else text + space


def text_width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)


def terminal_width(stream: TextIO) -> int:
    """COLUMNS, or the width of the terminal; 80 if it is not a terminal."""
    named = os.environ.get("COLUMNS", "")
    if named.isdigit() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def print_wrapped(text: str, *, to_stderr: bool = False) -> None:
    """Prints a paragraph."""
    stream = sys.stderr if to_stderr else sys.stdout
    print(textwrap.fill(printable_lines(text), terminal_width(stream), break_long_words=False), file=stream)


def _is_unicode(stream: TextIO) -> bool:
    try:
        "┡━│".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
