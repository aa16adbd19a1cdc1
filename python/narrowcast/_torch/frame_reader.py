"""Frames in host memory that are copied to a GPU and decoded there."""

from __future__ import annotations

import bisect
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
_PIECES_AHEAD = 2  # that are copied before the host prepares to decode them, which can take longer than one copy
_Numbers = npt.NDArray[np.int64]
_COLUMNS = 4  # of the table for a batch: addresses and sizes of the frames and of their values; then the numbers


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


class Batch(NamedTuple):
    """Frames that are decoded together."""

    outs: _Numbers  # addresses on the GPU for the values of each
    out_bytes: int  # room for the values of each
    value_bytes: torch.Tensor  # an int64 for each, which receives the size of its values, or 0 if it is corrupt
    numbers: _Numbers  # any, one for each
    finish: Callable[[int], None]  # enqueues what follows, given the address of the numbers on the GPU
    stream: Any  # for all of this


class Copy(NamedTuple):
    """Host memory that goes to a piece of staging memory."""

    pointer: int
    offset: int
    count_bytes: int


class Piece(NamedTuple):
    """Frames that are in staging memory together."""

    first: int  # the number of the first frame
    stop: int  # that after the last one
    copies: list[Copy]


class Frames:
    """Frames in host memory, for a call. Frames that are adjacent there are copied at once."""

    def __init__(self, pointers: _Numbers, wire_bytes: _Numbers) -> None:
        room = (wire_bytes + (ALIGNMENT_BYTES - 1)) & -ALIGNMENT_BYTES
        self._ends = room.cumsum()
        self.pointers, self.wire_bytes = pointers, wire_bytes
        self.offsets = self._ends - room  # of each, if all were end to end
        runs = pointers - self.offsets  # the same for neighbours
        self._before_gaps = (runs[1:] != runs[:-1]).nonzero()[0].tolist()

    def pieces(self, piece_bytes: int) -> Iterator[Piece]:
        """Groups the frames, in their order."""
        first, total = 0, len(self._ends)
        while first < total:
            begin = int(self.offsets[first])
            fit = int(self._ends.searchsorted(begin + piece_bytes, "right"))
            stop = min(max(fit, first + 1), first + _PIECE_FRAMES, total)
            gaps = self._before_gaps
            here = gaps[bisect.bisect_left(gaps, first) : bisect.bisect_left(gaps, stop - 1)]
            # The bytes between two frames are copied too.
            copies = []
            for one, last in zip([first, *(gap + 1 for gap in here)], [*here, stop - 1], strict=True):
                offset, pointer = int(self.offsets[one]), int(self.pointers[one])
                copies.append(Copy(pointer, offset - begin, int(self.offsets[last] + self.wire_bytes[last]) - offset))
            yield Piece(first, stop, copies)
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
        self._tables = [_Table(device) for _ in range(3)]  # of batches, in turns
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
            places = (slot.address(held, piece) + held.offsets[piece.first : piece.stop]).tolist()
            for number, place in enumerate(places, piece.first):
                frame = frames[number]
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
        held = Frames(pointers, wire_bytes)
        self._read(held, decode_each, torch.cuda.current_stream(self._device))

    def read_batch(self, pointers: _Numbers, wire_bytes: _Numbers, codec: str, prepare: Callable[[], Batch]) -> None:
        """As `read`, for many small frames, but not in graphs.

        pointers, wire_bytes: where the frames are in host memory, and their sizes.
        codec: of the frames that are not raw.
        prepare: returns what else is needed. It is called when the first copies have been enqueued, which wait for
            nothing on the stream.
        """
        held, total = Frames(pointers, wire_bytes), len(pointers)
        number = workspace_bytes = table = sizes = 0
        decode = library().ncast_cuda_decode_batch

        def copy_table(pieces: list[Piece], slots: list[_Slot]) -> tuple[Any, Callable[[], None]]:
            nonlocal number, workspace_bytes, table, sizes
            batch = prepare()
            number, sizes = codec_number(codec), batch.value_bytes.data_ptr()
            workspace_bytes = int(library().ncast_cuda_decode_batch_workspace_bytes(_PIECE_FRAMES))
            used = self._tables.pop(0)
            self._tables.append(used)
            columns = used.columns(_COLUMNS + 1, total, self._stream)
            for piece, slot in zip(pieces, slots, strict=True):
                here = slice(piece.first, piece.stop)
                np.add(held.offsets[here], slot.address(held, piece), out=columns[0, here])
            columns[1], columns[2], columns[3], columns[4] = wire_bytes, batch.outs, batch.out_bytes, batch.numbers
            table = used.copy(self._stream)

            def finish() -> None:
                batch.finish(table + 8 * _COLUMNS * total)
                used.used.record(batch.stream)

            return batch.stream, finish

        def decode_together(slot: _Slot, piece: Piece, stream: Any) -> None:
            begin = table + 8 * piece.first
            statuses, workspace = slot.batch_memory(workspace_bytes, self._stream)
            check(
                decode(
                    piece.stop - piece.first,
                    begin,
                    begin + 8 * total,
                    number,
                    begin + 16 * total,
                    begin + 24 * total,
                    sizes + 8 * piece.first,
                    statuses,
                    workspace,
                    workspace_bytes,
                    None,
                    stream,
                )
            )

        self._read(held, decode_together, copy_table=copy_table)

    def _read(
        self,
        frames: Frames,
        decode: Callable[[_Slot, Piece, Any], None],
        current: Any = None,
        copy_table: Callable[[list[Piece], list[_Slot]], tuple[Any, Callable[[], None]]] | None = None,
    ) -> None:
        """Copies pieces, and calls `decode` for each, with the stream `current`.

        copy_table: called once, when the copies of the first pieces have been enqueued. It returns the stream, and what
        is to be called at the end.
        """
        if not len(frames.wire_bytes):
            return
        copies = self._stream.cuda_stream
        with self._lock, torch.cuda.device(self._device.index), cuda_driver.on_device(self._device.index):
            self._reserve(int(frames.wire_bytes.max()))
            if self._in_graphs:
                # A graph cannot wait for events from outside of it, nor other streams for events of a graph.
                for slot in self._slots:
                    slot.renew_events()
                begin = torch.cuda.Event()
                begin.record(current)
                self._stream.wait_event(begin)

            def copy(slot: _Slot, piece: Piece) -> None:
                self._stream.wait_event(slot.decoded)
                staging = slot.staging.data_ptr()
                for one in piece.copies:
                    cuda_driver.copy_from_host(staging + one.offset, one.pointer, one.count_bytes, copies)

            pieces = frames.pieces(self._piece_bytes)
            ahead = list(itertools.islice(pieces, _PIECES_AHEAD if copy_table else 1))
            for number, piece in enumerate(ahead):
                copy(self._slots[(self._next + number) % _PIECES], piece)
            planned = [*ahead, *pieces]
            slots = [self._slots[(self._next + number) % _PIECES] for number in range(len(planned))]
            self._next = (self._next + len(planned)) % _PIECES
            finish = None
            if copy_table:
                current, finish = copy_table(planned, slots)
            for number, (piece, slot) in enumerate(zip(planned, slots, strict=True)):
                if number >= len(ahead):
                    copy(slot, piece)
                slot.copied.record(self._stream)
                current.wait_event(slot.copied)
                decode(slot, piece, current.cuda_stream)
                slot.decoded.record(current)
            if finish:
                finish()

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

    def address(self, frames: Frames, piece: Piece) -> int:
        """What is added to the offsets of a piece's frames."""
        return int(self.staging.data_ptr() - frames.offsets[piece.first])

    def batch_memory(self, workspace_bytes: int, stream: Any) -> tuple[int, int]:
        """Addresses of the statuses and of the workspace for a batch, allocated on the stream of the staging memory."""
        status_bytes = 4 * _PIECE_FRAMES
        if self._batch is None:
            with torch.cuda.stream(stream):
                self._batch = torch.empty(status_bytes + workspace_bytes, dtype=torch.uint8, device=self.staging.device)
        return self._batch.data_ptr(), self._batch.data_ptr() + status_bytes


class _Table:
    """Memory for the table of a batch. If it was pageable, the driver would wait for the copies before it."""

    def __init__(self, device: torch.device) -> None:
        self.used = torch.cuda.Event()  # when nothing on the GPU needs the table any more
        self._device = device
        self._memory = HostMemory(0, pinned=False)
        self._host, self._gpu = np.empty(0, np.int64), torch.empty(0, dtype=torch.int64, device=device)
        self._shape = (0, 0)

    def columns(self, count: int, rows: int, stream: Any) -> _Numbers:
        """The table in host memory, to be written."""
        self.used.synchronize()
        self._shape = (count, rows)
        if len(self._host) < count * rows:
            capacity = max(1 << 13, 1 << (count * rows - 1).bit_length())
            self._memory = HostMemory(8 * capacity, pinned=self._device.type == "cuda")
            self._memory.devices.add(self._device)
            self._host = self._memory.tensor.numpy().view(np.int64)
            with torch.cuda.stream(stream):
                self._gpu = torch.empty(capacity, dtype=torch.int64, device=self._device)
        return self._host[: count * rows].reshape(count, rows)

    def copy(self, stream: Any) -> int:
        """Enqueues a copy, and returns where it goes on the GPU."""
        count, rows = self._shape
        place = self._gpu.data_ptr()
        cuda_driver.copy_from_host(place, self._memory.tensor.data_ptr(), 8 * count * rows, stream.cuda_stream)
        return int(place)


@functools.cache
def frame_reader(device: torch.device) -> FrameReader:
    """The reader of a device."""
    return FrameReader(device)
