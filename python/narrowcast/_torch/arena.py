"""Host memory from which frames of varying size are allocated."""

from __future__ import annotations

import bisect
import threading

import torch

from .host_memory import HostMemory, aligned


class Arena:
    """A fixed amount of memory. What does not fit is allocated separately: `allocate` does not fail for lack of space.

    Thread-safe.
    """

    def __init__(self, count_bytes: int, *, device: torch.device | None = None) -> None:
        """device: the GPU that copies from and to the memory, which is page-locked for it; None: none."""
        self._memory = HostMemory(count_bytes, pinned=device is not None)
        if device is not None:
            self._memory.devices.add(device)
        self._free = [(0, count_bytes)] if count_bytes else []  # (first byte, bytes), in ascending order, not adjacent
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all allocations, those outside of the fixed memory included."""
        return self._used_bytes

    def allocate(self, count_bytes: int) -> Piece:
        """Memory of at least `count_bytes`, until `Piece.free`."""
        wanted = max(aligned(count_bytes), 1)
        with self._lock:
            self._used_bytes += wanted
            for number, (begin, size) in enumerate(self._free):
                if size >= wanted:
                    if size == wanted:
                        del self._free[number]
                    else:
                        self._free[number] = (begin + wanted, size - wanted)
                    return Piece(self, self._memory.tensor[begin : begin + count_bytes], begin, wanted)
        return Piece(self, torch.empty(count_bytes, dtype=torch.uint8), None, wanted)

    def _give_back(self, begin: int | None, size: int) -> None:
        with self._lock:
            self._used_bytes -= size
            if begin is None:
                return
            place = bisect.bisect(self._free, (begin, 0))
            if place < len(self._free) and begin + size == self._free[place][0]:
                size += self._free.pop(place)[1]
            if place and sum(self._free[place - 1]) == begin:
                before = self._free.pop(place - 1)
                begin, size = before[0], before[1] + size
                place -= 1
            self._free.insert(place, (begin, size))


class Piece:
    """Allocated memory: a uint8 tensor of the requested size."""

    def __init__(self, arena: Arena, tensor: torch.Tensor, begin: int | None, size: int) -> None:
        self._arena, self._begin, self._size = arena, begin, size
        self.tensor: torch.Tensor = tensor

    @property
    def is_outside(self) -> bool:
        """Whether it did not fit into the fixed memory."""
        return self._begin is None

    def free(self) -> None:
        """Gives the memory back. The tensor must not be used any more."""
        self._arena._give_back(self._begin, self._size)
