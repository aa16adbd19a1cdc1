"""Programs as in nccl_jobs.py: rarely used functions of NCCL, and ranks that do not join or cannot attach."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import threading
import time
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import nccl_jobs
from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import Stream, driver
from nccl_program import (
    BFLOAT16,
    CONFIGURABLE,
    INT32,
    JOIN_SECONDS,
    SUM,
    Program,
    on_gpu_of,
    program,
    sum_of_all,
    values_of,
    values_of_all,
)


class SimulationInfo(ctypes.Structure):
    """ncclSimInfo_t."""

    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("estimated_time", c_float)]


class Extension(ctypes.Structure):
    """ncclConfigExt_t: a vendor's extension of a configuration."""

    _fields_ = [("next", c_void_p), ("vendor", c_int), ("option", c_int), ("value", c_void_p)]


class CallSettings(ctypes.Structure):
    """ncclCollConfig_t of NCCL 2.32."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("extensions", c_void_p),
        *((name, c_int) for name in ("min_ctas", "max_ctas", "nvls_ctas", "cluster_size")),
        ("algorithms", c_void_p),
        ("force_algorithms", c_int),
        ("cta_policy", c_int),
        ("profiler_tag", c_uint64),
        ("launched", c_void_p),
    ]


class WithSettings(Program):
    """Uses the variants with a configuration, which is overwritten when the call returns."""

    def status(self, name: str, *arguments: Any) -> int:
        if name not in CONFIGURABLE:
            return super().status(name, *arguments)
        unset = -(1 << 31)
        second = Extension(None, 7, 2, None)
        first = Extension(ctypes.addressof(second), 7, 1, None)
        bytes_of_all, magic, version = ctypes.sizeof(CallSettings), 0xCAFEBEEF, 23203
        settings = CallSettings(
            bytes_of_all, magic, version, ctypes.addressof(first), unset, unset, unset, unset, None, 1, unset, 42, None
        )
        status = super().status(f"{name}Config", *arguments, byref(settings))
        for structure in (settings, first, second):
            ctypes.memset(byref(structure), 0xFF, ctypes.sizeof(structure))
        return status


class WithoutSettings(Program):
    """Uses the variants with a configuration, and passes NULL."""

    def status(self, name: str, *arguments: Any) -> int:
        if name not in CONFIGURABLE:
            return super().status(name, *arguments)
        return super().status(f"{name}Config", *arguments, None)


def every_variant(*, given: bool, **arguments: Any) -> None:
    nccl_jobs.every_operation(kind=WithSettings if given else WithoutSettings, **arguments)


def in_separate_folders(*, rank: int, **arguments: Any) -> None:
    os.chdir(Path(os.environ["TEST_FOLDER"]) / str(rank))
    nccl_jobs.every_operation(rank=rank, count=100, **arguments)


def settings_in_a_group(*, rank: int, ranks: int, emit: Any) -> None:
    """A call with a configuration between two without, which is overwritten before the group ends."""
    count, found = 1000, []
    with program(rank, ranks) as (nccl, comm, stream):
        configured = WithSettings(rank, ranks)
        mine, whole = nccl.put(values_of(rank, count)), nccl.put(values_of(rank, count, "int32"))
        for _ in range(2):
            gathered, copy, total = nccl.zeros(ranks * count), nccl.zeros(count), nccl.zeros(count, "int32")
            with nccl.group():
                nccl("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
                configured("AllReduce", whole, total, count, INT32, SUM, comm, stream)
                nccl("Broadcast", mine, copy, count, BFLOAT16, 0, comm, stream)
            stream.synchronize()
            found.append(
                nccl.holds(gathered, values_of_all(ranks, count))
                and nccl.holds(total, sum_of_all(ranks, count))
                and nccl.holds(copy, values_of(0, count))
            )
        nccl("CommDestroy", comm)
    emit(found)


def simulated(*, rank: int, ranks: int, emit: Any) -> None:
    """Groups that are only simulated, before and after the ranks have attached, and groups that run."""
    count, found = 1000, []
    with program(rank, ranks) as (nccl, comm, stream):
        mine = nccl.put(values_of(rank, count, "int32"))
        for _ in range(2):
            total = nccl.zeros(count, "int32")
            arguments = ("AllReduce", mine, total, count, INT32, SUM, comm, stream)
            info = SimulationInfo(ctypes.sizeof(SimulationInfo), 0x74685283)
            nccl("GroupStart")
            nccl(*arguments)
            nccl("GroupSimulateEnd", byref(info))
            stream.synchronize()
            found.append(info.estimated_time > 0 and not nccl.get(total).any())
            with nccl.group():
                nccl(*arguments)
            stream.synchronize()
            found.append(nccl.holds(total, sum_of_all(ranks, count)))
        nccl("CommDestroy", comm)
    emit(found)


def scalable(*, rank: int, ranks: int, name: str, emit: Any) -> None:
    """A communicator with a name, created by ncclCommInitRankScalable."""
    with on_gpu_of(rank):
        nccl, comm, stream = Program(rank, ranks), c_void_p(), Stream()
        config = nccl_library.config("nccl")
        config.commName = name.encode()
        nccl("CommInitRankScalable", byref(comm), ranks, rank, 1, byref(nccl.unique_id()), byref(config))
        emit(_sum_is_correct(nccl, comm, stream, ranks))
        nccl("CommDestroy", comm)


def shrunk(*, rank: int, ranks: int, emit: Any) -> None:
    """A second communicator excludes the last rank. The first one is used afterwards."""
    with program(rank, ranks) as (nccl, comm, stream):
        found = [_sum_is_correct(nccl, comm, stream, ranks)]
        if rank < ranks - 1:
            part = _without_the_last(nccl, comm)
            found.append(_sum_is_correct(nccl, part, stream, ranks - 1))
            nccl("CommDestroy", part)
        found.append(_sum_is_correct(nccl, comm, stream, ranks))
        nccl("CommDestroy", comm)
    emit(found)


def grown(*, rank: int, ranks: int, emit: Any) -> None:
    """The last rank joins an existing communicator, which is used afterwards."""
    with on_gpu_of(rank):
        nccl, comm, all_of_them, stream = Program(rank, ranks - 1), c_void_p(), c_void_p(), Stream()
        is_new, found = rank == ranks - 1, []
        if not is_new:
            comm = nccl.communicator()
            found.append(_sum_is_correct(nccl, comm, stream, ranks - 1))
        joining = nccl.shared_id("grown", lambda made: nccl("CommGetUniqueId", comm, byref(made)))
        config = nccl_library.config("nccl")
        config.commName = b"whole"
        given = byref(joining) if rank in (0, ranks - 1) else None
        own = rank if is_new else -1
        nccl("CommGrow", comm, ranks, given, own, byref(all_of_them), byref(config))
        found.append(_sum_is_correct(nccl, all_of_them, stream, ranks))
        if not is_new:
            found.append(_sum_is_correct(nccl, comm, stream, ranks - 1))
            nccl("CommDestroy", comm)
        nccl("CommDestroy", all_of_them)
    emit(found)


def recovered(*, rank: int, ranks: int, revoke: bool, emit: Any) -> None:
    """The last rank does not make a call. The others end the call and continue without that rank.

    revoke: they revoke the communicator first; otherwise they shrink it with NCCL_SHRINK_ABORT. Emits the seconds until
    the call ended, the status of a call after the revocation, and whether the result without the last rank is correct.
    """
    folder = Path(os.environ["TEST_FOLDER"])
    with program(rank, ranks) as (nccl, comm, stream):
        assert _sum_is_correct(nccl, comm, stream, ranks)
        begin = time.monotonic()
        if rank == ranks - 1:
            # If this rank ended, the others would stop waiting.
            while len(list(folder.glob("*.went_on"))) < ranks - 1 and time.monotonic() < begin + JOIN_SECONDS / 2:
                time.sleep(0.01)
            emit(None)
        else:
            total = nccl.zeros(1000, "int32")
            arguments = ("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
            nccl(*arguments)
            waiting = threading.Thread(target=lambda: driver().cuStreamSynchronize(c_void_p(stream.handle)))
            waiting.start()
            time.sleep(0.3)
            status = 0
            if revoke:
                nccl("CommRevoke", comm, 0)
                status = nccl.status(*arguments)
            part = _without_the_last(nccl, comm, abort=not revoke)
            waiting.join()
            seconds = time.monotonic() - begin
            correct = _sum_is_correct(nccl, part, Stream(), ranks - 1)
            nccl("CommDestroy", part)
            (folder / f"{rank}.went_on").touch()
            emit([seconds, status, correct])
        nccl("CommDestroy", comm)


def first_group(*, rank: int, ranks: int, emit: Any) -> None:
    """Ranks 0 and 1 make a collective and a transfer: first in one group on rank 0, one after the other on rank 1."""
    with program(rank, ranks) as (nccl, comm, stream):
        mine, received, found = nccl.put(values_of(rank, 1000)), nccl.zeros(1000), []
        for _ in range(2):
            total = nccl.put(values_of(rank, 1000, "int32"))
            with nccl.group() if rank == 0 else contextlib.nullcontext():
                nccl("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
                if rank == 0:
                    nccl("Send", mine, 1000, BFLOAT16, 1, comm, stream)
                if rank == 1:
                    nccl("Recv", received, 1000, BFLOAT16, 0, comm, stream)
            stream.synchronize()
            found.append(nccl.holds(total, sum_of_all(ranks, 1000)))
            found.append(rank != 1 or nccl.holds(received, values_of(0, 1000)))
            received.fill(0)
        nccl("CommDestroy", comm)
    emit(found)


def one_cannot_attach(*, rank: int, ranks: int, unable: int, refused: bool, emit: Any) -> None:
    """One rank cannot open files when the communicator attaches, or is rejected. Emits correctness and seconds.

    Broadcasts are forwarded: the ranks agree at the first broadcast, and attach at the first all-reduce.
    """
    with program(rank, ranks) as (nccl, comm, stream):
        copy = nccl.put(values_of(rank, 1000))
        nccl("Broadcast", copy, copy, 1000, BFLOAT16, 0, comm, stream)
        begin = time.monotonic()
        fault = _refused if refused else _no_files
        with fault() if rank == unable else contextlib.nullcontext():
            correct = _sum_is_correct(nccl, comm, stream, ranks)
        seconds = time.monotonic() - begin
        correct = correct and _sum_is_correct(nccl, comm, stream, ranks) and nccl.holds(copy, values_of(0, 1000))
        nccl("CommDestroy", comm)
    emit([correct, seconds])


def registered(*, rank: int, ranks: int, emit: Any) -> None:
    """Registers, uses and deregisters two buffers. The fake's handle shows the arguments that NCCL received."""
    count, found = 1000, []
    with program(rank, ranks) as (nccl, comm, stream):
        buffers = [nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)]
        handles = [c_void_p() for _ in buffers]
        for buffer, handle in zip(buffers, handles, strict=True):
            nccl("CommRegister", comm, buffer, buffer.count_bytes, byref(handle))
            found.append(handle.value == buffer.pointer + buffer.count_bytes)
        nccl("AllGather", *buffers, count, BFLOAT16, comm, stream)
        stream.synchronize()
        found.append(nccl.holds(buffers[1], values_of_all(ranks, count)))
        found.append(nccl.status("CommDeregister", comm, buffers[0]) == 4)
        for handle in handles:
            nccl("CommDeregister", comm, handle)
        found.append(nccl.status("CommDeregister", comm, handles[0]) == 4)
        nccl("CommDestroy", comm)
    emit(found)


def repeated(*, rank: int, ranks: int, calls: int, emit: Any) -> None:
    """Makes the same call many times."""
    count = 1000
    with nccl_jobs.program(rank, ranks) as (nccl, comm, stream):
        mine, gathered = nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)
        for _ in range(calls):
            nccl("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
            stream.synchronize()
    emit(True)


def logged(*, ranks: int, path: str, emit: Any) -> None:
    """One thread drives all GPUs; messages go to a file."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    nccl_jobs.one_thread(ranks=ranks, emit=emit)


def _sum_is_correct(nccl: Program, comm: c_void_p, stream: Stream, ranks: int) -> bool:
    """Whether an all-reduce is correct. The communicator has the first `ranks` ranks."""
    total = nccl.put(values_of(nccl.rank, 1000, "int32"))
    nccl("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
    stream.synchronize()
    return nccl.holds(total, sum_of_all(ranks, 1000))


def _without_the_last(nccl: Program, comm: c_void_p, *, abort: bool = False) -> c_void_p:
    """A communicator with the name "part", shrunk from another one."""
    part, last, config = c_void_p(), c_int(nccl.ranks - 1), nccl_library.config("nccl")
    config.commName = b"part"
    nccl("CommShrink", comm, byref(last), 1, byref(part), byref(config), int(abort))
    return part


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """In the body, this process passes an invalid configuration to the engine."""
    os.environ["TEST_REFUSED"] = "1"
    try:
        yield
    finally:
        del os.environ["TEST_REFUSED"]


@contextlib.contextmanager
def _no_files() -> Iterator[None]:
    """In the body, this process cannot open files or sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def windowed(*, rank: int, ranks: int, emit: Any) -> None:
    """Makes the same call before and after the ranks register a window."""
    symmetric, count, bytes_of_window = 1, 1000, 4096
    with program(rank, ranks) as (nccl, comm, stream):
        mine, gathered = nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)
        memory, window = c_void_p(), c_void_p()
        arguments = ("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
        nccl(*arguments)
        nccl("MemAlloc", byref(memory), bytes_of_window)
        nccl("CommWindowRegister", comm, memory, bytes_of_window, byref(window), symmetric)
        nccl(*arguments)
        stream.synchronize()
        emit(nccl.holds(gathered, values_of_all(ranks, count)))
        nccl("CommWindowDeregister", comm, window)
        nccl("MemFree", memory)
        nccl("CommDestroy", comm)
