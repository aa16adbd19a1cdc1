"""How much codecs change the values of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._files.containers import segments
from .._files.opening import Source
from .._files.packing import BLOCK_BYTES
from .._native.codecs import codec_of
from ..codec import decode, encode, error_bound
from ..files import FRAME_RAW_BYTES
from ..types import ValueType
from . import oracle

Array = npt.NDArray[Any]
# Values of a tensor in which NaN and infinity are inserted.
_CHANGED_ELEMS = 1 << 16


@dataclass(frozen=True)
class TensorError:
    """The difference of a tensor's values after encoding and decoding. None: not defined.

    Values that are not finite are left out, and others in their block that become NaN.
    """

    tensor: str
    dtype: str  #: the type that the file states
    elems: int  #: values of the type as which it is encoded
    codec: str
    ratio: float | None  #: wire bytes / raw bytes; None without values
    relative_l2: float | None  #: L2 norm of the difference / L2 norm of the values; None if all values are 0
    max_error: float
    max_error_over_bound: float  #: the largest error of a block / the error that the codec states for it; 0: exact
    sqnr_db: float | None  #: signal to noise; None if there is no difference, or if all values are 0
    nonfinite_kept: bool | None  #: whether NaN and infinity in a copy stay not finite; None: there are none


def tensor_errors(source: Source, dtype: str | None, codec_texts: Sequence[str]) -> Iterator[TensorError]:
    """The errors of each codec for every tensor of a safetensors, npy or plain file, whose type is `dtype`.

    Raises the same exceptions as `encode_file`.
    """
    for part in segments(source.file, source.name, dtype):
        if part.tensor is None:
            continue
        raw = np.empty(part.raw_bytes, np.uint8)
        source.read(part.offset, raw.data)
        for codec in codec_texts:
            yield _error_of(part.tensor, part.type_name, raw.view(part.dtype.numpy), part.dtype, codec)
    source.check_unchanged()


def _error_of(tensor: str, type_name: str, values: Array, kind: ValueType, codec: str) -> TensorError:
    wire_bytes = 0
    signal = noise = max_error = over_bound = 0.0
    elems = FRAME_RAW_BYTES // kind.bytes
    for start in range(0, values.size, elems):
        piece = values[start : start + elems]
        frame = encode(piece, codec=codec, dtype=kind.name, checksum=False)
        wire_bytes += frame.size
        starts = np.arange(0, piece.size, _block_elems(kind, codec))
        exact, found = _numbers(piece, kind), _numbers(_decoded(frame, kind), kind)
        # A codec may make values of a block NaN if one of them is not finite.
        is_finite = np.isfinite(exact)
        all_finite = np.repeat(np.logical_and.reduceat(is_finite, starts), np.diff(starts, append=piece.size))
        is_counted = is_finite & (all_finite | np.isfinite(found))
        exact = np.where(is_counted, exact, 0)
        errors = np.where(np.isfinite(found), np.abs(found - exact), np.inf)
        errors = np.where(is_counted, errors, 0)
        signal += float(np.square(exact).sum())
        noise += float(np.square(errors).sum())
        max_error = max(max_error, float(errors.max()))
        over_bound = max(over_bound, _over_bound(np.abs(exact), errors, starts, kind, codec))
    return TensorError(
        tensor,
        type_name,
        values.size,
        codec,
        wire_bytes / values.nbytes if values.size else None,
        math.sqrt(noise / signal) if signal else None,
        max_error,
        over_bound,
        10 * math.log10(signal / noise) if signal and noise else None,
        _keeps_nonfinite(values, kind, codec),
    )


def _numbers(bits: Array, kind: ValueType) -> npt.NDArray[np.float64]:
    return oracle.widen(bits, kind).astype(np.float64)


def _decoded(frame: Array, kind: ValueType) -> Array:
    return decode(frame).view(kind.numpy)


def _block_elems(kind: ValueType, codec: str) -> int:
    return next((one.block_bytes for one in codec_of(codec).types if one.dtype == kind.name), BLOCK_BYTES) // kind.bytes


def _over_bound(magnitudes: Array, errors: Array, starts: Array, kind: ValueType, codec: str) -> float:
    """The largest error / bound of the blocks of a frame. starts: the first value of each block."""
    if not errors.any():
        return 0.0
    largest, worst = (np.maximum.reduceat(array, starts) for array in (magnitudes, errors))
    bounds = np.array([error_bound(codec, kind.name, float(one)) for one in largest])
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(worst > 0, worst / bounds, 0).max())


def _keeps_nonfinite(values: Array, kind: ValueType, codec: str) -> bool | None:
    """Each kind of value that is not finite is inserted at the start, in the middle and at the end of a copy."""
    if not kind.is_float or not values.size:
        return None
    wide = np.float64 if kind.name == "float64" else np.float32
    specials = oracle.narrow(np.array([np.nan, np.inf, -np.inf], wide), kind)
    places = np.unique([0, min(values.size, _CHANGED_ELEMS) // 2, min(values.size, _CHANGED_ELEMS) - 1])
    for special in specials:
        changed = values[:_CHANGED_ELEMS].copy()
        changed[places] = special
        frame = encode(changed, codec=codec, dtype=kind.name, checksum=False)
        if np.isfinite(_numbers(_decoded(frame, kind), kind)[places]).any():
            return False
    return True
