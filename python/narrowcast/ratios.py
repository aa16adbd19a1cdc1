"""Compression ratios of tensors, and what they could be: by the entropy of exponents, and by zeros in mantissas."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import codec as _codec
from ._files.containers import segments
from ._files.encoder import encode_values
from ._files.opening import FileArgument, Source, opened_source
from ._files.packing import BLOCK_BYTES
from ._files.pipeline import Buffers, Pipeline
from ._files.segment import Segment
from .codec import BlockStats
from .files import FRAME_RAW_BYTES
from .types import ValueType

__all__ = ["TensorRatio", "TotalRatio", "exponent_counts", "exponent_entropy", "tensor_ratios", "trailing_zero_bits"]


def __dir__() -> list[str]:
    return sorted(__all__)


_BITS_IN = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class _Ratios:
    """What the ratios of one tensor and of several have in common."""

    raw_bytes: int
    wire_bytes: int
    exponent_entropy: float | None
    trailing_zeros: float | None

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes; None without values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    @property
    def bound(self) -> float | None:
        """The ratio if exponents took their entropy and trailing zeros nothing; None without values."""
        if self.exponent_entropy is None or self.trailing_zeros is None:
            return None
        return self.exponent_entropy + self.trailing_zeros - 1


@dataclass
class TensorRatio(_Ratios):
    """The compression of a tensor by a codec. Ratios are None for a tensor without values."""

    tensor: str
    file: str
    dtype: str  #: the type that the file states, such as int16
    elems: int  #: values of the type as which it is encoded: bytes for types that are not value types
    codec: str  #: of the frames: raw for value types that the requested codec does not support
    raw_bytes: int
    wire_bytes: int
    exponent_entropy: float | None  #: the ratio if exponents took their entropy: see the function of this name
    trailing_zeros: float | None  #: the ratio without `trailing_zero_bits`, if all other bits were stored
    widths: dict[int, int] = field(default_factory=dict)  #: bits per code -> number of blocks; 0: blocks stored raw
    escapes: int = 0  #: values stored out of line
    far_escapes: int = 0  #: escapes that needed a full exponent
    requested_codec: str = ""
    tensors: int = 1  #: more for a row of small tensors, which share frames

    @property
    def escape_share(self) -> float:
        """The fraction of values stored out of line."""
        return self.escapes / self.elems if self.elems else 0.0

    def as_json(self) -> dict[str, Any]:
        """The row as `narrowcast ratio --json` prints it."""
        return {
            "tensor": self.tensor,
            "tensors": self.tensors,
            "dtype": self.dtype,
            "elems": self.elems,
            "codec": self.codec,
            "ratio": self.ratio,
            "exponent_entropy": self.exponent_entropy,
            "trailing_zeros": self.trailing_zeros,
            "widths": {str(width): blocks for width, blocks in sorted(self.widths.items())},
            "escapes": self.escape_share,
            "raw_bytes": self.raw_bytes,
            "wire_bytes": self.wire_bytes,
            "file": self.file,
        }


@dataclass(frozen=True)
class TotalRatio(_Ratios):
    """The compression of several tensors by one codec. Ratios are None without values."""

    raw_bytes: int
    wire_bytes: int
    exponent_entropy: float | None  #: the average of those of the tensors, weighted by raw bytes
    trailing_zeros: float | None  #: likewise

    @classmethod
    def of(cls, rows: Sequence[TensorRatio]) -> TotalRatio:
        """The total of rows."""
        raw_bytes = sum(row.raw_bytes for row in rows)

        def average(ratios: Iterable[float | None]) -> float | None:
            weighted = sum((ratio or 0.0) * row.raw_bytes for row, ratio in zip(rows, ratios, strict=True))
            return weighted / raw_bytes if raw_bytes else None

        return cls(
            raw_bytes,
            sum(row.wire_bytes for row in rows),
            average(row.exponent_entropy for row in rows),
            average(row.trailing_zeros for row in rows),
        )


def exponent_counts(raw: npt.NDArray[np.uint8], kind: ValueType) -> npt.NDArray[np.int64]:
    """The number of occurrences of each exponent. raw: the bytes of a whole number of values."""
    bits = np.frombuffer(raw, _BITS_IN[kind.bytes])
    exponents = (bits >> bits.dtype.type(kind.mantissa_bits)) & bits.dtype.type((1 << kind.exponent_bits) - 1)
    return np.bincount(exponents.astype(np.uint16), minlength=1 << kind.exponent_bits)


def trailing_zero_bits(raw: npt.NDArray[np.uint8], kind: ValueType) -> int:
    """The number of low mantissa bits that are zero in all values of a block of 4 KiB, times its values, of all blocks.

    Values of bfloat16 that are stored as float32 have 16 such bits each. 0 for integers.
    raw: the bytes of a whole number of values.
    """
    if not kind.is_float or not raw.size:
        return 0
    bits = np.frombuffer(raw, _BITS_IN[kind.bytes])
    starts = np.arange(0, bits.size, BLOCK_BYTES // kind.bytes)
    # The bit above the mantissa ends the zeros of values without a mantissa.
    used = np.bitwise_or.reduceat(bits, starts).astype(np.uint64) | np.uint64(1 << kind.mantissa_bits)
    lowest = used & (~used + np.uint64(1))
    zeros = np.log2(lowest.astype(np.float64)).astype(np.int64)  # exact for powers of two
    return int((zeros * np.diff(starts, append=bits.size)).sum())


def exponent_entropy(counts: npt.NDArray[np.int64], kind: ValueType) -> float:
    """The ratio if every exponent took the entropy of the exponents, and all other bits were stored; 1 for integers.

    It is no lower bound of all codecs: where exponents depend on their neighbours, or mantissas repeat or end in zeros,
    codecs that use that can do better.
    """
    if not kind.is_float:
        return 1.0
    shares = counts[counts > 0] / counts.sum()
    entropy_bits = float(-(shares * np.log2(shares)).sum())
    return (1 + kind.mantissa_bits + entropy_bits) / (8 * kind.bytes)


def tensor_ratios(
    source: FileArgument, *, dtype: str | None = None, codec: str = "window", threads: int | None = None
) -> Iterator[TensorRatio]:
    """The ratio of every tensor of a safetensors, npy or plain file, each encoded in separate frames.

    Tensors below 4 KiB, the size of a block, have one row for all tensors of a type, which are encoded together: alone
    they would not shrink.

    source, dtype, codec: as for `encode_file`. threads: by default the number of CPUs, up to 16.
    Raises the same exceptions as `encode_file`.
    """
    with opened_source(source) as file:
        yield from tensor_ratios_of(file, dtype, codec, threads)


def tensor_ratios_of(
    source: Source, dtype: str | None, codec: str, threads: int | None = None
) -> Iterator[TensorRatio]:
    """As `tensor_ratios`, for an open file."""
    tensors = [part for part in segments(source.file, source.name, dtype) if part.tensor is not None]
    groups = _groups(tensors)
    pieces = (piece for number, group in enumerate(groups) for piece in _pieces(number, group))

    def work(piece: _Piece, buffers: Buffers) -> _Measured:
        return _measure(source, piece, codec, buffers)

    pipeline = Pipeline(work, lambda piece: 2 * piece.raw_bytes, threads)
    for number, measured in itertools.groupby(pipeline.results(pieces), lambda one: one.group):
        yield _sum(measured, groups[number], source.name, codec)
    source.check_unchanged()


def _groups(tensors: list[Segment]) -> list[list[Segment]]:
    """The tensors of each row, in the order of the file."""
    groups: list[list[Segment]] = []
    small: dict[str, list[Segment]] = {}
    for tensor in tensors:
        if tensor.raw_bytes >= BLOCK_BYTES:
            groups.append([tensor])
        elif tensor.type_name in small:
            small[tensor.type_name].append(tensor)
        else:
            small[tensor.type_name] = [tensor]
            groups.append(small[tensor.type_name])
    return groups


class _Piece(NamedTuple):
    """A part of a tensor, or several small tensors, that is encoded into one frame."""

    group: int
    dtype: ValueType
    spans: list[tuple[int, int]]  #: offset and length of its parts in the file
    raw_bytes: int


def _pieces(number: int, group: list[Segment]) -> Iterator[_Piece]:
    kind = group[0].dtype
    if len(group) == 1:
        (tensor,) = group
        for start in range(0, tensor.raw_bytes, FRAME_RAW_BYTES):
            length = min(FRAME_RAW_BYTES, tensor.raw_bytes - start)
            yield _Piece(number, kind, [(tensor.offset + start, length)], length)
        return
    spans: list[tuple[int, int]] = []
    raw_bytes = 0
    for tensor in group:
        if raw_bytes + tensor.raw_bytes > FRAME_RAW_BYTES:
            yield _Piece(number, kind, spans, raw_bytes)
            spans, raw_bytes = [], 0
        spans.append((tensor.offset, tensor.raw_bytes))
        raw_bytes += tensor.raw_bytes
    yield _Piece(number, kind, spans, raw_bytes)


class _Measured(NamedTuple):
    """The frame of a piece."""

    group: int
    codec: str
    wire_bytes: int
    blocks: BlockStats
    exponents: npt.NDArray[np.int64] | None
    trailing_zero_bits: int


def _measure(source: Source, piece: _Piece, codec: str, buffers: Buffers) -> _Measured:
    raw = _read(source, piece, buffers)
    frame = encode_values(raw, piece.dtype, codec, 0, buffers.frame)
    return _Measured(
        piece.group,
        _codec.inspect(frame).codec,
        frame.size,
        _codec.inspect_blocks(frame),
        exponent_counts(raw, piece.dtype) if piece.dtype.is_float else None,
        trailing_zero_bits(raw, piece.dtype),
    )


def _read(source: Source, piece: _Piece, buffers: Buffers) -> npt.NDArray[np.uint8]:
    raw = buffers.raw.of(piece.raw_bytes)
    begin, end = piece.spans[0][0], sum(piece.spans[-1])
    if end - begin > 2 * FRAME_RAW_BYTES:
        filled = 0
        for offset, length in piece.spans:
            source.read(offset, raw[filled : filled + length].data)
            filled += length
    elif len(piece.spans) == 1:
        source.read(begin, raw.data)
    else:
        # One read for many small tensors.
        around = buffers.frame.of(end - begin)
        source.read(begin, around.data)
        np.concatenate([around[offset - begin :][:length] for offset, length in piece.spans], out=raw)
    return raw


def _sum(measured: Iterable[_Measured], group: list[Segment], source: str, codec: str) -> TensorRatio:
    kind, raw_bytes = group[0].dtype, sum(tensor.raw_bytes for tensor in group)
    name = group[0].tensor or ""
    counts = np.zeros(1 << kind.exponent_bits, np.int64)
    row = TensorRatio(
        tensor=name if len(group) == 1 else f"{len(group):,} tensors below {BLOCK_BYTES >> 10} KiB",
        file=source,
        dtype=group[0].type_name,
        elems=raw_bytes // kind.bytes,
        codec=codec,
        raw_bytes=raw_bytes,
        wire_bytes=0,
        exponent_entropy=None,
        trailing_zeros=None,
        requested_codec=codec,
        tensors=len(group),
    )
    widths: Counter[int] = Counter()
    zero_bits = 0
    for one in measured:
        row.codec = one.codec
        row.wire_bytes += one.wire_bytes
        row.escapes += one.blocks.escapes
        row.far_escapes += one.blocks.far_escapes
        widths.update(one.blocks.blocks_of_width)
        zero_bits += one.trailing_zero_bits
        if one.exponents is not None:
            counts += one.exponents
    row.widths = dict(widths)
    row.exponent_entropy = exponent_entropy(counts, kind)
    row.trailing_zeros = 1 - zero_bits / (8 * raw_bytes)
    return row
