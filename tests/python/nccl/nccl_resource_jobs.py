"""Programs as in nccl_jobs.py: they limit the resources of a communicator, or suspend it."""

from __future__ import annotations

import contextlib
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from nccl_program import BFLOAT16, Program, on_gpu_of, program, values_of, values_of_all

COUNT = 2000
SUSPEND_MEMORY = 1
POLICIES = {"default": 0, "efficiency": 1, "zero": 2}


def limited(
    *, rank: int, ranks: int, max_ctas: list[int] | None = None, policy: str | None = None, split: str = "", emit: Any
) -> None:
    """An all-gather on a communicator that is created with a configuration, or split from one: alone, or in a group."""
    with on_gpu_of(rank):
        nccl, comm, config = Program(rank, ranks), c_void_p(), nccl_library.config("nccl")
        if max_ctas is not None:
            config.maxCTAs = max_ctas[rank]
        if policy is not None:
            config.CTAPolicy = POLICIES[policy]
        unlimited = byref(nccl_library.config("nccl"))
        given = unlimited if split.endswith("with a configuration") else byref(config)
        nccl("CommInitRankConfig", byref(comm), ranks, nccl.unique_id(), rank, given)
        comms = [comm]
        if split:
            part = c_void_p()
            own = byref(config) if split.endswith("with a configuration") else None
            with nccl.group() if split.startswith("grouped") else contextlib.nullcontext():
                nccl("CommSplit", comm, 0, rank, byref(part), own)
            comms.append(part)
        emit(_gathers(nccl, comms[-1], rank, ranks))
        for one in comms:
            nccl("CommDestroy", one)


def suspended(*, rank: int, ranks: int, attached: bool, emit: Any) -> None:
    """Calls before ncclCommSuspend and after ncclCommResume. Emits whether memory is held at each step."""
    with program(rank, ranks) as (nccl, comm, _):
        correct = [_gathers(nccl, comm, rank, ranks)] if attached else []
        held = [_holds_memory()]
        for _ in range(2):
            nccl("CommSuspend", comm, SUSPEND_MEMORY)
            held.append(_holds_memory())
            nccl("CommResume", comm)
            held.append(_holds_memory())
            # No collectives: the ranks would attach at the first one anyway.
            correct.append(_sends_around(nccl, comm, rank, ranks))
        nccl("CommDestroy", comm)
    emit({"correct": correct, "held": held})


def suspended_by_one_thread(*, ranks: int, emit: Any) -> None:
    """One thread drives all ranks, and suspends and resumes them in groups."""
    nccl, comms, held = Program(0, ranks), (c_void_p * ranks)(), []
    nccl("CommInitAll", comms, ranks, None)
    correct = [_gathers_on_all(nccl, comms)]
    held.append(_holds_memory())
    with nccl.group():
        for comm in comms:
            nccl("CommSuspend", comm, SUSPEND_MEMORY)
    held.append(_holds_memory())
    with nccl.group():
        for comm in comms:
            nccl("CommResume", comm)
    held.append(_holds_memory())
    correct.append(_gathers_on_all(nccl, comms))
    for comm in comms:
        nccl("CommDestroy", comm)
    emit({"correct": correct, "held": held})


def suspended_with_a_graph(*, rank: int, ranks: int, emit: Any) -> None:
    """A captured call is replayed after the communicator was suspended. The last rank captures nothing."""
    with program(rank, ranks) as (nccl, comm, stream):
        correct = [_gathers(nccl, comm, rank, ranks)]
        copy, graph = nccl.put(values_of(rank, COUNT)), contextlib.nullcontext()
        if rank < 2:
            with stream.capture() as graph:
                if rank == 0:
                    nccl("Send", copy, COUNT, BFLOAT16, 1, comm, stream)
                else:
                    nccl("Recv", copy, COUNT, BFLOAT16, 0, comm, stream)
        nccl("CommSuspend", comm, SUSPEND_MEMORY)
        held = _holds_memory()
        nccl("CommResume", comm)
        if rank < 2:
            graph.launch(stream)
            stream.synchronize()
            correct.append(nccl.holds(copy, values_of(0, COUNT)))
            graph.close()
        nccl("CommDestroy", comm)
    emit({"correct": correct, "held": held})


def _gathers(nccl: Program, comm: c_void_p, rank: int, ranks: int) -> bool:
    gathered, stream = nccl.zeros(ranks * COUNT), Stream()
    nccl("AllGather", nccl.put(values_of(rank, COUNT)), gathered, COUNT, BFLOAT16, comm, stream)
    stream.synchronize()
    return nccl.holds(gathered, values_of_all(ranks, COUNT))


def _gathers_on_all(nccl: Program, comms: Any) -> bool:
    ranks = len(comms)
    calls: list[tuple[DeviceBuffer, DeviceBuffer, Stream]] = []
    for rank in range(ranks):
        with on_gpu_of(rank):
            calls.append((nccl.put(values_of(rank, COUNT)), nccl.zeros(ranks * COUNT), Stream()))
    with nccl.group():
        for rank, (mine, gathered, stream) in enumerate(calls):
            with on_gpu_of(rank):
                nccl("AllGather", mine, gathered, COUNT, BFLOAT16, comms[rank], stream)
    for _, _, stream in calls:
        stream.synchronize()
    return all(nccl.holds(gathered, values_of_all(ranks, COUNT)) for _, gathered, _ in calls)


def _sends_around(nccl: Program, comm: c_void_p, rank: int, ranks: int) -> bool:
    received, stream = nccl.put(np.zeros(COUNT, "uint16")), Stream()
    with nccl.group():
        nccl("Send", nccl.put(values_of(rank, COUNT)), COUNT, BFLOAT16, (rank + 1) % ranks, comm, stream)
        nccl("Recv", received, COUNT, BFLOAT16, (rank - 1) % ranks, comm, stream)
    stream.synchronize()
    return nccl.holds(received, values_of((rank - 1) % ranks, COUNT))


def _holds_memory() -> bool:
    """Whether this process has mapped staging memory of the library's host backend."""
    return "/dev/shm/narrowcast." in Path("/proc/self/maps").read_text()
