"""Programs as in nccl_jobs.py: communicators and ranks that end while calls are pending, or afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

from narrowcast._native.cuda_driver import DeviceBuffer, Gate, Stream, driver
from nccl_program import (
    BFLOAT16,
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


def finalized(*, rank: int, ranks: int, emit: Any) -> None:
    """ncclCommFinalize with pending calls. Emits whether they are complete, and the status of later calls."""
    count = 100_000
    with program(rank, ranks) as (nccl, comm, stream):
        calls = _Calls(nccl, comm, [stream], count)
        calls.make(6)
        was_pending = not calls.are_complete()
        nccl("CommFinalize", comm)
        complete = calls.are_complete()
        late = nccl.status("AllGather", calls.mine, calls.mine, 1, BFLOAT16, comm, stream)
        again = nccl.status("CommFinalize", comm)
        nccl("CommDestroy", comm)
    emit([was_pending, complete, late, again])


def finalized_after_an_abort(*, rank: int, ranks: int, with_pending_call: bool, emit: Any) -> None:
    """Rank 1 aborts a call that the last rank does not make. Rank 0 finalizes, with or without this call in flight.

    Emits the asynchronous errors of rank 0.
    """
    folder = Path(os.environ["TEST_FOLDER"])
    posted, aborted, finalized = (folder / name for name in ("posted", "aborted", "finalized"))
    error = c_int(-1)
    with program(rank, ranks) as (nccl, comm, stream):
        total = nccl.zeros(1000, "int32")
        arguments = ("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
        nccl(*arguments)
        stream.synchronize()
        if rank == 1 or (rank == 0 and with_pending_call):
            nccl(*arguments)
        # The fakes run calls when somebody waits for them.
        waiting = threading.Thread(target=lambda: driver().cuStreamSynchronize(c_void_p(stream.handle)))
        waiting.start()
        if rank == 0:
            posted.touch()
            _wait_for_file(aborted)
            nccl("CommFinalize", comm)
            nccl("CommGetAsyncError", comm, byref(error))
            finalized.touch()
        elif rank == 1:
            _wait_for_file(posted)
            time.sleep(0.5)  # until rank 0's call, if there is one, has begun to run
            nccl("CommAbort", comm)
            aborted.touch()
        _wait_for_file(finalized)
        if rank != 1:
            nccl("CommAbort", comm)
        waiting.join()
    emit(error.value)


def sender_leaves(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 completes a send and aborts before the receive of rank 1 begins to run.

    Emits whether the values have arrived, and the asynchronous error.
    """
    count, error = 1000, c_int(-1)
    posted, leaving = (Path(os.environ["TEST_FOLDER"]) / name for name in ("posted", "leaving"))
    with program(rank, ranks) as (nccl, comm, stream):
        values, total = nccl.put(values_of(rank, count)), nccl.zeros(count, "int32")
        nccl("AllReduce", total, total, count, INT32, SUM, comm, stream)  # attaches
        stream.synchronize()
        if rank == 0:
            _wait_for_file(posted)
            nccl("Send", values, count, BFLOAT16, 1, comm, stream)
            stream.synchronize()
            leaving.touch()
            nccl("CommAbort", comm)
        elif rank == 1:
            gate = Gate()
            gate.hold(stream)
            nccl("Recv", values, count, BFLOAT16, 0, comm, stream)
            posted.touch()
            _wait_for_file(leaving)
            time.sleep(0.1)  # until the abort is known here; the rest of ncclCommAbort may take longer than the grace
            gate.open()
            stream.synchronize()
            nccl("CommGetAsyncError", comm, byref(error))
            gate.close()
        emit([nccl.holds(values, values_of(0, count)), error.value])


def _wait_for_file(path: Path) -> None:
    end = time.monotonic() + JOIN_SECONDS / 2
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)


def destroyed_in_turn(*, ranks: int, emit: Any) -> None:
    """One thread drives all ranks of two communicators and destroys them rank by rank."""
    count, nccl, results = 1000, Program(0, ranks), []
    groups = [(c_void_p * ranks)() for _ in range(2)]
    for comms in groups:
        nccl("CommInitAll", comms, ranks, None)
        calls = []
        for rank in range(ranks):
            with on_gpu_of(rank):
                calls.append((nccl.put(values_of(rank, count, "int32")), nccl.zeros(count, "int32"), Stream()))
        with nccl.group():
            for comm, (mine, total, stream) in zip(comms, calls, strict=True):
                nccl("AllReduce", mine, total, count, INT32, SUM, comm, stream)
        for _, total, stream in calls:
            stream.synchronize()
            results.append(nccl.holds(total, sum_of_all(ranks, count)))
    for rank in range(ranks):
        for comms in groups:
            nccl("CommDestroy", comms[rank])
    emit(results)


def destroyed_with_pending_calls(*, rank: int, ranks: int, emit: Any) -> None:
    """Two communicators have calls on the same streams. The first is destroyed, and the other continues.

    Broadcasts are forwarded.
    """
    count = 100_000
    with program(rank, ranks) as (nccl, comm, one):
        other, part = Stream(), c_void_p()
        nccl("CommSplit", comm, 0, rank, byref(part), None)
        calls, of_part = (_Calls(nccl, each, [one, other], count) for each in (comm, part))
        copies = [nccl.put(values_of(rank, count)) for _ in range(4)]
        for copy in copies:
            calls.make(1)
            nccl("Broadcast", copy, copy, count, BFLOAT16, 1, comm, other)
            of_part.make(1)
        was_pending = not calls.are_complete()
        nccl("CommDestroy", comm)
        complete = calls.are_complete()
        of_part.make(4)
        one.synchronize()
        other.synchronize()
        correct = all(nccl.holds(copy, values_of(1, count)) for copy in copies)
        emit([was_pending, complete, correct, of_part.are_complete()])
        nccl("CommDestroy", part)


def aborted_with_pending_calls(*, rank: int, ranks: int, by: int, emit: Any) -> None:
    """Rank 0 sends long messages to rank 1. When the first values have arrived, rank `by` aborts.

    Emits the seconds until the calls have ended, whether the last message has arrived, and the asynchronous error.
    """
    messages, count_bytes = 8, 1 << 28
    begun, error = Path(os.environ["TEST_FOLDER"]) / "begun", c_int(0)
    with program(rank, ranks) as (nccl, comm, stream):
        memory, last = (DeviceBuffer(count_bytes).fill(0) for _ in range(2))
        if rank == 0:
            memory.write_tiled(values_of(1, 1 << 20).view("uint8"))
        first_values, last_values = memory.part(0, 1024), last.part(count_bytes - 1024, 1024)
        for buffer in [*[memory] * (messages - 1), memory if rank == 0 else last]:
            nccl("Recv" if rank else "Send", buffer, count_bytes // 2, BFLOAT16, 1 - rank, comm, stream)
        begin = time.monotonic()
        waiting = threading.Thread(target=lambda: driver().cuStreamSynchronize(c_void_p(stream.handle)))
        waiting.start()
        if rank == 1:
            while waiting.is_alive() and not nccl.get(first_values).any():
                time.sleep(0.001)
            begun.touch()
        if rank == by:
            while waiting.is_alive() and not begun.exists():
                time.sleep(0.001)
            nccl("CommAbort", comm)
        waiting.join()
        seconds = time.monotonic() - begin
        if rank != by:
            nccl("CommGetAsyncError", comm, byref(error))
            nccl("CommAbort", comm)
        emit([seconds, bool(nccl.get(last_values).any()), error.value])


def aborted(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 waits for ranks that make no call, until one of its own threads aborts the communicator."""
    ended = Path(os.environ["TEST_FOLDER"]) / "ended"
    with program(rank, ranks) as (nccl, comm, stream):
        total = nccl.zeros(1000, "int32")
        arguments = ("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
        nccl(*arguments)
        stream.synchronize()
        begin = time.monotonic()
        if rank == 0:
            threading.Timer(0.3, lambda: nccl("CommAbort", comm)).start()
            nccl(*arguments)
            driver().cuStreamSynchronize(c_void_p(stream.handle))
            ended.touch()
        else:
            # If this rank ended, rank 0 would stop waiting.
            while not ended.exists() and time.monotonic() < begin + JOIN_SECONDS / 2:
                time.sleep(0.01)
            nccl("CommAbort", comm)
    emit(time.monotonic() - begin)


def a_peer_dies(*, rank: int, ranks: int, emit: Any) -> None:
    """The last rank dies. The others write their asynchronous errors and the error message to a file."""
    with program(rank, ranks) as (nccl, comm, stream):
        total, error, states = nccl.zeros(1000, "int32"), c_int(-1), []
        arguments = ("AllReduce", total, total, 1000, INT32, SUM, comm, stream)
        for again in range(2):
            if again and rank == ranks - 1:
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGKILL)
            nccl(*arguments)
            driver().cuStreamSynchronize(c_void_p(stream.handle))
            nccl("CommGetAsyncError", comm, byref(error))
            states.append(error.value)
        message = nccl.nccl.ncclGetLastError(None).decode()
        (Path(os.environ["TEST_FOLDER"]) / str(rank)).write_text(f"{states} {message}")
        nccl("CommAbort", comm)
    emit(None)


class _Calls:
    """All-gathers of a communicator on alternating streams, with their results."""

    def __init__(self, nccl: Program, comm: c_void_p, streams: list[Stream], count: int) -> None:
        self.nccl, self.comm, self.streams, self.count = nccl, comm, streams, count
        self.mine = nccl.put(values_of(nccl.rank, count))
        self.results: list[DeviceBuffer] = []

    def make(self, calls: int) -> None:
        for _ in range(calls):
            stream = self.streams[len(self.results) % len(self.streams)]
            self.results.append(self.nccl.zeros(self.nccl.ranks * self.count))
            self.nccl("AllGather", self.mine, self.results[-1], self.count, BFLOAT16, self.comm, stream)

    def are_complete(self) -> bool:
        """Whether all results are correct now. Does not wait."""
        expected = values_of_all(self.nccl.ranks, self.count)
        return all(self.nccl.holds(result, expected) for result in self.results)
