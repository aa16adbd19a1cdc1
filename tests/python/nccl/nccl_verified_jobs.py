"""Programs as in nccl_jobs.py, whose calls the drop-in verifies. Each rank logs to a file."""

from __future__ import annotations

import os
from typing import Any

from narrowcast._native.cuda_driver import driver
from nccl_program import BFLOAT16, INT32, SUM, program, values_of


def verified(*, rank: int, ranks: int, in_place: bool, wrong: bool, emit: Any) -> None:
    """Calls whose results are compared. wrong: before the last call, the fake GPU of rank 0 returns wrong values."""
    _log_to_file(rank)
    count = 5000
    with program(rank, ranks) as (nccl, comm, stream):
        end = (comm, stream)
        every = nccl.zeros(ranks * count)
        own = every.part(2 * rank * count, 2 * count).write(values_of(rank, count))
        out = own if in_place else nccl.zeros(count)
        nccl("AllGather", own if in_place else nccl.put(values_of(rank, count)), every, count, BFLOAT16, *end)
        total = nccl.put(values_of(rank, count, "int32"))
        nccl("AllReduce", total, total if in_place else nccl.zeros(count, "int32"), count, INT32, SUM, *end)
        nccl("Scatter", every, out if rank == 1 else nccl.zeros(count), count, BFLOAT16, 1, *end)
        if wrong and rank == 0:
            driver().fake_make_copies_wrong()
        nccl("Broadcast", own, out, count, BFLOAT16, 1, *end)
    emit(None)


def verified_in_part(*, rank: int, ranks: int, emit: Any) -> None:
    """Calls whose results are not compared, or only on some ranks, and calls in groups."""
    _log_to_file(rank)
    count = 5000
    with program(rank, ranks) as (nccl, comm, stream):
        end = (comm, stream)
        mine, every = nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)
        whole, total = nccl.zeros(ranks * count, "int32"), nccl.zeros(count, "int32")
        nccl("Reduce", whole, total, count, INT32, SUM, 1, *end)
        nccl("ReduceScatter", whole, total, count, INT32, SUM, *end)
        with nccl.group():
            nccl("Send", mine, count, BFLOAT16, (rank + 1) % ranks, *end)
            nccl("Recv", every, count, BFLOAT16, (rank - 1) % ranks, *end)
        nccl("Gather", mine, every, count, BFLOAT16, 1, *end)
        with nccl.group():
            for _ in range(2):
                nccl("AllGather", mine, every, count, BFLOAT16, *end)
        stream.synchronize()
        nccl("CommDestroy", comm)
    emit(None)


def verified_sum(*, rank: int, ranks: int, wrong_on: int, emit: Any) -> None:
    """Two reductions. During the second, the fake GPU of one rank returns wrong values."""
    _log_to_file(rank)
    with program(rank, ranks) as (nccl, comm, stream):
        total = nccl.zeros(5000, "int32")
        for wrong in (False, rank == wrong_on):
            if wrong:
                driver().fake_make_copies_wrong()
            nccl("AllReduce", total, total, 5000, INT32, SUM, comm, stream)
        nccl("CommDestroy", comm)
    emit(None)


def _log_to_file(rank: int) -> None:
    log = os.open(f"{os.environ['TEST_FOLDER']}/{rank}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 2)
