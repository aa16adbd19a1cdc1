"""Programs as in nccl_jobs.py: groups, aborts and failures that differ between ranks."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from ctypes import byref, c_int, c_void_p
from typing import Any

import numpy as np
from narrowcast._native.cuda_driver import Stream
from nccl_program import BFLOAT16, FLOAT32, INT32, JOIN_SECONDS, SUM, Program, program, sum_of_all, values_of

SMALL, LARGE = 100, 100_000


def _used_before(nccl: Program, stream: Stream, *comms: c_void_p) -> None:
    values = nccl.zeros(SMALL, "int32")
    for comm in comms:
        nccl("AllReduce", values, values, SMALL, INT32, SUM, comm, stream)
    stream.synchronize()


def _synchronize(stream: Stream) -> None:
    with contextlib.suppress(Exception):
        stream.synchronize()


def _twice(nccl: Program, comm: c_void_p) -> int:
    """A user-defined reduction of integers, which calls forward: twice the sum."""
    operation, factor = c_int(), c_int(2)
    nccl("RedOpCreatePreMulSum", byref(operation), byref(factor), INT32, 1, comm)
    return operation.value


def grouped_with_a_reduction(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 makes a user-defined reduction and a send in one group, the others one after the other."""
    with program(rank, ranks) as (nccl, comm, stream):
        _used_before(nccl, stream, comm)
        twice = _twice(nccl, comm)
        ones, total = nccl.put(np.ones(SMALL, np.int32)), nccl.zeros(SMALL, "int32")
        mine, received = nccl.put(values_of(rank, LARGE)), nccl.zeros(LARGE)
        with nccl.group() if rank == 0 else contextlib.nullcontext():
            nccl("AllReduce", ones, total, SMALL, INT32, twice, comm, stream)
            if rank == 0:
                nccl("Send", mine, LARGE, BFLOAT16, 1, comm, stream)
            if rank == 1:
                nccl("Recv", received, LARGE, BFLOAT16, 0, comm, stream)
        stream.synchronize()
        emit(rank != 1 or nccl.holds(received, values_of(0, LARGE)))
        nccl("CommDestroy", comm)


def two_communicators(*, rank: int, ranks: int, emit: Any) -> None:
    """A group on all ranks, in which only rank 0 has executed and forwarded transfers on a second communicator."""
    with program(rank, ranks) as (nccl, first, stream):
        second = c_void_p()
        nccl("CommSplit", first, 0, rank, byref(second), None)
        _used_before(nccl, stream, first, second)
        total = nccl.put(values_of(rank, LARGE, "int32"))
        small, small_received = nccl.put(values_of(rank, SMALL)), nccl.zeros(SMALL)
        large, large_received = nccl.put(values_of(rank, LARGE)), nccl.zeros(LARGE)
        with nccl.group():
            nccl("AllReduce", total, total, LARGE, INT32, SUM, first, stream)
            if rank < 2:
                nccl("Send", small, SMALL, BFLOAT16, 1 - rank, second, stream)
                nccl("Recv", small_received, SMALL, BFLOAT16, 1 - rank, second, stream)
            if rank == 0:
                nccl("Send", large, LARGE, BFLOAT16, 2, second, stream)
            if rank == 2:
                nccl("Recv", large_received, LARGE, BFLOAT16, 0, second, stream)
        stream.synchronize()
        correct = [nccl.holds(total, sum_of_all(ranks, LARGE))]
        correct.append(rank > 1 or nccl.holds(small_received, values_of(1 - rank, SMALL)))
        correct.append(rank != 2 or nccl.holds(large_received, values_of(0, LARGE)))
        emit(correct)
        nccl("CommDestroy", second)
        nccl("CommDestroy", first)


def aborted_together(*, rank: int, ranks: int, emit: Any) -> None:
    """Calls of two communicators hang, and one thread aborts both in a group. Emits how long this took."""
    with program(rank, ranks) as (nccl, first, stream):
        second = c_void_p()
        nccl("CommSplit", first, 0, rank, byref(second), None)
        _used_before(nccl, stream, first, second)
        if rank == 1:
            time.sleep(5)
            emit(0.0)
            # Exit without destructors, which might wait.
            os._exit(0)
        for comm, on in ((first, stream), (second, Stream())):
            values = nccl.zeros(SMALL, "int32")
            nccl("AllReduce", values, values, SMALL, INT32, SUM, comm, on)
            threading.Thread(target=_synchronize, args=[on]).start()
        time.sleep(0.5)
        begin = time.monotonic()
        with nccl.group():
            nccl("CommAbort", first)
            nccl("CommAbort", second)
        emit(time.monotonic() - begin)
        os._exit(0)


def aborted_at_a_first_reduction(*, rank: int, ranks: int, emit: Any) -> None:
    """The first call of rank 0 cannot be held, and waits for rank 1, which makes no call, until it is aborted."""
    with program(rank, ranks) as (nccl, comm, stream):
        if rank == 1:
            time.sleep(3)
            emit(None)
            os._exit(0)
        twice, ones, total = _twice(nccl, comm), nccl.put(np.ones(SMALL, np.int32)), nccl.zeros(SMALL, "int32")
        status: list[int] = []
        call = threading.Thread(
            target=lambda: status.append(nccl.status("AllReduce", ones, total, SMALL, INT32, twice, comm, stream))
        )
        call.start()
        time.sleep(1)
        nccl("CommAbort", comm)
        call.join()
        emit(status[0])


def out_of_memory(*, rank: int, ranks: int, refused_bytes: int, emit: Any) -> None:
    """Rank 1 cannot allocate memory for the exchange at the first collective. An abort ends the wait of the others."""
    if rank == 1:
        os.environ["NARROWCAST_TEST_REFUSED_BYTES"] = str(refused_bytes)
    with program(rank, ranks) as (nccl, comm, stream):
        values = nccl.zeros(SMALL, "int32")
        if rank != 1:
            abort = threading.Timer(2, lambda: nccl("CommAbort", comm))
            abort.start()
        status = [nccl.status("AllReduce", values, values, SMALL, INT32, SUM, comm, stream) for _ in range(2)]
        if rank == 1:
            error = c_int()
            nccl("CommGetAsyncError", comm, byref(error))
            status.append(error.value)
            time.sleep(3)
        emit(status)
        os._exit(0)


def rejected_by_one(*, rank: int, ranks: int, emit: Any) -> None:
    """The buffers of the root are in memory that Narrowcast rejects. Emits whether the call of each rank failed."""
    with program(rank, ranks) as (nccl, comm, stream):
        _used_before(nccl, stream, comm)
        memory = nccl.zeros(4 * SMALL + 8, "uint8")
        at = memory.part(1 if rank == 1 else 0, 4 * SMALL)
        failed = nccl.status("Broadcast", at, at, SMALL, FLOAT32, 1, comm, stream) != 0
        _synchronize(stream)
        error, begin = c_int(), time.monotonic()
        while not failed and error.value == 0 and time.monotonic() < begin + JOIN_SECONDS / 2:
            nccl("CommGetAsyncError", comm, byref(error))
        emit(failed or error.value != 0)
        nccl("CommAbort", comm)
