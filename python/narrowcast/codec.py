"""Encode values in host memory into frames, and decode frames.

A frame contains everything that decoding needs. Values come from any array in host memory: NumPy (ml_dtypes included),
torch, anything with DLPack such as JAX, bytes and buffers. `narrowcast.cuda` does the same in GPU memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ._arrays.view import View, byte_array, host_view, reject_batch_overlap, reject_overlap
from ._native.codecs import Codec, CodecParameter, CodecType, codec_number, codecs, presets, register_codec
from ._native.frames import BlockStats, FrameInfo, inspect_blocks_memory, inspect_memory
from ._native.library import check, library
from ._native.numbers import as_index, as_int, as_unsigned
from ._native.structures import CHECKSUM, MORE, NO_CHECKSUM, REFERENCE
from .errors import CorruptError
from .types import BY_NAME, DType, ValueType, encoded_type, value_type

__all__ = [
    "BlockStats",
    "Codec",
    "CodecParameter",
    "CodecType",
    "Frame",
    "FrameInfo",
    "bound",
    "codecs",
    "decode",
    "decode_batch",
    "encode",
    "encode_batch",
    "error_bound",
    "inspect",
    "inspect_blocks",
    "presets",
    "register_codec",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Array = TypeVar("Array")
_NO_VALUES = View(0, "cpu", 0, value_type("uint8"), 0, True, (0,), None)


class Frame(np.ndarray[Any, np.dtype[np.uint8]]):
    """A frame in host memory: a 1-D uint8 array, which also knows what was encoded.

    Copies and pickles keep `values_shape` and `values_dtype`. Bytes, files and parts of the array do not: the frame
    itself contains the value type and the number of values.
    """

    values_shape: tuple[int, ...] | None  #: the shape of the values; None if unknown
    values_dtype: np.dtype[Any] | None  #: their NumPy type; None if unknown

    def __array_finalize__(self, source: Any) -> None:
        is_copy = isinstance(source, Frame) and source.shape == self.shape and source.dtype == self.dtype
        self.values_shape = source.values_shape if is_copy else None
        self.values_dtype = source.values_dtype if is_copy else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _frame, (np.asarray(self), self.values_shape, self.values_dtype)


def _frame(content: npt.NDArray[np.uint8], shape: tuple[int, ...] | None, dtype: np.dtype[Any] | None) -> Frame:
    frame = content.view(Frame)
    frame.values_shape, frame.values_dtype = shape, dtype
    return frame


def error_bound(codec: str, dtype: DType, largest: float) -> float:
    """The largest absolute error of a finite value in a block whose largest finite magnitude is `largest`.

    It is that of one encoding; `narrowcast.error_bound` has those of calls.

    0 if the codec is exact, or stores values of this type raw. Raises ValueError for invalid arguments.
    """
    number, kind = codec_number(codec), value_type(dtype)
    found = float(library().ncast_codec_error_bound(number, kind.number, largest))
    if found != found:
        raise ValueError(f"largest is {largest}, not a finite number of 0 or more")
    return found


def bound(dtype: DType, elems: int, *, codec: str = "window") -> int:
    """The largest size in bytes of a frame of `elems` values of `dtype`, of any type that `encode` accepts.

    Raises ValueError for an unknown value type or codec, and when the values exceed 2^35 bytes, the limit of one frame.
    """
    kind, number = encoded_type(dtype), codec_number(codec)
    elems = as_index(elems, "elems")
    found = int(library().ncast_bound(kind.number, number, elems * kind.units)) if 0 <= elems < 1 << 63 else 0
    if not found:
        raise ValueError(f"elems is {elems}: one frame holds 0 to 2^35 bytes of values")
    return found


def encode(
    values: Any,
    *,
    codec: str = "window",
    dtype: DType | None = None,
    checksum: bool = True,
    more: bool = False,
    reference: bool = False,
    out: Any = None,
) -> Frame:
    """Encodes values in host memory into one frame.

    values: a contiguous array of any shape and alignment.
    codec: one of `codecs()`, with parameters as "name:key=value,key=value". "window" is lossless; value types that a
        codec does not encode are stored raw. As in files, bool, int16, uint16 and other types that are not value types
        are stored as bytes, and complex values as two floats each.
    dtype: the value type, such as "bfloat16" or torch.bfloat16 (`types.DType`), if the array does not have it: bytes
        are uint8 otherwise, and the bits of bfloat16 in uint16 are not compressed.
    checksum: store an XXH3 of the frame in its header, which `decode` verifies. Without it, a changed bit may decode to
        other values.
    more: set the flag MORE: another frame of the same stream follows.
    reference: use the scalar reference implementation, which writes the same bytes.
    out: writable host memory for the frame, of any alignment. It must not overlap `values`. `bound()` bytes suffice.

    Returns the frame: a new array, or the part of `out` that it fills.
    Raises TypeError or ValueError for invalid arguments, and TooSmallError when `out` is too small for the frame.
    """
    source = host_view(values, "values", dtype=dtype, encoded=True)
    flags = checksum_flag(checksum) | MORE * more | REFERENCE * reference
    numpy_type = _numpy_type(values, source)
    if out is None:
        capacity = bound(source.dtype, source.elems, codec=codec)
        frame: npt.NDArray[np.uint8] = np.empty(capacity, np.uint8)
        wire_bytes = encode_into(source, codec_number(codec), flags, frame.ctypes.data, capacity)
        # Shrinks in place. No other reference exists yet.
        frame.resize(wire_bytes, refcheck=False)
        return _frame(frame, source.shape, numpy_type)
    target = host_view(out, "out", holds=value_type("uint8"), writable=True)
    reject_overlap(values=source, out=target)
    wire_bytes = encode_into(source, codec_number(codec), flags, target.pointer, target.raw_bytes)
    return _frame(byte_array(target.pointer, wire_bytes, target.owner), source.shape, numpy_type)


def _numpy_type(values: Any, source: View) -> np.dtype[Any] | None:
    """The NumPy type of an array of NumPy or JAX, if it is as wide as the value type, or of a type without a codec."""
    held = getattr(values, "dtype", None)
    if source.dtype.name not in BY_NAME and not isinstance(held, np.dtype):
        return np.dtype(source.dtype.numpy)
    return held if isinstance(held, np.dtype) and held.itemsize == source.dtype.bytes else None


def encode_batch(
    arrays: Iterable[Any],
    *,
    codec: str = "window",
    dtype: DType | None = None,
    checksum: bool = True,
    threads: int = 0,
) -> list[Frame]:
    """Encodes arrays in host memory into one frame each, with several threads.

    arrays: as `values` of `encode`. They may differ in type and size.
    dtype: the value type of all arrays; None: each has its own.
    threads: the maximum number of threads; 0: the CPUs that this process may use.

    Returns the frames, which `encode` would return too. Raises what `encode` raises; the message names the array.
    """
    arrays = list(arrays)
    sources = [host_view(one, f"arrays[{i}]", dtype=dtype, encoded=True) for i, one in enumerate(arrays)]
    capacities = [bound(one.dtype, one.elems, codec=codec) for one in sources]
    frames: list[npt.NDArray[np.uint8]] = [np.empty(capacity, np.uint8) for capacity in capacities]
    count = len(sources)
    wire_bytes = (c_size_t * count)()
    check(
        library().ncast_encode_batch(
            count,
            (c_void_p * count)(*(one.pointer for one in sources)),
            (c_int * count)(*(one.dtype.number for one in sources)),
            (c_uint64 * count)(*(one.c_count for one in sources)),
            codec_number(codec),
            checksum_flag(checksum),
            (c_void_p * count)(*(frame.ctypes.data for frame in frames)),
            (c_size_t * count)(*capacities),
            wire_bytes,
            as_int(threads, "threads"),
        )
    )
    for frame, length in zip(frames, wire_bytes, strict=True):
        frame.resize(length, refcheck=False)
    return [
        _frame(frame, source.shape, _numpy_type(array, source))
        for frame, source, array in zip(frames, sources, arrays, strict=True)
    ]


def decode_batch(
    frames: Iterable[Any], *, outs: Iterable[Any] | None = None, threads: int = 0
) -> list[npt.NDArray[Any]]:
    """Decodes frames in host memory, with several threads. They may come from an untrusted source.

    frames: as `frame` of `decode`.
    outs: an array for each frame, as `out` of `decode`; None: new arrays, in the form that `decode` gives them. They
        must not overlap.
    threads: the maximum number of threads; 0: the CPUs that this process may use.

    Returns the arrays. Raises TypeError or ValueError for invalid arguments, before anything is decoded, and
    CorruptError for the first invalid frame, which the message names; all valid frames are decoded nevertheless.
    """
    frames = list(frames)
    outs = None if outs is None else list(outs)
    if outs is not None and len(outs) != len(frames):
        raise ValueError(f"outs has {len(outs)} arrays for {len(frames)} frames")
    sources = [host_view(one, f"frames[{i}]", holds=value_type("uint8")) for i, one in enumerate(frames)]
    results: list[Any] = []
    targets = []
    for i, (frame, source) in enumerate(zip(frames, sources, strict=True)):
        try:
            result, target = _target(frame, source, f"frames[{i}]", None if outs is None else outs[i], f"outs[{i}]")
        except CorruptError:
            # Reported by ncast_decode_batch, after it has decoded the others.
            result, target = None, _NO_VALUES
        results.append(result)
        targets.append(target)
    if outs is not None:
        reject_batch_overlap("frames", sources, "outs", targets)
    count = len(sources)
    check(
        library().ncast_decode_batch(
            count,
            (c_void_p * count)(*(one.pointer for one in sources)),
            (c_size_t * count)(*(one.raw_bytes for one in sources)),
            0,
            (c_void_p * count)(*(one.pointer for one in targets)),
            (c_size_t * count)(*(one.raw_bytes for one in targets)),
            as_int(threads, "threads"),
        )
    )
    return results


def checksum_flag(checksum: bool) -> int:
    """The flag of ncast_encode for frames with or without a checksum."""
    return CHECKSUM if checksum else NO_CHECKSUM


def encode_into(source: View, codec: int, flags: int, frame: int, capacity: int) -> int:
    """Calls ncast_encode, which writes to memory at `frame`. Returns the number of bytes written."""
    wire_bytes = c_size_t()
    check(
        library().ncast_encode(
            source.pointer, source.dtype.number, source.c_count, codec, flags, frame, capacity, byref(wire_bytes)
        )
    )
    return wire_bytes.value


@overload
def decode(
    frame: Any,
    *,
    out: None = None,
    shape: Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
    reference: bool = False,
) -> npt.NDArray[Any]: ...
@overload
def decode(frame: Any, *, out: Array, reference: bool = False) -> Array: ...
def decode(
    frame: Any,
    *,
    out: Any = None,
    shape: Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
    reference: bool = False,
) -> Any:
    """Decodes one frame in host memory. The frame may come from an untrusted source.

    frame: contiguous bytes of any alignment. Bytes after the frame are ignored, unless its header says that another
        frame follows: `narrowcast.files` decodes whole files.
    out: writable host memory for exactly the values of the frame: an array of its value type or of the encoded type, of
        bytes, or of unsigned integers of the same width. It must not overlap `frame`.
    shape: the shape of the result; None: that of the encoded array if `frame` is a `Frame`, otherwise 1-D.
    dtype: the NumPy type of the result: as wide as the value type, or one that `encode` stores as values of that type,
        such as int16 as bytes; None: that of the encoded array if `frame` is a `Frame`, otherwise the value type. NumPy
        has no bfloat16 and no fp8: without `dtype`, their bits are returned as uint16 and uint8.
        `dtype=ml_dtypes.bfloat16` returns values.
    reference: use the scalar reference implementation, which gives the same values.

    Returns `out`, or a new NumPy array. `inspect(frame).dtype` is the name of the value type.
    Raises CorruptError when the frame is invalid or its checksum does not match; the content of `out` is then
    unspecified. Raises TypeError or ValueError for invalid arguments.
    """
    if out is not None and (shape is not None or dtype is not None):
        raise TypeError("out has a shape and a type already: pass shape and dtype only without it")
    source = host_view(frame, "frame", holds=value_type("uint8"))
    result, target = _target(frame, source, "frame", out, "out", shape, dtype)
    decode_into(source.pointer, source.raw_bytes, REFERENCE * reference, target.pointer, target.raw_bytes)
    return result


def _target(
    frame: Any,
    source: View,
    frame_name: str,
    out: Any,
    out_name: str,
    shape: Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> tuple[Any, View]:
    """The array that a frame is decoded to, and its memory. source: the frame."""
    info = inspect_memory(source.pointer, source.raw_bytes)
    if info.wire_bytes > source.raw_bytes:
        # Checked before memory is allocated for the number of values that the header claims.
        raise CorruptError(f"{frame_name} has {source.raw_bytes} bytes, but its header says {info.wire_bytes}")
    if info.more and source.raw_bytes > info.wire_bytes:
        raise ValueError(
            f"{frame_name} has {source.raw_bytes} bytes, of which {info.wire_bytes} are its first frame, and says that "
            "more frames follow: use narrowcast.files.decode_file or load_file, or pass the bytes of one frame"
        )
    kind = value_type(info.dtype)
    if out is not None:
        result = memory = out
    else:
        form, numpy_type = _form(frame, info, kind, shape, dtype)
        memory = np.empty(info.elems, kind.numpy)
        result = memory.view(numpy_type).reshape(form)
    target = host_view(memory, out_name, holds=kind, as_bits=True, encoded=True, writable=True)
    reject_overlap(**{frame_name: source, out_name: target})
    if target.c_count != info.elems:
        raise ValueError(f"{out_name} holds {target.c_count} {kind.name} values, but {frame_name} has {info.elems}")
    return result, target


def _form(
    frame: Any, info: FrameInfo, kind: ValueType, shape: Sequence[int] | None, dtype: npt.DTypeLike | None
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the NumPy type of a decoded array. Raises TypeError or ValueError if they do not fit the frame."""
    numpy_type, units = np.dtype(kind.numpy), 1
    encoded = (frame.values_shape, frame.values_dtype) if isinstance(frame, Frame) else (None, None)
    if dtype is not None:
        numpy_type = np.dtype(dtype)
        units = _units(numpy_type, kind)
        if not units:
            raise TypeError(f"dtype is {numpy_type}, but the frame has {kind.name} values of {kind.bytes} bytes")
    elif encoded[1] is not None and (found := _units(encoded[1], kind)):
        numpy_type, units = encoded[1], found
    elems, rest = divmod(info.elems, units)
    if rest:
        raise ValueError(f"dtype is {numpy_type}, but the frame has {info.raw_bytes} bytes")
    # Checked, because the content of the frame may have changed since.
    form = encoded[0] if encoded[0] is not None and math.prod(encoded[0]) == elems else (elems,)
    if shape is not None:
        form = tuple(as_unsigned(extent, "shape") for extent in shape)
        if math.prod(form) != elems:
            raise ValueError(f"shape is {form}, but the frame has {elems} values")
    return form, numpy_type


def _units(numpy_type: np.dtype[Any], kind: ValueType) -> int:
    """How many values of a frame have the bytes of one value of a NumPy type; 0 if it cannot hold them."""
    if numpy_type.hasobject:
        return 0
    if numpy_type.itemsize == kind.bytes:
        return 1
    try:
        wide = encoded_type(numpy_type)
    except ValueError:
        return 0
    return wide.units if wide.number == kind.number else 0


def decode_into(frame: int, frame_bytes: int, flags: int, values: int, value_capacity: int) -> None:
    """Calls ncast_decode with the frame at `frame`, which writes to memory at `values`."""
    check(library().ncast_decode(frame, frame_bytes, flags, values, value_capacity, None))


def inspect(frame: Any) -> FrameInfo:
    """Reads the header of a frame in host memory. The first 64 bytes suffice. Raises CorruptError."""
    source = host_view(frame, "frame", holds=value_type("uint8"))
    return inspect_memory(source.pointer, source.raw_bytes)


def inspect_blocks(frame: Any) -> BlockStats:
    """Counts how the blocks of a complete frame in host memory were coded. Raises CorruptError."""
    source = host_view(frame, "frame", holds=value_type("uint8"))
    return inspect_blocks_memory(source.pointer, source.raw_bytes)
