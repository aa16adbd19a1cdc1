"""Values between canaries, to detect writes outside of buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .values import POISON, poison

# More than a block on each side, and a multiple of every alignment.
GUARD_BYTES = 8192


class Guarded:
    """Memory for values of up to a number of bytes."""

    def __init__(self, place: Any, most_bytes: int) -> None:
        self._place = place
        self._memory = place.carve(most_bytes + 2 * GUARD_BYTES + 256)
        self._image = np.empty(0, np.uint8)
        self._begin = 0
        self.bytes = 0

    def lay(self, values: np.ndarray, shift: int = 0, stream: Any = None) -> Any:
        """Writes bytes at `shift` after a 256-byte boundary, and canaries. Returns the array of the bytes."""
        raw = np.ascontiguousarray(values).view(np.uint8)
        self._begin, self.bytes = GUARD_BYTES + shift, raw.size
        end = self._begin + raw.size
        self._image = np.empty(end + GUARD_BYTES, np.uint8)
        self._image[: self._begin] = poison(self._begin)
        self._image[self._begin : end] = raw
        self._image[end:] = POISON
        self._place.write(self._memory, self._image, stream)
        return self.part(0, raw.size)

    def part(self, first: int, count_bytes: int) -> Any:
        return self._place.part(self._memory, self._begin + first, count_bytes)

    def read(self, first: int, count_bytes: int, stream: Any = None) -> tuple[np.ndarray, str | None]:
        """Waits for the stream. Returns a range of the bytes, and the changes outside of it."""
        found = self._place.read(self._place.part(self._memory, 0, self._image.size), stream)
        begin, end = self._begin + first, self._begin + first + count_bytes
        changed = None
        for start, stop in ((0, begin), (end, self._image.size)):
            if not np.array_equal(found[start:stop], self._image[start:stop]):
                place = start + int(np.flatnonzero(found[start:stop] != self._image[start:stop])[0])
                changed = changed or self._where(place)
        return found[begin:end], changed

    def _where(self, place: int) -> str:
        if place < self._begin:
            return f"the byte {self._begin - place} bytes before it was overwritten"
        if place >= self._begin + self.bytes:
            return f"the byte {place - self._begin - self.bytes} bytes after its end was overwritten"
        return f"byte {place - self._begin} of {self.bytes}, outside of the output, was changed"
