"""The bytes of a safetensors file, which may be encoded, at any offset."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .frames import Frame, FrameReader
from .opening import Source
from .pipeline import Buffers, Pipeline

# Small tensors share frames: reading them one after the other must not decode a frame for each.
_KEPT_FRAMES = 4
_MAX_KEPT_BYTES = 16 << 20


class Part(NamedTuple):
    """A range of the content, and the memory that receives it."""

    begin: int
    memory: npt.NDArray[np.uint8]

    @property
    def end(self) -> int:
        return self.begin + self.memory.size


class Content(Protocol):
    """The bytes of a file as they are decoded."""

    size_bytes: int

    def read(self, parts: Sequence[Part], threads: int | None = None) -> None:
        """Fills the parts, which must be in order and not overlap."""


class PlainContent:
    """The bytes of a file that is not encoded."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._source = Source(file, name)
        self.size_bytes = self._source.size_bytes

    def read(self, parts: Sequence[Part], threads: int | None = None) -> None:
        for part in parts:
            self._source.read(part.begin, part.memory.data)


class EncodedContent:
    """The bytes that an encoded file decodes to. Only the frames of the parts that are read are decoded.

    Several threads may use it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Reads the headers of all frames. Raises CorruptError."""
        self._reader = FrameReader(file, name)
        self._frames = list(self._reader.frames())
        self._begins = [0]
        for frame in self._frames:
            self._begins.append(self._begins[-1] + frame.info.raw_bytes)
        self.size_bytes = self._begins[-1]
        self._kept: OrderedDict[int, npt.NDArray[np.uint8]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, parts: Sequence[Part], threads: int | None = None) -> None:
        wanted = [part for part in parts if part.memory.size]
        ends = [part.end for part in wanted]

        def fill(frame: Frame, buffers: Buffers) -> None:
            begin, end = self._range(frame)
            first = bisect.bisect_right(ends, begin)
            if wanted[first].begin <= begin and end <= wanted[first].end:
                offset = begin - wanted[first].begin
                self._reader.decode(frame, buffers, wanted[first].memory[offset : offset + frame.info.raw_bytes])
            else:
                _copy(wanted[first:], begin, end, self._reader.decode(frame, buffers))

        frames = list(self._frames_of(wanted))
        if len(frames) == 1 and wanted[0].memory.size < frames[0].info.raw_bytes <= _MAX_KEPT_BYTES:
            begin, end = self._range(frames[0])
            _copy(wanted, begin, end, self._decoded(frames[0]))
            return
        if len(frames) == 1:
            fill(frames[0], Buffers())
            return
        for _ in Pipeline(fill, lambda frame: frame.memory_bytes, threads).results(frames):
            pass

    def _range(self, frame: Frame) -> tuple[int, int]:
        return self._begins[frame.number], self._begins[frame.number + 1]

    def _frames_of(self, parts: Sequence[Part]) -> Iterator[Frame]:
        """The frames that contain the parts, each once."""
        number = 0
        for part in parts:
            number = max(number, bisect.bisect_right(self._begins, part.begin) - 1)
            while number < len(self._frames) and self._begins[number] < part.end:
                if self._begins[number + 1] > part.begin:
                    yield self._frames[number]
                number += 1

    def _decoded(self, frame: Frame) -> npt.NDArray[np.uint8]:
        with self._lock:
            kept = self._kept.get(frame.number)
            if kept is not None:
                self._kept.move_to_end(frame.number)
                return kept
        values = self._reader.decode(frame, Buffers())
        with self._lock:
            self._kept[frame.number] = values
            while len(self._kept) > _KEPT_FRAMES:
                self._kept.popitem(last=False)
        return values


def _copy(parts: Sequence[Part], begin: int, end: int, values: npt.NDArray[np.uint8]) -> None:
    """Copies from the values of a range to the parts that overlap it. Later parts may be beyond it."""
    for part in parts:
        if part.begin >= end:
            break
        low, high = max(begin, part.begin), min(end, part.end)
        if low < high:
            part.memory[low - part.begin : high - part.begin] = values[low - begin : high - begin]
