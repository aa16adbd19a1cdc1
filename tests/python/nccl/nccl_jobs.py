"""Programs for the rank processes of the drop-in's tests. They call NCCL, on GPUs or on the fakes."""

from __future__ import annotations

import contextlib
import os
import threading
from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast._bench import nccl_library
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from nccl_program import (
    BFLOAT16,
    FLOAT32,
    INT32,
    SUM,
    Program,
    on_gpu_of,
    program,
    sum_of_all,
    values_of,
    values_of_all,
)


def every_operation(*, rank: int, ranks: int, count: int, emit: Any, kind: type[Program] = Program) -> None:
    """Makes every call. Emits the names of the operations with correct results."""
    correct = []
    with program(rank, ranks, kind) as (nccl, comm, stream):
        end = (comm, stream)

        def check(name: str, found: DeviceBuffer, expected: np.ndarray) -> None:
            stream.synchronize()
            if nccl.holds(found, expected):
                correct.append(name)

        def of_everyone(part: int) -> np.ndarray:
            """The pieces that all ranks send to rank `part`."""
            return np.concatenate([pieces_of(r)[part * count :][:count] for r in range(ranks)])

        def pieces_of(rank: int) -> np.ndarray:
            return values_of(10 + rank, ranks * count)

        is_root = rank == 1
        everything, total = values_of_all(ranks, count), sum_of_all(ranks, count)
        mine, pieces = nccl.put(values_of(rank, count)), nccl.put(pieces_of(rank))
        gathered, exchanged, at_root = (nccl.zeros(ranks * count) for _ in range(3))
        copy, also = nccl.zeros(count), nccl.put(values_of(rank, count))
        nccl("AllGather", mine, gathered, count, BFLOAT16, *end)
        check("all_gather", gathered, everything)
        nccl("AlltoAll", pieces, exchanged, count, BFLOAT16, *end)
        check("all_to_all", exchanged, of_everyone(rank))
        nccl("Broadcast", mine, copy, count, BFLOAT16, 1, *end)
        check("broadcast", copy, values_of(1, count))
        nccl("Bcast", also, count, BFLOAT16, 0, *end)
        check("bcast", also, values_of(0, count))
        nccl("Gather", mine, at_root, count, BFLOAT16, 1, *end)
        check("gather", at_root, everything if is_root else everything * 0)
        nccl("Scatter", pieces, copy, count, BFLOAT16, 1, *end)
        check("scatter", copy, pieces_of(1)[rank * count :][:count])

        whole, long = nccl.put(values_of(rank, count, "int32")), nccl.put(values_of(rank, ranks * count, "int32"))
        sums = [nccl.zeros(count, "int32") for _ in range(3)]
        nccl("AllReduce", whole, sums[0], count, INT32, SUM, *end)
        check("all_reduce", sums[0], total)
        nccl("Reduce", whole, sums[1], count, INT32, SUM, 1, *end)
        check("reduce", sums[1], total if is_root else total * 0)
        nccl("ReduceScatter", long, sums[2], count, INT32, SUM, *end)
        check("reduce_scatter", sums[2], sum_of_all(ranks, ranks * count)[rank * count :][:count])
        with nccl.group():
            nccl("Send", mine, count, BFLOAT16, (rank + 1) % ranks, *end)
            nccl("Recv", copy, count, BFLOAT16, (rank - 1) % ranks, *end)
        check("send and recv", copy, values_of((rank - 1) % ranks, count))
        nccl("CommDestroy", comm)
        nccl("CommDestroy", None)
    emit(correct)


def exchanged_in_place(*, rank: int, ranks: int, emit: Any) -> None:
    """All-to-all in place, which NCCL's documentation excludes but NCCL accepts: alone, grouped, on one rank."""
    count, found = 3000, []
    with program(rank, ranks) as (nccl, comm, stream):

        def values(source: int) -> np.ndarray:
            return values_of(20 + source, ranks * count)

        expected = np.concatenate([values(source)[rank * count :][:count] for source in range(ranks)])
        for where in ("alone", "in a group", "on rank 0"):
            pieces = nccl.put(values(rank))
            result = pieces if where != "on rank 0" or rank == 0 else nccl.zeros(ranks * count)
            with nccl.group() if where == "in a group" else contextlib.nullcontext():
                nccl("AlltoAll", pieces, result, count, BFLOAT16, comm, stream)
            stream.synchronize()
            found.append(nccl.holds(result, expected))
        nccl("CommDestroy", comm)
    emit(found)


def groups(*, rank: int, ranks: int, emit: Any) -> None:
    """Nested groups with two communicators, several streams, transfers and collectives."""
    count, found = 3000, []
    with program(rank, ranks) as (nccl, comm, one):
        other, half = Stream(), c_void_p()
        nccl("CommSplit", comm, rank % 2, -rank, byref(half), None)
        in_half = [r for r in range(ranks) if r % 2 == rank % 2][::-1]
        mine, whole = nccl.put(values_of(rank, count)), nccl.put(values_of(rank, count, "int32"))
        for _ in range(3):
            gathered, of_half = nccl.zeros(ranks * count), nccl.zeros(len(in_half) * count)
            ring, total = nccl.zeros(count), nccl.zeros(count, "int32")
            with nccl.group():
                nccl("AllGather", mine, gathered, count, BFLOAT16, comm, one)
                with nccl.group():
                    nccl("Recv", ring, count, BFLOAT16, (rank - 1) % ranks, comm, other)
                    nccl("AllGather", mine, of_half, count, BFLOAT16, half, other)
                nccl("Send", mine, count, BFLOAT16, (rank + 1) % ranks, comm, one)
                nccl("AllReduce", whole, total, count, INT32, SUM, comm, one)
                assert not nccl.get(gathered).any(), "something ran before the end of the group"
            one.synchronize()
            other.synchronize()
            found.append(
                [
                    nccl.holds(gathered, values_of_all(ranks, count)),
                    nccl.holds(of_half, np.concatenate([values_of(r, count) for r in in_half])),
                    nccl.holds(ring, values_of((rank - 1) % ranks, count)),
                    nccl.holds(total, sum_of_all(ranks, count)),
                ]
            )
        nccl("CommDestroy", half)
        nccl("CommDestroy", comm)
    emit(found)


def left_out_of_a_split(*, rank: int, ranks: int, emit: Any) -> None:
    """A split in which the last rank gets no communicator."""
    color = -1 if rank == ranks - 1 else 0
    with program(rank, ranks) as (nccl, comm, stream):
        part = c_void_p()
        nccl("CommSplit", comm, color, rank, byref(part), None)
        correct = True
        if part:
            total = nccl.put(values_of(rank, 100, "int32"))
            nccl("AllReduce", total, total, 100, INT32, SUM, part, stream)
            stream.synchronize()
            correct = nccl.holds(total, sum_of_all(ranks - 1, 100))
            nccl("CommDestroy", part)
        nccl("CommDestroy", comm)
    emit([bool(part), correct])


def unequal_groups(*, rank: int, ranks: int, emit: Any) -> None:
    """Rank 0 exchanges long messages and sends a short one in one group; rank 1 receives the short one first."""
    long, back, short = values_of(5, 4_000_000), values_of(7, 4_000_000), values_of(6, 10)
    found = []
    with program(rank, ranks) as (nccl, comm, stream):
        first = nccl.zeros(2000)
        nccl("AllReduce", first, first, 2000, BFLOAT16, SUM, comm, stream)
        to_send = nccl.put(back if rank else long)
        short_to_send = nccl.put(short)
        for _ in range(3):
            result, short_result = nccl.zeros(len(long)), nccl.zeros(len(short))
            if rank == 1:
                nccl("Recv", short_result, len(short), BFLOAT16, 0, comm, stream)
            with nccl.group():
                nccl("Send", to_send, len(long), BFLOAT16, 1 - rank, comm, stream)
                nccl("Recv", result, len(long), BFLOAT16, 1 - rank, comm, stream)
                if rank == 0:
                    nccl("Send", short_to_send, len(short), BFLOAT16, 1, comm, stream)
            stream.synchronize()
            found.append(nccl.holds(result, long if rank else back) and (rank == 0 or nccl.holds(short_result, short)))
        nccl("CommDestroy", comm)
    emit(found)


def grouped_messages(*, rank: int, ranks: int, counts: list[int], emit: Any) -> None:
    """Both ranks exchange messages of these lengths in one group. Emits which arrived unchanged."""
    with program(rank, ranks) as (nccl, comm, stream):
        to_send = [nccl.put(values_of(2 * i + rank, count)) for i, count in enumerate(counts)]
        results = [nccl.zeros(count) for count in counts]
        with nccl.group():
            for count, source, result in zip(counts, to_send, results, strict=True):
                nccl("Send", source, count, BFLOAT16, 1 - rank, comm, stream)
                nccl("Recv", result, count, BFLOAT16, 1 - rank, comm, stream)
        stream.synchronize()
        found = [nccl.holds(result, values_of(2 * i + 1 - rank, counts[i])) for i, result in enumerate(results)]
        nccl("CommDestroy", comm)
    emit(found)


def one_thread(*, ranks: int, emit: Any) -> None:
    """One thread drives all GPUs."""
    count, found = 4000, []
    nccl = Program(0, ranks)
    comms, streams, sources = (c_void_p * ranks)(), [], []
    nccl("CommInitAll", comms, ranks, None)
    for r in range(ranks):
        with on_gpu_of(r):
            streams.append(Stream())
            sources.append(nccl.put(values_of(r, count, "int32")))
    for _ in range(3):
        results = []
        for r in range(ranks):
            with on_gpu_of(r):
                results.append(nccl.zeros(count, "int32"))
        with nccl.group():
            for r in range(ranks):
                with on_gpu_of(r):
                    nccl("AllReduce", sources[r], results[r], count, INT32, SUM, comms[r], streams[r])
        for r in range(ranks):
            with on_gpu_of(r):
                streams[r].synchronize()
                found.append(nccl.holds(results[r], sum_of_all(ranks, count)))
    for comm in comms:
        nccl("CommDestroy", comm)
    emit(found)


def threads(*, ranks: int, emit: Any) -> None:
    """One thread per rank, in one process."""
    emit(gathers_of_threads(Program(0, ranks), range(ranks), ranks))


def gathers_of_threads(nccl: Program, own: range, ranks: int) -> list[bool]:
    """All-gathers of this process's ranks, each in a thread. Returns whether the results are correct."""
    found = dict.fromkeys(own, False)
    unique_id = nccl.unique_id()

    def run(rank: int) -> None:
        with on_gpu_of(rank):
            comm, stream, count = c_void_p(), Stream(), 4000
            nccl("CommInitRank", byref(comm), ranks, unique_id, rank)
            mine, gathered = nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)
            for _ in range(3):
                nccl("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
            stream.synchronize()
            found[rank] = nccl.holds(gathered, values_of_all(ranks, count))
            nccl("CommDestroy", comm)

    running = [threading.Thread(target=run, args=(rank,)) for rank in own]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return list(found.values())


def kept_order(*, rank: int, ranks: int, emit: Any) -> None:
    """A forwarded call uses the result of an executed call on another stream, and the other way round."""
    count, found = 2000, []
    with program(rank, ranks) as (nccl, comm, one):
        other, mine = Stream(), nccl.put(values_of(rank, count))
        expected = values_of_all(ranks, count)
        for _ in range(3):
            gathered, copy, first = nccl.zeros(ranks * count), nccl.zeros(ranks * count), nccl.zeros(count)
            nccl("AllGather", mine, gathered, count, BFLOAT16, comm, one)
            nccl("Broadcast", gathered, copy, ranks * count, BFLOAT16, 0, comm, other)
            other.synchronize()
            correct = nccl.holds(copy, expected)
            again = nccl.zeros(ranks * count)
            nccl("Broadcast", mine, first, count, BFLOAT16, 0, comm, other)
            nccl("AllGather", first, again, count, BFLOAT16, comm, one)
            one.synchronize()
            found.append(correct and nccl.holds(again, np.tile(values_of(0, count), ranks)))
        nccl("CommDestroy", comm)
    emit(found)


def kept_order_with_a_user_reduction(*, rank: int, ranks: int, grouped: bool, emit: Any) -> None:
    """As kept_order(). The forwarded call, of integers, cannot be held until the end of its group."""
    count, found = 500, []
    with program(rank, ranks) as (nccl, comm, one):
        other, mine = Stream(), nccl.put(values_of(rank, count, "int32"))
        op, factor = c_int(), c_int(2)
        nccl("RedOpCreatePreMulSum", byref(op), byref(factor), INT32, 1, comm)
        expected = np.concatenate([values_of(r, count, "int32") for r in range(ranks)])
        for _ in range(3):
            gathered, doubled = (nccl.zeros(ranks * count, "int32") for _ in range(2))
            nccl("AllGather", mine, gathered, count, INT32, comm, one)
            with nccl.group() if grouped else contextlib.nullcontext():
                nccl("AllReduce", gathered, doubled, ranks * count, INT32, op.value, comm, other)
            other.synchronize()
            correct = nccl.holds(doubled, 2 * ranks * expected)
            total, again = nccl.zeros(count, "int32"), nccl.zeros(ranks * count, "int32")
            with nccl.group() if grouped else contextlib.nullcontext():
                nccl("AllReduce", mine, total, count, INT32, op.value, comm, other)
            nccl("AllGather", total, again, count, INT32, comm, one)
            one.synchronize()
            found.append(correct and nccl.holds(again, np.tile(2 * sum_of_all(ranks, count, "int32"), ranks)))
        nccl("CommDestroy", comm)
    emit(found)


def captured(*, rank: int, ranks: int, before: bool, emit: Any) -> None:
    """Captures a graph before or after the communicator's first call, and launches it twice."""
    count, found = 1000, []
    with program(rank, ranks) as (nccl, comm, stream):
        mine, gathered = nccl.put(values_of(rank, count)), nccl.zeros(ranks * count)
        arguments = ("AllGather", mine, gathered, count, BFLOAT16, comm, stream)
        if not before:
            nccl(*arguments)
            stream.synchronize()
            gathered.fill(0)
        with stream.capture() as graph:
            nccl(*arguments)
        stream.synchronize()
        found.append(bool(nccl.get(gathered).any()))
        for launch in range(2):
            mine.write(values_of(100 * launch + rank, count))
            graph.launch(stream)
            stream.synchronize()
            expected = np.concatenate([values_of(100 * launch + r, count) for r in range(ranks)])
            found.append(nccl.holds(gathered, expected))
        graph.close()
        nccl("CommDestroy", comm)
    emit(found)


def user_reduction(*, rank: int, ranks: int, kind: str, in_memory: bool = False, emit: Any) -> None:
    """A sum of values that are multiplied by 2. The reduction is destroyed before its group ends.

    in_memory: the factor is in the GPU's memory.
    """
    count, dtype = 100, {"float32": FLOAT32, "int32": INT32}[kind]
    with program(rank, ranks) as (nccl, comm, stream):
        op, factor = c_int(), np.full(1, 2, kind)
        source, result = nccl.put(values_of(rank, count, kind)), nccl.zeros(count, kind)
        where = c_void_p(nccl.put(factor).pointer if in_memory else factor.ctypes.data)
        found = []
        for _ in range(2):
            with nccl.group():
                nccl("RedOpCreatePreMulSum", byref(op), where, dtype, 0 if in_memory else 1, comm)
                nccl("AllReduce", source, result, count, dtype, op.value, comm, stream)
                nccl("RedOpDestroy", op.value, comm)
            stream.synchronize()
            found.append(nccl.holds(result, 2 * sum_of_all(ranks, count, kind)))
        nccl("CommDestroy", comm)
    emit(all(found))


def nonblocking(*, rank: int, ranks: int, emit: Any) -> None:
    """A nonblocking communicator."""
    with on_gpu_of(rank):
        nccl, comm, stream = Program(rank, ranks), c_void_p(), Stream()
        config = nccl_library.config("nccl")
        config.blocking = 0
        assert nccl.status("CommInitRankConfig", byref(comm), ranks, nccl.unique_id(), rank, byref(config)) in (0, 7)
        nccl.settle(comm)
        source, result = nccl.put(values_of(rank, 100, "int32")), nccl.zeros(100, "int32")
        for _ in range(2):
            assert nccl.status("AllReduce", source, result, 100, INT32, SUM, comm, stream) in (0, 7)
            nccl.settle(comm)
            stream.synchronize()
        correct = nccl.holds(result, sum_of_all(ranks, 100))
        nccl("CommDestroy", comm)
    emit(correct)


def named(*, rank: int, ranks: int, names: list[str], emit: Any) -> None:
    """A communicator with a different name on each rank."""
    with on_gpu_of(rank):
        nccl, comm, stream = Program(rank, ranks), c_void_p(), Stream()
        config = nccl_library.config("nccl")
        config.commName = names[rank].encode()
        nccl("CommInitRankConfig", byref(comm), ranks, nccl.unique_id(), rank, byref(config))
        total = nccl.put(values_of(rank, 100, "int32"))
        nccl("AllReduce", total, total, 100, INT32, SUM, comm, stream)
        stream.synchronize()
        emit(nccl.holds(total, sum_of_all(ranks, 100)))
        nccl("CommDestroy", comm)


def differing_settings(*, rank: int, differing: int, name: str, value: str, **arguments: Any) -> None:
    """Every rank logs to a file, and one of them has another setting."""
    if rank == differing:
        os.environ[name] = value
    logging_operations(rank=rank, folder=os.environ["TEST_FOLDER"], count=100, **arguments)


def logging_operations(*, rank: int, folder: str, **arguments: Any) -> None:
    """As every_operation, with standard error in a file of the folder."""
    with (Path(folder) / f"{rank}.log").open("wb") as file:
        os.dup2(file.fileno(), 2)
    every_operation(rank=rank, **arguments)
