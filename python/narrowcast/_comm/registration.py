"""Registered memory: buffers of a rank that GPUs of other ranks write to directly."""

from __future__ import annotations

from ctypes import byref, c_uint32
from types import TracebackType
from typing import Any

from .._arrays.view import view
from .._native.library import check, library
from .handles import OfThisProcess


class Registration(OfThisProcess):
    """Memory that the ranks of a communicator have registered together.

    Closing is collective: every rank closes it at the same place in the order of the communicator's calls. No CUDA
    graph with a call that receives into this memory may be running then, or be launched afterwards. As a context
    manager it closes when its body succeeds. After an error the communicator closes it with itself.
    """

    def __init__(self, communicator: int, region: int, owner: Any) -> None:
        self._communicator, self._region = communicator, region
        self._owner = owner

    def close(self) -> None:
        """Waits for the calls of this rank and deregisters the memory. Collective. Further calls have no effect."""
        region, self._region = self._region, 0
        if region:
            check(library().ncast_comm_deregister(self._communicator, region))
            self._owner = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def register(communicator: int, buffer: Any) -> Registration:
    """Implements Communicator.register."""
    found = None if buffer is None else view(buffer, "buffer", writable=True)
    pointer, count_bytes = (None, 0) if found is None else (found.pointer, found.elems * found.dtype.bytes)
    region = c_uint32()
    check(library().ncast_comm_register(communicator, pointer, count_bytes, byref(region)))
    return Registration(communicator, region.value, found)
