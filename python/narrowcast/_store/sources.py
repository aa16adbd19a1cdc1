"""What a store is built from: arrays, files and streams, as blocks of rows."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._files.npy_header import MAGIC, check_npy
from .._files.segment import StatedTypeError
from ..files import TensorFile
from ..types import DType, ValueType, value_type
from .gpu import gpu_view, is_on_gpu, rows_to_host, stream_of, wait_for
from .rows import Rows, bytes_of_rows, contiguous, plain, stored_type

BLOCK_BYTES = 128 << 20  # of rows that are encoded at a time
_SAMPLE_BYTES = 32 << 20  # at most, also of those of a stream from which the sample is taken
_SAMPLE_ROWS = 512  # or a tenth of the rows if these are more
_RUNS = 64  # places of the table from which a sample is taken

Bytes = npt.NDArray[np.uint8]


class Source:
    """Rows as bytes."""

    def __init__(
        self,
        kind: ValueType,
        row_shape: tuple[int, ...],
        rows: int | None,
        sample: Bytes,
        blocks: Iterator[Rows],
        device: int | None = None,
    ) -> None:
        self.kind, self.row_shape = kind, row_shape
        self.rows = rows  #: None if unknown
        self.sample = _rows_of(sample)  #: some of the rows, in host memory, to which the codec is fitted
        self.blocks = blocks  #: all rows, in order
        self.device = device  #: the ordinal of the GPU whose memory has the blocks; None: host memory


def _rows_of(content: Bytes) -> Rows:
    return Rows(content.ctypes.data, content.shape[1], content.shape[0], content)


def source_of(source: Any, dtype: DType | None, tensor: str | None) -> Source:
    """The rows of an array, a file, or an iterable of blocks. Raises TypeError and ValueError."""
    if isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source), dtype, tensor)
    if tensor is not None:
        raise ValueError("tensor names a tensor of a safetensors file, but the source is not a file")
    if is_on_gpu(source):
        return _from_gpu(source, dtype)
    if hasattr(source, "shape") or hasattr(source, "__dlpack__") or isinstance(source, (bytes, bytearray, memoryview)):
        return _from_array(source, dtype)
    if isinstance(source, Iterable):
        return _from_blocks(iter(source), dtype)
    raise TypeError(
        f"source is of type {type(source).__name__}: neither an array, nor a path, nor an iterable of blocks"
    )


def _from_array(array: Any, dtype: DType | None, name: str = "source") -> Source:
    if isinstance(array, (bytes, bytearray, memoryview)):
        array = np.asarray(memoryview(array))
        if dtype is not None and array.dtype == np.uint8:
            array = array.view(value_type(dtype).numpy)
    elif not hasattr(array, "shape"):
        array = np.from_dlpack(array)
    if not tuple(array.shape):
        raise ValueError(f"{name} is a single value, not rows")
    if 0 in array.shape[1:]:
        raise ValueError(f"{name} has shape {tuple(array.shape)}: rows must not be empty")
    rows = int(array.shape[0])

    def read(first: int, count: int) -> Bytes:
        return bytes_of_rows(contiguous(array[first : first + count]), name, dtype)[2]

    kind, shape, _ = bytes_of_rows(contiguous(array[:1]), name, dtype)
    return _random_access(kind, shape[1:], rows, read)


def _from_gpu(array: Any, dtype: DType | None) -> Source:
    """An array in GPU memory. Waits for the GPU, so that the array is complete."""
    found = gpu_view(contiguous(plain(array)), "source", stream_of(None, array), dtype=dtype, moved=True)
    stored_type(found.dtype, "source")
    if not found.shape:
        raise ValueError("source is a single value, not rows")
    row_bytes = math.prod(found.shape[1:]) * found.dtype.bytes
    if not row_bytes:
        raise ValueError(f"source has shape {found.shape}: rows must not be empty")
    wait_for(found.device_id)

    def part(first: int, count: int) -> Rows:
        return Rows(found.pointer + first * row_bytes, row_bytes, count, found.owner)

    def read(first: int, count: int) -> Bytes:
        return rows_to_host(part(first, count), found.device_id)

    source = _random_access(found.dtype, found.shape[1:], found.shape[0], read)
    step = max(1, BLOCK_BYTES // row_bytes)
    source.blocks = (part(first, min(step, found.shape[0] - first)) for first in range(0, found.shape[0], step))
    source.device = found.device_id
    return source


def _sample(rows: int, row_bytes: int, read: Callable[[int, int], Bytes]) -> Bytes:
    """Runs of adjacent rows at equal distances: a file is read in larger pieces than rows."""
    wanted = min(rows, max(_SAMPLE_ROWS, rows // 10), max(1, _SAMPLE_BYTES // row_bytes))
    runs = min(_RUNS, wanted)
    parts = []
    for run in range(runs):
        count = wanted * (run + 1) // runs - wanted * run // runs
        first = min(rows * run // runs, rows - count)
        # Copied: a slice of an array that is not contiguous exists only as long as it is used.
        parts.append(np.array(read(first, count)))
    return np.concatenate(parts) if parts else np.empty((0, row_bytes), np.uint8)


def _random_access(kind: ValueType, row_shape: tuple[int, ...], rows: int, read: Callable[[int, int], Bytes]) -> Source:
    """A source whose rows can be read in any order, by read(first, count)."""
    row_bytes = math.prod(row_shape) * kind.bytes
    sample = _sample(rows, row_bytes, read)
    step = max(1, BLOCK_BYTES // row_bytes)
    blocks = (_rows_of(read(first, min(step, rows - first))) for first in range(0, rows, step))
    return Source(kind, row_shape, rows, sample, blocks)


def _from_blocks(given: Iterator[Any], dtype: DType | None) -> Source:
    """A stream, whose sample is taken from its first blocks."""
    first: list[Bytes] = []
    form: tuple[ValueType, tuple[int, ...]] | None = None

    def convert(block: Any, number: int) -> Bytes:
        nonlocal form
        kind, shape, content = bytes_of_rows(contiguous(block), f"block {number} of source", dtype)
        if form is None:
            form = kind, shape[1:]
        if form != (kind, shape[1:]):
            raise ValueError(
                f"block {number} of source has {kind.name} rows of shape {shape[1:]}, "
                f"but those before have {form[0].name} rows of shape {form[1]}"
            )
        return content

    converted = (convert(block, number) for number, block in enumerate(given))
    held_bytes, is_complete = 0, False
    while held_bytes < _SAMPLE_BYTES and not is_complete:
        block = next(converted, None)
        is_complete = block is None
        if block is not None:
            first.append(block.copy())
            held_bytes += block.nbytes
    if form is None:
        raise ValueError("source has no blocks")
    together = np.concatenate(first)
    rows, row_bytes = together.shape
    sample = _sample(rows, row_bytes, lambda begin, count: together[begin : begin + count])
    blocks = map(_rows_of, itertools.chain(first, converted))
    return Source(form[0], form[1], rows if is_complete else None, sample, blocks)


def _from_file(path: Path, dtype: DType | None, tensor: str | None) -> Source:
    with path.open("rb") as file:
        is_npy = file.read(len(MAGIC)) == MAGIC
        if is_npy:
            check_npy(file, str(path))
    if is_npy:
        if tensor is not None:
            raise ValueError(f"{path} is an npy file, which has no tensor names")
        return _from_array(np.load(path, mmap_mode="r", allow_pickle=False), dtype, str(path))
    tensors = TensorFile(path)  # closed with the last reference
    names = list(tensors)
    if tensor is None:
        if len(names) != 1:
            more = ", ..." if len(names) > 8 else ""
            raise ValueError(f"{path} has {len(names)} tensors: name one ({', '.join(names[:8])}{more})")
        tensor = names[0]
    if tensor not in tensors:
        raise ValueError(f"{path} has no tensor {tensor!r}")
    chosen = tensors[tensor]
    if dtype is not None:
        raise StatedTypeError(f"{path} is a safetensors file, whose header states the types of its tensors")
    if not chosen.shape:
        raise ValueError(f"tensor {tensor!r} is a single value, not rows")

    def read(first: int, count: int) -> Bytes:
        return bytes_of_rows(chosen[first : first + count], f"tensor {tensor!r}", chosen.dtype)[2]

    kind = stored_type(value_type(chosen.dtype, moved=True), f"tensor {tensor!r}")
    return _random_access(kind, chosen.shape[1:], chosen.shape[0], read)
