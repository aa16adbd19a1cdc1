"""Programs as in nccl_jobs.py: two ranks whose first calls differ, on a communicator created with an id."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import Stream
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
)

COUNT = 2000


class Pair:
    """One of two ranks, with the values that they exchange."""

    def __init__(self, nccl: Program, comm: c_void_p, stream: Stream) -> None:
        self.nccl, self.comm, self.stream = nccl, comm, stream
        self.rank, self.peer = nccl.rank, 1 - nccl.rank
        self.mine, self.received = nccl.put(values_of(self.rank, COUNT)), nccl.zeros(COUNT)
        self.vector, self.total = nccl.put(values_of(self.rank, COUNT, "int32")), nccl.zeros(COUNT, "int32")

    def send(self, to: int | None = None) -> None:
        self.nccl("Send", self.mine, COUNT, BFLOAT16, self.peer if to is None else to, self.comm, self.stream)

    def recv(self, source: int | None = None) -> None:
        where = self.peer if source is None else source
        self.nccl("Recv", self.received, COUNT, BFLOAT16, where, self.comm, self.stream)

    def reduce(self, op: int) -> None:
        self.nccl("AllReduce", self.vector, self.total, COUNT, INT32, op, self.comm, self.stream)

    def group(self) -> contextlib.AbstractContextManager[None]:
        return self.nccl.group()

    def exchange(self) -> None:
        with self.group():
            self.send()
            self.recv()

    def has(self, rank: int) -> bool:
        """Whether the received values are those of the rank. Clears them for the next exchange."""
        self.stream.synchronize()
        correct = self.nccl.holds(self.received, values_of(rank, COUNT))
        self.received.fill(0)
        return correct

    def has_sum(self, factor: int) -> bool:
        self.stream.synchronize()
        return self.nccl.holds(self.total, factor * sum_of_all(2, COUNT, "int32"))


@contextlib.contextmanager
def pair(rank: int, ranks: int) -> Iterator[Pair]:
    with program(rank, ranks) as (nccl, comm, stream):
        yield Pair(nccl, comm, stream)
        nccl("CommDestroy", comm)


def one_way_first(*, rank: int, ranks: int, emit: Any) -> None:
    """One rank sends, then receives; the other does both in a group."""
    with pair(rank, ranks) as two:
        if rank == 0:
            two.send()
            two.recv()
        else:
            two.exchange()
        found = [two.has(1 - rank)]
        two.exchange()
        emit([*found, two.has(1 - rank)])


def to_itself_first(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 first makes a transfer to itself, which rank 1 cannot see."""
    with pair(rank, ranks) as two:
        found = []
        if rank == 0:
            with two.group():
                two.send(0)
                two.recv(0)
            found.append(two.has(0))
        two.exchange()
        emit([*found, two.has(1 - rank)])


def collective_first(*, rank: int, ranks: int, emit: Any, users: bool = False) -> None:
    """Rank 0 makes a collective and a send in one group, rank 1 one after the other.

    users: a user-defined reduction, which cannot be held and causes rank 0's group to be forwarded.
    """
    with pair(rank, ranks) as two:
        op, factor = c_int(SUM), c_int(2)
        if users:
            two.nccl("RedOpCreatePreMulSum", byref(op), byref(factor), INT32, 1, two.comm)
        with two.group() if rank == 0 else contextlib.nullcontext():
            two.reduce(op.value)
            (two.send if rank == 0 else two.recv)()
        found = [two.has_sum(2 if users else 1)]
        if rank == 1:
            found.append(two.has(0))
        two.exchange()
        emit([*found, two.has(1 - rank)])


def captured_by_one(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 captures its first exchange and launches the graph. Rank 1 does not capture."""
    with pair(rank, ranks) as two:
        if rank == 0:
            with two.stream.capture() as graph:
                two.exchange()
            graph.launch(two.stream)
        else:
            two.exchange()
        found = [two.has(1 - rank)]
        two.exchange()
        found.append(two.has(1 - rank))
        if rank == 0:
            graph.close()
        emit(found)


def nonblocking_on_one(*, rank: int, ranks: int, emit: Any) -> None:
    """Only rank 1's communicator blocks."""
    with program(rank, ranks) as (nccl, first, stream):
        comm, config = c_void_p(), nccl_library.config("nccl")
        config.blocking = rank
        unique_id = nccl.shared_id("second", lambda made: nccl("GetUniqueId", byref(made)))
        assert nccl.status("CommInitRankConfig", byref(comm), ranks, unique_id, rank, byref(config)) in (0, 7)
        nccl.settle(comm)
        two = Pair(nccl, comm, stream)
        nccl("GroupStart")
        two.send()
        two.recv()
        assert nccl.status("GroupEnd") in (0, 7)
        nccl.settle(comm)
        emit([two.has(1 - rank)])
        nccl("CommDestroy", comm)
        nccl("CommDestroy", first)


def aborted(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 waits in its first send for rank 1, which makes no call. Emits the status of the send and its seconds."""
    gone_on = Path(os.environ["TEST_FOLDER"]) / "gone_on"
    with program(rank, ranks) as (nccl, comm, stream):
        begin = time.monotonic()
        if rank == 1:
            while not gone_on.exists() and time.monotonic() < begin + JOIN_SECONDS / 2:
                time.sleep(0.01)
            emit(None)
            nccl("CommDestroy", comm)
            return
        results: list[int] = []
        buffer = nccl.zeros(COUNT)

        def send() -> None:
            with on_gpu_of(rank):
                results.append(nccl.status("Send", buffer, COUNT, BFLOAT16, 1, comm, stream))

        waiting = threading.Thread(target=send)
        waiting.start()
        time.sleep(0.3)
        assert not results
        nccl("CommAbort", comm)
        waiting.join()
        gone_on.touch()
        emit([results[0], time.monotonic() - begin])


def without_the_drop_in(*, rank: int, ranks: int, emit: Any) -> None:
    """The drop-in of rank 0 is switched off."""
    if rank == 0:
        os.environ["NARROWCAST_OFF"] = "1"
    with pair(rank, ranks) as two:
        two.exchange()
        emit([two.has(1 - rank)])
