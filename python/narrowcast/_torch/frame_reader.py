"""Frames in host memory that are copied to a GPU and decoded there."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from .._native import cuda_driver
from .._native.codecs import codec_number
from .._native.library import check, library
from ..types import value_type
from .host_memory import aligned

# The ring of staging memory on the GPU. Copies continue while frames of other pieces are decoded, and a piece takes
# much longer to copy than to enqueue.
_PIECES = 3
_PIECE_BYTES = 16 << 20
_PIECE_FRAMES = 1024
_COLUMNS = 4  # of the table for a batch: addresses and sizes of the frames and of their values, 8 bytes each


@dataclass(frozen=True)
class HostFrame:
    """A frame in host memory."""

    pointer: int  # aligned to host_memory.ALIGNMENT_BYTES
    wire_bytes: int
    dtype: int  # the number of the value type
    codec: int  # the number of the codec
    elems: int
    raw_bytes: int

    @classmethod
    def at(cls, memory: torch.Tensor, codec: str, dtype: str, raw_bytes: int) -> HostFrame:
        """The frame in a uint8 tensor, which the caller keeps alive."""
        kind = value_type(dtype)
        elems = raw_bytes // kind.bytes
        return cls(memory.data_ptr(), memory.numel(), kind.number, codec_number(codec), elems, raw_bytes)


class Copy(NamedTuple):
    """Host memory that goes to a piece of staging memory."""

    pointer: int
    offset: int
    count_bytes: int


class Piece(NamedTuple):
    """Frames that are in staging memory together."""

    copies: list[Copy]
    offsets: list[int]  # of the frames in staging memory


def pieces_of(frames: Sequence[HostFrame], piece_bytes: int) -> Iterator[Piece]:
    """Groups frames, in their order. Frames that are adjacent in host memory are copied at once."""
    copies: list[Copy] = []
    offsets: list[int] = []
    end = 0
    for frame in frames:
        if offsets and (end + frame.wire_bytes > piece_bytes or len(offsets) == _PIECE_FRAMES):
            yield Piece(copies, offsets)
            copies, offsets, end = [], [], 0
        last = copies[-1] if copies else None
        if last is not None and last.pointer + (end - last.offset) == frame.pointer:
            # The bytes between two frames are copied too.
            copies[-1] = Copy(last.pointer, last.offset, end - last.offset + frame.wire_bytes)
        else:
            copies.append(Copy(frame.pointer, end, frame.wire_bytes))
        offsets.append(end)
        end += aligned(frame.wire_bytes)
    if offsets:
        yield Piece(copies, offsets)


class FrameReader:
    """Copies frames to a GPU on a stream of its own, through a ring of staging memory, and decodes them.

    Thread-safe: readers on several streams share the ring.
    """

    def __init__(self, device: torch.device, *, in_graphs: bool = False) -> None:
        """in_graphs: calls can be captured in CUDA graphs, after `reserve`. All of them, and all replays, must then be
        ordered by streams: a call does not wait for staging memory that another stream uses.
        """
        self._device = device
        self._in_graphs = in_graphs
        self._lock = threading.Lock()
        self._stream = torch.cuda.Stream(device)
        self._slots: list[_Slot] = []
        self._piece_bytes = 0
        self._next = 0

    def read(self, frames: Sequence[HostFrame], outs: Sequence[int], status: torch.Tensor) -> None:
        """Enqueues decoding on the current stream. Nothing waits on the host.

        frames: host memory that is unchanged until the stream is done; copies from page-locked memory are faster.
        outs: for each frame, the address on the GPU for its values.
        status: see narrowcast.cuda.decode.
        """
        decode = library().ncast_cuda_decode
        word = status.data_ptr()

        def decode_each(slot: _Slot, piece: Piece, first: int, stream: Any) -> None:
            for number, offset in enumerate(piece.offsets, first):
                frame, place = frames[number], slot.staging.data_ptr() + offset
                check(
                    decode(
                        place,
                        frame.wire_bytes,
                        frame.dtype,
                        frame.codec,
                        frame.elems,
                        outs[number],
                        word,
                        None,
                        stream,
                    )
                )

        self._read(frames, decode_each)

    def read_batch(
        self, frames: Sequence[HostFrame], outs: Sequence[int], codec: str, value_bytes: torch.Tensor
    ) -> None:
        """As `read`, for many small frames, but not in graphs.

        codec: of the frames that are not raw.
        value_bytes: an int64 for each frame, which receives the size of its values, or 0 if it is corrupt.
        """
        number = codec_number(codec)
        workspace_bytes = int(library().ncast_cuda_decode_batch_workspace_bytes(_PIECE_FRAMES))
        decode = library().ncast_cuda_decode_batch

        def copy_table(slot: _Slot, piece: Piece, first: int, stream: Any) -> None:
            mine = slice(first, first + len(piece.offsets))
            base = slot.staging.data_ptr()
            columns = [
                [base + offset for offset in piece.offsets],
                [frame.wire_bytes for frame in frames[mine]],
                outs[mine],
                [frame.raw_bytes for frame in frames[mine]],
            ]
            rows = np.array(columns, np.uint64)
            # This memory is pageable: the driver has read so few bytes when the call returns.
            cuda_driver.copy_from_host(slot.batch_memory(workspace_bytes).table, rows.ctypes.data, rows.nbytes, stream)

        def decode_together(slot: _Slot, piece: Piece, first: int, stream: Any) -> None:
            count = len(piece.offsets)
            table, statuses, workspace = slot.batch_memory(workspace_bytes)
            check(
                decode(
                    count,
                    table,
                    table + 8 * count,
                    number,
                    table + 16 * count,
                    table + 24 * count,
                    value_bytes.data_ptr() + 8 * first,
                    statuses,
                    workspace,
                    workspace_bytes,
                    None,
                    stream,
                )
            )

        self._read(frames, decode_together, copy_table)

    def _read(self, frames: Sequence[HostFrame], decode: _Step, copy_more: _Step | None = None) -> None:
        """Copies pieces, and calls the functions for each, with the number of its first frame and their stream."""
        if not frames:
            return
        current = torch.cuda.current_stream(self._device)
        copies, stream = self._stream.cuda_stream, current.cuda_stream
        first = 0
        with self._lock, torch.cuda.device(self._device), cuda_driver.on_device(self._device.index):
            self._reserve(max(frame.wire_bytes for frame in frames))
            if self._in_graphs:
                # A graph cannot wait for events from outside of it, nor other streams for events of a graph.
                for slot in self._slots:
                    slot.renew_events()
                begin = torch.cuda.Event()
                begin.record(current)
                self._stream.wait_event(begin)
            for piece in pieces_of(frames, self._piece_bytes):
                slot, self._next = self._slots[self._next], (self._next + 1) % _PIECES
                self._stream.wait_event(slot.decoded)
                for one in piece.copies:
                    pointer = slot.staging.data_ptr() + one.offset
                    cuda_driver.copy_from_host(pointer, one.pointer, one.count_bytes, copies)
                if copy_more is not None:
                    copy_more(slot, piece, first, copies)
                slot.copied.record(self._stream)
                current.wait_event(slot.copied)
                decode(slot, piece, first, stream)
                first += len(piece.offsets)
                slot.decoded.record(current)

    def reserve(self, frame_bytes: int) -> None:
        """Allocates staging memory for frames of up to so many bytes."""
        with self._lock:
            self._reserve(frame_bytes)

    def _reserve(self, frame_bytes: int) -> None:
        wanted = max(_PIECE_BYTES, aligned(frame_bytes))
        if wanted <= self._piece_bytes:
            return
        for slot in self._slots:
            slot.decoded.synchronize()
        with torch.cuda.stream(self._stream):
            self._slots = [_Slot(wanted, self._device) for _ in range(_PIECES)]
        self._piece_bytes = wanted


class _Slot:
    """Staging memory for a piece, and the events of its use."""

    def __init__(self, count_bytes: int, device: torch.device) -> None:
        self.staging = torch.empty(count_bytes, dtype=torch.uint8, device=device)
        self._batch: torch.Tensor | None = None
        self.renew_events()

    def renew_events(self) -> None:
        self.copied, self.decoded = torch.cuda.Event(), torch.cuda.Event()

    def batch_memory(self, workspace_bytes: int) -> _BatchMemory:
        table_bytes, status_bytes = _COLUMNS * 8 * _PIECE_FRAMES, 4 * _PIECE_FRAMES
        if self._batch is None:
            size = table_bytes + status_bytes + workspace_bytes
            self._batch = torch.empty(size, dtype=torch.uint8, device=self.staging.device)
        begin = self._batch.data_ptr()
        return _BatchMemory(begin, begin + table_bytes, begin + table_bytes + status_bytes)


class _BatchMemory(NamedTuple):
    """Addresses on the GPU."""

    table: int
    statuses: int
    workspace: int


_Step = Callable[[_Slot, Piece, int, Any], None]


@functools.cache
def frame_reader(device: torch.device) -> FrameReader:
    """The reader of a device."""
    return FrameReader(device)
