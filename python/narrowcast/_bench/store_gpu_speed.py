"""Measures the store on a GPU, next to other ways to get rows of host memory there, and compares the rows."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import store
from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Stream
from .._store.rows import Rows
from .._store.sources import source_of
from ..store import Store
from ..types import ValueType
from . import host_times
from .codec_speed import median_seconds
from .null_builder import null_builder
from .samples import tiled

POLICIES = ("static", "lru")
_BATCHES = 8  # of indices, so that no measured call finds what the previous one has left in caches
_WARM_UP_BATCHES = 24  # others, before a cache is measured
_SLICE_BYTES = 4 << 20
_IN_A_ROW = 16  # calls for such slices
_ENCODED_BYTES = 2 << 30  # at most
_MAPPED = 2  # CU_MEMHOSTREGISTER_DEVICEMAP


class _Array:
    """An array of NumPy's types in GPU memory, or in host memory that the GPU can read."""

    def __init__(self, pointer: int, shape: tuple[int, ...], typestr: str, owner: object) -> None:
        self.shape, self._owner = shape, owner
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (pointer, False), "version": 3}

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> _Array:
        buffer = DeviceBuffer(values.nbytes).write(values)
        return cls(buffer.pointer, values.shape, values.dtype.str, buffer)


@contextlib.contextmanager
def _registered(values: npt.NDArray[Any]) -> Iterator[None]:
    """Registers host memory with CUDA."""
    pointer = c_void_p(values.ctypes.data)
    cuda_driver.call("cuMemHostRegister_v2", pointer, c_size_t(values.nbytes), c_uint(_MAPPED))
    try:
        yield
    finally:
        cuda_driver.call("cuMemHostUnregister", pointer)


class _Ranks:
    """Draws rows: uniformly, or by Zipf's law in a random order."""

    def __init__(self, rows: int, zipf: float) -> None:
        self._random = np.random.default_rng(0)
        self._rows, self._sums = rows, None
        if zipf:
            weights = np.arange(1, rows + 1, dtype=np.float64) ** -zipf
            self._sums = np.cumsum(weights) / weights.sum()
            self.by_frequency: npt.NDArray[np.int64] = self._random.permutation(rows)
        else:
            self.by_frequency = np.arange(rows)

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        if self._sums is None:
            return self._random.integers(0, self._rows, count)
        ranks = np.searchsorted(self._sums, self._random.random(count))
        return self.by_frequency[np.minimum(ranks, self._rows - 1)]


class _Bench:
    """The tables of a benchmark, and what is needed to measure calls."""

    def __init__(
        self, rows: npt.NDArray[np.uint8], kind: ValueType, drawn: list[npt.NDArray[np.int64]], iterations: int
    ) -> None:
        self.rows, self.kind, self.drawn, self.iterations = rows, kind, drawn, iterations
        self.stream = Stream()
        # The first _BATCHES are measured.
        self.indices = [_Array.of(one) for one in drawn]
        self.out = DeviceBuffer(len(drawn[0]) * rows.shape[1])
        self.exact = True

    def speed(self, run: Callable[[int], object], out_bytes: int, in_a_row: int = 0) -> float:
        """GB/s of a call; a call is given the number of a batch.

        in_a_row: so many are measured together, among others. 0: one at a time. Readers of slices work ahead if calls
        follow each other, so short ones are enqueued when the call before has ended.
        """

        def call(i: int) -> None:
            run(i % _BATCHES)

        # Large slices are copied in so many pieces that the driver has no room for all of them.
        held = out_bytes <= _SLICE_BYTES
        seconds = median_seconds(
            call,
            self.stream,
            _BATCHES,
            self.iterations,
            in_a_row=max(in_a_row, 1),
            held=held,
            apart=held and in_a_row == 0,
        )
        return out_bytes / seconds / 1e9

    def gather(self, table: Store, sms: int, *, in_order: bool = False) -> float:
        """GB/s of gathers, whose rows are compared."""
        out_bytes = self.out.count_bytes

        def run(i: int) -> None:
            table.gather(self.indices[i], self.out, stream=self.stream, sms=sms, in_order=in_order)

        found = self.speed(run, out_bytes)
        self.compare(run, self.drawn[0])
        return found

    def compare(self, run: Callable[[int], object], expected: npt.NDArray[np.int64]) -> None:
        """Compares the rows that a gather of the first batch yields with those that it should."""
        self.out.fill(0xA5)
        run(0)
        self.stream.synchronize()
        found = self.out.read().reshape(len(expected), -1)
        self.exact = self.exact and np.array_equal(found, self.rows[expected])

    def fetch(self, table: Store, count: int, sms: int, in_a_row: int = 0) -> float:
        """GB/s of slices of `count` rows at different places, which are compared."""
        most = len(self.rows) - count

        def run(i: int) -> None:
            table.fetch(most * i // _BATCHES, count, out=out, stream=self.stream, sms=sms)

        out = DeviceBuffer(count * self.rows.shape[1])
        found = self.speed(run, out.count_bytes, in_a_row)
        run(1)
        self.stream.synchronize()
        first = most // _BATCHES
        self.exact = self.exact and np.array_equal(out.read(), self.rows[first : first + count].reshape(-1))
        return found

    def cached(
        self, table: Store, policy: str, size_bytes: int, warm: npt.NDArray[np.int64], sms: int
    ) -> dict[str, Any]:
        """Gathers with a cache."""
        table.cache(0, policy, size_bytes=size_bytes, warm=warm if policy == "static" else None, stream=self.stream)
        for i in range(_BATCHES, len(self.indices)):
            table.gather(self.indices[i], self.out, stream=self.stream, sms=sms)

        def run(i: int) -> None:
            table.gather(self.indices[i], self.out, stream=self.stream, sms=sms)

        before = table.cache_info(stream=self.stream)
        # Every batch once: the cache has not seen it before.
        speed = self.out.count_bytes / median_seconds(run, self.stream, 0, _BATCHES, held=False) / 1e9
        after = table.cache_info(stream=self.stream)
        self.compare(run, self.drawn[0])
        table.cache(stream=self.stream)
        hits, misses = after.hits - before.hits, after.misses - before.misses
        return {
            "policy": policy,
            "gather_gb_per_s": speed,
            "hit_rate": hits / (hits + misses),
            "rows": after.rows,
            "capacity": after.capacity,
            "slot_bytes": after.slot_bytes,
            "bytes": after.bytes,
        }

    def copy_to_gpu(self, most_bytes: int, in_a_row: int = 0) -> float:
        """GB/s of copies of registered memory by the copy engine."""
        count = min(self.rows.nbytes, most_bytes)
        to = DeviceBuffer(count)

        def run(i: int) -> None:
            begin = (self.rows.nbytes - count) * i // _BATCHES
            cuda_driver.call(
                "cuMemcpyHtoDAsync_v2",
                c_uint64(to.pointer),
                c_void_p(self.rows.ctypes.data + begin),
                c_size_t(count),
                c_void_p(self.stream.handle),
            )

        return self.speed(run, count, in_a_row)

    def index_select(self, *, ascending: bool) -> float | None:
        """GB/s of torch.index_select from registered memory (UVA); None without torch.

        ascending: the indices were sorted before, as gathers of a store sort them while they are measured.
        """
        try:
            import torch
        except ImportError:
            return None
        if not torch.cuda.is_available():
            return None
        shape = self.rows.shape
        table = torch.as_tensor(_Array(self.rows.ctypes.data, shape, "|u1", self.rows), device="cuda")
        out = torch.as_tensor(_Array(self.out.pointer, (len(self.drawn[0]), shape[1]), "|u1", self.out), device="cuda")
        # Wide elements are faster.
        wide = {8: torch.int64, 4: torch.int32, 2: torch.int16}.get(math.gcd(shape[1], 8), torch.uint8)
        table, out = table.view(wide), out.view(wide)
        drawn = [np.sort(one) if ascending else one for one in self.drawn[:_BATCHES]]
        indices = [torch.as_tensor(one, device="cuda") for one in drawn]

        def run(i: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(self.stream.handle)):
                torch.index_select(table, 0, indices[i], out=out)

        found = self.speed(run, self.out.count_bytes)
        self.compare(run, drawn[0])
        return found

    def gather_on_host(self, plain: Store) -> float:
        """GB/s of gathers of raw rows by all CPUs to registered memory, and a copy from there."""
        host = np.empty((len(self.drawn[0]), self.rows.shape[1] // self.kind.bytes), self.kind.numpy)
        times = []
        with _registered(host):
            for i in range(3):
                begin = time.perf_counter()
                plain.gather(self.drawn[i], host)
                self.out.write(host)
                times.append(time.perf_counter() - begin)
        self.compare(lambda i: self.out.write(plain.gather(self.drawn[i], host)), self.drawn[0])
        return host.nbytes / sorted(times)[1] / 1e9


def _encode(table: npt.NDArray[Any], kind: ValueType, codec: str, layout: str, device: int | None) -> float:
    """GB/s of encoding rows without a file system, on a GPU or, if it is None, on all CPUs."""
    row_bytes = table.nbytes // len(table)
    count = min(len(table), _ENCODED_BYTES // row_bytes)
    sample = source_of(table, kind, None).sample
    rows = Rows(table.ctypes.data, row_bytes, count, table)
    with null_builder(kind, table.shape[1:], len(table), sample, codec=codec, layout=layout, device=device) as builder:
        seconds = host_times.median_seconds(lambda: builder.add(rows), 3)
    return count * row_bytes / seconds / 1e9


def measure(
    raw: npt.NDArray[np.uint8],
    kind: ValueType,
    row_bytes: int,
    *,
    table_bytes: int,
    gathered_rows: int,
    codec: str,
    layout: str,
    sms: list[int],
    zipf: float,
    cache_percent: float,
    iterations: int,
) -> dict[str, Any]:
    """Builds a table of a repeated sample, and measures its calls on the current GPU in GB/s of raw bytes.

    The same rows are measured in a table of the codec raw, and with what one does without a store. Results are
    compared with the rows. The files of the tables are in the folder for temporary files.
    """
    count = max(_BATCHES, table_bytes // row_bytes)
    values = tiled(raw[: raw.size // kind.bytes * kind.bytes], count * row_bytes)
    rows = values.reshape(count, row_bytes)
    table_of = values.view(kind.numpy).reshape(count, row_bytes // kind.bytes)
    ranks = _Ranks(count, zipf)
    batches = _BATCHES + (_WARM_UP_BATCHES if cache_percent else 0)
    bench = _Bench(rows, kind, [ranks.draw(gathered_rows) for _ in range(batches)], iterations)
    slice_rows = min(count, max(1, _SLICE_BYTES // row_bytes))
    with contextlib.ExitStack() as opened:

        def build(chosen: str) -> Store:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "table"
                store.build(table_of, chosen, layout, path, dtype=kind, host=None, report=reports.append)
                made = opened.enter_context(store.open(path))
            made.prepare(gathered_rows, stream=bench.stream)
            return made

        reports: list[store.BuildReport] = []
        table, plain = build(codec), build("raw")
        report = reports[0]
        gathers = report.layout != "blocks"
        result: dict[str, Any] = {
            "row_bytes": row_bytes,
            "rows": count,
            "codec": report.codec,
            "layout": report.layout,
            "ratio": report.ratio,
            "zipf": zipf,
            "speeds": [],
        }
        for limit in sms:
            speeds: dict[str, Any] = {"sms": limit, "fetch_4_mib_gb_per_s": bench.fetch(table, slice_rows, limit)}
            speeds["fetch_4_mib_in_a_row_gb_per_s"] = bench.fetch(table, slice_rows, limit, _IN_A_ROW)
            speeds["fetch_gb_per_s"] = bench.fetch(table, min(count, gathered_rows), limit)
            if gathers:
                speeds["gather_gb_per_s"] = bench.gather(table, limit)
                speeds["raw_gather_gb_per_s"] = bench.gather(plain, limit)
                speeds["raw_gather_unsorted_gb_per_s"] = bench.gather(plain, limit, in_order=True)
            if gathers and cache_percent:
                size = int(count * row_bytes * cache_percent / 100)
                order = ranks.by_frequency
                speeds["cached"] = [bench.cached(table, one, size, order, limit) for one in POLICIES]
                speeds["raw_cached"] = [bench.cached(plain, one, size, order, limit) for one in POLICIES]
            result["speeds"].append(speeds)
        result["host_gather_and_copy_gb_per_s"] = bench.gather_on_host(plain) if gathers else None
        table.check()
        plain.check()
    with _registered(rows):
        chosen = (table_of, kind, report.codec, report.layout)
        result["encode_gb_per_s"] = _encode(*chosen, 0)
        result["encode_on_cpus_gb_per_s"] = _encode(*chosen, None)
        result["copy_gb_per_s"] = bench.copy_to_gpu(256 << 20)
        result["copy_4_mib_gb_per_s"] = bench.copy_to_gpu(_SLICE_BYTES)
        result["copy_4_mib_in_a_row_gb_per_s"] = bench.copy_to_gpu(_SLICE_BYTES, _IN_A_ROW)
        result["index_select_gb_per_s"] = bench.index_select(ascending=False)
        result["index_select_sorted_gb_per_s"] = bench.index_select(ascending=True)
    result["exact"] = bench.exact
    return result
