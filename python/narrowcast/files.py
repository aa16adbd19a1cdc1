"""Encode and decode files on several threads, in bounded memory.

An encoded file is a stream of frames (docs/format/file.md). The decoded file is their values end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import codec as _codec
from ._files.atomic import write_all
from ._files.containers import segments
from ._files.encoder import Encoded, Encoder
from ._files.frames import Frame, FrameReader, located
from ._files.opening import FileArgument, created, opened, opened_source
from ._files.packing import Batch, batches
from ._files.pipeline import Buffers, Pipeline
from ._files.segment import Segment, StatedTypeError, UnknownValuesError
from ._native.codecs import codec_number
from .codec import FRAME_HEADER_BYTES, BlockStats, FrameInfo
from .errors import CorruptError

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


#: The maximum raw bytes of a frame. Small, so that the frames in work stay in the caches of the processor.
FRAME_RAW_BYTES = 4 << 20

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


def encode_file(
    source: FileArgument,
    target: FileArgument,
    *,
    codec: str = "window",
    dtype: str | None = None,
    checksum: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FileTotals:
    """Encodes a safetensors, npy or plain file.

    source: a path, or a binary file object. If it cannot seek, it is first copied to a temporary file.
    target: a path, which is replaced only after everything has been written, or a binary file object.
    codec: for tensors; headers are stored raw. Small tensors share frames with their neighbours.
    dtype: the value type of a plain file, such as bfloat16, or uint8 for plain bytes; also of an npy file whose header
        does not state it, because NumPy stores bfloat16 as void or uint16.
    checksum: put a checksum into every frame.
    threads: how many encode at the same time; by default the number of CPUs, up to 16.
    progress: called with the raw bytes that were encoded since the last call.

    Raises UnknownValuesError for a plain file without dtype, StatedTypeError if dtype contradicts the header,
    CorruptError for a malformed header, and OSError.
    """
    codec_number(codec)
    frames = wire_bytes = raw_bytes = 0
    with opened_source(source) as read, created(target, read.file) as (out, out_name):
        parts = segments(read.file, read.name, dtype)
        pipeline: Pipeline[Batch, Encoded] = Pipeline(
            Encoder(read, codec, checksum), lambda batch: 2 * batch.raw_bytes, threads
        )
        for encoded in pipeline.results(batches(parts, FRAME_RAW_BYTES)):
            write_all(out, encoded.frames.data, out_name)
            frames += encoded.frame_count
            raw_bytes += encoded.raw_bytes
            wire_bytes += encoded.frames.size
            if progress:
                progress(encoded.raw_bytes)
        read.check_unchanged()
    return FileTotals(frames, raw_bytes, wire_bytes)


def decode_file(
    source: FileArgument, target: FileArgument, *, threads: int | None = None, progress: Progress | None = None
) -> FileTotals:
    """Decodes an encoded file.

    source: a path, or a binary file object, read from its position to its end.
    target: a path, which is replaced only after everything has been written, or a binary file object,
        which may have received the first frames when an error is raised.
    threads: how many decode at the same time; by default the number of CPUs, up to 16.
    progress: called with the wire bytes of every frame.

    Raises CorruptError, which names the frame and the byte where it begins, and OSError.
    """
    frames = raw_bytes = wire_bytes = 0
    with opened(source) as (file, name), created(target, file) as (out, out_name):
        reader = FrameReader(file, name)

        def work(frame: Frame, buffers: Buffers) -> tuple[Frame, npt.NDArray[np.uint8]]:
            return frame, reader.decode(frame, buffers)

        pipeline = Pipeline(work, lambda frame: frame.memory_bytes, threads)
        for frame, values in pipeline.results(reader.frames()):
            write_all(out, values.data, out_name)
            frames += 1
            raw_bytes += frame.info.raw_bytes
            wire_bytes += frame.info.wire_bytes
            if progress:
                progress(frame.info.wire_bytes)
    return FileTotals(frames, raw_bytes, wire_bytes)


def frames_of(source: FileArgument, *, threads: int | None = None) -> Iterator[FileFrame]:
    """The frames of an encoded file, in order. Verifies checksums: `fault` describes the error of a frame.

    source, threads: as for `decode_file`. Raises CorruptError where a frame has no valid header or is truncated.
    """
    with opened(source) as (file, name):
        reader = FrameReader(file, name)

        def work(frame: Frame, buffers: Buffers) -> FileFrame:
            stats = fault = None
            content = reader.read(frame, buffers)
            try:
                with located(name, frame.number, frame.offset):
                    stats = _codec.inspect_blocks_memory(content.ctypes.data, content.size)
            except CorruptError as error:
                fault = str(error)
            return FileFrame(frame.number, frame.offset, frame.info, stats, fault)

        pipeline = Pipeline(work, lambda frame: frame.info.wire_bytes, threads)
        yield from pipeline.results(reader.frames())


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
