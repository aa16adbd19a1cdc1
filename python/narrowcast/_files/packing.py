"""Divides a file into batches, which become frames.

A frame has a header of 64 bytes, and a codec stores a partial block raw, so small tensors would grow in frames of their
own. They share frames with their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..types import ValueType
from .segment import BYTES, Segment

# The raw bytes of the smallest block of any value type. Shorter runs are not compressed, whatever their type.
BLOCK_BYTES = 4096
# A frame of this size costs at most 0.35%, if its values do not shrink: its header, 4 bytes per block and padding, and
# the header of the plain bytes after it.
SMALL_BYTES = 64 << 10


class Run(NamedTuple):
    """Consecutive bytes that can be encoded together: one tensor, a part of one, or several."""

    offset: int
    raw_bytes: int
    dtype: ValueType
    is_plain: bool  #: not values: stored raw


class Batch(NamedTuple):
    """Consecutive runs that are encoded together, into one frame or several."""

    runs: list[Run]
    offset: int
    raw_bytes: int
    is_last: bool


def batches(segments: Iterable[Segment], max_bytes: int) -> Iterator[Batch]:
    """Batches of at most `max_bytes` that cover the segments in order; one without runs if there are none.

    Adjacent runs of one type are joined if one of them is small, and runs that are shorter than a block are joined with
    adjacent plain bytes.
    """
    runs = _plain_joined(_types_joined(_split(segments, max_bytes), max_bytes), max_bytes)
    batch: list[Run] = []
    batch_bytes = 0
    for run in runs:
        if batch and batch_bytes + run.raw_bytes > max_bytes:
            yield Batch(batch, batch[0].offset, batch_bytes, False)
            batch, batch_bytes = [], 0
        batch.append(run)
        batch_bytes += run.raw_bytes
    yield Batch(batch, batch[0].offset if batch else 0, batch_bytes, True)


def _split(segments: Iterable[Segment], max_bytes: int) -> Iterator[Run]:
    """Runs of at most max_bytes, divided between values."""
    for offset, raw_bytes, dtype, tensor, _ in segments:
        if raw_bytes <= max_bytes:
            yield Run(offset, raw_bytes, dtype, tensor is None)
            continue
        for start in range(0, raw_bytes, max_bytes):
            yield Run(offset + start, min(max_bytes, raw_bytes - start), dtype, tensor is None)


def _types_joined(runs: Iterable[Run], max_bytes: int) -> Iterator[Run]:
    last: Run | None = None
    for run in runs:
        if last is None:
            last = run
        elif (
            run.dtype is last.dtype
            and run.is_plain == last.is_plain
            and (run.raw_bytes < SMALL_BYTES or last.raw_bytes < SMALL_BYTES)
            and run.raw_bytes + last.raw_bytes <= max_bytes
        ):
            last = Run(last.offset, last.raw_bytes + run.raw_bytes, last.dtype, last.is_plain)
        else:
            yield last
            last = run
    if last is not None:
        yield last


def _plain_joined(runs: Iterable[Run], max_bytes: int) -> Iterator[Run]:
    last: Run | None = None
    for run in runs:
        if run.raw_bytes < BLOCK_BYTES:
            run = Run(run.offset, run.raw_bytes, BYTES, True)
        if last is not None and last.is_plain and run.is_plain and last.raw_bytes + run.raw_bytes <= max_bytes:
            last = Run(last.offset, last.raw_bytes + run.raw_bytes, BYTES, True)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last
