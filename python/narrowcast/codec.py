"""Encode values in host memory into frames, and back.

A frame holds everything that decoding needs. Values are anything with memory: NumPy arrays (ml_dtypes included), torch,
JAX and other tensors by DLPack, bytes and buffers. `narrowcast.cuda` does the same in GPU memory.
"""

from __future__ import annotations

from ctypes import byref, c_size_t
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays.view import View, byte_array, host_view, refuse_overlap
from ._native.library import check, library
from ._native.structures import CHECKSUM, MORE, REFERENCE, BlockStatsC, FrameInfoC
from .errors import CorruptError
from .types import BY_NUMBER, CODEC_NAMES, codec_number, value_type

__all__ = ["BlockStats", "FrameInfo", "bound", "decode", "encode", "inspect", "inspect_blocks"]


def __dir__() -> list[str]:
    return sorted(__all__)


FRAME_HEADER_BYTES = 64


@dataclass(frozen=True)
class FrameInfo:
    """What the header of a frame says."""

    elems: int  #: values that the frame decodes to
    raw_bytes: int  #: their bytes
    wire_bytes: int  #: bytes of the whole frame, header and padding included
    codec: str  #: "window" or "raw"
    dtype: str  #: name of the value type
    blocks: int  #: blocks in the frame; 0 when the codec is raw
    block_elems: int  #: values in every block but the last; 0 when the codec is raw
    checksum: int | None  #: XXH3 of the frame, None when it carries none
    more: bool  #: another frame of the same stream follows
    version: int  #: of the format

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None when there are no values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


@dataclass(frozen=True)
class BlockStats:
    """How the blocks of a frame were coded. A raw frame has none."""

    blocks_of_width: dict[int, int]  #: bits of a code -> blocks; 0: blocks stored raw; widths not used are left out
    escapes: int  #: values kept out of line
    far_escapes: int  #: escapes that took a whole exponent


def bound(dtype: str, elems: int, *, codec: str = "window") -> int:
    """The most bytes that a frame of `elems` values of `dtype` can take.

    ValueError when the value type or codec is not known, or one frame cannot hold that many values (2^35 bytes).
    """
    kind, number = value_type(dtype), codec_number(codec)
    found = int(library().ncast_bound(kind.number, number, elems)) if 0 <= elems < 1 << 64 else 0
    if not found:
        raise ValueError(f"elems is {elems}: one frame holds 0 to 2^35 bytes of values")
    return found


def encode(
    values: Any,
    *,
    codec: str = "window",
    dtype: str | None = None,
    checksum: bool = False,
    more: bool = False,
    reference: bool = False,
    out: Any = None,
) -> npt.NDArray[np.uint8]:
    """Encodes values in host memory into one frame.

    values: a contiguous array of any shape and alignment; the frame keeps the values, not the shape.
    codec: "window" (lossless; what it does not shrink travels raw) or "raw".
    dtype: the value type ("bfloat16", ...), for arrays that do not say it, such as bytes or uint16 bits.
    checksum: put an XXH3 of the frame into its header; decode then finds every change.
    more: another frame of the same stream follows this one.
    reference: use the scalar reference path; the bytes are the same.
    out: writable host memory for the frame, of any alignment, that does not overlap `values`; `bound()` bytes always
        suffice.

    Returns the frame, 1-D uint8: a new array, or the part of `out` that it fills.
    Raises TypeError or ValueError for arguments that do not fit, TooSmallError when `out` cannot hold the frame.
    """
    source = host_view(values, "values", dtype=dtype)
    flags = CHECKSUM * checksum | MORE * more | REFERENCE * reference
    if out is None:
        capacity = bound(source.dtype.name, source.elems, codec=codec)
        frame: npt.NDArray[np.uint8] = np.empty(capacity, np.uint8)
        wire_bytes = encode_into(source, codec_number(codec), flags, frame.ctypes.data, capacity)
        # Gives the rest back without a copy; nobody else has a reference yet.
        frame.resize(wire_bytes, refcheck=False)
        return frame
    target = host_view(out, "out", holds=value_type("uint8"), writable=True)
    refuse_overlap(values=source, out=target)
    wire_bytes = encode_into(source, codec_number(codec), flags, target.pointer, target.raw_bytes)
    return byte_array(target.pointer, wire_bytes, target.owner)


def encode_into(source: View, codec: int, flags: int, frame: int, capacity: int) -> int:
    """ncast_encode: encodes into memory at `frame` and returns the bytes written."""
    wire_bytes = c_size_t()
    check(
        library().ncast_encode(
            source.pointer, source.dtype.number, source.elems, codec, flags, frame, capacity, byref(wire_bytes)
        )
    )
    return wire_bytes.value


def decode(frame: Any, *, out: Any = None, reference: bool = False) -> Any:
    """Decodes one frame in host memory, which may be hostile: the result is values or an error.

    frame: contiguous bytes of any alignment; bytes after the frame are not looked at.
    out: writable host memory for exactly the frame's values: an array of its value type, of bytes, or of unsigned
        integers of the value's width. It does not overlap `frame`.
    reference: use the scalar reference path; the values are the same.

    Returns `out`, or a new 1-D NumPy array. NumPy has no bfloat16 and no fp8: they come as the bits, in uint16 and
    uint8 (`inspect(frame).dtype` has the name; `.view(ml_dtypes.bfloat16)` gives them their type).
    Raises CorruptError when the frame does not follow the format or fails its checksum; `out` is then unspecified.
    """
    source = host_view(frame, "frame", holds=value_type("uint8"))
    info = inspect_memory(source.pointer, source.raw_bytes)
    if info.wire_bytes > source.raw_bytes:
        # Before memory for as many values as a hostile header claims.
        raise CorruptError(f"the frame has {info.wire_bytes} bytes, but only {source.raw_bytes} are there")
    kind = value_type(info.dtype)
    result = out
    if out is None:
        result = np.empty(info.elems, kind.numpy)
    target = host_view(result, "out", holds=kind, as_bits=True, writable=True)
    refuse_overlap(frame=source, out=target)
    if target.elems != info.elems:
        raise ValueError(f"out holds {target.elems} {kind.name} values, the frame {info.elems}")
    decode_into(source.pointer, source.raw_bytes, REFERENCE * reference, target.pointer, target.raw_bytes)
    return result


def decode_into(frame: int, frame_bytes: int, flags: int, values: int, value_capacity: int) -> None:
    """ncast_decode: decodes the frame in memory at `frame` to memory at `values`."""
    check(library().ncast_decode(frame, frame_bytes, flags, values, value_capacity, None))


def inspect(frame: Any) -> FrameInfo:
    """Reads the header of a frame in host memory: the first 64 bytes suffice. Raises CorruptError."""
    source = host_view(frame, "frame", holds=value_type("uint8"))
    return inspect_memory(source.pointer, source.raw_bytes)


def inspect_memory(frame: int, frame_bytes: int) -> FrameInfo:
    """ncast_inspect: the header at `frame`."""
    info = FrameInfoC()
    check(library().ncast_inspect(frame, frame_bytes, byref(info)))
    dtype = BY_NUMBER.get(info.dtype)
    return FrameInfo(
        elems=info.elems,
        raw_bytes=info.raw_bytes,
        wire_bytes=info.wire_bytes,
        codec=CODEC_NAMES.get(info.codec, f"codec {info.codec}"),
        dtype=dtype.name if dtype else f"type {info.dtype}",
        blocks=info.blocks,
        block_elems=info.block_elems,
        checksum=info.checksum if info.flags & CHECKSUM else None,
        more=bool(info.flags & MORE),
        version=info.version,
    )


def inspect_blocks(frame: Any) -> BlockStats:
    """Walks a whole frame in host memory and counts how its blocks were coded. Raises CorruptError."""
    source = host_view(frame, "frame", holds=value_type("uint8"))
    return inspect_blocks_memory(source.pointer, source.raw_bytes)


def inspect_blocks_memory(frame: int, frame_bytes: int) -> BlockStats:
    """ncast_inspect_blocks: how the blocks of the frame at `frame` were coded."""
    stats = BlockStatsC()
    check(library().ncast_inspect_blocks(frame, frame_bytes, byref(stats)))
    widths = {width: int(blocks) for width, blocks in enumerate(stats.blocks_of_width) if blocks}
    return BlockStats(widths, stats.escapes, stats.far_escapes)
