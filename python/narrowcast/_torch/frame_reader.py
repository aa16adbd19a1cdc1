"""Frames in host memory that are copied to a GPU and decoded there."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from .._native import cuda_driver
from .._native.codecs import codec_number
from .._native.library import check, library
from ..types import value_type
from .host_memory import ALIGNMENT_BYTES, HostMemory, aligned

# The ring of staging memory on the GPU. Copies continue while frames of other pieces are decoded, and a piece takes
# much longer to copy than to enqueue.
_PIECES = 3
_PIECE_BYTES = 16 << 20
_PIECE_FRAMES = 1024
_Numbers = npt.NDArray[np.int64]
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

    first: int  # the number of the first frame
    copies: list[Copy]
    offsets: _Numbers  # of the frames in staging memory


def pieces_of(pointers: _Numbers, wire_bytes: _Numbers, piece_bytes: int) -> Iterator[Piece]:
    """Groups frames, in their order. Frames that are adjacent in host memory are copied at once."""
    room = -(-wire_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    begins = np.cumsum(room) - room
    ends = begins + wire_bytes
    apart = np.flatnonzero(pointers[1:] != pointers[:-1] + room[:-1]) + 1
    first = 0
    while first < len(pointers):
        fit = int(np.searchsorted(ends, begins[first] + piece_bytes, "right"))
        stop = min(max(fit, first + 1), first + _PIECE_FRAMES, len(pointers))
        between = apart[np.searchsorted(apart, first, "right") : np.searchsorted(apart, stop)]
        offsets = begins[first:stop] - begins[first]
        # The bytes between two frames are copied too.
        copies = [
            Copy(int(pointers[begin]), int(offsets[begin - first]), int(ends[end - 1] - begins[begin]))
            for begin, end in itertools.pairwise([first, *between.tolist(), stop])
        ]
        yield Piece(first, copies, offsets)
        first = stop


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
        self._tables = [_Table(device), _Table(device)]  # of batches, in turns
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

        def decode_each(slot: _Slot, piece: Piece, stream: Any) -> None:
            for number, offset in enumerate(piece.offsets.tolist(), piece.first):
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

        pointers = np.array([frame.pointer for frame in frames], np.int64)
        wire_bytes = np.array([frame.wire_bytes for frame in frames], np.int64)
        self._read(pointers, wire_bytes, decode_each)

    def read_batch(
        self,
        pointers: _Numbers,
        wire_bytes: _Numbers,
        outs: _Numbers,
        out_bytes: int,
        codec: str,
        value_bytes: torch.Tensor,
    ) -> None:
        """As `read`, for many small frames, but not in graphs.

        pointers, wire_bytes, outs: where the frames are in host memory, their sizes, and addresses for their values.
        out_bytes: room for the values of each frame.
        codec: of the frames that are not raw.
        value_bytes: an int64 for each frame, which receives the size of its values, or 0 if it is corrupt.
        """
        number = codec_number(codec)
        workspace_bytes = int(library().ncast_cuda_decode_batch_workspace_bytes(_PIECE_FRAMES))
        decode = library().ncast_cuda_decode_batch
        total = len(pointers)
        table = 0

        def copy_table(pieces: list[Piece], slots: list[_Slot]) -> _Table:
            nonlocal table
            columns = np.empty((_COLUMNS, total), np.int64)
            for piece, slot in zip(pieces, slots, strict=True):
                columns[0, piece.first : piece.first + len(piece.offsets)] = slot.staging.data_ptr() + piece.offsets
            columns[1], columns[2], columns[3] = wire_bytes, outs, out_bytes
            used = self._tables[0]
            self._tables.reverse()
            table = used.copy(columns, self._stream)
            return used

        def decode_together(slot: _Slot, piece: Piece, stream: Any) -> None:
            begin = table + 8 * piece.first
            statuses, workspace = slot.batch_memory(workspace_bytes)
            check(
                decode(
                    len(piece.offsets),
                    begin,
                    begin + 8 * total,
                    number,
                    begin + 16 * total,
                    begin + 24 * total,
                    value_bytes.data_ptr() + 8 * piece.first,
                    statuses,
                    workspace,
                    workspace_bytes,
                    None,
                    stream,
                )
            )

        self._read(pointers, wire_bytes, decode_together, copy_table)

    def _read(
        self,
        pointers: _Numbers,
        wire_bytes: _Numbers,
        decode: Callable[[_Slot, Piece, Any], None],
        copy_table: Callable[[list[Piece], list[_Slot]], _Table] | None = None,
    ) -> None:
        """Copies pieces, and calls `decode` for each, with its stream; `copy_table` before."""
        if not len(pointers):
            return
        current = torch.cuda.current_stream(self._device)
        copies, stream = self._stream.cuda_stream, current.cuda_stream
        with self._lock, torch.cuda.device(self._device), cuda_driver.on_device(self._device.index):
            self._reserve(int(wire_bytes.max()))
            if self._in_graphs:
                # A graph cannot wait for events from outside of it, nor other streams for events of a graph.
                for slot in self._slots:
                    slot.renew_events()
                begin = torch.cuda.Event()
                begin.record(current)
                self._stream.wait_event(begin)
            pieces = list(pieces_of(pointers, wire_bytes, self._piece_bytes))
            slots = [self._slots[(self._next + number) % _PIECES] for number in range(len(pieces))]
            self._next = (self._next + len(pieces)) % _PIECES
            table = copy_table(pieces, slots) if copy_table else None
            for piece, slot in zip(pieces, slots, strict=True):
                self._stream.wait_event(slot.decoded)
                for one in piece.copies:
                    pointer = slot.staging.data_ptr() + one.offset
                    cuda_driver.copy_from_host(pointer, one.pointer, one.count_bytes, copies)
                slot.copied.record(self._stream)
                current.wait_event(slot.copied)
                decode(slot, piece, stream)
                slot.decoded.record(current)
            if table:
                table.used.record(current)

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

    def batch_memory(self, workspace_bytes: int) -> tuple[int, int]:
        """Addresses of the statuses and of the workspace for a batch."""
        status_bytes = 4 * _PIECE_FRAMES
        if self._batch is None:
            self._batch = torch.empty(status_bytes + workspace_bytes, dtype=torch.uint8, device=self.staging.device)
        return self._batch.data_ptr(), self._batch.data_ptr() + status_bytes


class _Table:
    """Memory for the table of a batch. If it was pageable, the driver would wait for the copies before it."""

    def __init__(self, device: torch.device) -> None:
        self.used = torch.cuda.Event()  # when nothing on the GPU needs the table any more
        self._device = device
        self._host, self._gpu = HostMemory(0, pinned=False), torch.empty(0, device=device)

    def copy(self, columns: _Numbers, stream: Any) -> int:
        """Enqueues a copy, and returns where it goes on the GPU."""
        self.used.synchronize()
        count_bytes = columns.nbytes
        if self._host.tensor.numel() < count_bytes:
            capacity = max(1 << 16, 1 << (count_bytes - 1).bit_length())
            self._host = HostMemory(capacity, pinned=self._device.type == "cuda")
            self._host.devices.add(self._device)
            with torch.cuda.stream(stream):
                self._gpu = torch.empty(capacity, dtype=torch.uint8, device=self._device)
        self._host.tensor[:count_bytes].numpy()[:] = columns.view(np.uint8).reshape(-1)
        cuda_driver.copy_from_host(self._gpu.data_ptr(), self._host.tensor.data_ptr(), count_bytes, stream.cuda_stream)
        return int(self._gpu.data_ptr())


@functools.cache
def frame_reader(device: torch.device) -> FrameReader:
    """The reader of a device."""
    return FrameReader(device)
