"""Compression ratios of tensors, and their entropy bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import codec as _codec
from ._files.containers import segments
from ._files.opening import FileArgument, Source, opened_source
from ._files.segment import Segment
from .files import Reader, pieces
from .types import ValueType

__all__ = ["TensorRatio", "entropy_bound", "exponent_counts", "tensor_ratios"]


def __dir__() -> list[str]:
    return sorted(__all__)


_BITS_IN = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass
class TensorRatio:
    """The compression of a tensor by a codec. `ratio` and `bound` are None for a tensor without values."""

    tensor: str
    file: str
    dtype: str
    elems: int
    codec: str  #: of the frames: raw for value types that the requested codec does not support
    raw_bytes: int
    wire_bytes: int
    bound: float | None  #: the ratio of an ideal coder of exponents
    widths: dict[int, int] = field(default_factory=dict)  #: bits per code -> number of blocks; 0: blocks stored raw
    escapes: int = 0  #: values stored out of line
    far_escapes: int = 0  #: escapes that needed a full exponent
    requested_codec: str = ""

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes; None without values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    @property
    def escape_share(self) -> float:
        """The fraction of values stored out of line."""
        return self.escapes / self.elems if self.elems else 0.0

    def as_json(self) -> dict[str, Any]:
        """The row as `narrowcast ratio --json` prints it."""
        return {
            "tensor": self.tensor,
            "dtype": self.dtype,
            "elems": self.elems,
            "codec": self.codec,
            "ratio": self.ratio,
            "bound": self.bound,
            "widths": {str(width): blocks for width, blocks in sorted(self.widths.items())},
            "escapes": self.escape_share,
            "raw_bytes": self.raw_bytes,
            "wire_bytes": self.wire_bytes,
            "file": self.file,
        }


def exponent_counts(raw: npt.NDArray[np.uint8], kind: ValueType) -> npt.NDArray[np.int64]:
    """The number of occurrences of each exponent. raw: the bytes of a whole number of values."""
    bits = np.frombuffer(raw, _BITS_IN[kind.bytes])
    exponents = (bits >> bits.dtype.type(kind.mantissa_bits)) & bits.dtype.type((1 << kind.exponent_bits) - 1)
    return np.bincount(exponents.astype(np.uint16), minlength=1 << kind.exponent_bits)


def entropy_bound(counts: npt.NDArray[np.int64], kind: ValueType) -> float:
    """The ratio if exponents are coded at their entropy and all other bits are stored; 1 for integers."""
    if not kind.is_float:
        return 1.0
    shares = counts[counts > 0] / counts.sum()
    entropy_bits = float(-(shares * np.log2(shares)).sum())
    return (1 + kind.mantissa_bits + entropy_bits) / (8 * kind.bytes)


def tensor_ratios(source: FileArgument, *, dtype: str | None = None, codec: str = "window") -> Iterator[TensorRatio]:
    """The ratio of every tensor of a safetensors, npy or plain file, each encoded in separate frames.

    source, dtype, codec: as for `encode_file`, whose file may be smaller, because it packs small tensors together.
    Raises the same exceptions as `encode_file`.
    """
    with opened_source(source) as file:
        yield from tensor_ratios_of(file, dtype, codec)


def tensor_ratios_of(source: Source, dtype: str | None, codec: str) -> Iterator[TensorRatio]:
    """As `tensor_ratios`, for an open file."""
    reader = Reader(source)
    for part in segments(source.file, source.name, dtype):
        if part.tensor is not None:
            yield _tensor_ratio(reader, part, part.tensor, source.name, codec)
    source.check_unchanged()


def _tensor_ratio(reader: Reader, part: Segment, name: str, source: str, codec: str) -> TensorRatio:
    kind = part.dtype
    counts = np.zeros(1 << kind.exponent_bits, np.int64)
    widths: Counter[int] = Counter()
    wire_bytes = escapes = far_escapes = 0
    codec_used = codec
    for piece in pieces([part]):
        raw = reader.read(piece)
        frame = reader.encode(raw, kind, codec, 0)
        stats = _codec.inspect_blocks(frame)
        codec_used = _codec.inspect(frame).codec
        wire_bytes += frame.size
        widths.update(stats.blocks_of_width)
        escapes += stats.escapes
        far_escapes += stats.far_escapes
        if kind.is_float:
            counts += exponent_counts(raw, kind)
    return TensorRatio(
        tensor=name,
        file=source,
        dtype=kind.name,
        elems=part.raw_bytes // kind.bytes,
        codec=codec_used,
        raw_bytes=part.raw_bytes,
        wire_bytes=wire_bytes,
        bound=entropy_bound(counts, kind) if part.raw_bytes else None,
        widths=dict(widths),
        escapes=escapes,
        far_escapes=far_escapes,
        requested_codec=codec,
    )
