"""Calls NCCL through CuPy, with one process per GPU, and compares every result with NumPy's.

python cupy_nccl.py --ranks 2 --json cupy_nccl.json
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nccl

TYPES = {
    np.int8: nccl.NCCL_INT8,
    np.int32: nccl.NCCL_INT32,
    np.int64: nccl.NCCL_INT64,
    np.float16: nccl.NCCL_FLOAT16,
    np.float32: nccl.NCCL_FLOAT32,
    np.float64: nccl.NCCL_FLOAT64,
}
COUNTS = (1, 1003, 300_001)
TIMED_BYTES = (16 << 20, 256 << 20)
TIMED_CALLS = 10
WAIT_SECONDS = 120


class Rank:
    """The calls of one GPU. Each method makes calls, compares the results and records faults."""

    def __init__(self, rank: int, ranks: int, comm: Any) -> None:
        self.rank, self.ranks, self.comm = rank, ranks, comm
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.faults: list[str] = []

    def check(self, found: cupy.ndarray, expected: np.ndarray, what: str) -> None:
        self.stream.synchronize()
        if found.get().tobytes() != expected.tobytes():
            self.faults.append(f"rank {self.rank}: {what}")

    def every(self, count: int, kind: type) -> list[np.ndarray]:
        """Small integers of every rank, whose sums and products are exact."""
        return [np.random.default_rng(rank).integers(1, 3, count).astype(kind) for rank in range(self.ranks)]

    def calls(self, count: int, kind: type) -> None:
        comm, rank, ranks, stream = self.comm, self.rank, self.ranks, self.stream.ptr
        nccl_type, what = TYPES[kind], f"{count} x {kind.__name__}"
        every = self.every(count, kind)
        long = self.every(count * ranks, kind)
        own, wide = cupy.asarray(every[rank]), cupy.asarray(long[rank])
        got, gathered = cupy.zeros(count, kind), cupy.zeros(count * ranks, kind)
        # Wait for copies of CuPy on its own stream.
        cupy.cuda.Device().synchronize()
        sent, received, part = own.data.ptr, got.data.ptr, slice(rank * count, (rank + 1) * count)
        folds: list[tuple[str, int, Callable[..., Any]]] = [
            ("sum", nccl.NCCL_SUM, np.add),
            ("prod", nccl.NCCL_PROD, np.multiply),
            ("max", nccl.NCCL_MAX, np.maximum),
            ("min", nccl.NCCL_MIN, np.minimum),
        ]
        for name, op, fold in folds:
            comm.allReduce(sent, received, count, nccl_type, op, stream)
            self.check(got, functools.reduce(fold, every), f"allReduce {name} of {what}")
            comm.reduceScatter(wide.data.ptr, received, count, nccl_type, op, stream)
            self.check(got, functools.reduce(fold, long)[part], f"reduceScatter {name} of {what}")
            for root in range(ranks):
                comm.reduce(sent, received, count, nccl_type, op, root, stream)
                if rank == root:
                    self.check(got, functools.reduce(fold, every), f"reduce to {root} {name} of {what}")
        comm.allGather(sent, gathered.data.ptr, count, nccl_type, stream)
        self.check(gathered, np.concatenate(every), f"allGather of {what}")
        for root in range(ranks):
            comm.broadcast(sent, received, count, nccl_type, root, stream)
            self.check(got, every[root], f"broadcast from {root} of {what}")
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        nccl.groupStart()
        comm.send(sent, count, nccl_type, after, stream)
        comm.recv(received, count, nccl_type, before, stream)
        nccl.groupEnd()
        self.check(got, every[before], f"send and recv of {what}")
        nccl.groupStart()
        for peer in range(ranks):
            comm.send(wide[peer * count :].data.ptr, count, nccl_type, peer, stream)
            comm.recv(gathered[peer * count :].data.ptr, count, nccl_type, peer, stream)
        nccl.groupEnd()
        self.check(gathered, np.concatenate([value[part] for value in long]), f"sends to all of {what}")

    def timed(self, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
        """Calls with float16 values whose larger buffer has the given number of bytes."""
        comm, count, part, half = self.comm, size // 2, size // 2 // self.ranks, nccl.NCCL_FLOAT16
        normal = np.random.default_rng(self.rank).standard_normal(1 << 20, np.float32).astype(np.float16)
        values = cupy.asarray(np.tile(normal, count // normal.size))
        out = cupy.zeros(count, np.float16)
        cupy.cuda.Device().synchronize()
        source, target, stream = values.data.ptr, out.data.ptr, self.stream.ptr
        yield "allReduce", lambda: comm.allReduce(source, target, count, half, nccl.NCCL_SUM, stream)
        yield "allGather", lambda: comm.allGather(source, target, part, half, stream)
        yield "reduceScatter", lambda: comm.reduceScatter(source, target, part, half, nccl.NCCL_SUM, stream)

    def seconds(self, call: Callable[[], object], barrier: Barrier) -> float:
        call()
        self.stream.synchronize()
        barrier.wait(WAIT_SECONDS)
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record(self.stream)
        for _ in range(TIMED_CALLS):
            call()
        after.record(self.stream)
        after.synchronize()
        return cupy.cuda.get_elapsed_time(before, after) / 1000 / TIMED_CALLS


def rank_main(rank: int, ranks: int, ids: Any, barrier: Barrier, result: Connection) -> None:
    try:
        cupy.cuda.Device(rank).use()
        if rank == 0:
            unique = nccl.get_unique_id()
            for _ in range(ranks):
                ids.put(unique)
        comm = nccl.NcclCommunicator(ranks, ids.get(timeout=WAIT_SECONDS), rank)
        one = Rank(rank, ranks, comm)
        for count in COUNTS:
            for kind in TYPES:
                one.calls(count, kind)
        seconds = {}
        for size in TIMED_BYTES:
            for name, call in one.timed(size):
                seconds[f"{name}, {size >> 20} MiB"] = one.seconds(call, barrier)
        barrier.wait(WAIT_SECONDS)
        comm.destroy()
        result.send((one.faults, seconds))
    except BaseException:
        result.send(([f"rank {rank}: {traceback.format_exc()}"], {}))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ids, barrier = spawn.Queue(), spawn.Barrier(chosen.ranks)
    processes, results = [], []
    for rank in range(chosen.ranks):
        ours, theirs = spawn.Pipe(duplex=False)
        processes.append(spawn.Process(target=rank_main, args=(rank, chosen.ranks, ids, barrier, theirs)))
        processes[-1].start()
        theirs.close()
        results.append(ours)
    faults, times = [], []
    for rank, connection in enumerate(results):
        try:
            found, seconds = connection.recv()
        except EOFError:
            found, seconds = [f"rank {rank} ended without a result"], {}
        faults += found
        times.append(seconds)
    for process in processes:
        process.join()
    names = times[0] if all(times) else {}
    report = {
        "command": sys.argv,
        "ranks": chosen.ranks,
        "cupy": cupy.__version__,
        "nccl": nccl.get_version(),
        "faults": faults,
        "seconds": {name: max(seconds[name] for seconds in times) for name in names},
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(report) + "\n")
    for name, seconds in report["seconds"].items():
        print(f"{name:30} {seconds * 1e3:10.3f} ms")
    print(*faults[:20] or ["all results are correct"], sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
