"""Encode and decode files in bounded memory.

An encoded file is a stream of frames (docs/format/file.md). The decoded file is their values end to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from . import codec as _codec
from ._arrays.view import View
from ._files.atomic import write_all
from ._files.containers import segments
from ._files.opening import FileArgument, Source, bytes_left, created, opened, opened_source
from ._files.packing import pack
from ._files.segment import BYTES, Segment, StatedTypeError, UnknownValuesError
from ._native.codecs import codec_number
from ._native.structures import CHECKSUM, MORE
from .codec import FRAME_HEADER_BYTES, BlockStats, FrameInfo
from .errors import CorruptError, NarrowcastError, SystemFailure, error_of
from .types import ValueType

__all__ = [
    "FileFrame",
    "FileTotals",
    "Segment",
    "StatedTypeError",
    "UnknownValuesError",
    "decode_file",
    "encode_file",
    "frames_of",
]


def __dir__() -> list[str]:
    return sorted(__all__)


#: The maximum raw bytes of a frame. Encoding and decoding hold one frame and its values in memory.
FRAME_RAW_BYTES = 64 << 20
_HEADER_SEGMENT_CODEC = "raw"

Progress = Callable[[int], None]


@dataclass(frozen=True)
class FileTotals:
    """The sizes of a file that was encoded or decoded."""

    frames: int
    raw_bytes: int
    wire_bytes: int


@dataclass(frozen=True)
class FileFrame:
    """A frame of an encoded file."""

    number: int  #: from 0
    offset: int  #: byte of the file where the frame begins
    info: FrameInfo
    blocks: BlockStats | None  #: None if the frame is corrupt
    fault: str | None = None  #: what is wrong with a corrupt frame, such as its checksum


def pieces(parts: list[Segment]) -> Iterator[Segment]:
    """Splits segments into pieces of at most FRAME_RAW_BYTES, between values."""
    for part in parts:
        for start in range(0, part.raw_bytes, FRAME_RAW_BYTES):
            length = min(FRAME_RAW_BYTES, part.raw_bytes - start)
            yield part._replace(offset=part.offset + start, raw_bytes=length)


class Reader:
    """Reads pieces of a file and encodes them. The next call overwrites the buffers of both results."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._raw: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._frame: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def read(self, piece: Segment) -> npt.NDArray[np.uint8]:
        """The bytes of a piece, valid until the next read."""
        if self._raw.size < piece.raw_bytes:
            self._raw = np.empty(piece.raw_bytes, np.uint8)
        raw = self._raw[: piece.raw_bytes]
        self._source.read(piece.offset, raw.data)
        return raw

    def encode(self, raw: npt.NDArray[np.uint8], dtype: ValueType, codec: str, flags: int) -> npt.NDArray[np.uint8]:
        """The frame of bytes that hold values of `dtype`, valid until the next encode."""
        elems = raw.size // dtype.bytes
        most = _codec.bound(dtype.name, elems, codec=codec)
        if self._frame.size < most:
            self._frame = np.empty(most, np.uint8)
        source = View(raw.ctypes.data, "cpu", 0, dtype, elems, False, (elems,), raw)
        length = _codec.encode_into(source, codec_number(codec), flags, self._frame.ctypes.data, self._frame.size)
        return self._frame[:length]


def encode_file(
    source: FileArgument,
    target: FileArgument,
    *,
    codec: str = "window",
    dtype: str | None = None,
    checksum: bool = True,
    progress: Progress | None = None,
) -> FileTotals:
    """Encodes a safetensors, npy or plain file.

    source: a path, or a binary file object. If it cannot seek, it is first copied to a temporary file.
    target: a path, which is replaced only after everything has been written, or a binary file object.
    codec: for tensors; headers are stored raw. Small tensors share frames with their neighbours.
    dtype: the value type of a plain file, such as bfloat16, or uint8 for plain bytes; also of an npy file whose header
        does not state it, because NumPy stores bfloat16 as void or uint16.
    checksum: put a checksum into every frame.
    progress: called with the raw bytes of every frame.

    Raises UnknownValuesError for a plain file without dtype, StatedTypeError if dtype contradicts the header,
    CorruptError for a malformed header, and OSError.
    """
    codec_number(codec)
    frames = wire_bytes = 0
    with opened_source(source) as read, created(target, read.file) as (out, out_name):
        parts = segments(read.file, read.name, dtype)
        reader = Reader(read)
        # An empty file is one frame of no values.
        remaining = pack(pieces(parts), FRAME_RAW_BYTES) or [Segment(0, 0, BYTES, None)]
        for index, piece in enumerate(remaining):
            flags = CHECKSUM * checksum | MORE * (index + 1 < len(remaining))
            own_codec = codec if piece.tensor is not None else _HEADER_SEGMENT_CODEC
            frame = reader.encode(reader.read(piece), piece.dtype, own_codec, flags)
            write_all(out, frame.data, out_name)
            frames += 1
            wire_bytes += frame.size
            if progress:
                progress(piece.raw_bytes)
        read.check_unchanged()
    return FileTotals(frames, sum(part.raw_bytes for part in parts), wire_bytes)


def decode_file(source: FileArgument, target: FileArgument, *, progress: Progress | None = None) -> FileTotals:
    """Decodes an encoded file.

    source: a path, or a binary file object, read from its position to its end.
    target: a path, which is replaced only after everything has been written, or a binary file object,
        which may have received the first frames when an error is raised.
    progress: called with the wire bytes of every frame.

    Raises CorruptError, which names the frame and the byte where it begins, and OSError.
    """
    frames = raw_bytes = wire_bytes = 0
    values: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    with opened(source) as (file, name), created(target, file) as (out, out_name):
        for number, offset, info, frame in _frames(file, name):
            with _located(name, number, offset):
                if values.size < info.raw_bytes:
                    values = np.empty(0, np.uint8)  # frees the old ones first
                    values = np.empty(info.raw_bytes, np.uint8)
                _codec.decode_into(frame.ctypes.data, frame.size, 0, values.ctypes.data, info.raw_bytes)
            write_all(out, values[: info.raw_bytes].data, out_name)
            frames += 1
            raw_bytes += info.raw_bytes
            wire_bytes += info.wire_bytes
            if progress:
                progress(info.wire_bytes)
    return FileTotals(frames, raw_bytes, wire_bytes)


def frames_of(source: FileArgument) -> Iterator[FileFrame]:
    """The frames of an encoded file, in order. Verifies checksums: `fault` describes the error of a frame.

    source: as for `decode_file`. Raises CorruptError where a frame has no valid header or is truncated.
    """
    with opened(source) as (file, name):
        for number, offset, info, frame in _frames(file, name):
            stats = fault = None
            try:
                with _located(name, number, offset):
                    stats = _codec.inspect_blocks_memory(frame.ctypes.data, frame.size)
            except CorruptError as error:
                fault = str(error)
            yield FileFrame(number, offset, info, stats, fault)


def is_encoded(source: FileArgument) -> bool:
    """Whether a seekable file begins with the header of a frame. An open file is left at byte 0."""
    with opened(source) as (file, _):
        header = file.read(FRAME_HEADER_BYTES)
        file.seek(0)
    try:
        _codec.inspect(header)
    except CorruptError:
        return False
    return True


def _frames(file: BinaryIO, name: str) -> Iterator[tuple[int, int, FrameInfo, npt.NDArray[np.uint8]]]:
    """Number, offset, header and bytes of every frame; the bytes are valid until the next one."""
    total = bytes_left(file)
    buffer: npt.NDArray[np.uint8] = np.empty(FRAME_HEADER_BYTES, np.uint8)
    number = offset = 0
    while True:
        with _located(name, number, offset):
            header = _read_into(file, buffer[:FRAME_HEADER_BYTES])
            if header < FRAME_HEADER_BYTES:
                raise CorruptError("the file ends where a frame should begin" if not header else _truncated(header, 64))
            info = _codec.inspect_memory(buffer.ctypes.data, header)
            if total is not None and info.wire_bytes > total - offset:
                raise CorruptError(_truncated(total - offset, info.wire_bytes))
            filled = FRAME_HEADER_BYTES
            while filled < info.wire_bytes:
                # The length of a pipe is unknown: the buffer grows with the data, whatever the header claims.
                needed = info.wire_bytes if total is not None else min(info.wire_bytes, 2 * filled + FRAME_RAW_BYTES)
                if buffer.size < needed:
                    grown = np.empty(needed, np.uint8)
                    grown[:filled] = buffer[:filled]
                    buffer = grown
                part = buffer[filled : min(buffer.size, info.wire_bytes)]
                count = _read_into(file, part)
                filled += count
                if count < part.size:
                    raise CorruptError(_truncated(filled, info.wire_bytes))
        yield number, offset, info, buffer[: info.wire_bytes]
        offset += info.wire_bytes
        number += 1
        if not info.more:
            break
    # Again, because the file may have grown.
    rest = bytes_left(file)
    if rest or (rest is None and file.read(1)):
        many = "more bytes follow" if rest is None else f"{rest} bytes follow"
        raise CorruptError(f"{name}: {many} frame {number - 1}, the last, at byte {offset}")


def _truncated(present: int, needed: int) -> str:
    return f"the file is truncated: it has {present} of {needed} bytes"


@contextlib.contextmanager
def _located(name: str, number: int, offset: int) -> Iterator[None]:
    """Adds the file and the frame to the message of an error."""
    where = f"{name}: frame {number} at byte {offset}"
    try:
        yield
    except NarrowcastError as error:
        # Drops the name of the C function.
        function, _, message = str(error).partition(": ")
        raise error_of(error.status, f"{where}: {message if function.startswith('ncast_') else error}") from None
    except MemoryError:
        raise SystemFailure(f"{where}: not enough memory for its values") from None


def _read_into(file: BinaryIO, buffer: npt.NDArray[np.uint8]) -> int:
    """Reads until the buffer is full or the file ends. Returns the number of bytes."""
    rest = buffer.data
    filled = 0
    while filled < len(rest):
        count = file.readinto(rest[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled
