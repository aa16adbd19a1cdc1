"""Encode and decode many arrays in GPU memory at once.

    frames = [torch.empty(narrowcast.bound(t.dtype, t.numel()), dtype=torch.uint8, device="cuda") for t in tensors]
    encoding = EncodeBatch(tensors, outs=frames)
    encoding.encode()
    sizes = encoding.wire_bytes()  # of the frames; waits for the GPU

    decoding = DecodeBatch(frames, outs=[torch.empty_like(t) for t in tensors])
    decoding.decode()

A batch takes two kernels, however many arrays there are. `EncodeBatch` and `DecodeBatch` copy the addresses and sizes
of their arrays to the GPU when they are created. After that, calls are asynchronous on the caller's stream, allocate
nothing, and can be captured in a CUDA graph, as those of `narrowcast.cuda`; that module describes arrays and streams.
Frames have the same bytes as those of `narrowcast.encode`.

A batch has one workspace and one set of results, so its calls must not overlap: run them on one stream, or order the
streams with events. Different batches may run at the same time.

The arrays of a batch may differ in value type and size. All of them are on one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._arrays.streams import stream_handle
from ._arrays.view import View, reject_batch_overlap
from ._native import cuda_driver
from ._native.codecs import codec_number
from ._native.cuda_driver import DeviceBuffer
from ._native.library import check as _check_status
from ._native.library import library
from ._native.structures import MORE
from .cuda import device_of, gpu_view, launch_options
from .errors import Status, error_of
from .types import DType, value_type

__all__ = ["DecodeBatch", "EncodeBatch"]


def __dir__() -> list[str]:
    return sorted(__all__)


_BYTES = value_type("uint8")
_TEXTS = {
    Status.CORRUPT: "the frame is corrupt, or has another codec",
    Status.TOO_SMALL: "the values do not fit into the array",
    Status.INVALID_ARGUMENT: "the array is not aligned to the value type of the frame",
}


class _Batch:
    """Tables in device memory with a row of 8 bytes for each array, and the results."""

    def __init__(self, views: Sequence[View], count: int, columns: Sequence[Sequence[int]], workspace: int) -> None:
        self._views = list(views)  # keeps the arrays alive
        # All arrays are on one device, which need not be asked for in every call.
        self._one_view = [one for one in views if one.pointer][:1]
        self._count = count
        if count == 0:
            return
        with device_of(*views):
            table = np.array([[value % 2**64 for value in column] for column in columns], np.uint64)
            self._table = DeviceBuffer(table.nbytes).write(table)
            self._sizes = DeviceBuffer(8 * count).fill(0)
            self._statuses = DeviceBuffer(4 * count).fill(0)
            self._workspace = DeviceBuffer(workspace)
            cuda_driver.call("cuCtxSynchronize")

    def _column(self, number: int) -> int:
        return self._table.pointer + 8 * number * self._count

    def _results(self, name: str, stream: Any) -> list[int]:
        """Waits for the stream and reads the sizes. Raises the error of the first array that has one."""
        if self._count == 0:
            return []
        with device_of(*self._one_view):
            handle = stream_handle(stream)
            sizes = np.frombuffer(cuda_driver.copy_to_host(self._sizes.pointer, 8 * self._count, handle), np.uint64)
            statuses = np.frombuffer(
                cuda_driver.copy_to_host(self._statuses.pointer, 4 * self._count, handle), np.uint32
            )
        for number in np.flatnonzero(statuses):
            status = int(statuses[number])
            raise error_of(status, f"{name}[{number}]: {_TEXTS[Status(status)]}")
        return [int(size) for size in sizes]


class EncodeBatch(_Batch):
    """Encodes arrays into one frame each.

    arrays: as `values` of `cuda.encode`.
    outs: memory for the frames, 16-byte aligned. `narrowcast.bound()` bytes suffice for each.
    dtype: the value type of all arrays; None: each has its own.
    more: set the flag MORE in all frames.
    max_ctas: the maximum number of CTAs; 0: as many as the GPU runs at once.

    Raises TooSmallError if a frame may not fit into its memory, and what `cuda.encode` raises.
    """

    def __init__(
        self,
        arrays: Iterable[Any],
        *,
        outs: Iterable[Any],
        codec: str = "window",
        dtype: DType | None = None,
        more: bool = False,
        max_ctas: int = 0,
        stream: Any = None,
    ) -> None:
        arrays, outs = list(arrays), list(outs)
        if len(outs) != len(arrays):
            raise ValueError(f"outs has {len(outs)} arrays for {len(arrays)} arrays")
        self._codec, self._flags, self._options = codec_number(codec), MORE * more, launch_options(max_ctas)
        sources = [gpu_view(one, f"arrays[{i}]", stream, dtype=dtype) for i, one in enumerate(arrays)]
        frames = [gpu_view(one, f"outs[{i}]", stream, holds=_BYTES, writable=True) for i, one in enumerate(outs)]
        reject_batch_overlap("arrays", sources, "outs", frames)
        for i, (source, frame) in enumerate(zip(sources, frames, strict=True)):
            _require_alignment(source.pointer if source.elems else 0, source.dtype.bytes, f"arrays[{i}]")
            _require_alignment(frame.pointer, 16, f"outs[{i}]")
            bound = int(library().ncast_bound(source.dtype.number, self._codec, source.elems))
            if frame.raw_bytes < bound:
                text = f"outs[{i}] has {frame.raw_bytes} bytes, but the frame may need {bound}"
                raise error_of(Status.TOO_SMALL, text)
        self._workspace_bytes = int(
            library().ncast_cuda_encode_batch_workspace_bytes(
                len(sources), sum(one.raw_bytes for one in sources), self._codec
            )
        )
        columns = [
            [one.pointer or 0 for one in sources],
            [one.elems for one in sources],
            [one.pointer or 0 for one in frames],
            [one.raw_bytes for one in frames],
            _packed([one.dtype.number for one in sources]),
        ]
        super().__init__([*sources, *frames], len(sources), columns, self._workspace_bytes)

    def encode(self, *, stream: Any = None) -> None:
        """Encodes the values that the arrays contain when the stream runs the call."""
        if self._count == 0:
            return
        with device_of(*self._one_view):
            _check_status(
                library().ncast_cuda_encode_batch(
                    self._count,
                    self._column(0),
                    self._column(4),
                    self._column(1),
                    self._codec,
                    self._flags,
                    self._column(2),
                    self._column(3),
                    self._sizes.pointer,
                    self._statuses.pointer,
                    self._workspace.pointer,
                    self._workspace_bytes,
                    self._options,
                    stream_handle(stream),
                )
            )

    def wire_bytes(self, *, stream: Any = None) -> list[int]:
        """Waits for the stream and reads the sizes of the frames in bytes."""
        return self._results("arrays", stream)


class DecodeBatch(_Batch):
    """Decodes frames, whose headers tell their types and sizes.

    frames: 16-byte aligned; may be longer than the frames, and may come from an untrusted source.
    outs: an array for each frame, aligned to the value type; may be longer than the values.
    codec: the codec of the frames. Frames that are stored raw decode with any.
    max_ctas: the maximum number of CTAs; 0: as many as the GPU runs at once.

    Checksums are not verified.
    """

    def __init__(
        self,
        frames: Iterable[Any],
        *,
        outs: Iterable[Any],
        codec: str = "window",
        max_ctas: int = 0,
        stream: Any = None,
    ) -> None:
        frames, outs = list(frames), list(outs)
        if len(outs) != len(frames):
            raise ValueError(f"outs has {len(outs)} arrays for {len(frames)} frames")
        self._codec, self._options = codec_number(codec), launch_options(max_ctas)
        sources = [gpu_view(one, f"frames[{i}]", stream, holds=_BYTES) for i, one in enumerate(frames)]
        targets = [gpu_view(one, f"outs[{i}]", stream, writable=True) for i, one in enumerate(outs)]
        reject_batch_overlap("frames", sources, "outs", targets)
        for i, source in enumerate(sources):
            _require_alignment(source.pointer, 16, f"frames[{i}]")
        self._workspace_bytes = int(library().ncast_cuda_decode_batch_workspace_bytes(len(sources)))
        columns = [
            [one.pointer or 0 for one in sources],
            [one.raw_bytes for one in sources],
            [one.pointer or 0 for one in targets],
            [one.raw_bytes for one in targets],
        ]
        super().__init__([*sources, *targets], len(sources), columns, self._workspace_bytes)

    def decode(self, *, stream: Any = None) -> None:
        """Decodes the frames that the memory contains when the stream runs the call."""
        if self._count == 0:
            return
        with device_of(*self._one_view):
            _check_status(
                library().ncast_cuda_decode_batch(
                    self._count,
                    self._column(0),
                    self._column(1),
                    self._codec,
                    self._column(2),
                    self._column(3),
                    self._sizes.pointer,
                    self._statuses.pointer,
                    self._workspace.pointer,
                    self._workspace_bytes,
                    self._options,
                    stream_handle(stream),
                )
            )

    def raw_bytes(self, *, stream: Any = None) -> list[int]:
        """Waits for the stream and reads the sizes of the decoded values in bytes.

        Raises CorruptError, TooSmallError (the values do not fit into their array) or InvalidArgumentError (the array
        is not aligned to the value type) if a frame could not be decoded. The message names the first such frame; the
        others are decoded nevertheless.
        """
        return self._results("frames", stream)


def _packed(words: list[int]) -> list[int]:
    """32-bit words as a column of 64-bit words."""
    padded = np.zeros(2 * len(words), np.uint32)
    padded[: len(words)] = words
    return [int(word) for word in padded.view(np.uint64)]


def _require_alignment(pointer: int, alignment: int, name: str) -> None:
    if pointer % alignment:
        text = f"{name} is at address {pointer:#x}, which is not aligned to {alignment} bytes"
        raise error_of(Status.INVALID_ARGUMENT, text)
