"""Encode and decode in GPU memory.

Every call is asynchronous on the caller's stream, allocates nothing, reads nothing back, and can be captured in a CUDA
graph. Frames have the same bytes as those of `narrowcast.encode`. Sizes stay on the device: only `wire_bytes`,
`inspect` and `check` wait for the stream and read them.

They encode value types only: other types, which `narrowcast.encode` stores as bytes, can be viewed as uint8.

Arrays are torch tensors, or support `__cuda_array_interface__` or DLPack. They must be contiguous and must not overlap,
and the caller keeps them alive and unchanged until the stream has run the call. Streams are integers, torch or CuPy
streams, or objects with `__cuda_stream__`; None is the default stream. A call runs on the device of its arrays.

Calls raise TypeError or ValueError for invalid arguments, and CudaError when a launch fails.
"""

from __future__ import annotations

import contextlib
from ctypes import byref
from typing import Any

import numpy as np

from ._arrays.streams import stream_handle
from ._arrays.view import UNKNOWN_DEVICE, View, reject_overlap, view
from ._native import cuda_driver
from ._native.codecs import codec_number
from ._native.frames import FRAME_HEADER_BYTES, FrameInfo
from ._native.library import check as _check_status
from ._native.library import gpu_count, library
from ._native.numbers import as_unsigned
from ._native.structures import MORE, CudaOptionsC
from .codec import inspect as _inspect_host
from .errors import Status, error_of
from .types import DType, ValueType, reduction_number, value_type

__all__ = [
    "STATUS_BYTES",
    "accumulator_type",
    "check",
    "decode",
    "decode_reduce",
    "decode_reduce_slots",
    "decode_slots",
    "device_count",
    "encode",
    "encode_slots",
    "inspect",
    "slot_bytes",
    "slot_count",
    "wire_bytes",
    "workspace_bytes",
]


def __dir__() -> list[str]:
    return sorted(__all__)


_BYTES = value_type("uint8")
STATUS_BYTES = 4  #: bytes of the status word of decoders


def device_count() -> int:
    """The number of GPUs that CUDA can use; 0 on a machine without a driver."""
    return gpu_count()


def workspace_bytes(dtype: DType, elems: int, *, codec: str = "window") -> int:
    """Bytes of workspace that `encode` needs, which may be 0."""
    count = as_unsigned(elems, "elems")
    return int(library().ncast_cuda_workspace_bytes(value_type(dtype).number, codec_number(codec), count))


def slot_bytes(dtype: DType, *, codec: str = "window") -> int:
    """The stride of slots in bytes: the largest size of an encoded block."""
    return int(library().ncast_slot_bytes(value_type(dtype).number, codec_number(codec)))


def slot_count(dtype: DType, elems: int, *, codec: str = "window") -> int:
    """The number of slots for `elems` values."""
    count = as_unsigned(elems, "elems")
    return int(library().ncast_slot_count(value_type(dtype).number, codec_number(codec), count))


def encode(
    values: Any,
    *,
    out: Any,
    workspace: Any = None,
    stream: Any = None,
    codec: str = "window",
    dtype: DType | None = None,
    more: bool = False,
    max_ctas: int = 0,
) -> None:
    """Encodes values into one frame, reading the values once.

    values: aligned to the value type; 16-byte alignment is fastest.
    out: memory for the frame, 16-byte aligned. `narrowcast.bound()` bytes suffice.
    workspace: `workspace_bytes()` bytes, 16-byte aligned, not shared with a call in flight; None if 0 are needed.
    dtype: the value type, for arrays without one.
    more: set the flag MORE: another frame of the same stream follows.
    max_ctas: the maximum number of CTAs; 0: as many as the GPU runs at once.

    The size of the frame is the 64-bit word at its byte 16: see `wire_bytes`.
    """
    source = gpu_view(values, "values", stream, dtype=dtype)
    frame = gpu_view(out, "out", stream, holds=_BYTES, writable=True)
    scratch = None if workspace is None else gpu_view(workspace, "workspace", stream, holds=_BYTES, writable=True)
    reject_overlap(values=source, out=frame, workspace=scratch)
    with device_of(source, frame, *([scratch] if scratch else [])):
        _check_status(
            library().ncast_cuda_encode(
                source.pointer,
                source.dtype.number,
                source.elems,
                codec_number(codec),
                MORE * more,
                frame.pointer,
                frame.raw_bytes,
                scratch.pointer if scratch else None,
                scratch.raw_bytes if scratch else 0,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def decode(
    frame: Any,
    *,
    out: Any,
    status: Any,
    stream: Any = None,
    codec: str = "window",
    dtype: DType | None = None,
    max_ctas: int = 0,
) -> None:
    """Decodes a frame with exactly as many values as `out` holds.

    frame: 16-byte aligned; may be longer than the frame.
    out: aligned to the value type; 16-byte alignment is fastest.
    dtype: the value type of `out`, if the array does not tell.
    codec: the codec of the frame.
    status: one 32-bit word, which the caller has set to zero. It becomes `Status.CORRUPT` when the frame is corrupt, or
        has another codec, value type or number of values; the content of `out` is then unspecified. See `check`.

    Checksums are not verified.
    """
    source = gpu_view(frame, "frame", stream, holds=_BYTES)
    target = gpu_view(out, "out", stream, dtype=dtype, writable=True)
    word = _status_word(status, stream)
    reject_overlap(frame=source, out=target, status=word)
    with device_of(source, target, word):
        _check_status(
            library().ncast_cuda_decode(
                source.pointer,
                source.raw_bytes,
                target.dtype.number,
                codec_number(codec),
                target.elems,
                target.pointer,
                word.pointer,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_reduce(
    frame: Any,
    *,
    accumulator: Any,
    dtype: DType,
    status: Any,
    op: str = "sum",
    stream: Any = None,
    codec: str = "window",
    max_ctas: int = 0,
) -> None:
    """Decodes a frame of `dtype` values and reduces it into an accumulator: a[i] = op(a[i], value[i]).

    accumulator: one float32 for each value of the frame (float64 for float64; for integers, `dtype` itself).
    op: "sum", "prod", "min" or "max".
    frame, codec, status, max_ctas: as for `decode`.
    """
    source = gpu_view(frame, "frame", stream, holds=_BYTES)
    kind = value_type(dtype)
    target = gpu_view(accumulator, "accumulator", stream, holds=accumulator_type(kind), writable=True)
    word = _status_word(status, stream)
    reject_overlap(frame=source, accumulator=target, status=word)
    with device_of(source, target, word):
        _check_status(
            library().ncast_cuda_decode_reduce(
                source.pointer,
                source.raw_bytes,
                kind.number,
                codec_number(codec),
                target.elems,
                reduction_number(op),
                target.pointer,
                word.pointer,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def encode_slots(
    values: Any,
    *,
    slots: Any,
    lengths: Any,
    stream: Any = None,
    codec: str = "window",
    dtype: DType | None = None,
    max_ctas: int = 0,
) -> None:
    """Encodes every block into a slot: block i at byte i * `slot_bytes()`, its length in bytes in lengths[i].

    slots: memory for `slot_count()` slots, 16-byte aligned.
    lengths: one 32-bit word for each slot.
    values, codec, dtype, max_ctas: as for `encode`.
    """
    source = gpu_view(values, "values", stream, dtype=dtype)
    blocks, words = _slots(slots, lengths, source.dtype, source.elems, codec, stream, writable=True)
    reject_overlap(values=source, slots=blocks, lengths=words)
    with device_of(source, blocks, words):
        _check_status(
            library().ncast_cuda_encode_slots(
                source.pointer,
                source.dtype.number,
                source.elems,
                codec_number(codec),
                blocks.pointer,
                words.pointer,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_slots(
    slots: Any,
    lengths: Any,
    *,
    out: Any,
    status: Any,
    stream: Any = None,
    codec: str = "window",
    dtype: DType | None = None,
    max_ctas: int = 0,
) -> None:
    """As `decode`, from slots that were encoded with `codec`."""
    target = gpu_view(out, "out", stream, dtype=dtype, writable=True)
    blocks, words = _slots(slots, lengths, target.dtype, target.elems, codec, stream)
    word = _status_word(status, stream)
    reject_overlap(slots=blocks, lengths=words, out=target, status=word)
    with device_of(blocks, words, target, word):
        _check_status(
            library().ncast_cuda_decode_slots(
                blocks.pointer,
                words.pointer,
                target.dtype.number,
                codec_number(codec),
                target.elems,
                target.pointer,
                word.pointer,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_reduce_slots(
    slots: Any,
    lengths: Any,
    *,
    accumulator: Any,
    dtype: DType,
    status: Any,
    op: str = "sum",
    stream: Any = None,
    codec: str = "window",
    max_ctas: int = 0,
) -> None:
    """As `decode_reduce`, from slots that were encoded with `codec`."""
    kind = value_type(dtype)
    target = gpu_view(accumulator, "accumulator", stream, holds=accumulator_type(kind), writable=True)
    blocks, words = _slots(slots, lengths, kind, target.elems, codec, stream)
    word = _status_word(status, stream)
    reject_overlap(slots=blocks, lengths=words, accumulator=target, status=word)
    with device_of(blocks, words, target, word):
        _check_status(
            library().ncast_cuda_decode_reduce_slots(
                blocks.pointer,
                words.pointer,
                kind.number,
                codec_number(codec),
                target.elems,
                reduction_number(op),
                target.pointer,
                word.pointer,
                launch_options(max_ctas),
                stream_handle(stream),
            )
        )


def wire_bytes(frame: Any, *, stream: Any = None) -> int:
    """Waits for the stream and reads the size of a frame in bytes. Raises CorruptError."""
    return inspect(frame, stream=stream).wire_bytes


def inspect(frame: Any, *, stream: Any = None) -> FrameInfo:
    """Waits for the stream and reads the header of a frame. Raises CorruptError."""
    source = gpu_view(frame, "frame", stream, holds=_BYTES)
    with device_of(source):
        header = cuda_driver.copy_to_host(
            source.pointer, min(FRAME_HEADER_BYTES, source.raw_bytes), stream_handle(stream)
        )
    return _inspect_host(header)


def check(status: Any, *, stream: Any = None) -> None:
    """Waits for the stream and raises CorruptError when a decoder has reported corrupt data in `status`."""
    word = _status_word(status, stream)
    with device_of(word):
        found = int(
            np.frombuffer(cuda_driver.copy_to_host(word.pointer, STATUS_BYTES, stream_handle(stream)), np.uint32)[0]
        )
    if found != Status.OK:
        raise error_of(
            found, "a decoder on the GPU found a frame that is corrupt, or has another codec, type or number of values"
        )


def accumulator_type(kind: ValueType) -> ValueType:
    """The value type in which values of a type are accumulated."""
    if not kind.is_float or kind.name == "float64":
        return kind
    return value_type("float32")


def gpu_view(
    array: Any,
    name: str,
    stream: Any,
    *,
    dtype: DType | None = None,
    holds: ValueType | None = None,
    writable: bool = False,
) -> View:
    found = view(array, name, dtype=dtype, holds=holds, writable=writable, stream=stream)
    if found.device != "cuda":
        raise ValueError(f"{name} is in host memory: use narrowcast.encode and decode, or copy it to the GPU first")
    return found


def _words(array: Any, name: str, count: int, stream: Any) -> View:
    """An array of at least `count` writable 32-bit words: int32, uint32 or bytes."""
    words = gpu_view(array, name, stream, dtype="uint32", writable=True)
    if words.elems < count:
        raise ValueError(f"{name} has {words.elems} words of 32 bits, but needs {count}")
    return words


def _status_word(status: Any, stream: Any) -> View:
    return _words(status, "status", 1, stream)


def _slots(
    slots: Any, lengths: Any, kind: ValueType, elems: int, codec: str, stream: Any, *, writable: bool = False
) -> tuple[View, View]:
    blocks = gpu_view(slots, "slots", stream, holds=_BYTES, writable=writable)
    count, stride = slot_count(kind.name, elems, codec=codec), slot_bytes(kind.name, codec=codec)
    words = _words(lengths, "lengths", count, stream)
    if blocks.raw_bytes < count * stride:
        raise ValueError(f"slots has {blocks.raw_bytes} bytes, but {count} slots need {count * stride}")
    return blocks, words


def device_of(*views: View) -> contextlib.AbstractContextManager[None]:
    """Makes the device of the arrays current. Raises ValueError when they are on several devices."""
    ordinals = {
        cuda_driver.pointer_device(one.pointer) if one.device_id == UNKNOWN_DEVICE else one.device_id
        for one in views
        if one.pointer
    }
    if len(ordinals) > 1:
        raise ValueError(f"the arrays are on different GPUs: {', '.join(f'cuda:{i}' for i in sorted(ordinals))}")
    return cuda_driver.on_device(ordinals.pop()) if ordinals else contextlib.nullcontext()


def launch_options(max_ctas: int) -> Any:
    limit = as_unsigned(max_ctas, "max_ctas", 32)
    return byref(CudaOptionsC(limit)) if limit else None
