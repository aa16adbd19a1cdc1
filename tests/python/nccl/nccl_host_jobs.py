"""Programs as in nccl_jobs.py, whose ranks are on several hosts, as their environment says."""

from __future__ import annotations

import contextlib
import ctypes
import os
from ctypes import byref, c_void_p
from typing import Any

import nccl_jobs
from nccl_program import FLOAT32, INT32, SUM, Program, program, sum_of_all, values_of

_CLONE_NEWNET = 0x40000000


def every_operation(*, rank: int, ranks: int, hosts: list[str], count: int, emit: Any) -> None:
    """hosts: the name of each rank's."""
    _enter(hosts[rank])
    nccl_jobs.every_operation(rank=rank, ranks=ranks, count=count, emit=emit)


def in_different_places(*, rank: int, ranks: int, place: str, emit: Any) -> None:
    """The last rank pretends to run elsewhere: TEST_PLACE names what differs."""
    if rank == ranks - 1:
        os.environ["TEST_PLACE"] = place
    nccl_jobs.every_operation(rank=rank, ranks=ranks, count=100, emit=emit)


def sums(*, rank: int, ranks: int, counts: list[int], split: bool, cut_off: bool, emit: Any) -> None:
    """All-reduces of these counts between ranks on hosts of their own, and then, with `split`, on another communicator
    of all ranks. Emits whether the results are correct.

    cut_off: the last rank has no network. Messages go to a file.
    """
    log = os.open(f"{os.environ['TEST_FOLDER']}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    _enter(f"host of rank {rank}")
    if cut_off and rank == ranks - 1 and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with program(rank, ranks) as (nccl, comm, stream), contextlib.ExitStack() as stack:
        comms = [comm]
        if split:
            again = c_void_p()
            nccl("CommSplit", comm, 0, rank, byref(again), None)
            comms.append(again)
        correct = []
        for one in comms:
            stack.callback(nccl, "CommDestroy", one)
            correct.append([_sums(nccl, one, stream, rank, ranks, count) for count in counts])
        emit(correct)


def _enter(host: str) -> None:
    """NCCL then uses sockets between its hosts."""
    os.environ["NARROWCAST_HOSTID"] = os.environ["NCCL_HOSTID"] = host


def _sums(nccl: Program, comm: c_void_p, stream: Any, rank: int, ranks: int, count: int) -> bool:
    """Of floats that are integers, so that sums in any order have the same bits."""
    mine, total = nccl.put(values_of(rank, count, "int32")), nccl.zeros(count, "int32")
    floats, float_total = nccl.put(values_of(rank, count, "float32")), nccl.zeros(count, "float32")
    nccl("AllReduce", mine, total, count, INT32, SUM, comm, stream)
    nccl("AllReduce", floats, float_total, count, FLOAT32, SUM, comm, stream)
    stream.synchronize()
    return nccl.holds(total, sum_of_all(ranks, count)) and nccl.holds(float_total, sum_of_all(ranks, count, "float32"))
