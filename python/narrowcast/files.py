"""Encode and decode files on several threads, in bounded memory.

An encoded file is a stream of frames (docs/format/file.md). The decoded file is their values end to end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from . import codec as _codec
from ._files.atomic import write_all
from ._files.containers import segments
from ._files.encoder import Encoded, Encoder, Readable
from ._files.frames import Frame, FrameReader, located
from ._files.opening import FileArgument, created, opened, opened_source
from ._files.packing import Batch, batches
from ._files.pipeline import WRITER_THREADS, Buffers, Pipeline
from ._files.safetensors_header import segments_of
from ._files.segment import Segment, StatedTypeError, UnknownValuesError
from ._files.tensor_file import Tensor, TensorFile
from ._files.tensor_names import TensorNames
from ._files.tensor_source import TensorSource
from ._native.codecs import file_codecs
from ._native.frames import FRAME_HEADER_BYTES, BlockStats, FrameInfo, inspect_blocks_memory
from .errors import CorruptError

__all__ = [
    "FileFrame",
    "FileTotals",
    "Segment",
    "StatedTypeError",
    "Tensor",
    "TensorFile",
    "UnknownValuesError",
    "decode_file",
    "encode_file",
    "frames_of",
    "load",
    "load_file",
    "open",
    "save",
    "save_file",
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
    tensors: tuple[str, ...] = ()  #: those of which it contains bytes; none if the file is not safetensors


def encode_file(
    source: FileArgument,
    target: FileArgument,
    *,
    codec: str = "window",
    dtype: str | None = None,
    checksum: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
    replace: bool = True,
) -> FileTotals:
    """Encodes a safetensors, npy or plain file.

    source: a path, or a binary file object. If it cannot seek, it is first copied to a temporary file.
    target: a path, which is replaced only after everything has been written, or a binary file object.
    codec: for tensors; headers are stored raw. Small tensors share frames with their neighbours. "auto" tries every
        exact codec on each frame and keeps the shortest.
    dtype: the value type of a plain file, such as bfloat16, or uint8 for plain bytes; also of an npy file whose header
        does not state it, because NumPy stores bfloat16 as void or uint16.
    checksum: put a checksum into every frame.
    threads: how many encode at the same time; by default the number of CPUs, up to 4.
    progress: called with the raw bytes that were encoded since the last call.
    replace: False: raise FileExistsError if the target is a path that exists.

    Raises UnknownValuesError for a plain file without dtype, StatedTypeError if dtype contradicts the header,
    CorruptError for a malformed header, and OSError.
    """
    file_codecs(codec)
    with opened_source(source) as read, created(target, read.file, replace) as (out, out_name):
        parts = segments(read.file, read.name, dtype)
        totals = _encode(read, parts, out, out_name, codec, checksum, threads, progress)
        read.check_unchanged()
    return totals


def _encode(
    source: Readable,
    parts: list[Segment],
    out: BinaryIO,
    out_name: str,
    codec: str,
    checksum: bool,
    threads: int | None,
    progress: Progress | None = None,
) -> FileTotals:
    frames = wire_bytes = raw_bytes = 0
    encoder = Encoder(source, codec, checksum)
    pipeline: Pipeline[Batch, Encoded] = Pipeline(encoder, lambda batch: 2 * batch.raw_bytes, threads, WRITER_THREADS)
    for encoded in pipeline.results(batches(parts, FRAME_RAW_BYTES)):
        write_all(out, encoded.frames.data, out_name)
        frames += encoded.frame_count
        raw_bytes += encoded.raw_bytes
        wire_bytes += encoded.frames.size
        if progress:
            progress(encoded.raw_bytes)
    return FileTotals(frames, raw_bytes, wire_bytes)


def decode_file(
    source: FileArgument,
    target: FileArgument,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    replace: bool = True,
) -> FileTotals:
    """Decodes an encoded file.

    source: a path, or a binary file object, read from its position to its end.
    target: a path, which is replaced only after everything has been written, or a binary file object,
        which may have received the first frames when an error is raised.
    threads: how many decode at the same time; by default the number of CPUs, up to 4.
    progress: called with the wire bytes of every frame.
    replace: as for `encode_file`.

    Raises CorruptError, which names the frame and the byte where it begins, and OSError.
    """
    frames = raw_bytes = wire_bytes = 0
    with opened(source) as (file, name), created(target, file, replace) as (out, out_name):
        reader = FrameReader(file, name)

        def work(frame: Frame, buffers: Buffers) -> tuple[Frame, npt.NDArray[np.uint8]]:
            return frame, reader.decode(frame, buffers)

        pipeline = Pipeline(work, lambda frame: frame.memory_bytes, threads, WRITER_THREADS)
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

    source: as for `decode_file`. threads: by default the number of CPUs, up to 16.
    Raises CorruptError where a frame has no valid header or is truncated.
    """
    with opened(source) as (file, name):
        reader = FrameReader(file, name)

        def work(piece: tuple[Frame, tuple[str, ...]], buffers: Buffers) -> FileFrame:
            frame, tensors = piece
            stats = fault = None
            content = reader.read(frame, buffers)
            try:
                with located(name, frame.number, frame.offset):
                    stats = inspect_blocks_memory(content.ctypes.data, content.size)
            except CorruptError as error:
                fault = str(error)
            return FileFrame(frame.number, frame.offset, frame.info, stats, fault, tensors)

        pipeline = Pipeline(work, lambda piece: piece[0].info.wire_bytes, threads)
        yield from pipeline.results(TensorNames(reader).frames())


def open(source: FileArgument) -> TensorFile:
    """Opens an encoded safetensors file for random access: its tensors by name, with shape and type.

    Reads the headers of the frames; values are decoded when they are used.

        with narrowcast.files.open("model.ncast") as model:
            weights = model["layers.0.weight"]    # weights.shape, weights.dtype
            values, rows = weights.read(), weights[10:20]

    source: a path, or a binary file object. A safetensors file that is not encoded works too.
    Raises CorruptError if it is neither, or malformed, and OSError.
    """
    return TensorFile(source)


def load_file(
    source: FileArgument, *, names: Iterable[str] | None = None, threads: int | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The tensors of an encoded safetensors file as NumPy arrays, by name, as `safetensors.numpy.load_file`.

    source: as for `open`. names: the tensors to load; all by default.
    threads: by default the number of CPUs, up to 16.

    NumPy has no bfloat16 and no fp8: arrays have the types of ml_dtypes, or, if it is not installed, the bits as uint16
    and uint8.
    Raises KeyError for a name that the file does not have, ValueError for types that NumPy cannot hold, CorruptError
    and OSError.
    """
    with TensorFile(source) as file:
        return file.load(names, threads=threads)


def save_file(
    tensors: Mapping[str, Any],
    target: FileArgument,
    metadata: Mapping[str, str] | None = None,
    *,
    codec: str = "window",
    checksum: bool = True,
    threads: int | None = None,
) -> FileTotals:
    """Encodes tensors to a file that decodes to the safetensors file of the tensors.

    tensors: arrays of NumPy (ml_dtypes included), torch or JAX by name. Arrays that are not contiguous or on a GPU are
        copied.
    metadata: of the safetensors file. target, codec, checksum, threads: as for `encode_file`.

    Raises TypeError for names and types that safetensors does not have, and OSError.
    """
    file_codecs(codec)
    source = TensorSource(tensors, metadata)
    parts = segments_of(source.header, source.size_bytes)
    with created(target, None) as (out, out_name):
        return _encode(source, parts, out, out_name, codec, checksum, threads)


def load(data: Any, *, names: Iterable[str] | None = None, threads: int | None = None) -> dict[str, npt.NDArray[Any]]:
    """As `load_file`, for the content of a file, encoded or not: bytes, or another object with a buffer."""
    return load_file(io.BytesIO(data), names=names, threads=threads)


def save(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    codec: str = "window",
    checksum: bool = True,
    threads: int | None = None,
) -> bytes:
    """As `save_file`. Returns the content of the file."""
    content = io.BytesIO()
    save_file(tensors, content, metadata, codec=codec, checksum=checksum, threads=threads)
    return content.getvalue()


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
