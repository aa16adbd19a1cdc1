"""Parses MSCCL XML into rows, and says in which line something is wrong.

The parser is the standard library's expat. A document type declaration is an error, so entities do not exist and
nothing is fetched. Only the elements of the format may occur, so nesting is limited, and rows are limited in number.
Attributes that the format does not define are ignored: the generators write several of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.parsers import expat

from ....errors import InvalidArgumentError
from ..collectives import MAX_RANKS, MAX_STEPS

__all__ = ["INT_MAX", "STEP_TYPES", "Algorithm", "Block", "Gpu", "Row", "fail", "parse"]

STEP_TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
_BUFFERS = {"i": "input", "o": "output", "s": "scratch"}
_FLAGS = {"0": 0, "1": 1}
_TYPES = {name: name for name in STEP_TYPES}
INT_MAX = 2**31 - 1

# Line, type, source buffer and offset, destination buffer and offset, count, block and step waited for, publishes.
Row = tuple[int, str, str, int, str, int, int, int, int, int]


@dataclass(slots=True)
class Block:
    """<tb>"""

    line: int
    number: int
    send: int
    receive: int
    channel: int
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Gpu:
    """<gpu>"""

    line: int
    number: int
    scratch_chunks: int
    copies: list[tuple[int, int, int]] = field(default_factory=list)  #: line, offset in the input, in the output
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Algorithm:
    """<algo>"""

    line: int
    attributes: dict[str, str]
    gpus: list[Gpu] = field(default_factory=list)


def fail(line: int, message: str) -> NoReturn:
    """Raises the error for a line of the document."""
    raise InvalidArgumentError(f"line {line}: {message}")


def integer(attributes: dict[str, str], name: str, line: int, low: int, high: int, default: int | None = None) -> int:
    """An attribute that is a number from `low` to `high`."""
    text = attributes.get(name)
    if text is None:
        if default is None:
            fail(line, f"the attribute {name} is missing")
        return default
    digits = text.strip()
    if not _is_integer(digits):
        fail(line, f"{name}={_short(text)} is not an integer")
    # Python converts only numbers of a limited length, and none of the format's is longer.
    value = int(digits) if len(digits) <= 20 else None
    if value is None or not low <= value <= high:
        fail(line, f"{name}={_short(digits)} is not between {low} and {high}")
    return value


def _is_integer(digits: str) -> bool:
    # int() accepts more: underscores, plus signs, and the digits of other scripts.
    return digits.removeprefix("-").isdecimal() and digits.isascii()


class _Integers(dict[str, int]):
    """The values of texts, each converted once. Looking up a text that is not an integer is a ValueError."""

    def __missing__(self, text: str) -> int:
        digits = text.strip()
        if not _is_integer(digits):
            raise ValueError(text)
        value = self[text] = int(digits)
        return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


class _Parser:
    def __init__(self) -> None:
        self.algorithm: Algorithm | None = None
        self.open: list[str] = [""]
        self.steps = 0
        self.rows: list[Row] = []
        self.integers = _Integers()
        self.expat = expat.ParserCreate()
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end
        self.expat.StartDoctypeDeclHandler = self.doctype

    def doctype(self, *_: Any) -> NoReturn:
        fail(self.expat.CurrentLineNumber, "a document type declaration is not allowed")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "step" and self.open[-1] == "tb":
            self.open.append(name)
            self.step(attributes)
            return
        line = self.expat.CurrentLineNumber
        inside = self.open[-1]
        if (name, inside) not in _ELEMENTS:
            where = f"inside <{inside}>" if inside else "as the root"
            fail(line, f"the element <{name[:40]}> is not allowed {where}")
        self.open.append(name)
        _ELEMENTS[name, inside](self, line, attributes)

    def end(self, _: str) -> None:
        self.open.pop()

    def algo(self, line: int, attributes: dict[str, str]) -> None:
        self.algorithm = Algorithm(line, attributes)

    def gpu(self, line: int, attributes: dict[str, str]) -> None:
        assert self.algorithm is not None
        number = integer(attributes, "id", line, 0, MAX_RANKS - 1)
        for chunks in ("i_chunks", "o_chunks"):
            integer(attributes, chunks, line, 0, INT_MAX)
        self.algorithm.gpus.append(Gpu(line, number, integer(attributes, "s_chunks", line, 0, INT_MAX)))

    def copy(self, line: int, attributes: dict[str, str]) -> None:
        assert self.algorithm is not None
        source, target = (integer(attributes, name, line, 0, INT_MAX) for name in ("i_off", "o_off"))
        self.steps += 1
        self.algorithm.gpus[-1].copies.append((line, source, target))

    def block(self, line: int, attributes: dict[str, str]) -> None:
        assert self.algorithm is not None
        block = Block(
            line,
            number=integer(attributes, "id", line, 0, INT_MAX),
            send=integer(attributes, "send", line, -1, MAX_RANKS - 1),
            receive=integer(attributes, "recv", line, -1, MAX_RANKS - 1),
            channel=integer(attributes, "chan", line, 0, INT_MAX, 0),
        )
        self.count(line)
        self.rows = block.rows
        self.algorithm.gpus[-1].blocks.append(block)

    def step(self, attributes: dict[str, str]) -> None:
        # Plans have hundreds of thousands of steps. Offsets and counts are checked when they are used.
        rows, integers = self.rows, self.integers
        try:
            row = (
                self.expat.CurrentLineNumber,
                _TYPES[attributes["type"]],
                _BUFFERS[attributes["srcbuf"]],
                integers[attributes["srcoff"]],
                _BUFFERS[attributes["dstbuf"]],
                integers[attributes["dstoff"]],
                integers[attributes["cnt"]],
                integers[attributes["depid"]],
                integers[attributes["deps"]],
                _FLAGS[attributes["hasdep"]],
            )
            in_order = integers[attributes["s"]] == len(rows)
        except (KeyError, ValueError):
            self.explain(attributes)
        if not in_order:
            fail(row[0], f"this is step {len(rows)} of the thread block, but s={attributes['s']!r}")
        rows.append(row)
        if len(rows) > MAX_STEPS:
            self.count(row[0])

    def explain(self, attributes: dict[str, str]) -> NoReturn:
        """Raises the error for a step that has a wrong attribute."""
        line = self.expat.CurrentLineNumber
        for name, known in (("type", _TYPES), ("srcbuf", _BUFFERS), ("dstbuf", _BUFFERS)):
            if attributes.get(name) not in known:
                given = _short(attributes[name]) if name in attributes else "missing"
                fail(line, f"{name} is {given}, not one of {', '.join(known)}")
        for name in ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep"):
            low, high = (0, 1) if name == "hasdep" else (-1, INT_MAX)
            integer(attributes, name, line, low, high)
        fail(line, "the step has a wrong attribute")

    def count(self, line: int) -> None:
        """Ends the current thread block: its steps count."""
        self.steps += len(self.rows) + 1
        if self.steps > MAX_STEPS:
            fail(line, f"the plan has more than {MAX_STEPS} steps")


_ELEMENTS = {
    ("algo", ""): _Parser.algo,
    ("gpu", "algo"): _Parser.gpu,
    ("copy", "gpu"): _Parser.copy,
    ("tb", "gpu"): _Parser.block,
}


def parse(data: bytes) -> Algorithm:
    """The rows of a document. Raises InvalidArgumentError for one that is not MSCCL XML."""
    parser = _Parser()
    try:
        parser.expat.Parse(data, True)
    except expat.ExpatError as error:
        fail(error.lineno, f"not well-formed XML: {expat.ErrorString(error.code)}")
    except InvalidArgumentError:
        raise  # it is a ValueError, too
    except (LookupError, ValueError) as error:  # unknown encodings
        fail(parser.expat.CurrentLineNumber, f"the document cannot be decoded: {error}")
    if parser.algorithm is None:
        raise InvalidArgumentError("line 1: the document has no <algo>")
    return parser.algorithm
