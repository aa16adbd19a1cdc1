"""What the rank processes of the demo and the benchmark run. Called by `_launch`, arguments and results are JSON."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import _operations, _samples
from ._launch import Emit
from ._library import library_version
from .comm import Communicator
from .types import value_type


def _synchronized(comm: Communicator) -> None:
    """Returns on every rank once all have come here."""
    comm.all_reduce(np.zeros(1, np.int32), codec="raw")


def bench(
    *,
    unique_id: str,
    rank: int,
    ranks: int,
    operation: str,
    counts: list[int],
    dtype: str,
    data: str,
    codecs: list[str],
    op: str,
    root: int,
    pattern: str,
    in_place: bool,
    iterations: int,
    warmup: int,
    batches: int,
    check: bool,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Times one operation over several counts: first what takes part, then a result a count."""
    kind = value_type(dtype)
    sample = _samples.sample(data, dtype)
    emit({"versions": {"narrowcast": library_version()}, "contenders": codecs, "notes": []})
    with Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm:
        for count in counts:
            results = {}
            for codec in codecs:
                call = _operations.prepare(
                    operation,
                    comm,
                    sample,
                    kind,
                    count,
                    codec=codec,
                    op=op,
                    root=root,
                    pattern=pattern,
                    in_place=in_place,
                )
                for _ in range(warmup):
                    call.run()
                seconds = []
                raw_bytes = wire_bytes = 0
                for _ in range(batches):
                    if in_place:
                        call.restore()
                    _synchronized(comm)
                    before = comm.counters()
                    begin = time.perf_counter()
                    for _ in range(iterations):
                        call.run()
                    seconds.append((time.perf_counter() - begin) / iterations)
                    after = comm.counters()
                    raw_bytes += after.raw_bytes - before.raw_bytes
                    wire_bytes += after.wire_bytes - before.wire_bytes
                wrong = None
                if check:
                    call.poison()
                    _synchronized(comm)
                    call.run()
                    wrong = call.count_wrong()
                results[codec] = {
                    "seconds": seconds,
                    "wrong": wrong,
                    "raw_bytes": raw_bytes // (iterations * batches),
                    "wire_bytes": wire_bytes // (iterations * batches),
                }
            emit({"count": count, "contenders": results})


def demo(
    *,
    unique_id: str,
    rank: int,
    ranks: int,
    cases: list[tuple[str, str, str, str]],
    repetitions: int,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Runs every case (operation, packaged tensor, reduction, codec) and compares it; a result a case."""
    packaged = _samples.packaged()
    with Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm:
        for operation, tensor, op, codec in cases:
            kind, raw = packaged[tensor]
            sample = raw.view(kind.numpy)
            # What everyone holds or sums up is the whole tensor; parts of it go to the others.
            parted = operation in ("all_gather", "all_to_all", "reduce_scatter")
            count = sample.size // ranks if parted else sample.size
            call = _operations.prepare(operation, comm, sample, kind, count, codec=codec, op=op, root=0)
            wrong = 0
            seconds: list[float] = []
            raw_bytes = wire_bytes = 0
            for _ in range(repetitions):
                call.poison()
                _synchronized(comm)
                before = comm.counters()
                begin = time.perf_counter()
                call.run()
                seconds.append(time.perf_counter() - begin)
                after = comm.counters()
                raw_bytes = after.raw_bytes - before.raw_bytes
                wire_bytes = after.wire_bytes - before.wire_bytes
                wrong += call.count_wrong()
            result: dict[str, Any] = {"wrong": wrong, "seconds": float(np.median(seconds))}
            emit({**result, "raw_bytes": raw_bytes, "wire_bytes": wire_bytes})
