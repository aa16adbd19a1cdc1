"""The rank processes of the demo and of benchmarks on the host."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from .._comm.groups import Stream, group
from .._native.codecs import forced
from .._native.library import library_version
from ..comm import Communicator
from ..types import value_type
from . import operations, samples
from .launch import Emit


def bench(
    *,
    unique_id: str,
    rank: int,
    ranks: int,
    operation: str,
    blocks: list[tuple[str, str, list[int]]],
    data: str,
    codecs: list[str],
    root: int,
    pattern: str,
    in_place: bool,
    iterations: int,
    warmup: int,
    batches: int,
    group_calls: int,
    blocking: bool,
    check: bool,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Measures one operation for several counts. Emits the contenders, then one result for each count.

    blocks: value type, reduction and counts of each block of measurements.
    codecs: each is used even where it does not pay; "auto" chooses.
    group_calls: calls per iteration, in one group.
    blocking: every call is complete when it returns; otherwise calls are enqueued on a stream.
    """
    emit({"versions": {"narrowcast": library_version()}, "contenders": codecs, "notes": []})
    with (
        Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm,
        contextlib.nullcontext() if blocking else Stream() as stream,
    ):
        for dtype, op, counts in blocks:
            sample = samples.sample(data, dtype)
            for count in counts:
                results = {}
                for codec in codecs:
                    call = operations.prepare(
                        operation,
                        comm,
                        sample,
                        value_type(dtype),
                        count,
                        codec=forced(codec),
                        op=op,
                        root=root,
                        pattern=pattern,
                        in_place=in_place,
                        stream=stream,
                    )
                    times = _Times(comm, call, stream, group_calls)
                    results[codec] = times.measured(iterations, warmup, batches)
                    results[codec]["wrong"] = times.count_wrong() if check else None
                emit({"count": count, "contenders": results})


class _Times:
    """Measures one call on this rank."""

    def __init__(self, comm: Communicator, call: operations.Prepared, stream: Stream | None, group_calls: int) -> None:
        self._comm, self._call, self._stream, self._group_calls = comm, call, stream, group_calls

    def measured(self, iterations: int, warmup: int, batches: int) -> dict[str, Any]:
        """Seconds per call of each batch, until calls are complete and until they were issued, and bytes per call."""
        for _ in range(warmup):
            self._call.run()
        self._wait()
        seconds, cpu_seconds = [], []
        raw_bytes = wire_bytes = 0
        calls = iterations * self._group_calls
        for _ in range(batches):
            if self._call.in_place:
                self._call.restore()
            operations.barrier(self._comm)
            before = self._comm.counters()
            begin = time.perf_counter()
            for _ in range(iterations):
                self._iterate()
            cpu_seconds.append((time.perf_counter() - begin) / calls)
            self._wait()
            seconds.append((time.perf_counter() - begin) / calls)
            after = self._comm.counters()
            raw_bytes += after.raw_bytes - before.raw_bytes
            wire_bytes += after.wire_bytes - before.wire_bytes
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "raw_bytes": raw_bytes // (calls * batches),
            "wire_bytes": wire_bytes // (calls * batches),
        }

    def count_wrong(self) -> int:
        self._call.poison()
        operations.barrier(self._comm)
        if self._call.in_place:
            # A second call would reduce the result of the first.
            self._call.run()
        else:
            self._iterate()
        self._wait()
        return self._call.count_wrong()

    def _iterate(self) -> None:
        with group() if self._group_calls > 1 else contextlib.nullcontext():
            for _ in range(self._group_calls):
                self._call.run()

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


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
    """Runs and verifies every case: operation, packaged tensor, reduction, codec. Emits one result for each."""
    packaged = samples.packaged()
    with Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm:
        for operation, tensor, op, codec in cases:
            kind, raw = packaged[tensor]
            sample = raw.view(kind.numpy)
            # If a buffer has a part for every rank, it holds the whole tensor.
            count = sample.size // ranks if operations.describe(operation).parted else sample.size
            call = operations.prepare(operation, comm, sample, kind, count, codec=forced(codec), op=op, root=0)
            wrong = 0
            seconds: list[float] = []
            raw_bytes = wire_bytes = 0
            for _ in range(repetitions):
                call.poison()
                operations.barrier(comm)
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
