"""Helpers for programs that call NCCL, on a GPU or on the fakes: the library, memory, values."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import DeviceBuffer, Stream, call, on_device

INT32, FLOAT32, BFLOAT16 = 2, 7, 9
SUM = 0
JOIN_SECONDS = 60
RANKS_PER_GPU = int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))

_MOVE = [c_void_p, c_void_p, c_size_t, c_int]
_END = [c_void_p, c_void_p]
_SIGNATURES = {
    "Send": [c_void_p, c_size_t, c_int, c_int, *_END],
    "Recv": [c_void_p, c_size_t, c_int, c_int, *_END],
    "Bcast": [c_void_p, c_size_t, c_int, c_int, *_END],
    "AllGather": [*_MOVE, *_END],
    "AlltoAll": [*_MOVE, *_END],
    "Broadcast": [*_MOVE, c_int, *_END],
    "Gather": [*_MOVE, c_int, *_END],
    "Scatter": [*_MOVE, c_int, *_END],
    "AllReduce": [*_MOVE, c_int, *_END],
    "ReduceScatter": [*_MOVE, c_int, *_END],
    "Reduce": [*_MOVE, c_int, c_int, *_END],
    "GroupSimulateEnd": [c_void_p],
    "GetUniqueId": [c_void_p],
    "CommInitRank": [c_void_p, c_int, nccl_library.UniqueId, c_int],
    "CommInitRankConfig": [c_void_p, c_int, nccl_library.UniqueId, c_int, c_void_p],
    "CommInitRankScalable": [c_void_p, c_int, c_int, c_int, c_void_p, c_void_p],
    "CommInitAll": [c_void_p, c_int, c_void_p],
    "CommSplit": [c_void_p, c_int, c_int, c_void_p, c_void_p],
    "CommShrink": [c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_int],
    "CommGetUniqueId": [c_void_p, c_void_p],
    "CommGrow": [c_void_p, c_int, c_void_p, c_int, c_void_p, c_void_p],
    "CommRevoke": [c_void_p, c_int],
    "CommSuspend": [c_void_p, c_int],
    "CommResume": [c_void_p],
    "CommWindowRegister": [c_void_p, c_void_p, c_size_t, c_void_p, c_int],
    "CommWindowDeregister": [c_void_p, c_void_p],
    "CommRegister": [c_void_p, c_void_p, c_size_t, c_void_p],
    "CommDeregister": [c_void_p, c_void_p],
    "MemAlloc": [c_void_p, c_size_t],
    "MemFree": [c_void_p],
    "CommFinalize": [c_void_p],
    "CommDestroy": [c_void_p],
    "CommAbort": [c_void_p],
    "CommGetAsyncError": [c_void_p, c_void_p],
    "GetLastError": [c_void_p],
    "RedOpCreatePreMulSum": [c_void_p, c_void_p, c_int, c_int, c_void_p],
    "RedOpDestroy": [c_int, c_void_p],
}
# Functions with a variant that takes a configuration as its last argument.
CONFIGURABLE = ("AllGather", "AlltoAll", "Broadcast", "Gather", "Scatter", "AllReduce", "ReduceScatter", "Reduce")
_SIGNATURES |= {f"{name}Config": [*_SIGNATURES[name], c_void_p] for name in CONFIGURABLE}


def values_of(rank: int, count: int, dtype: str = "uint16") -> np.ndarray:
    """Values of a rank: for uint16 the bits of bfloat16 weights, otherwise small integers."""
    generator = np.random.default_rng(rank)
    if dtype == "uint16":
        return (generator.normal(0, 0.02, count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return generator.integers(-99, 99, count).astype(dtype)


def values_of_all(ranks: int, count: int) -> np.ndarray:
    return np.concatenate([values_of(rank, count) for rank in range(ranks)])


def sum_of_all(ranks: int, count: int, dtype: str = "int32") -> np.ndarray:
    return np.sum([values_of(rank, count, dtype) for rank in range(ranks)], axis=0, dtype=dtype)


class Program:
    """libnccl.so.2 as the loader finds it, and memory of the current GPU that lives as long as this object."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        if RANKS_PER_GPU > 1:
            # NCCL rejects ranks of one host that share a GPU. It reads the host id once. Narrowcast prefers its own.
            os.environ["NCCL_HOSTID"] = f"rank {rank}"
            os.environ.setdefault("NARROWCAST_HOSTID", "the host of all ranks")
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.nccl.ncclGetLastError.restype = c_char_p
        for name, arguments in _SIGNATURES.items():
            getattr(self.nccl, f"nccl{name}").argtypes = arguments
        self._kept: list[DeviceBuffer] = []

    def status(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.nccl, f"nccl{name}")(*map(_plain, arguments)))

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self.status(name, *arguments)
        assert status == 0, f"nccl{name} returned {status}: {self.nccl.ncclGetLastError(None).decode()}"

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        self("GroupStart")
        yield
        self("GroupEnd")

    def unique_id(self) -> nccl_library.UniqueId:
        """The id that rank 0 creates, passed to the other ranks through a file."""
        return self.shared_id("unique_id", lambda unique_id: self("GetUniqueId", byref(unique_id)))

    def shared_id(self, name: str, make: Callable[[nccl_library.UniqueId], None]) -> nccl_library.UniqueId:
        """As unique_id(), for an id that rank 0 creates with `make`."""
        path = Path(os.environ["TEST_FOLDER"]) / name
        unique_id = nccl_library.UniqueId()
        if self.rank == 0:
            make(unique_id)
            path.with_suffix(".new").write_bytes(bytes(unique_id))
            path.with_suffix(".new").rename(path)
        deadline = time.monotonic() + JOIN_SECONDS
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return nccl_library.UniqueId.from_buffer_copy(path.read_bytes())

    def communicator(self) -> c_void_p:
        comm = c_void_p()
        self("CommInitRank", byref(comm), self.ranks, self.unique_id(), self.rank)
        return comm

    def settle(self, comm: c_void_p) -> None:
        """Waits until a nonblocking communicator has no operation in progress on the host."""
        state = c_int(7)
        while state.value == 7:
            self("CommGetAsyncError", comm, byref(state))
        assert state.value == 0

    def put(self, values: np.ndarray) -> DeviceBuffer:
        self._kept.append(DeviceBuffer(values.nbytes).write(values))
        return self._kept[-1]

    def zeros(self, count: int, dtype: str = "uint16") -> DeviceBuffer:
        return self.put(np.zeros(count, dtype))

    @staticmethod
    def get(buffer: DeviceBuffer, dtype: str = "uint16") -> np.ndarray:
        """The current content, without waiting for streams."""
        host = np.empty(buffer.count_bytes, np.uint8)
        if host.nbytes:
            call("cuMemcpyDtoH_v2", c_void_p(host.ctypes.data), ctypes.c_uint64(buffer.pointer), c_size_t(host.nbytes))
        return host.view(dtype)

    def holds(self, buffer: DeviceBuffer, expected: np.ndarray) -> bool:
        return np.array_equal(self.get(buffer, str(expected.dtype)), expected)


def _plain(argument: Any) -> Any:
    if isinstance(argument, DeviceBuffer):
        return argument.pointer
    return argument.handle if isinstance(argument, Stream) else argument


def on_gpu_of(rank: int) -> contextlib.AbstractContextManager[None]:
    gpus = c_int(rank + 1)
    if RANKS_PER_GPU > 1:
        call("cuDeviceGetCount", byref(gpus))
    return on_device(rank % gpus.value)


@contextlib.contextmanager
def program(rank: int, ranks: int, kind: type[Program] = Program) -> Iterator[tuple[Program, c_void_p, Stream]]:
    """Creates a communicator of all ranks and a stream, on the rank's GPU."""
    with on_gpu_of(rank):
        nccl = kind(rank, ranks)
        comm = nccl.communicator()
        yield nccl, comm, Stream()
