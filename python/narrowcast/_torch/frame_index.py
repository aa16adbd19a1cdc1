"""Where frames are in host memory, by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .arena import Piece

_Numbers = npt.NDArray[np.int64]


class Stored(NamedTuple):
    """A frame."""

    piece: Piece
    raw_bytes: int


class FrameIndex:
    """Frames by key. Keys are numbers from 0, and index arrays: many are found as fast as one."""

    def __init__(self) -> None:
        self._stored: dict[int, Stored] = {}
        # A pointer of 0: no frame. The second half stays empty, so that negative keys find nothing.
        self._pointers = self._wire_bytes = np.zeros(0, np.int64)
        self.raw_bytes = 0  # of all frames

    def __getitem__(self, key: int) -> Stored:
        return self._stored[key]

    def add(self, key: int, piece: Piece, raw_bytes: int) -> None:
        """The key must be absent."""
        if key >= len(self._pointers) // 2:
            more = np.zeros(2 * key + 2, np.int64)
            self._wire_bytes = np.concatenate([self._wire_bytes, more])
            self._pointers = np.concatenate([self._pointers, more])
        self._stored[key] = Stored(piece, raw_bytes)
        self._wire_bytes[key] = piece.tensor.numel()
        self._pointers[key] = piece.tensor.data_ptr()
        self.raw_bytes += raw_bytes

    def free(self, keys: Iterable[int]) -> None:
        """Frees the memory of frames. Absent keys are ignored."""
        for key in keys:
            replaced = self._stored.pop(key, None)
            if replaced is not None:
                self._pointers[key] = 0
                self.raw_bytes -= replaced.raw_bytes
                replaced.piece.free()

    def places(self, keys: _Numbers) -> tuple[_Numbers, _Numbers]:
        """The pointers and the wire bytes of frames. Raises KeyError if a key is absent."""
        try:
            pointers = self._pointers.take(keys)
        except IndexError:
            raise KeyError(f"{keys.min()} to {keys.max()}") from None
        if not pointers.all():
            raise KeyError(int(keys[pointers.argmin()]))
        return pointers, self._wire_bytes.take(keys)
