"""Arrays in GPU memory that are encoded there, and whose frames are copied to host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._native import cuda_driver
from ..codec import bound
from ..types import ValueType
from . import gpu_batches
from .host_memory import aligned


class EncodedRows:
    """Frames on the GPU, which are complete when the stream on which they were encoded has run."""

    def __init__(self, frames: torch.Tensor, sizes: torch.Tensor, done: Any) -> None:
        self.frames = frames  # a row for each, which may be longer than the frame
        self.done = done  # the event
        self._sizes = sizes

    def sizes(self) -> list[int]:
        """The sizes of the frames in bytes. Waits until they are encoded."""
        self.done.synchronize()
        found: list[int] = self._sizes.tolist()
        if not all(found):
            raise RuntimeError(f"row {found.index(0)} could not be encoded")
        return found


def frame_stride(dtype: ValueType, row_bytes: int, codec: str) -> int:
    """The distance of the frames of rows."""
    return aligned(bound(dtype, row_bytes // dtype.bytes, codec=codec))


class FrameWriter:
    """Encodes rows, and copies frames on a stream of its own, so that the next rows are encoded meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def encode(
        self, rows: torch.Tensor, dtype: ValueType, codec: str, frames: torch.Tensor | None = None
    ) -> EncodedRows:
        """Enqueues encoding on the current stream: one call for all rows.

        rows: uint8, (count, bytes), contiguous; count is not 0.
        frames: memory for the frames, uint8, (count, frame_stride()), contiguous; None: new memory.
        """
        count, row_bytes = rows.shape
        elems = row_bytes // dtype.bytes
        stride = frame_stride(dtype, row_bytes, codec)
        if frames is None:
            frames = torch.empty((count, stride), dtype=torch.uint8, device=self._device)
        scratch_bytes = gpu_batches.encode_workspace_bytes(count, rows.numel(), codec)
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=self._device)
        order = torch.arange(count, device=self._device)
        sources, targets = order * row_bytes + rows.data_ptr(), order * stride + frames.data_ptr()
        sizes = gpu_batches.encode(sources, elems, targets, stride, dtype, codec, scratch)
        current = torch.cuda.current_stream(self._device)
        on_host = torch.empty(count, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        with cuda_driver.on_device(self._device.index):
            cuda_driver.copy_to_host_later(on_host.data_ptr(), sizes.data_ptr(), 8 * count, current.cuda_stream)
        done = torch.cuda.Event()
        done.record(current)
        return EncodedRows(frames, on_host, done)

    def copy(self, encoded: EncodedRows, outs: Sequence[torch.Tensor]) -> None:
        """Enqueues copies of the frames to host memory, which has their sizes."""
        self._stream.wait_event(encoded.done)
        encoded.frames.record_stream(self._stream)
        first, stride = encoded.frames.data_ptr(), encoded.frames.stride(0)
        with cuda_driver.on_device(self._device.index):
            for number, out in enumerate(outs):
                place = first + number * stride
                cuda_driver.copy_to_host_later(out.data_ptr(), place, out.numel(), self._stream.cuda_stream)

    def synchronize(self) -> None:
        """Waits for the current stream and all copies."""
        torch.cuda.current_stream(self._device).synchronize()
        self._stream.synchronize()
