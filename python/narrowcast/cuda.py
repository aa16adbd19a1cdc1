"""Encode and decode in GPU memory.

Every call is asynchronous on the caller's stream, allocates nothing, reads nothing back, and may be captured in a CUDA
graph. The frames are those of `narrowcast.encode`, byte for byte. Arrays come by `__cuda_array_interface__`, DLPack or
as torch tensors; they are contiguous and stay alive and untouched until the stream has passed the call. Streams are
integers, torch or CuPy streams, or anything with `__cuda_stream__`; None is the default stream. Calls run on the device
of their arrays, whichever is current. The arrays of a call do not overlap (ValueError).

Sizes stay on the device. `wire_bytes`, `inspect` and `check` wait for the stream and read them; nothing else does.
"""

from __future__ import annotations

import contextlib
from ctypes import byref
from typing import Any

import numpy as np

from ._arrays.streams import stream_handle
from ._arrays.view import UNKNOWN_DEVICE, View, refuse_overlap, view
from ._native import cuda_driver
from ._native.integers import as_unsigned
from ._native.library import check as _check_status
from ._native.library import library
from ._native.structures import MORE, CudaOptionsC
from .codec import FRAME_HEADER_BYTES, FrameInfo
from .codec import inspect as _inspect_host
from .errors import Status, UnsupportedError, error_of
from .types import ValueType, codec_number, reduction_number, value_type

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
STATUS_BYTES = 4  #: of the status word of decoders


def device_count() -> int:
    """GPUs that CUDA can use; 0 on a machine without a driver."""
    try:
        return int(library().ncast_cuda_device_count())
    except UnsupportedError:
        # A library without its CUDA part.
        return 0


def workspace_bytes(dtype: str, elems: int, *, codec: str = "window") -> int:
    """Bytes of scratch that `encode` needs; 0 when it needs none."""
    return int(library().ncast_cuda_workspace_bytes(value_type(dtype).number, codec_number(codec), elems))


def slot_bytes(dtype: str) -> int:
    """The stride of slots: bytes that one block can take."""
    return int(library().ncast_slot_bytes(value_type(dtype).number))


def slot_count(dtype: str, elems: int) -> int:
    """How many slots `elems` values take."""
    return int(library().ncast_slot_count(value_type(dtype).number, elems))


def encode(
    values: Any,
    *,
    out: Any,
    workspace: Any = None,
    stream: Any = None,
    codec: str = "window",
    dtype: str | None = None,
    more: bool = False,
    max_ctas: int = 0,
) -> None:
    """Encodes values into one frame, packed end to end, in one pass over the values.

    values: aligned to the value type; 16-byte alignment is fastest.
    out: bytes for the frame, 16-byte aligned, `narrowcast.bound()` of them suffice.
    workspace: `workspace_bytes()` bytes, 16-byte aligned, not shared with a call in flight; None where 0 are needed.
    dtype: the value type, for arrays that do not say it.
    more: another frame of the same stream follows this one.
    max_ctas: at most this many CTAs, one an SM where they fit; 0: as many as the GPU runs at once.

    How long the frame is stays in its 64-bit word at byte 16: see `wire_bytes`.
    """
    source = _view(values, "values", stream, dtype=dtype)
    frame = _view(out, "out", stream, holds=_BYTES, writable=True)
    scratch = None if workspace is None else _view(workspace, "workspace", stream, holds=_BYTES, writable=True)
    refuse_overlap(values=source, out=frame, workspace=scratch)
    with _device_of(source, frame, *([scratch] if scratch else [])):
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
                _options(max_ctas),
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
    dtype: str | None = None,
    max_ctas: int = 0,
) -> None:
    """Decodes a frame that should hold exactly the values that `out` takes.

    frame: 16-byte aligned; may be longer than the frame.
    out: aligned to the value type; 16-byte alignment is fastest. dtype: its value type, where it does not say it.
    codec: the one that the frame was encoded with.
    status: one 32-bit word that the caller has set to zero. It becomes `Status.CORRUPT` when the frame is corrupt or
        is not of this codec and of the values that `out` takes; `out` is then unspecified. See `check`. Checksums are
        not verified.
    """
    source = _view(frame, "frame", stream, holds=_BYTES)
    target = _view(out, "out", stream, dtype=dtype, writable=True)
    word = _status_word(status, stream)
    refuse_overlap(frame=source, out=target, status=word)
    with _device_of(source, target, word):
        _check_status(
            library().ncast_cuda_decode(
                source.pointer,
                source.raw_bytes,
                target.dtype.number,
                codec_number(codec),
                target.elems,
                target.pointer,
                word.pointer,
                _options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_reduce(
    frame: Any,
    *,
    accumulator: Any,
    dtype: str,
    status: Any,
    op: str = "sum",
    stream: Any = None,
    codec: str = "window",
    max_ctas: int = 0,
) -> None:
    """Decodes a frame of `dtype` values and reduces it into an accumulator: a[i] = op(a[i], value[i]).

    accumulator: as many float32 (float64 for float64, `dtype` itself for integers) as the frame has values.
    op: "sum", "prod", "min" or "max". codec, status: as for `decode`.
    """
    source = _view(frame, "frame", stream, holds=_BYTES)
    kind = value_type(dtype)
    target = _view(accumulator, "accumulator", stream, holds=accumulator_type(kind), writable=True)
    word = _status_word(status, stream)
    refuse_overlap(frame=source, accumulator=target, status=word)
    with _device_of(source, target, word):
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
                _options(max_ctas),
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
    dtype: str | None = None,
    max_ctas: int = 0,
) -> None:
    """Encodes every block into its slot: block i at byte i * `slot_bytes()`, its length in bytes at lengths[i].

    slots: `slot_count()` slots, 16-byte aligned. lengths: as many 32-bit words.
    """
    source = _view(values, "values", stream, dtype=dtype)
    blocks, words = _slots(slots, lengths, source.dtype, source.elems, stream, writable=True)
    refuse_overlap(values=source, slots=blocks, lengths=words)
    with _device_of(source, blocks, words):
        _check_status(
            library().ncast_cuda_encode_slots(
                source.pointer,
                source.dtype.number,
                source.elems,
                codec_number(codec),
                blocks.pointer,
                words.pointer,
                _options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_slots(
    slots: Any, lengths: Any, *, out: Any, status: Any, stream: Any = None, dtype: str | None = None, max_ctas: int = 0
) -> None:
    """As `decode`, from slots."""
    target = _view(out, "out", stream, dtype=dtype, writable=True)
    blocks, words = _slots(slots, lengths, target.dtype, target.elems, stream)
    word = _status_word(status, stream)
    refuse_overlap(slots=blocks, lengths=words, out=target, status=word)
    with _device_of(blocks, words, target, word):
        _check_status(
            library().ncast_cuda_decode_slots(
                blocks.pointer,
                words.pointer,
                target.dtype.number,
                target.elems,
                target.pointer,
                word.pointer,
                _options(max_ctas),
                stream_handle(stream),
            )
        )


def decode_reduce_slots(
    slots: Any,
    lengths: Any,
    *,
    accumulator: Any,
    dtype: str,
    status: Any,
    op: str = "sum",
    stream: Any = None,
    max_ctas: int = 0,
) -> None:
    """As `decode_reduce`, from slots."""
    kind = value_type(dtype)
    target = _view(accumulator, "accumulator", stream, holds=accumulator_type(kind), writable=True)
    blocks, words = _slots(slots, lengths, kind, target.elems, stream)
    word = _status_word(status, stream)
    refuse_overlap(slots=blocks, lengths=words, accumulator=target, status=word)
    with _device_of(blocks, words, target, word):
        _check_status(
            library().ncast_cuda_decode_reduce_slots(
                blocks.pointer,
                words.pointer,
                kind.number,
                target.elems,
                reduction_number(op),
                target.pointer,
                word.pointer,
                _options(max_ctas),
                stream_handle(stream),
            )
        )


def wire_bytes(frame: Any, *, stream: Any = None) -> int:
    """Waits for the stream and reads how many bytes the frame takes."""
    return inspect(frame, stream=stream).wire_bytes


def inspect(frame: Any, *, stream: Any = None) -> FrameInfo:
    """Waits for the stream and reads the frame's header."""
    source = _view(frame, "frame", stream, holds=_BYTES)
    with _device_of(source):
        header = cuda_driver.copy_to_host(
            source.pointer, min(FRAME_HEADER_BYTES, source.raw_bytes), stream_handle(stream)
        )
    return _inspect_host(header)


def check(status: Any, *, stream: Any = None) -> None:
    """Waits for the stream and raises CorruptError when a decoder found corrupt data."""
    word = _status_word(status, stream)
    with _device_of(word):
        found = int(
            np.frombuffer(cuda_driver.copy_to_host(word.pointer, STATUS_BYTES, stream_handle(stream)), np.uint32)[0]
        )
    if found != Status.OK:
        raise error_of(found, "a decoder on the GPU met a frame that is corrupt or holds other values than asked for")


def accumulator_type(kind: ValueType) -> ValueType:
    """What values of a type are reduced in."""
    if not kind.is_float or kind.name == "float64":
        return kind
    return value_type("float32")


def _view(
    array: Any,
    name: str,
    stream: Any,
    *,
    dtype: str | None = None,
    holds: ValueType | None = None,
    writable: bool = False,
) -> View:
    found = view(array, name, dtype=dtype, holds=holds, writable=writable, stream=stream)
    if found.device != "cuda":
        raise ValueError(f"{name} is in host memory: use narrowcast.encode and decode, or copy it to the GPU first")
    return found


def _words(array: Any, name: str, count: int, stream: Any) -> View:
    """At least `count` writable 32-bit words: int32, uint32, or bytes."""
    words = _view(array, name, stream, dtype="uint32", writable=True)
    if words.elems < count:
        raise ValueError(f"{name} has {words.elems} words of 32 bits, not {count}")
    return words


def _status_word(status: Any, stream: Any) -> View:
    return _words(status, "status", 1, stream)


def _slots(
    slots: Any, lengths: Any, kind: ValueType, elems: int, stream: Any, *, writable: bool = False
) -> tuple[View, View]:
    blocks = _view(slots, "slots", stream, holds=_BYTES, writable=writable)
    count = slot_count(kind.name, elems)
    words = _words(lengths, "lengths", count, stream)
    if blocks.raw_bytes < count * slot_bytes(kind.name):
        raise ValueError(f"slots has {blocks.raw_bytes} bytes, {count} slots take {count * slot_bytes(kind.name)}")
    return blocks, words


def _device_of(*views: View) -> contextlib.AbstractContextManager[None]:
    """Makes the device of the arrays current; ValueError when they are on several."""
    ordinals = {
        cuda_driver.pointer_device(one.pointer) if one.device_id == UNKNOWN_DEVICE else one.device_id
        for one in views
        if one.pointer
    }
    if len(ordinals) > 1:
        raise ValueError(f"the arrays are on several GPUs: {', '.join(f'cuda:{i}' for i in sorted(ordinals))}")
    return cuda_driver.on_device(ordinals.pop()) if ordinals else contextlib.nullcontext()


def _options(max_ctas: int) -> Any:
    limit = as_unsigned(max_ctas, "max_ctas", 32)
    return byref(CudaOptionsC(limit)) if limit else None
