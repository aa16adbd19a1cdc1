"""Measures Narrowcast and NCCL on GPUs, with the same buffers and sizes.

For each size the contenders take turns, batch by batch, so that drift (clocks, temperature) affects all of them. A
batch is timed by events on the GPU. It starts after a barrier of all ranks on the GPU, when its launches are enqueued.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Event, Gate, Stream
from ..comm import Communicator
from ..errors import InternalError, NarrowcastError
from ..types import value_type
from . import operations, samples
from .contenders import MAX_SETS, Contender, run_ours, set_count
from .operations import Call, barrier

# The queue of a stream is finite: launches must not block while the stream is held.
_HELD_CALLS, _MAX_HELD_GRAPH_CALLS, _LATE_SECONDS = 16, 256, 5.0
_MAX_GRAPHS = 8
# Reading results back and comparing them takes much longer than the calls.
_CHECKED_SETS, _CHECKED_BYTES = 4, 64 << 20

_Launch = Callable[[], None]


def set_environment(ctas: int) -> None:
    """Sets variables for libraries that are loaded afterwards."""
    # Multicast objects can outlive their process and disturb other users of the machine.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if ctas:
        os.environ["NARROWCAST_MAX_CTAS"] = os.environ["NCCL_MAX_CTAS"] = str(ctas)


def enter_host(rank: int, ranks: int, hosts: int) -> None:
    """Makes Narrowcast and NCCL take the ranks to be on this number of hosts, in order."""
    if hosts > 1:
        os.environ["NARROWCAST_HOSTID"] = os.environ["NCCL_HOSTID"] = f"host {rank * hosts // ranks}"


def source_of(sample: npt.NDArray[Any], max_elems: int) -> DeviceBuffer:
    """The sample, repeated: long enough for an input of max_elems values that starts anywhere in the first copy."""
    count_bytes = (max_elems + sample.size) * sample.itemsize
    return DeviceBuffer(count_bytes).write_tiled(np.ascontiguousarray(sample).view(np.uint8))


@dataclass(frozen=True)
class Schedule:
    """The number of batches, calls and graphs of a measurement."""

    in_place: bool
    iterations: int  # in a batch
    warmup: int
    batches: int
    graph_calls: int
    check: bool
    l2_bytes: int
    group_calls: int = 1  # per iteration, in one group if more than 1
    blocking: bool = False  # the host waits for each launch before the next

    def sets(self, call: Call) -> int:
        return set_count(call, self.in_place, self.l2_bytes)

    def graphs(self, sets: int) -> int:
        """The number of graphs that take turns, so that all sets are used."""
        return min(_MAX_GRAPHS, -(-sets // (self.graph_calls * self.group_calls))) if self.graph_calls else 0


@dataclass(frozen=True)
class _Batch:
    """The launches of a batch, in order."""

    launches: list[_Launch]
    calls_each: int  # calls per launch
    sets: list[int]  # the sets that they use; some may occur more than once


class Harness:
    """Measures all contenders on this rank."""

    def __init__(
        self,
        host: Communicator,
        contenders: list[Contender],
        sample: npt.NDArray[Any],
        source: DeviceBuffer,
        schedule: Schedule,
    ) -> None:
        self._host, self._contenders, self._schedule = host, contenders, schedule
        self._sample, self._source = sample, source
        self._stream, self._gate = Stream(), Gate()
        self._start, self._end = Event(), Event()
        self._was_late = False
        # The barrier on the GPU is a small call of NCCL, if available, and the same for all contenders.
        nccl = next((one.run for one in contenders if one.comm is None), None)
        comm = next(one.comm for one in contenders if one.comm is not None)
        self._run_barrier = nccl or run_ours(comm, "raw")
        self._barrier_call = Call("all_reduce", value_type("int32"), 1, host.rank, host.ranks)
        self._barrier_word = DeviceBuffer(4).fill(0)
        # CUDA loads a kernel at its first launch, which would block while a stream is held.
        self._barrier_on_gpu()
        cuda_driver.call("cuCtxSynchronize")

    def _barrier_on_gpu(self) -> None:
        self._run_barrier(self._barrier_call, self._barrier_word, self._barrier_word, self._stream)

    def measure(
        self, call: Call, only: list[Contender] | None = None, schedule: Schedule | None = None
    ) -> dict[str, Any]:
        """For each contender: seconds per call of each batch, bytes, and the number of wrong values.

        schedule: from now on, instead of the one before. The same on all ranks.
        """
        contenders = only or self._contenders
        self._schedule = schedule or self._schedule
        sets = self._schedule.sets(call)
        for one in contenders:
            with _named(one, call):
                one.begin(call, sets, self._schedule.in_place)
                self._write_inputs(one, call, range(sets))
                self._warm_up(one, call)
        for _ in range(self._schedule.batches):
            for one in contenders:
                with _named(one, call):
                    seconds, cpu_seconds = self._time(one, call)
                    one.seconds.append(seconds)
                    one.cpu_seconds.append(cpu_seconds)
        if self._schedule.check:
            for i, one in enumerate(contenders):
                with _named(one, call):
                    one.wrong = self._count_wrong(one, call, 1 + i)
        for one in contenders:
            one.end()
        return {
            "count": call.count,
            "contenders": {
                one.name: {
                    "seconds": one.seconds,
                    "cpu_seconds": one.cpu_seconds,
                    "wrong": one.wrong,
                    "raw_bytes": one.raw_bytes,
                    "wire_bytes": one.wire_bytes,
                }
                for one in contenders
            },
        }

    def close(self) -> None:
        self._stream.synchronize()
        self._gate.close()

    def _write_inputs(self, one: Contender, call: Call, sets: Iterable[int], variant: int = 0) -> None:
        """Enqueues copies of the inputs. Each set and each variant has different values."""
        for i in dict.fromkeys(sets):
            start = samples.start_of(self._sample, call.rank + _variant(i, variant) * call.ranks)
            one.sets[i][0].copy_from(self._source, start * call.kind.bytes, self._stream)

    def _warm_up(self, one: Contender, call: Call) -> None:
        runs = self._schedule.warmup
        before = one.comm.counters() if one.comm else None
        for i in range(runs):
            self._launch(one, call, i % len(one.sets))
        self._stream.synchronize()
        if one.comm and before:
            after = one.comm.counters()
            one.raw_bytes = (after.raw_bytes - before.raw_bytes) // runs
            one.wire_bytes = (after.wire_bytes - before.wire_bytes) // runs
        for graph in range(self._schedule.graphs(len(one.sets))):
            with self._stream.capture() as captured:
                for sets in self._grouped(self._sets_of_graph(one, graph)):
                    self._launch_group(one, call, sets)
            one.graphs.append(captured)
        for captured in one.graphs:
            captured.launch(self._stream)
        self._stream.synchronize()

    def _launch(self, one: Contender, call: Call, i: int) -> None:
        one.run(call, *one.sets[i], self._stream)

    def _launch_group(self, one: Contender, call: Call, sets: list[int]) -> None:
        with one.group() if len(sets) > 1 else contextlib.nullcontext():
            for i in sets:
                self._launch(one, call, i)

    def _grouped(self, sets: list[int]) -> list[list[int]]:
        """Divides calls into groups."""
        together = self._schedule.group_calls
        return [sets[i : i + together] for i in range(0, len(sets), together)]

    def _sets_of_graph(self, one: Contender, graph: int) -> list[int]:
        calls = self._schedule.graph_calls * self._schedule.group_calls
        return [i % len(one.sets) for i in range(graph * calls, (graph + 1) * calls)]

    def _one_by_one(self, one: Contender, call: Call, sets: list[int]) -> _Batch:
        return _Batch([_bound(self._launch, one, call, i) for i in sets], 1, sets)

    def _next_batch(self, one: Contender, call: Call) -> _Batch:
        together = self._schedule.group_calls
        if not one.graphs:
            turns = itertools.islice(one.turns, self._schedule.iterations * together)
            sets = [turn % len(one.sets) for turn in turns]
            return _Batch([_bound(self._launch_group, one, call, own) for own in self._grouped(sets)], together, sets)
        calls = self._schedule.graph_calls
        graphs = [
            turn % len(one.graphs) for turn in itertools.islice(one.turns, -(-self._schedule.iterations // calls))
        ]
        return _Batch(
            [_bound(one.graphs[graph].launch, self._stream) for graph in graphs],
            calls * together,
            [i for graph in graphs for i in self._sets_of_graph(one, graph)],
        )

    def _time(self, one: Contender, call: Call) -> tuple[float, float]:
        """Seconds per call in a batch: until the calls are complete, and until the host has issued them."""
        batch = self._next_batch(one, call)
        if self._schedule.in_place:
            self._write_inputs(one, call, batch.sets)
        if self._schedule.blocking:
            seconds = self._time_blocking(batch)
            return seconds, seconds
        late = threading.Timer(_LATE_SECONDS, self._open_late)
        if batch.calls_each <= (_MAX_HELD_GRAPH_CALLS if one.graphs else _HELD_CALLS):
            self._gate.hold(self._stream)
            late.start()
        try:
            self._barrier_on_gpu()
            self._start.record(self._stream)
            begin = time.perf_counter()
            for i, launch in enumerate(batch.launches):
                launch()
                if (i + 1) * batch.calls_each >= _HELD_CALLS:
                    late.cancel()
                    self._gate.open()
            cpu_seconds = time.perf_counter() - begin
            self._end.record(self._stream)
        finally:
            # After an error the stream must not stay held.
            late.cancel()
            self._gate.open()
        if self._was_late:
            raise InternalError(f"launches of {one.name} wait for the GPU, so its time cannot be measured this way")
        calls = len(batch.launches) * batch.calls_each
        return self._end.seconds_since(self._start) / calls, cpu_seconds / calls

    def _time_blocking(self, batch: _Batch) -> float:
        """Seconds per call by the clock of the host, with a wait after each launch."""
        self._stream.synchronize()
        barrier(self._host)
        begin = time.perf_counter()
        for launch in batch.launches:
            launch()
            self._stream.synchronize()
        return (time.perf_counter() - begin) / (len(batch.launches) * batch.calls_each)

    def _open_late(self) -> None:
        """Releases a launch that blocks because the stream is held."""
        self._was_late = True
        self._gate.open()

    def _count_wrong(self, one: Contender, call: Call, variant: int) -> int:
        """The number of wrong values in a batch with poisoned outputs and new inputs."""
        one.turns = itertools.count()
        batch = self._next_batch(one, call)
        sets = list(dict.fromkeys(batch.sets))
        if self._schedule.in_place and operations.describe(call.operation).reduces and len(sets) < len(batch.sets):
            # A second call on the same set would reduce the result of the first.
            batch = self._one_by_one(one, call, sets)
        for i in sets:
            one.sets[i][1].fill(operations.POISON)
        cuda_driver.call("cuCtxSynchronize")
        # In place, the inputs were poisoned too.
        self._write_inputs(one, call, sets, variant)
        self._stream.synchronize()
        # Peers may write directly into the poisoned buffers.
        barrier(self._host)
        for launch in batch.launches:
            launch()
        self._stream.synchronize()
        if not call.has_result:
            return 0
        wrong = 0
        for i in _spread(sets, min(_CHECKED_SETS, max(1, _CHECKED_BYTES // one.sets[0][1].count_bytes))):
            found = one.sets[i][1].read().view(call.kind.numpy)
            is_ours = one.comm is not None
            codec = one.name if is_ours else "raw"
            wrong += call.count_wrong(found, self._sample, _variant(i, variant), exact=is_ours, codec=codec)
        return wrong


@contextlib.contextmanager
def _named(one: Contender, call: Call) -> Iterator[None]:
    """Adds the contender and the call to the message of an error."""
    try:
        yield
    except NarrowcastError as error:
        raise type(error)(f"{one.name}, {call.operation} of {call.count} {call.kind.name}: {error}") from error


def _variant(i: int, variant: int) -> int:
    """The variant of the sample for a set."""
    return i + MAX_SETS * variant


def _spread(sets: list[int], count: int) -> list[int]:
    """`count` of the sets, including the last, and the first if count is at least 2."""
    places = {len(sets) - 1 - round(j * (len(sets) - 1) / max(1, count - 1)) for j in range(count)}
    return [sets[place] for place in sorted(places)]


def _bound(function: Callable[..., None], *arguments: Any) -> _Launch:
    return lambda: function(*arguments)
