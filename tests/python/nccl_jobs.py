"""What rank processes of the drop-in's tests run: programs of NCCL, on the fakes of the driver and of NCCL."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast import _nccl

INT32, FLOAT32, BFLOAT16 = 2, 7, 9
SUM = 0
NUMBERS = {"int32": INT32, "float32": FLOAT32, "uint16": BFLOAT16}


class Nccl:
    """libnccl.so.2, whichever the loader gives, and libcuda.so.1."""

    def __init__(self) -> None:
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.nccl.ncclGetLastError.restype = c_char_p
        moves = [c_void_p, c_void_p, c_size_t, c_int]
        end = [c_void_p, c_void_p]
        for name, arguments in {
            "Send": [c_void_p, c_size_t, c_int, c_int, *end],
            "Recv": [c_void_p, c_size_t, c_int, c_int, *end],
            "Bcast": [c_void_p, c_size_t, c_int, c_int, *end],
            "AllGather": [*moves, *end],
            "AlltoAll": [*moves, *end],
            "Broadcast": [*moves, c_int, *end],
            "Gather": [*moves, c_int, *end],
            "Scatter": [*moves, c_int, *end],
            "AllReduce": [*moves, c_int, *end],
            "ReduceScatter": [*moves, c_int, *end],
            "Reduce": [*moves, c_int, c_int, *end],
            "CommInitRank": [c_void_p, c_int, _nccl.UniqueId, c_int],
            "CommInitRankConfig": [c_void_p, c_int, _nccl.UniqueId, c_int, c_void_p],
            "CommInitAll": [c_void_p, c_int, c_void_p],
            "CommSplit": [c_void_p, c_int, c_int, c_void_p, c_void_p],
            "CommDestroy": [c_void_p],
            "CommAbort": [c_void_p],
            "CommFinalize": [c_void_p],
            "CommGetAsyncError": [c_void_p, c_void_p],
            "GetLastError": [c_void_p],
            "RedOpCreatePreMulSum": [c_void_p, c_void_p, c_int, c_int, c_void_p],
            "RedOpDestroy": [c_int, c_void_p],
        }.items():
            getattr(self.nccl, f"nccl{name}").argtypes = arguments
        for name in ("StreamSynchronize", "StreamEndCapture", "GraphLaunch", "GraphInstantiateWithFlags"):
            getattr(self.cuda, f"cu{name}").argtypes = [c_void_p, c_void_p, c_uint64][: 1 if "Sync" in name else 3]

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self.nccl, f"nccl{name}")(*map(_address, arguments))
        assert status == 0, f"nccl{name} gave {status}: {self.nccl.ncclGetLastError(None).decode()}"

    def communicator(self, unique_id: str, rank: int, ranks: int) -> c_void_p:
        comm = c_void_p()
        self("CommInitRank", byref(comm), ranks, _nccl.UniqueId(unique_id.encode()), rank)
        return comm

    def stream(self) -> c_void_p:
        stream = c_void_p()
        assert not self.cuda.cuStreamCreate(byref(stream), 1)
        return stream

    def synchronize(self, *streams: c_void_p | None) -> None:
        for stream in streams:
            status = self.cuda.cuStreamSynchronize(stream)
            assert status == 0, f"cuStreamSynchronize gave {status}"


def _address(argument: Any) -> Any:
    return argument.ctypes.data if isinstance(argument, np.ndarray) else argument


def values_of(rank: int, count: int, dtype: str = "uint16") -> np.ndarray:
    """Values of a rank: as weights in bfloat16, else small integers."""
    generator = np.random.default_rng(rank)
    if dtype == "uint16":
        return (generator.normal(0, 0.02, count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return generator.integers(-99, 99, count).astype(dtype)


def every_operation(*, unique_id: str, rank: int, ranks: int, count: int, emit: Any) -> None:
    """The names of the operations whose results are right."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    end = (comm, stream)
    everyone = range(ranks)
    right = []

    def check(name: str, found: np.ndarray, expected: np.ndarray) -> None:
        nccl.synchronize(stream)
        if np.array_equal(found, expected):
            right.append(name)

    mine = values_of(rank, count)
    parts = values_of(10 + rank, ranks * count)
    gathered = np.zeros(ranks * count, np.uint16)
    nccl("AllGather", mine, gathered, count, BFLOAT16, *end)
    check("all_gather", gathered, np.concatenate([values_of(r, count) for r in everyone]))
    exchanged = np.zeros(ranks * count, np.uint16)
    nccl("AlltoAll", parts, exchanged, count, BFLOAT16, *end)
    check(
        "all_to_all",
        exchanged,
        np.concatenate([values_of(10 + r, ranks * count)[rank * count :][:count] for r in everyone]),
    )
    copy = np.zeros(count, np.uint16)
    nccl("Broadcast", mine, copy, count, BFLOAT16, 1, *end)
    check("broadcast", copy, values_of(1, count))
    copy[:] = mine
    nccl("Bcast", copy, count, BFLOAT16, 0, *end)
    check("bcast", copy, values_of(0, count))
    at_root = np.zeros(ranks * count, np.uint16)
    nccl("Gather", mine, at_root, count, BFLOAT16, 1, *end)
    check("gather", at_root, np.concatenate([values_of(r, count) for r in everyone]) if rank == 1 else at_root * 0)
    nccl("Scatter", parts, copy, count, BFLOAT16, 1, *end)
    check("scatter", copy, values_of(11, ranks * count)[rank * count :][:count])
    whole, long = values_of(rank, count, "int32"), values_of(rank, ranks * count, "int32")
    total = sum(values_of(r, count, "int32") for r in everyone)
    result = np.zeros(count, np.int32)
    nccl("AllReduce", whole, result, count, INT32, SUM, *end)
    check("all_reduce", result, total)
    result[:] = 0
    nccl("Reduce", whole, result, count, INT32, SUM, 1, *end)
    check("reduce", result, total if rank == 1 else result * 0)
    nccl("ReduceScatter", long, result, count, INT32, SUM, *end)
    check("reduce_scatter", result, sum(values_of(r, ranks * count, "int32") for r in everyone)[rank * count :][:count])
    nccl("GroupStart")
    nccl("Send", mine, count, BFLOAT16, (rank + 1) % ranks, *end)
    nccl("Recv", copy, count, BFLOAT16, (rank - 1) % ranks, *end)
    nccl("GroupEnd")
    check("send and recv", copy, values_of((rank - 1) % ranks, count))
    nccl("CommDestroy", comm)
    nccl("CommDestroy", None)
    emit(right)


def groups(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """Nested groups, of two communicators, on several streams, with transfers and collectives."""
    nccl = Nccl()
    comm, one, other = nccl.communicator(unique_id, rank, ranks), nccl.stream(), nccl.stream()
    half = c_void_p()
    nccl("CommSplit", comm, rank % 2, -rank, byref(half), None)
    its_ranks = [r for r in range(ranks) if r % 2 == rank % 2][::-1]
    count = 3000
    mine, whole = values_of(rank, count), values_of(rank, count, "int32")
    found = []
    for _ in range(3):
        gathered = np.zeros(ranks * count, np.uint16)
        in_half = np.zeros(len(its_ranks) * count, np.uint16)
        ring = np.zeros(count, np.uint16)
        total = np.zeros(count, np.int32)
        nccl("GroupStart")
        nccl("AllGather", mine, gathered, count, BFLOAT16, comm, one)
        nccl("GroupStart")
        nccl("Recv", ring, count, BFLOAT16, (rank - 1) % ranks, comm, other)
        nccl("AllGather", mine, in_half, count, BFLOAT16, half, other)
        nccl("GroupEnd")
        nccl("Send", mine, count, BFLOAT16, (rank + 1) % ranks, comm, one)
        nccl("AllReduce", whole, total, count, INT32, SUM, comm, one)
        assert not gathered.any(), "something ran before the end of the group"
        nccl("GroupEnd")
        nccl.synchronize(one, other)
        found.append(
            [
                bool((gathered == np.concatenate([values_of(r, count) for r in range(ranks)])).all()),
                bool((in_half == np.concatenate([values_of(r, count) for r in its_ranks])).all()),
                bool((ring == values_of((rank - 1) % ranks, count)).all()),
                bool((total == sum(values_of(r, count, "int32") for r in range(ranks))).all()),
            ]
        )
    nccl("CommDestroy", half)
    nccl("CommDestroy", comm)
    emit(found)


def unequal_groups(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 sends a long and a short message in one group; rank 1 receives the short one before the long one."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    first = values_of(0, 2000)
    nccl("AllReduce", first, first, 2000, BFLOAT16, SUM, comm, stream)
    long, short = values_of(5, 200_000), values_of(6, 10)
    found = []
    for _ in range(3):
        to_long, to_short = np.zeros_like(long), np.zeros_like(short)
        if rank == 0:
            nccl("GroupStart")
            nccl("Send", long, len(long), BFLOAT16, 1, comm, stream)
            nccl("Send", short, len(short), BFLOAT16, 1, comm, stream)
            nccl("GroupEnd")
        else:
            nccl("Recv", to_short, len(short), BFLOAT16, 0, comm, stream)
            nccl("Recv", to_long, len(long), BFLOAT16, 0, comm, stream)
        nccl.synchronize(stream)
        found.append(rank == 0 or bool((to_long == long).all() and (to_short == short).all()))
    nccl("CommDestroy", comm)
    emit(found)


def one_thread(*, ranks: int, emit: Any) -> None:
    """One thread drives all GPUs."""
    nccl = Nccl()
    comms, streams = (c_void_p * ranks)(), [nccl.stream() for _ in range(ranks)]
    nccl("CommInitAll", comms, ranks, None)
    count = 4000
    found = []
    for _ in range(3):
        results = [np.zeros(count, np.int32) for _ in range(ranks)]
        sources = [values_of(r, count, "int32") for r in range(ranks)]
        nccl("GroupStart")
        for r in range(ranks):
            nccl("AllReduce", sources[r], results[r], count, INT32, SUM, comms[r], streams[r])
        nccl("GroupEnd")
        nccl.synchronize(*streams)
        found += [bool((result == sum(sources)).all()) for result in results]
    for comm in comms:
        nccl("CommDestroy", comm)
    emit(found)


def kept_order(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """On one stream a forwarded call uses what a taken one on another stream gives, and the other way round."""
    nccl = Nccl()
    comm, one, other = nccl.communicator(unique_id, rank, ranks), nccl.stream(), nccl.stream()
    count = 2000
    mine = values_of(rank, count)
    found = []
    for _ in range(3):
        gathered, copy = np.zeros(ranks * count, np.uint16), np.zeros(ranks * count, np.uint16)
        again = np.zeros(ranks * ranks * count, np.uint16)
        nccl("AllGather", mine, gathered, count, BFLOAT16, comm, one)
        nccl("Broadcast", gathered, copy, ranks * count, BFLOAT16, 0, comm, other)
        nccl("AllGather", copy, again, ranks * count, BFLOAT16, comm, one)
        nccl.synchronize(one)
        expected = np.concatenate([values_of(r, count) for r in range(ranks)])
        found.append(bool((copy == expected).all() and (again == np.tile(expected, ranks)).all()))
    nccl("CommDestroy", comm)
    emit(found)


def captured(*, unique_id: str, rank: int, ranks: int, before: bool, emit: Any) -> None:
    """A graph of two streams, captured before the communicator's first call or after it, and launched twice."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    count = 1000
    mine, gathered = values_of(rank, count), np.zeros(ranks * count, np.uint16)
    call = ("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
    if not before:
        nccl(*call)
        nccl.synchronize(stream)
        gathered[:] = 0
    graph, executable = c_void_p(), c_void_p()
    assert not nccl.cuda.cuStreamBeginCapture_v2(stream, 0)
    nccl(*call)
    assert not nccl.cuda.cuStreamEndCapture(stream, byref(graph), 0)
    assert not nccl.cuda.cuGraphInstantiateWithFlags(byref(executable), graph, 0)
    nccl.synchronize(stream)
    found = [bool(gathered.any())]
    for launch in range(2):
        mine[:] = values_of(100 * launch + rank, count)
        assert not nccl.cuda.cuGraphLaunch(executable, stream, 0)
        nccl.synchronize(stream)
        expected = np.concatenate([values_of(100 * launch + r, count) for r in range(ranks)])
        found.append(bool((gathered == expected).all()))
    assert not nccl.cuda.cuGraphExecDestroy(executable)
    nccl("CommDestroy", comm)
    emit(found)


def user_reduction(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """A reduction of the user's that is destroyed before its group ends."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    op, factor = c_int(), c_float(2)
    count = 100
    result = np.zeros(count, np.float32)
    source = values_of(rank, count, "float32")
    nccl("GroupStart")
    nccl("RedOpCreatePreMulSum", byref(op), byref(factor), FLOAT32, 1, comm)
    nccl("AllReduce", source, result, count, FLOAT32, op.value, comm, stream)
    nccl("RedOpDestroy", op.value, comm)
    nccl("GroupEnd")
    nccl.synchronize(stream)
    nccl("CommDestroy", comm)
    emit(bool((result == 2 * sum(values_of(r, count, "float32") for r in range(ranks))).all()))


def not_blocking(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """A communicator that does not block."""
    nccl = Nccl()
    comm, stream = c_void_p(), nccl.stream()
    config = _nccl.config("nccl")
    config.blocking = 0
    nccl("CommInitRankConfig", byref(comm), ranks, _nccl.UniqueId(unique_id.encode()), rank, byref(config))
    source, result, states = values_of(rank, 100, "int32"), np.zeros(100, np.int32), []
    for _ in range(2):
        state = c_int(7)
        states.append(nccl.nccl.ncclAllReduce(_address(source), _address(result), 100, INT32, SUM, comm, stream))
        while state.value == 7:
            nccl("CommGetAsyncError", comm, byref(state))
        nccl.synchronize(stream)
    nccl("CommDestroy", comm)
    emit([*states, bool((result == sum(values_of(r, 100, "int32") for r in range(ranks))).all())])


def differing_settings(*, rank: int, codec: str, **arguments: Any) -> None:
    if rank == 0:
        os.environ["NARROWCAST_CODEC"] = codec
    every_operation(rank=rank, count=100, **arguments)


def aborted(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 waits for the others, who do not come, until a thread of its own aborts."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    result = np.zeros(1000, np.int32)
    call = ("AllReduce", result, result, 1000, INT32, SUM, comm, stream)
    nccl(*call)
    nccl.synchronize(stream)
    begin = time.monotonic()
    if rank == 0:
        threading.Timer(0.3, lambda: nccl("CommAbort", comm)).start()
        nccl(*call)
        nccl.cuda.cuStreamSynchronize(stream)
    else:
        time.sleep(0.6)
        nccl("CommAbort", comm)
    emit(time.monotonic() - begin)


def verified(*, unique_id: str, rank: int, ranks: int, in_place: bool, emit: Any) -> None:
    """What the drop-in says stands in a file. At last a rank reads wrong values from its GPU."""
    log = os.open(f"{os.environ['TEST_FOLDER']}/{rank}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 2)
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    end = (comm, stream)
    count = 5000
    every = values_of(rank, ranks * count)
    own = every[rank * count :][:count]
    nccl("AllGather", own if in_place else values_of(rank, count), every, count, BFLOAT16, *end)
    total = values_of(rank, count, "int32")
    nccl("AllReduce", total, total if in_place else np.zeros_like(total), count, INT32, SUM, *end)
    nccl("Scatter", every, own if in_place and rank == 1 else np.zeros_like(own), count, BFLOAT16, 1, *end)
    if rank == 0:
        nccl.cuda.fake_make_copies_wrong()
        assert not nccl.cuda.cuStreamSynchronize(stream)
    nccl("Broadcast", own, own if in_place else np.zeros_like(own), count, BFLOAT16, 1, *end)
    emit(None)


def a_peer_dies(*, unique_id: str, rank: int, ranks: int, emit: Any) -> None:
    """The last rank dies; what the asynchronous error of the others becomes."""
    nccl = Nccl()
    comm, stream = nccl.communicator(unique_id, rank, ranks), nccl.stream()
    result = np.zeros(1000, np.int32)
    call = ("AllReduce", result, result, 1000, INT32, SUM, comm, stream)
    nccl(*call)
    nccl.synchronize(stream)
    error = c_int(-1)
    nccl("CommGetAsyncError", comm, byref(error))
    states = [error.value]
    if rank == ranks - 1:
        emit(None)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    nccl(*call)
    nccl.cuda.cuStreamSynchronize(stream)
    nccl("CommGetAsyncError", comm, byref(error))
    states.append(error.value)
    sentence = nccl.nccl.ncclGetLastError(None).decode()
    nccl("CommAbort", comm)
    (Path(os.environ["TEST_FOLDER"]) / str(rank)).write_text(f"{states} {sentence}")
    emit(None)
