"""Programs as in nccl_jobs.py, whose ranks are on several hosts, as their environment says."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import random
from ctypes import byref, c_void_p
from typing import Any

import nccl_jobs
from nccl_program import (
    BFLOAT16,
    FLOAT32,
    INT32,
    SUM,
    Program,
    program,
    sum_of_all,
    values_of,
)

_CLONE_NEWNET = 0x40000000


def every_operation(*, rank: int, ranks: int, hosts: list[str], count: int, emit: Any) -> None:
    """hosts: the name of each rank's."""
    _enter(hosts[rank])
    nccl_jobs.every_operation(rank=rank, ranks=ranks, count=count, emit=emit)


def on_hosts(*, rank: int, hosts: list[str], body: str, **arguments: Any) -> None:
    """Another job. body: "module:name"."""
    _enter(hosts[rank])
    module, name = body.split(":")
    getattr(importlib.import_module(module), name)(rank=rank, **arguments)


def in_different_places(*, rank: int, ranks: int, place: str, emit: Any) -> None:
    """The last rank pretends to run elsewhere: TEST_PLACE names what differs."""
    if rank == ranks - 1:
        os.environ["TEST_PLACE"] = place
    nccl_jobs.every_operation(rank=rank, ranks=ranks, count=100, emit=emit)


def sums(
    *, rank: int, ranks: int, counts: list[int], split: bool, cut_off: bool, hosts: list[str] | None = None, emit: Any
) -> None:
    """All-reduces of these counts, and then, with `split`, on another communicator of all ranks. Emits whether the
    results are correct.

    cut_off: the last rank has no network. hosts: None: ranks are on hosts of their own. Messages go to a file.
    """
    log = os.open(f"{os.environ['TEST_FOLDER']}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    _enter(f"host of rank {rank}" if hosts is None else hosts[rank])
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


def messages(*, rank: int, ranks: int, hosts: list[str], order: str, emit: Any) -> None:
    """Sends from every rank to every other one, in groups that also have a collective: in one group, with one group for
    each distance, or in an order that differs between ranks. Emits whether the results are correct.
    """
    _enter(hosts[rank])
    counts = [3000 + 100 * distance for distance in range(ranks)]  # of the messages to the rank at this distance
    distances = list(range(ranks))
    if order == "shuffled":
        random.Random(rank).shuffle(distances)
    with program(rank, ranks) as (nccl, comm, stream):
        total = nccl.zeros(1000, "int32")
        whole = nccl.put(values_of(rank, 1000, "int32"))

        def sum_up() -> None:
            nccl("AllReduce", whole, total, 1000, INT32, SUM, comm, stream)

        sum_up()
        received = [nccl.zeros(count) for count in counts]
        with nccl.group() if order != "apart" else contextlib.nullcontext():
            for distance in distances:
                with nccl.group():
                    sent = nccl.put(values_of(100 * rank + distance, counts[distance]))
                    nccl("Send", sent, counts[distance], BFLOAT16, (rank + distance) % ranks, comm, stream)
                    source = (rank - distance) % ranks
                    nccl("Recv", received[distance], counts[distance], BFLOAT16, source, comm, stream)
            if order == "together":
                sum_up()
        stream.synchronize()
        correct = [
            nccl.holds(found, values_of(100 * ((rank - distance) % ranks) + distance, counts[distance]))
            for distance, found in enumerate(received)
        ]
        nccl("CommDestroy", comm)
        emit([*correct, nccl.holds(total, sum_of_all(ranks, 1000))])


def threads(*, rank: int, ranks: int, of_host: int, emit: Any) -> None:
    """All-gathers of threads: `ranks` processes, each on a host of its own, have `of_host` ranks each."""
    _enter(f"host of process {rank}")
    own = range(rank * of_host, (rank + 1) * of_host)
    emit(nccl_jobs.gathers_of_threads(Program(rank, ranks), own, ranks * of_host))


def with_another_setting(*, rank: int, ranks: int, hosts: list[str], name: str, value: str, emit: Any) -> None:
    """Every operation; the last rank has another setting."""
    if rank == ranks - 1:
        os.environ[name] = value
    every_operation(rank=rank, ranks=ranks, hosts=hosts, count=100, emit=emit)


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
