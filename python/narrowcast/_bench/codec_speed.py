"""Measures the codecs in GPU memory, and verifies the results."""

from __future__ import annotations

import abc
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import cuda
from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Event, Gate, Graph, Stream
from ..codec import bound, encode
from ..cuda_batch import DecodeBatch, EncodeBatch
from ..errors import CorruptError
from ..types import ValueType
from .samples import tiled
from .tolerance import is_restored

_POISON = 0xA5
_CALLS_PER_GRAPH = 1024
# Larger frames are not compared with those of the host, which encodes on one core.
_HOST_COMPARE_BYTES = 256 << 20


@dataclass(frozen=True)
class CudaSpeed:
    """The measured speed of a codec: medians, in GB/s of raw bytes."""

    layout: str  #: "frame", "slots", "batch" or "calls"
    raw_bytes: int
    wire_bytes: int
    encode_gb_per_s: float
    decode_gb_per_s: float
    correct: bool  #: all values are restored, or are within the error of a lossy codec

    @property
    def ratio(self) -> float:
        return self.wire_bytes / self.raw_bytes


def median_seconds(
    run: Callable[[int], None],
    stream: Stream,
    warmup: int,
    iterations: int,
    *,
    in_a_row: int = 1,
    held: bool = True,
    apart: bool = False,
) -> float:
    """The median time in seconds of run(i) on the stream.

    in_a_row: so many runs between two events, whose time is divided by their number.
    held: the stream waits until all runs are enqueued. The driver has no room for many kernels that wait.
    apart: a timed run is enqueued when the one before has ended.
    """
    for i in range(warmup):
        run(i)
    stream.synchronize()
    gate = Gate()
    events = [(Event(), Event()) for _ in range(iterations)]
    try:
        if held:
            gate.hold(stream)
        for i, (start, end) in enumerate(events):
            if apart and i != 0:
                gate.open()
                stream.synchronize()
                if held:
                    gate.hold(stream)
            start.record(stream)
            for number in range(i * in_a_row, (i + 1) * in_a_row):
                run(number)
            end.record(stream)
    finally:
        gate.open()
        stream.synchronize()
        gate.close()
    return statistics.median(end.seconds_since(start) for start, end in events) / in_a_row


def measure(
    raw: npt.NDArray[np.uint8],
    kind: ValueType,
    tile_bytes: int,
    *,
    codec: str = "window",
    max_ctas: int = 0,
    layout: str = "frame",
    array_bytes: int = 0,
    warmup: int = 5,
    iterations: int = 20,
) -> CudaSpeed:
    """Encodes and decodes a tensor, repeated to `tile_bytes`, in GPU memory.

    layout: "frame"; "slots"; "batch": arrays of at most `array_bytes` in one call; "calls": those with a call each, in
    CUDA graphs.
    Several sets of small buffers take turns, so that they are not in the L2 cache.
    """
    elems = max(1, tile_bytes // kind.bytes)
    raw_bytes = elems * kind.bytes
    with cuda_driver.on_device(0):
        l2_bytes = cuda_driver.device_attribute(cuda_driver.L2_BYTES)
        # Graphs of thousands of calls take long to create, and the L2 cache does not matter for them.
        sets = 1 if layout == "calls" else min(16, max(1, math.ceil(3 * l2_bytes / raw_bytes)))
        bench: _Buffers
        if layout in ("batch", "calls"):
            one = max(1, array_bytes // kind.bytes)
            bench = (_Batch if layout == "batch" else _Calls)(raw, kind, elems, codec, max_ctas, sets, one)
        else:
            bench = (_Slots if layout == "slots" else _Frames)(raw, kind, elems, codec, max_ctas, sets)
        stream = Stream()
        # At least one run for every set of buffers, whose results are compared.
        warmup = max(warmup, sets)
        held = layout != "calls"  # graphs of thousands of kernels
        encode_seconds = median_seconds(lambda i: bench.encode(i % sets, stream), stream, warmup, iterations, held=held)
        bench.poison()
        decode_seconds = median_seconds(lambda i: bench.decode(i % sets, stream), stream, warmup, iterations, held=held)
        wire_bytes, correct = bench.compare(raw, raw_bytes)
    return CudaSpeed(
        layout,
        raw_bytes,
        wire_bytes,
        raw_bytes / encode_seconds / 1e9,
        raw_bytes / decode_seconds / 1e9,
        correct,
    )


class _Buffers(abc.ABC):
    """`sets` buffers of values and of results, and the status word."""

    def __init__(
        self, raw: npt.NDArray[np.uint8], kind: ValueType, elems: int, codec: str, max_ctas: int, sets: int
    ) -> None:
        raw_bytes = elems * kind.bytes
        self.kind, self.elems, self.codec, self.max_ctas = kind, elems, codec, max_ctas
        self.values = [DeviceBuffer(raw_bytes).write_tiled(raw) for _ in range(sets)]
        self.results = [DeviceBuffer(raw_bytes) for _ in range(sets)]
        self.status = DeviceBuffer(16).fill(0)

    def poison(self) -> None:
        for result in self.results:
            result.fill(_POISON)
        cuda_driver.call("cuCtxSynchronize")

    def options(self, stream: Stream) -> dict[str, Any]:
        return {"stream": stream.handle, "max_ctas": self.max_ctas, "dtype": self.kind.name}

    @abc.abstractmethod
    def encode(self, i: int, stream: Stream) -> None: ...

    @abc.abstractmethod
    def decode(self, i: int, stream: Stream) -> None: ...

    @abc.abstractmethod
    def wire_bytes(self) -> int: ...

    @abc.abstractmethod
    def matches_host(self, raw_bytes: npt.NDArray[np.uint8]) -> bool: ...

    def compare(self, raw: npt.NDArray[np.uint8], raw_bytes: int) -> tuple[int, bool]:
        """Wire bytes, and whether all results are right."""
        try:
            cuda.check(self.status)
        except CorruptError:
            return self.wire_bytes(), False
        expected = tiled(raw, raw_bytes)
        correct = all(is_restored(result.read(), expected, self.kind, self.codec) for result in self.results)
        if raw_bytes <= _HOST_COMPARE_BYTES:
            correct = correct and self.matches_host(expected)
        return self.wire_bytes(), correct


class _Frames(_Buffers):
    def __init__(
        self, raw: npt.NDArray[np.uint8], kind: ValueType, elems: int, codec: str, max_ctas: int, sets: int
    ) -> None:
        super().__init__(raw, kind, elems, codec, max_ctas, sets)
        capacity = bound(kind.name, elems, codec=codec)
        self.frames = [DeviceBuffer(capacity) for _ in range(sets)]
        workspace = cuda.workspace_bytes(kind.name, elems, codec=codec)
        self.workspace = DeviceBuffer(workspace).fill(_POISON) if workspace else None

    def encode(self, i: int, stream: Stream) -> None:
        cuda.encode(
            self.values[i],
            out=self.frames[i],
            workspace=self.workspace,
            codec=self.codec,
            **self.options(stream),
        )

    def decode(self, i: int, stream: Stream) -> None:
        cuda.decode(self.frames[i], out=self.results[i], status=self.status, codec=self.codec, **self.options(stream))

    def wire_bytes(self) -> int:
        return cuda.wire_bytes(self.frames[0])

    def matches_host(self, raw_bytes: npt.NDArray[np.uint8]) -> bool:
        host = encode(raw_bytes, dtype=self.kind.name, codec=self.codec, checksum=False)
        return host.size == self.wire_bytes() and np.array_equal(self.frames[0].read(host.size), host)


class _Slots(_Buffers):
    def __init__(
        self, raw: npt.NDArray[np.uint8], kind: ValueType, elems: int, codec: str, max_ctas: int, sets: int
    ) -> None:
        super().__init__(raw, kind, elems, codec, max_ctas, sets)
        self.count = cuda.slot_count(kind.name, elems, codec=codec)
        self.slots = [DeviceBuffer(self.count * cuda.slot_bytes(kind.name, codec=codec)) for _ in range(sets)]
        self.lengths = [DeviceBuffer(4 * self.count) for _ in range(sets)]

    def encode(self, i: int, stream: Stream) -> None:
        cuda.encode_slots(
            self.values[i], slots=self.slots[i], lengths=self.lengths[i], codec=self.codec, **self.options(stream)
        )

    def decode(self, i: int, stream: Stream) -> None:
        cuda.decode_slots(
            self.slots[i],
            self.lengths[i],
            out=self.results[i],
            status=self.status,
            codec=self.codec,
            **self.options(stream),
        )

    def wire_bytes(self) -> int:
        # Slots have no header. Their lengths are sent separately.
        lengths = self.lengths[0].read().view(np.uint32)
        return int(lengths.sum(dtype=np.uint64)) + lengths.nbytes

    def matches_host(self, raw_bytes: npt.NDArray[np.uint8]) -> bool:
        return True


class _Arrays(_Buffers):
    """Arrays of `one` values each, and their frames."""

    def __init__(
        self, raw: npt.NDArray[np.uint8], kind: ValueType, elems: int, codec: str, max_ctas: int, sets: int, one: int
    ) -> None:
        super().__init__(raw, kind, elems, codec, max_ctas, sets)
        self.sizes = [min(one, elems - begin) for begin in range(0, elems, one)]
        self.capacities = [bound(kind.name, size, codec=codec) for size in self.sizes]
        frames = [DeviceBuffer(sum(self.capacities)).fill(_POISON) for _ in range(sets)]
        offsets = [0, *itertools.accumulate(self.capacities)]
        self.frames = [
            [whole.part(at, size) for at, size in zip(offsets, self.capacities, strict=False)] for whole in frames
        ]
        self.array_values = [self._parts(whole, one) for whole in self.values]
        self.array_results = [self._parts(whole, one) for whole in self.results]

    def _parts(self, whole: DeviceBuffer, one: int) -> list[DeviceBuffer]:
        width = self.kind.bytes
        return [whole.part(i * one * width, size * width) for i, size in enumerate(self.sizes)]

    def matches_host(self, raw_bytes: npt.NDArray[np.uint8]) -> bool:
        begin = 0
        for frame, size in zip(self.frames[0], self.sizes, strict=True):
            values = raw_bytes[begin : begin + size * self.kind.bytes]
            begin += values.size
            host = encode(values, dtype=self.kind.name, codec=self.codec, checksum=False)
            if not np.array_equal(frame.read(host.size), host):
                return False
        return True


class _Batch(_Arrays):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        options: dict[str, Any] = {"codec": self.codec, "max_ctas": self.max_ctas}
        self.encoders = [
            EncodeBatch(values, outs=frames, dtype=self.kind.name, **options)
            for values, frames in zip(self.array_values, self.frames, strict=True)
        ]
        self.decoders = [
            DecodeBatch(frames, outs=results, **options)
            for frames, results in zip(self.frames, self.array_results, strict=True)
        ]

    def encode(self, i: int, stream: Stream) -> None:
        self.encoders[i].encode(stream=stream.handle)

    def decode(self, i: int, stream: Stream) -> None:
        self.decoders[i].decode(stream=stream.handle)

    def wire_bytes(self) -> int:
        return sum(self.encoders[0].wire_bytes())

    def compare(self, raw: npt.NDArray[np.uint8], raw_bytes: int) -> tuple[int, bool]:
        try:
            for one in self.decoders:
                one.raw_bytes()
        except CorruptError:
            return self.wire_bytes(), False
        return super().compare(raw, raw_bytes)


def _graphs(calls: Sequence[Callable[[], None]], stream: Stream) -> list[Graph]:
    """Captures calls in graphs. The time to create a graph grows faster than its size."""
    graphs = []
    for begin in range(0, len(calls), _CALLS_PER_GRAPH):
        with stream.capture() as graph:
            for call in calls[begin : begin + _CALLS_PER_GRAPH]:
                call()
        graphs.append(graph)
    return graphs


class _Calls(_Arrays):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        workspace = cuda.workspace_bytes(self.kind.name, max(self.sizes), codec=self.codec)
        self.workspace = DeviceBuffer(workspace).fill(_POISON) if workspace else None
        capturing = Stream()
        options = {"codec": self.codec, **self.options(capturing)}
        self.encode_graphs, self.decode_graphs = [], []
        for values, frames, results in zip(self.array_values, self.frames, self.array_results, strict=True):
            encodes = [
                partial(cuda.encode, source, out=frame, workspace=self.workspace, **options)
                for source, frame in zip(values, frames, strict=True)
            ]
            decodes = [
                partial(cuda.decode, frame, out=result, status=self.status, **options)
                for frame, result in zip(frames, results, strict=True)
            ]
            self.encode_graphs.append(_graphs(encodes, capturing))
            self.decode_graphs.append(_graphs(decodes, capturing))

    def encode(self, i: int, stream: Stream) -> None:
        for graph in self.encode_graphs[i]:
            graph.launch(stream)

    def decode(self, i: int, stream: Stream) -> None:
        for graph in self.decode_graphs[i]:
            graph.launch(stream)

    def wire_bytes(self) -> int:
        return sum(cuda.wire_bytes(frame) for frame in self.frames[0])
