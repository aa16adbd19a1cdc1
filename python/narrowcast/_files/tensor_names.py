"""Which tensors the frames of an encoded safetensors file contain."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator

import numpy as np

from ..errors import CorruptError, NarrowcastError
from .frames import Frame, FrameReader
from .pipeline import Buffers
from .safetensors_header import TensorEntry, begins_like_safetensors, read_header

_PREFIX_BYTES = 8


class TensorNames:
    """Collects the header of the safetensors file from the first frames."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._start = bytearray()
        self._end = 0  # raw bytes of the frames so far
        self._entries: list[TensorEntry] | None = None
        self._ends: list[int] = []
        self._buffers = Buffers()

    def frames(self) -> Iterator[tuple[Frame, tuple[str, ...]]]:
        """Every frame, and the names of the tensors of which it contains bytes, if they are known."""
        for frame in self._reader.frames():
            if self._entries is None:
                self._collect(frame)
            begin, self._end = self._end, self._end + frame.info.raw_bytes
            yield frame, self._names(begin, self._end)

    def _collect(self, frame: Frame) -> None:
        """Decodes a frame of the header. Ends the search if it is corrupt or the file is not safetensors."""
        try:
            self._start += self._reader.decode(frame, self._buffers).data
        except NarrowcastError:
            self._entries = []
            return
        if not begins_like_safetensors(bytes(self._start[: _PREFIX_BYTES + 1])):
            # The first frame of a safetensors file contains its prefix.
            self._entries = []
            return
        header_bytes = _PREFIX_BYTES + int.from_bytes(self._start[:_PREFIX_BYTES], "little")
        if len(self._start) < header_bytes:
            return
        try:
            # The size of the whole is not known yet.
            header = read_header(io.BytesIO(self._start), np.iinfo(np.int64).max, self._reader.name)
        except CorruptError:
            self._entries = []
            return
        self._entries = [entry for entry in header.tensors if entry.raw_bytes]
        self._ends = [entry.offset + entry.raw_bytes for entry in self._entries]
        self._start = bytearray()

    def _names(self, begin: int, end: int) -> tuple[str, ...]:
        if not self._entries:
            return ()
        first = bisect.bisect_right(self._ends, begin)
        last = bisect.bisect_left(self._entries, end, key=lambda entry: entry.offset)
        return tuple(entry.name for entry in self._entries[first:last])
