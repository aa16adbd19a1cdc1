"""Segments: the parts of a file, and the types of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..types import ValueType, value_type

BYTES = value_type("uint8")


class UnknownValuesError(ValueError):
    """The value type of a file is unknown and must be given."""


class StatedTypeError(ValueError):
    """A value type was given for a file whose header states another."""


class Segment(NamedTuple):
    """Consecutive bytes of a file with one value type."""

    offset: int
    raw_bytes: int
    dtype: ValueType  #: as which the bytes are encoded: uint8 for types that are not value types
    tensor: str | None  #: the name of the tensor; None for headers and gaps
    type_name: str = BYTES.name  #: the type that the file states, such as "int16"

    @property
    def end(self) -> int:
        """The offset of the first byte after the segment."""
        return self.offset + self.raw_bytes


def plain(offset: int, raw_bytes: int, kind: ValueType, tensor: str, type_name: str) -> Iterator[Segment]:
    """The segments of a range of values: all whole values, and bytes that remain."""
    whole = raw_bytes - raw_bytes % kind.bytes
    if whole:
        yield Segment(offset, whole, kind, tensor, type_name)
    if raw_bytes > whole:
        yield Segment(offset + whole, raw_bytes - whole, BYTES, None)


def one_line(error: BaseException) -> str:
    """The message of an error of a parser, shortened."""
    message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return " ".join(message.split())[:200] or type(error).__name__
