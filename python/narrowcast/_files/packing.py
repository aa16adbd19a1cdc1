"""Packs small tensors of a file into shared frames.

A frame has a header of 64 bytes, and a codec stores a partial block raw. So small tensors would grow in frames of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..types import ValueType
from .segment import BYTES, Segment

# For segments of this size, a separate frame costs less than 0.2%.
SMALL_BYTES = 64 << 10
# The raw bytes of the smallest block of any value type. Shorter segments are not compressed, whatever their type.
BLOCK_BYTES = 4096


def pack(segments: Iterable[Segment], max_bytes: int) -> list[Segment]:
    """Joins adjacent segments if that saves bytes, up to `max_bytes`. The result covers the same bytes in order.

    Segments of one type are joined. Segments shorter than a block are joined with plain bytes, or with each other, as
    plain bytes.
    """

    def join(one: Segment, other: Segment, dtype: ValueType) -> Segment | None:
        raw_bytes = one.raw_bytes + other.raw_bytes
        larger = max(one, other, key=lambda part: part.raw_bytes)
        return (
            Segment(one.offset, raw_bytes, dtype, larger.tensor, larger.type_name) if raw_bytes <= max_bytes else None
        )

    def join_type(one: Segment, other: Segment) -> Segment | None:
        small = min(one.raw_bytes, other.raw_bytes) < SMALL_BYTES
        same_kind = one.dtype == other.dtype and (one.tensor is None) == (other.tensor is None)
        return join(one, other, one.dtype) if small and same_kind else None

    def join_bytes(one: Segment, other: Segment) -> Segment | None:
        plain = all(part.dtype == BYTES or part.raw_bytes < BLOCK_BYTES for part in (one, other))
        short = min(one.raw_bytes, other.raw_bytes) < BLOCK_BYTES
        return join(one, other, BYTES) if plain and short else None

    return _fold(_fold(segments, join_type), join_bytes)


def _fold(segments: Iterable[Segment], join: Callable[[Segment, Segment], Segment | None]) -> list[Segment]:
    """Joins each segment to its predecessor if `join` returns a joined segment."""
    folded: list[Segment] = []
    for segment in segments:
        joined = join(folded[-1], segment) if folded else None
        if joined is None:
            folded.append(segment)
        else:
            folded[-1] = joined
    return folded
