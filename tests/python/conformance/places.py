"""Memory, streams and copies of a rank, with the same interface for all backends.

Memory is had once, before the first call, and then carved: to allocate or free GPU memory can wait for all kernels of
the GPU, and some of them may wait for this rank. Nothing here waits for more than its stream for the same reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from ctypes import c_size_t, c_uint64, c_void_p
from typing import Any

import narrowcast
import numpy as np
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer

_ALIGN_BYTES = 256


def be_on_host(rank: int, hosts: Sequence[int]) -> None:
    """Gives this process the host of the rank, if there are several."""
    if hosts:
        os.environ["NARROWCAST_HOSTID"] = f"host {hosts[rank]}"


class Place:
    """The memory of one rank."""

    backend: str

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes, self._used_bytes = capacity_bytes, 0

    def carve(self, count_bytes: int) -> Any:
        """Allocates memory until the next reset(), aligned to 256 bytes."""
        first = self._used_bytes
        self._used_bytes += -(-count_bytes // _ALIGN_BYTES) * _ALIGN_BYTES
        assert self._used_bytes <= self._capacity_bytes, "the cases of a section need more memory than a place has"
        return self.part(self._memory, first, count_bytes)

    @property
    def whole(self) -> Any:
        """The capacity in bytes."""
        return self._memory

    def reset(self) -> None:
        """Frees all memory."""
        self._used_bytes = 0

    def finish(self, comm: narrowcast.Communicator, stream: Any = None) -> None:
        """Waits for the stream. Raises the errors of the communicator's calls."""
        self.wait(stream)
        error = comm.async_error()
        if error is not None:
            raise error

    _memory: Any


class HostPlace(Place):
    """NumPy arrays of bytes. Copies are synchronous: the stream must be idle."""

    backend = "host"

    def __init__(self, device: int, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes)
        whole = np.empty(capacity_bytes + _ALIGN_BYTES, np.uint8)
        self._memory = whole[-whole.ctypes.data % _ALIGN_BYTES :][:capacity_bytes]

    def current(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def communicator(self, unique_id: str, rank: int, ranks: int, **options: Any) -> narrowcast.Communicator:
        return narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, **options)

    def stream(self) -> Any:
        return narrowcast.Stream()

    def wait(self, stream: Any) -> None:
        if stream is not None:
            stream.synchronize()

    def part(self, memory: Any, first: int, count_bytes: int) -> Any:
        return memory[first : first + count_bytes]

    def address(self, memory: Any) -> int:
        return int(memory.ctypes.data)

    def write(self, memory: Any, values: np.ndarray, stream: Any = None) -> None:
        memory[: values.size] = values

    def read(self, memory: Any, stream: Any = None) -> np.ndarray:
        self.wait(stream)
        return memory.copy()


class GpuPlace(Place):
    """Memory of a GPU. The thread must first make its context current with current()."""

    backend = "cuda"

    def __init__(self, device: int, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes)
        self._device = device
        with self.current():
            self._memory = DeviceBuffer(capacity_bytes)

    def current(self) -> contextlib.AbstractContextManager[None]:
        return cuda_driver.on_device(self._device)

    def communicator(self, unique_id: str, rank: int, ranks: int, **options: Any) -> narrowcast.Communicator:
        return narrowcast.Communicator(
            bytes.fromhex(unique_id), rank, ranks, backend="cuda", device=self._device, **options
        )

    def stream(self) -> Any:
        return cuda_driver.Stream()

    def wait(self, stream: Any) -> None:
        cuda_driver.call("cuStreamSynchronize", _handle(stream))

    def part(self, memory: Any, first: int, count_bytes: int) -> Any:
        return memory.part(first, count_bytes)

    def address(self, memory: Any) -> int:
        return int(memory.pointer)

    def write(self, memory: Any, values: np.ndarray, stream: Any = None) -> None:
        host = np.ascontiguousarray(values).view(np.uint8)
        if not host.nbytes:
            return
        cuda_driver.call(
            "cuMemcpyHtoDAsync_v2",
            c_uint64(memory.pointer),
            c_void_p(host.ctypes.data),
            c_size_t(host.nbytes),
            _handle(stream),
        )
        # The host memory is freed on return.
        self.wait(stream)

    def read(self, memory: Any, stream: Any = None) -> np.ndarray:
        host = np.empty(memory.count_bytes, np.uint8)
        if host.nbytes:
            cuda_driver.call(
                "cuMemcpyDtoHAsync_v2",
                c_void_p(host.ctypes.data),
                c_uint64(memory.pointer),
                c_size_t(host.nbytes),
                _handle(stream),
            )
        self.wait(stream)
        return host


def _handle(stream: Any) -> ctypes.c_void_p:
    return c_void_p(0 if stream is None else stream.handle)


def make(backend: str, device: int, capacity_bytes: int) -> Any:
    return {"host": HostPlace, "cuda": GpuPlace}[backend](device, capacity_bytes)
