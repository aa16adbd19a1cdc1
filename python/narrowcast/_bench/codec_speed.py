"""Measures the codecs in GPU memory, and verifies the results."""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import cuda
from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Event, Gate, Stream
from ..codec import bound, encode
from ..errors import CorruptError
from ..types import ValueType
from .samples import tiled

_POISON = 0xA5
# Larger frames are not compared with those of the host, which encodes on one core.
_HOST_COMPARE_BYTES = 256 << 20


@dataclass(frozen=True)
class CudaSpeed:
    """The measured speed of a codec: medians, in GB/s of raw bytes."""

    layout: str  #: "frame" or "slots"
    raw_bytes: int
    wire_bytes: int
    encode_gb_per_s: float
    decode_gb_per_s: float
    exact: bool

    @property
    def ratio(self) -> float:
        return self.wire_bytes / self.raw_bytes


def _median_seconds(run: Callable[[int], None], stream: Stream, warmup: int, iterations: int) -> float:
    """The median time in seconds of run(i) on the stream, each measured by two events."""
    for i in range(warmup):
        run(i)
    stream.synchronize()
    gate = Gate()
    events = [(Event(), Event()) for _ in range(iterations)]
    try:
        gate.hold(stream)
        for i, (start, end) in enumerate(events):
            start.record(stream)
            run(i)
            end.record(stream)
    finally:
        gate.open()
        stream.synchronize()
        gate.close()
    return statistics.median(end.seconds_since(start) for start, end in events)


def measure(
    raw: npt.NDArray[np.uint8],
    kind: ValueType,
    tile_bytes: int,
    *,
    codec: str = "window",
    max_ctas: int = 0,
    slots: bool = False,
    warmup: int = 5,
    iterations: int = 20,
) -> CudaSpeed:
    """Encodes and decodes a tensor, repeated to `tile_bytes`, in GPU memory.

    Several sets of small buffers take turns, so that they are not in the L2 cache.
    """
    elems = max(1, tile_bytes // kind.bytes)
    raw_bytes = elems * kind.bytes
    with cuda_driver.on_device(0):
        l2_bytes = cuda_driver.device_attribute(cuda_driver.L2_BYTES)
        sets = min(16, max(1, math.ceil(3 * l2_bytes / raw_bytes)))
        bench = (_Slots if slots else _Frames)(raw, kind, elems, codec, max_ctas, sets)
        stream = Stream()
        # At least one run for every set of buffers, whose results are compared.
        warmup = max(warmup, sets)
        encode_seconds = _median_seconds(lambda i: bench.encode(i % sets, stream), stream, warmup, iterations)
        bench.poison()
        decode_seconds = _median_seconds(lambda i: bench.decode(i % sets, stream), stream, warmup, iterations)
        wire_bytes, exact = bench.compare(raw, raw_bytes)
    return CudaSpeed(
        "slots" if slots else "frame",
        raw_bytes,
        wire_bytes,
        raw_bytes / encode_seconds / 1e9,
        raw_bytes / decode_seconds / 1e9,
        exact,
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
        """Wire bytes, and whether all results have the bits of the values."""
        try:
            cuda.check(self.status)
        except CorruptError:
            return self.wire_bytes(), False
        expected = tiled(raw, raw_bytes)
        exact = all(np.array_equal(result.read(), expected) for result in self.results)
        if raw_bytes <= _HOST_COMPARE_BYTES:
            exact = exact and self.matches_host(expected)
        return self.wire_bytes(), exact


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
            self.slots[i], self.lengths[i], out=self.results[i], status=self.status, **self.options(stream)
        )

    def wire_bytes(self) -> int:
        # Slots have no header. Their lengths are sent separately.
        lengths = self.lengths[0].read().view(np.uint32)
        return int(lengths.sum(dtype=np.uint64)) + lengths.nbytes

    def matches_host(self, raw_bytes: npt.NDArray[np.uint8]) -> bool:
        return True
