"""As nccl_jobs.py: programs that only send and receive, on communicators that are made in every way."""

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
    """On a communicator of all ranks that is made one way or another."""
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
        emit([_ring_is_right(nccl, comm, rank, ranks) for _ in range(2)])
        nccl("CommDestroy", comm)


def one_thread(*, ranks: int, grouped: bool, emit: Any) -> None:
    """One thread has all ranks, of ncclCommInitAll or of a group."""
    nccl, comms, calls, found = Program(0, ranks), (c_void_p * ranks)(), [], []
    if grouped:
        unique_id = nccl.unique_id()
        with nccl.group():
            for rank in range(ranks):
                with on_gpu_of(rank):
                    # Where the handle is kept may move before the group ends.
                    made = c_void_p()
                    nccl("CommInitRank", byref(made), ranks, unique_id, rank)
                    comms[rank], made.value = made.value, 1
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
            found.append(nccl.holds(received, values_of((rank - 1) % ranks, COUNT)))
    for comm in comms:
        nccl("CommDestroy", comm)
    emit(found)


def split(*, rank: int, ranks: int, grouped: bool, emit: Any) -> None:
    """The last rank gets no communicator; the others use theirs, and all the one that was split."""
    with program(rank, ranks) as (nccl, comm, _):
        part = c_void_p()
        with nccl.group() if grouped else contextlib.nullcontext():
            nccl("CommSplit", comm, -1 if rank == ranks - 1 else 0, rank, byref(part), None)
        found = [_ring_is_right(nccl, comm, rank, ranks)]
        if part:
            found.append(_ring_is_right(nccl, part, rank, ranks - 1))
            nccl("CommDestroy", part)
        nccl("CommDestroy", comm)
    emit(found)


def shrunk_and_grown(*, rank: int, ranks: int, emit: Any) -> None:
    """The last rank is left out of a communicator, and joins it again."""
    with program(rank, ranks) as (nccl, comm, _):
        part, whole, last, found = c_void_p(), c_void_p(), c_int(ranks - 1), []
        if rank != last.value:
            nccl("CommShrink", comm, byref(last), 1, byref(part), None, 0)
            found.append(_ring_is_right(nccl, part, rank, ranks - 1))
        joining = nccl.passed_on("grown", lambda made: nccl("CommGetUniqueId", part, byref(made)))
        given, own = (byref(joining) if rank in (0, last.value) else None), (-1 if part else rank)
        nccl("CommGrow", part, ranks, given, own, byref(whole), byref(nccl_library.config("nccl")))
        found.append(_ring_is_right(nccl, whole, rank, ranks))
        for one in (part, whole, comm):
            nccl("CommDestroy", one)
    emit(found)


def ended_at_once(*, rank: int, ranks: int, end: str, emit: Any) -> None:
    """A communicator ends before it has had a call; another follows."""
    with program(rank, ranks) as (nccl, comm, _):
        nccl(end, comm)
        unique_id, other = nccl.passed_on("second", lambda made: nccl("GetUniqueId", byref(made))), c_void_p()
        nccl("CommInitRank", byref(other), ranks, unique_id, rank)
        emit(_ring_is_right(nccl, other, rank, ranks))
        nccl("CommDestroy", other)


def not_blocking(*, rank: int, ranks: int, emit: Any) -> None:
    """A communicator that does not block, and one that is split off it."""
    with on_gpu_of(rank):
        nccl, comm, part, config = Program(rank, ranks), c_void_p(), c_void_p(), nccl_library.config("nccl")
        config.blocking = 0
        nccl("CommInitRankConfig", byref(comm), ranks, nccl.unique_id(), rank, byref(config))
        nccl("CommSplit", comm, 0, rank, byref(part), None)
        emit(_ring_is_right(nccl, part, rank, ranks))
        nccl("CommDestroy", part)
        nccl("CommDestroy", comm)


def beside_a_capture(*, rank: int, ranks: int, emit: Any) -> None:
    """A communicator is made while this thread captures a call of another, which runs twice."""
    with program(rank, ranks) as (nccl, comm, stream):
        unique_id, other = nccl.passed_on("second", lambda made: nccl("GetUniqueId", byref(made))), c_void_p()
        mine, received, found = nccl.put(values_of(rank, COUNT)), nccl.zeros(COUNT), []
        with stream.capture() as graph:
            _exchange(nccl, comm, rank, ranks, mine, received, stream)
            nccl("CommInitRank", byref(other), ranks, unique_id, rank)
        for launch in range(2):
            mine.write(values_of(100 * launch + rank, COUNT))
            graph.launch(stream)
            stream.synchronize()
            found.append(nccl.holds(received, values_of(100 * launch + (rank - 1) % ranks, COUNT)))
        found.append(_ring_is_right(nccl, other, rank, ranks))
        graph.close()
        nccl("CommDestroy", other)
        nccl("CommDestroy", comm)
    emit(found)


def refused(*, rank: int, ranks: int, unable: int, emit: Any) -> None:
    """The engine refuses a rank."""
    if rank == unable:
        os.environ["TEST_REFUSED"] = "1"
    transfers(rank=rank, ranks=ranks, way="by rank", emit=emit)


def one_attaches_late(*, rank: int, ranks: int, seconds: float, emit: Any) -> None:
    """The last rank waits for a collective, which comes late. What the drop-in says stands in a file."""
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


def _ring_is_right(nccl: Program, comm: c_void_p, rank: int, ranks: int) -> bool:
    """Each rank sends to the next."""
    received, stream = nccl.zeros(COUNT), Stream()
    _exchange(nccl, comm, rank, ranks, nccl.put(values_of(rank, COUNT)), received, stream)
    stream.synchronize()
    return nccl.holds(received, values_of((rank - 1) % ranks, COUNT))


def _exchange(nccl: Program, comm: c_void_p, rank: int, ranks: int, mine: Any, received: Any, stream: Stream) -> None:
    with nccl.group():
        nccl("Send", mine, COUNT, BFLOAT16, (rank + 1) % ranks, comm, stream)
        nccl("Recv", received, COUNT, BFLOAT16, (rank - 1) % ranks, comm, stream)
