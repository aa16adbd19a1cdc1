"""Programs as in nccl_jobs.py: they only send and receive, on communicators created in various ways."""

from __future__ import annotations

import contextlib
import os
import time
from ctypes import byref, c_int, c_void_p
from typing import Any

from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import Stream
from nccl_program import BFLOAT16, Program, on_gpu_of, program, values_of

COUNT = 2000


def transfers(*, rank: int, ranks: int, way: str, emit: Any) -> None:
    """Transfers on a communicator of all ranks. way: how it is created."""
    with on_gpu_of(rank):
        nccl, comm, config = Program(rank, ranks), c_void_p(), nccl_library.config("nccl")
        unique_id = nccl.unique_id()
        end = (ranks, unique_id, rank)
        with nccl.group() if way == "in a group" else contextlib.nullcontext():
            if way == "with a configuration":
                nccl("CommInitRankConfig", byref(comm), *end, byref(config))
            elif way == "scalable":
                nccl("CommInitRankScalable", byref(comm), ranks, rank, 1, byref(unique_id), byref(config))
            else:
                nccl("CommInitRank", byref(comm), *end)
        emit([_ring_is_correct(nccl, comm, rank, ranks) for _ in range(2)])
        nccl("CommDestroy", comm)


def one_thread(*, ranks: int, grouped: bool, emit: Any) -> None:
    """One thread drives all ranks, created by ncclCommInitAll or in a group."""
    nccl, comms, calls, results = Program(0, ranks), (c_void_p * ranks)(), [], []
    if grouped:
        unique_id = nccl.unique_id()
        with nccl.group():
            for rank in range(ranks):
                with on_gpu_of(rank):
                    # A program may copy the handle and reuse its variable before the group ends.
                    created = c_void_p()
                    nccl("CommInitRank", byref(created), ranks, unique_id, rank)
                    comms[rank], created.value = created.value, 1
    else:
        nccl("CommInitAll", comms, ranks, None)
    for rank in range(ranks):
        with on_gpu_of(rank):
            calls.append((nccl.put(values_of(rank, COUNT)), nccl.zeros(COUNT), Stream()))
    with nccl.group():
        for rank, (mine, received, stream) in enumerate(calls):
            with on_gpu_of(rank):
                nccl("Send", mine, COUNT, BFLOAT16, (rank + 1) % ranks, comms[rank], stream)
                nccl("Recv", received, COUNT, BFLOAT16, (rank - 1) % ranks, comms[rank], stream)
    for rank, (_, received, stream) in enumerate(calls):
        with on_gpu_of(rank):
            stream.synchronize()
            results.append(nccl.holds(received, values_of((rank - 1) % ranks, COUNT)))
    for comm in comms:
        nccl("CommDestroy", comm)
    emit(results)


def split(*, rank: int, ranks: int, grouped: bool, emit: Any) -> None:
    """A split in which the last rank gets no communicator. The original communicator is used too."""
    with program(rank, ranks) as (nccl, comm, _):
        part = c_void_p()
        with nccl.group() if grouped else contextlib.nullcontext():
            nccl("CommSplit", comm, -1 if rank == ranks - 1 else 0, rank, byref(part), None)
        results = [_ring_is_correct(nccl, comm, rank, ranks)]
        if part:
            results.append(_ring_is_correct(nccl, part, rank, ranks - 1))
            nccl("CommDestroy", part)
        nccl("CommDestroy", comm)
    emit(results)


def shrunk_and_grown(*, rank: int, ranks: int, emit: Any) -> None:
    """The last rank is excluded from a communicator, and joins again."""
    with program(rank, ranks) as (nccl, comm, _):
        part, whole, last, results = c_void_p(), c_void_p(), c_int(ranks - 1), []
        if rank != last.value:
            nccl("CommShrink", comm, byref(last), 1, byref(part), None, 0)
            results.append(_ring_is_correct(nccl, part, rank, ranks - 1))
        joining = nccl.shared_id("grown", lambda created: nccl("CommGetUniqueId", part, byref(created)))
        given, own = (byref(joining) if rank in (0, last.value) else None), (-1 if part else rank)
        nccl("CommGrow", part, ranks, given, own, byref(whole), byref(nccl_library.config("nccl")))
        results.append(_ring_is_correct(nccl, whole, rank, ranks))
        for one in (part, whole, comm):
            nccl("CommDestroy", one)
    emit(results)


def destroyed_before_use(*, rank: int, ranks: int, end: str, emit: Any) -> None:
    """A communicator is destroyed before its first call. Another one follows."""
    with program(rank, ranks) as (nccl, comm, _):
        nccl(end, comm)
        unique_id, other = nccl.shared_id("second", lambda created: nccl("GetUniqueId", byref(created))), c_void_p()
        nccl("CommInitRank", byref(other), ranks, unique_id, rank)
        emit(_ring_is_correct(nccl, other, rank, ranks))
        nccl("CommDestroy", other)


def nonblocking(*, rank: int, ranks: int, emit: Any) -> None:
    """A nonblocking communicator, and one that is split from it."""
    with on_gpu_of(rank):
        nccl, comm, part, config = Program(rank, ranks), c_void_p(), c_void_p(), nccl_library.config("nccl")
        config.blocking = 0
        nccl("CommInitRankConfig", byref(comm), ranks, nccl.unique_id(), rank, byref(config))
        nccl("CommSplit", comm, 0, rank, byref(part), None)
        emit(_ring_is_correct(nccl, part, rank, ranks))
        nccl("CommDestroy", part)
        nccl("CommDestroy", comm)


def during_a_capture(*, rank: int, ranks: int, emit: Any) -> None:
    """A communicator is created while this thread captures a call of another one. The graph is launched twice."""
    with program(rank, ranks) as (nccl, comm, stream):
        unique_id, other = nccl.shared_id("second", lambda created: nccl("GetUniqueId", byref(created))), c_void_p()
        mine, received, results = nccl.put(values_of(rank, COUNT)), nccl.zeros(COUNT), []
        with stream.capture() as graph:
            _exchange(nccl, comm, rank, ranks, mine, received, stream)
            nccl("CommInitRank", byref(other), ranks, unique_id, rank)
        for launch in range(2):
            mine.write(values_of(100 * launch + rank, COUNT))
            graph.launch(stream)
            stream.synchronize()
            results.append(nccl.holds(received, values_of(100 * launch + (rank - 1) % ranks, COUNT)))
        results.append(_ring_is_correct(nccl, other, rank, ranks))
        graph.close()
        nccl("CommDestroy", other)
        nccl("CommDestroy", comm)
    emit(results)


def refused(*, rank: int, ranks: int, unable: int, emit: Any) -> None:
    """The engine rejects a rank."""
    if rank == unable:
        os.environ["TEST_REFUSED"] = "1"
    transfers(rank=rank, ranks=ranks, way="by rank", emit=emit)


def one_attaches_late(*, rank: int, ranks: int, seconds: float, emit: Any) -> None:
    """The last rank attaches at a collective, which it makes late. Each rank logs to a file."""
    log = os.open(f"{os.environ['TEST_FOLDER']}/{rank}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 2)
    if rank == ranks - 1:
        os.environ["NARROWCAST_ATTACH"] = "first"
    with program(rank, ranks) as (nccl, comm, stream):
        if rank == ranks - 1:
            time.sleep(seconds)
        copy = nccl.put(values_of(rank, COUNT))
        nccl("Broadcast", copy, copy, COUNT, BFLOAT16, 0, comm, stream)
        stream.synchronize()
        emit(nccl.holds(copy, values_of(0, COUNT)))
        nccl("CommDestroy", comm)


def _ring_is_correct(nccl: Program, comm: c_void_p, rank: int, ranks: int) -> bool:
    """Whether a ring exchange gives correct values."""
    received, stream = nccl.zeros(COUNT), Stream()
    _exchange(nccl, comm, rank, ranks, nccl.put(values_of(rank, COUNT)), received, stream)
    stream.synchronize()
    return nccl.holds(received, values_of((rank - 1) % ranks, COUNT))


def _exchange(nccl: Program, comm: c_void_p, rank: int, ranks: int, mine: Any, received: Any, stream: Stream) -> None:
    with nccl.group():
        nccl("Send", mine, COUNT, BFLOAT16, (rank + 1) % ranks, comm, stream)
        nccl("Recv", received, COUNT, BFLOAT16, (rank - 1) % ranks, comm, stream)
