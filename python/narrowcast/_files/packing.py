"""Which bytes of a file share a frame.

A frame has a header of 64 bytes, and a codec stores fewer values than a block as they are. Small tensors would grow, so
they share frames with their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..types import ValueType
from .containers import BYTES, Segment

# Segments of this size lose less than 0.2% to a frame of their own.
SMALL_BYTES = 64 << 10
# The raw bytes of a block, the least of all value types: what is shorter gains nothing from its type.
BLOCK_BYTES = 4096


def pack(segments: Iterable[Segment], most_bytes: int) -> list[Segment]:
    """Adjacent segments joined where that saves bytes, none beyond `most_bytes`; they cover the same bytes in order.

    Values of one type share blocks. Segments shorter than a block join plain bytes, and each other, as plain bytes.
    """

    def join(one: Segment, other: Segment, dtype: ValueType) -> Segment | None:
        raw_bytes = one.raw_bytes + other.raw_bytes
        larger = max(one, other, key=lambda part: part.raw_bytes)
        return Segment(one.offset, raw_bytes, dtype, larger.tensor) if raw_bytes <= most_bytes else None

    def join_type(one: Segment, other: Segment) -> Segment | None:
        small = min(one.raw_bytes, other.raw_bytes) < SMALL_BYTES
        alike = one.dtype == other.dtype and (one.tensor is None) == (other.tensor is None)
        return join(one, other, one.dtype) if small and alike else None

    def join_bytes(one: Segment, other: Segment) -> Segment | None:
        plain = all(part.dtype == BYTES or part.raw_bytes < BLOCK_BYTES for part in (one, other))
        short = min(one.raw_bytes, other.raw_bytes) < BLOCK_BYTES
        return join(one, other, BYTES) if plain and short else None

    return _fold(_fold(segments, join_type), join_bytes)


def _fold(segments: Iterable[Segment], join: Callable[[Segment, Segment], Segment | None]) -> list[Segment]:
    """Joins each segment to those before it, where `join` gives a joined one."""
    folded: list[Segment] = []
    for segment in segments:
        joined = join(folded[-1], segment) if folded else None
        if joined is None:
            folded.append(segment)
        else:
            folded[-1] = joined
    return folded
