"""Frames in host memory that are copied to a GPU and decoded there."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True)
class HostFrame:
    """A frame in host memory."""

    pointer: int  # aligned to host_memory.ALIGNMENT_BYTES
    wire_bytes: int
    dtype: int  # the number of the value type
    codec: int  # the number of the codec
    elems: int

    @classmethod
    def at(cls, memory: torch.Tensor, codec: str, dtype: str, raw_bytes: int) -> HostFrame:
        """The frame in a uint8 tensor, which the caller keeps alive."""
        kind = value_type(dtype)
        return cls(memory.data_ptr(), memory.numel(), kind.number, codec_number(codec), raw_bytes // kind.bytes)


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
        if offsets and end + frame.wire_bytes > piece_bytes:
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
        self._staging: list[torch.Tensor] = []
        self._piece_bytes = 0
        self._copied, self._decoded = _events(), _events()
        self._next = 0

    def read(self, frames: Sequence[HostFrame], outs: Sequence[int], status: torch.Tensor) -> None:
        """Enqueues decoding on the current stream. Nothing waits on the host.

        frames: host memory that is unchanged until the stream is done; copies from page-locked memory are faster.
        outs: for each frame, the address on the GPU for its values.
        status: see narrowcast.cuda.decode.
        """
        if not frames:
            return
        current = torch.cuda.current_stream(self._device)
        word = status.data_ptr()
        decode, copies, stream = library().ncast_cuda_decode, self._stream.cuda_stream, current.cuda_stream
        done = 0
        with self._lock, torch.cuda.device(self._device), cuda_driver.on_device(self._device.index):
            self._reserve(max(frame.wire_bytes for frame in frames))
            if self._in_graphs:
                # A graph cannot wait for events from outside of it, nor other streams for events of a graph.
                self._copied, self._decoded = _events(), _events()
                begin = torch.cuda.Event()
                begin.record(current)
                self._stream.wait_event(begin)
            for piece in pieces_of(frames, self._piece_bytes):
                slot, self._next = self._next, (self._next + 1) % _PIECES
                base = self._staging[slot].data_ptr()
                self._stream.wait_event(self._decoded[slot])
                for one in piece.copies:
                    cuda_driver.copy_from_host(base + one.offset, one.pointer, one.count_bytes, copies)
                self._copied[slot].record(self._stream)
                current.wait_event(self._copied[slot])
                for offset in piece.offsets:
                    frame, out = frames[done], outs[done]
                    check(
                        decode(
                            base + offset,
                            frame.wire_bytes,
                            frame.dtype,
                            frame.codec,
                            frame.elems,
                            out,
                            word,
                            None,
                            stream,
                        )
                    )
                    done += 1
                self._decoded[slot].record(current)

    def reserve(self, frame_bytes: int) -> None:
        """Allocates staging memory for frames of up to so many bytes."""
        with self._lock:
            self._reserve(frame_bytes)

    def _reserve(self, frame_bytes: int) -> None:
        wanted = max(_PIECE_BYTES, aligned(frame_bytes))
        if wanted <= self._piece_bytes:
            return
        for event in self._decoded:
            event.synchronize()
        with torch.cuda.stream(self._stream):
            self._staging = [torch.empty(wanted, dtype=torch.uint8, device=self._device) for _ in range(_PIECES)]
        self._piece_bytes = wanted


def _events() -> list[torch.cuda.Event]:
    return [torch.cuda.Event() for _ in range(_PIECES)]


@functools.cache
def frame_reader(device: torch.device) -> FrameReader:
    """The reader of a device."""
    return FrameReader(device)
