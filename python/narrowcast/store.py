"""Tables of rows in host memory or in files, encoded row by row.

    from narrowcast import store

    store.build(embeddings, path="embeddings.ncs", host=None)  # fits a codec, and writes a table file
    with store.open("embeddings.ncs") as table:
        rows = table.gather([7, 7, 0])                         # decodes these rows, bit for bit
        part = table[100:200]
        table.update([7], new_rows)                            # while other threads and processes read

Everything works without a GPU. Where there is one, `gather` and `fetch` take arrays in its memory: the GPU reads the
rows itself, still encoded, and decodes them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ._arrays.view import View
from ._files.atomic import new_file
from ._native.numbers import as_index, as_int, as_unsigned
from ._native.store_structures import STORE_CACHES, STORE_HOSTS, STORE_LAYOUTS
from ._store.gpu import (
    DEFAULT_SMS,
    Call,
    GpuReaders,
    build_device,
    current_stream,
    empty_like,
    gpu_indices,
    gpu_view,
    is_on_gpu,
    stream_of,
)
from ._store.handle import Builder, Handle, choice, memory_file
from ._store.rows import Output, index_array, input_rows, output_rows
from ._store.sources import source_of
from .errors import InvalidArgumentError, UnsupportedError
from .types import BY_NUMBER, DType, ValueType

__all__ = ["BuildReport", "CacheInfo", "Counters", "RowIndexError", "Store", "VerifyReport", "build", "open", "verify"]


def __dir__() -> list[str]:
    return sorted(__all__)


class RowIndexError(InvalidArgumentError, IndexError):
    """An index is negative or not below the number of rows. The message has its position and its value."""


@dataclass(frozen=True)
class BuildReport:
    """What `build` has written."""

    codec: str  #: such as "trim+window"
    layout: str  #: "stride", "packed" or "blocks"
    rows: int
    raw_bytes: int  #: of the rows as they were
    stored_bytes: int  #: of the rows as they are stored, with offsets and overflow entries
    file_bytes: int
    stride: int  #: bytes from one slot to the next; 0 for other layouts
    overflow_rows: int  #: rows that are longer than a slot
    fit: Any  #: how the codec was chosen: candidates, ratios and the reason

    @property
    def ratio(self) -> float:
        """Stored bytes / raw bytes."""
        return self.stored_bytes / self.raw_bytes if self.raw_bytes else 1.0


@dataclass(frozen=True)
class Counters:
    """What the calls on one `Store` have done, on the host and on GPUs."""

    gathers: int
    fetches: int
    rows_read: int
    raw_bytes_read: int
    overflow_rows_read: int  #: rows that were read from overflow entries
    damaged_rows_read: int  #: rows that could not be decoded
    updates: int
    appends: int
    rows_updated: int
    rows_appended: int
    grace_waits: int  #: how often a change waited for readers
    fetched_bytes: int  #: encoded bytes that GPUs have read
    bad_indices: int  #: indices in GPU memory that had no row


@dataclass(frozen=True)
class CacheInfo:
    """A cache of `Store.cache`, and what gathers on its stream have found."""

    bytes: int  #: of GPU memory that rows, and what finds them, take; 0: there is no cache
    slot_bytes: int  #: of a row in the cache
    capacity: int  #: rows that fit
    rows: int  #: in the cache now
    hits: int  #: gathered rows that were in the cache
    misses: int  #: gathered rows that were not
    fills: int  #: rows that were put into the cache
    evictions: int  #: rows that made room for others
    dropped: int  #: rows that had been updated
    overflows: int  #: hits that did not serve: the encoded row was longer than slot_bytes, or in an overflow entry


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify`."""

    rows: int
    damaged_rows: int
    damaged: tuple[int, ...]  #: the indices of the first 100 of them
    faults: tuple[str, ...]  #: what is wrong, apart from these rows

    @property
    def good(self) -> bool:
        """Whether there is no damage."""
        return not self.damaged_rows and not self.faults


class Store:
    """An open table. See `open` and `build`.

    Any number of threads may use it; changes run one after another. Use it in a `with` statement, or call `close`
    when no other call is running.
    """

    def __init__(self, handle: Handle, name: str) -> None:
        self._handle, self._name = handle, name
        self._readers = GpuReaders(handle)
        info = handle.info()
        self._kind: ValueType = BY_NUMBER[info.dtype]
        self._row_shape = tuple(info.row_shape[: info.row_rank])
        self._layout = next(text for text, number in STORE_LAYOUTS.items() if number == info.layout)
        self._host = next(text for text, number in STORE_HOSTS.items() if number == info.host)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor: the number of rows, and the shape of a row."""
        return (len(self), *self._row_shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row; () if a row is a single value."""
        return self._row_shape

    @property
    def row_bytes(self) -> int:
        """Bytes of a decoded row."""
        return int(math.prod(self._row_shape)) * self._kind.bytes

    @property
    def dtype(self) -> str:
        """The name of the value type, such as "bfloat16"."""
        return self._kind.name

    @property
    def layout(self) -> str:
        """ "stride", "packed" or "blocks"."""
        return self._layout

    @property
    def host(self) -> str:
        """ "pinned", "mmap" or "shared"."""
        return self._host

    @property
    def codec(self) -> str:
        """The codec of the rows, such as "trim+window"."""
        return self._handle.codec()

    @property
    def capacity(self) -> int:
        """The number of rows for which there is space."""
        return int(self._handle.info().capacity)

    @property
    def free_entries(self) -> int:
        """Overflow entries that `update` and `append` can use."""
        return int(self._handle.info().free_entries)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the rows as they are stored, with offsets and used overflow entries."""
        return int(self._handle.info().stored_bytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes that the store has mapped, including reserved space."""
        return int(self._handle.info().memory_bytes)

    @property
    def ratio(self) -> float:
        """Stored bytes / bytes of the decoded rows; smaller is better."""
        raw_bytes = len(self) * self.row_bytes
        return self.stored_bytes / raw_bytes if raw_bytes else 1.0

    @property
    def metadata(self) -> dict[str, Any]:
        """What `build` was given as metadata."""
        text = self._handle.metadata()
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"text": text}

    def counters(self) -> Counters:
        """What the calls on this store have done so far. Waits for those on GPUs."""
        on_gpus = self._readers.counters()
        sums = {**self._handle.counters(), "fetched_bytes": 0, "bad_indices": 0}
        for name, value in on_gpus.items():
            sums[name] += value
        sums["raw_bytes_read"] += on_gpus["rows_read"] * self.row_bytes
        return Counters(**sums)

    def prepare(
        self, max_rows: int = 1 << 16, *, device: int | None = None, stream: Any = None, sms: int = DEFAULT_SMS
    ) -> None:
        """Allocates what calls on a stream of a GPU need. Without it, the first call on the stream does.

        The first call for a GPU also registers the memory of the store with CUDA, which takes a second for some 10 GB;
        with host="mmap" it verifies the whole file before.

        max_rows: gathers of more rows run in pieces of this many.
        device: the ordinal of the GPU; None: 0.
        stream: as for `gather`; None: the default stream, or torch's current one if torch is imported.
        sms: SMs that calls on this stream use at most.

        Raises CudaError if the memory cannot be registered, CorruptError if the store was opened with damage, and
        UnsupportedError without a GPU.
        """
        count = as_unsigned(max_rows, "max_rows", 32)
        limit = as_unsigned(sms, "sms", 32)
        if not count or not limit:
            raise ValueError(f"max_rows is {count} and sms is {limit}: they must be positive")
        self._readers.prepare(*self._place(device, stream), count, limit)

    def check(self) -> None:
        """Waits for the calls on GPUs, and reports what they have found since the last check.

        Raises RowIndexError if indices in GPU memory had no row, and CorruptError if rows could not be decoded. These
        rows are zeros.
        """
        try:
            self._readers.check()
        except InvalidArgumentError as error:
            raise RowIndexError(str(error)) from None

    def cache(
        self,
        rows: int = 0,
        policy: str = "lru",
        *,
        size_bytes: int = 0,
        warm: Any = None,
        device: int | None = None,
        stream: Any = None,
    ) -> CacheInfo:
        """Gives gathers on a stream of a GPU a cache in its memory, in which rows stay encoded.

        rows: the number of rows for which there is room.
        size_bytes: instead of rows, the GPU memory that the cache may take. With neither, the cache is removed.
        policy: which rows are in the cache: "static" (those of `warm`; others only where there is room), "lru" (the
            rows that were gathered last), or "lfu" (the rows that are gathered most often).
        warm: rows to begin with, in host memory, those that are gathered most often first; None: with "static" the
            first rows of the table, otherwise none.
        device, stream: as for `prepare`.

        Waits for the stream. Rows that are updated leave the cache. A graph that was captured before must not run any
        more. `fetch` does not use the cache. Raises UnsupportedError for the layout "blocks".
        """
        place = self._place(device, stream)
        number = choice(policy, STORE_CACHES, "policy")
        count, size = as_unsigned(rows, "rows", 31), as_unsigned(size_bytes, "size_bytes")
        if count and size:
            raise ValueError("rows and size_bytes are both given")
        chosen = None if warm is None else index_array(warm, "warm").reshape(-1)
        self._readers.set_cache(*place, number, size, count, chosen)
        return self.cache_info(device=device, stream=stream)

    def cache_info(self, *, device: int | None = None, stream: Any = None) -> CacheInfo:
        """The cache of a stream, and what it has done. Waits for the stream. Arguments as for `prepare`."""
        return CacheInfo(**self._readers.cache_info(*self._place(device, stream)))

    def _place(self, device: int | None, stream: Any) -> tuple[int, Any]:
        ordinal = 0 if device is None else as_unsigned(device, "device", 31)
        return ordinal, current_stream(ordinal) if stream is None else stream

    def gather(
        self,
        indices: Any,
        out: Any = None,
        *,
        stream: Any = None,
        threads: int = 0,
        sms: int | None = None,
        in_order: bool = False,
    ) -> Any:
        """Decodes rows.

        indices: integers of any shape: an array of NumPy, a tensor of torch, or a list; or int32 or int64 in GPU
            memory. Duplicates are allowed; negative indices are not.
        out: memory for the result: an array or a tensor of the value type, of its bits as unsigned integers, or of
            bytes. Its shape is that of `indices`, followed by that of a row; rows may be apart. None: a new NumPy
            array; for indices in GPU memory, a new array there, of torch or CuPy. NumPy has no bfloat16 and no fp8: new
            arrays have the types of ml_dtypes, or, if it is not installed, the bits as uint16 and uint8.
        stream: for GPU memory, the stream on which the rows are read, of any framework, or its handle; None: the
            current stream of torch or CuPy, or the default stream for other arrays.
        threads: on the host, at most this many; 0: chosen by the amount of data.
        sms: on a GPU, use at most this many SMs; None: those of `prepare`.
        in_order: on a GPU, read the rows in the order of the indices. By default they are sorted by page first if that
            pays; this saves the sort if the indices ascend.

        If indices or out are in GPU memory, the GPU reads the rows: the call returns before it is complete, in the
        order of the stream, and can be captured in a graph if the indices are in GPU memory. The arrays must stay alive
        and unchanged until then. Indices in GPU memory that have no row yield zeros; `check` reports them.

        Returns `out`, or the new array. Raises RowIndexError for indices in host memory, before anything is written,
        CorruptError if rows are damaged (these are zeros, the others are valid), and TypeError or ValueError for
        invalid arguments.
        """
        if is_on_gpu(indices) or is_on_gpu(out):
            return self._gather_on_gpu(indices, out, stream, sms, in_order)
        _reject_stream(stream)
        chosen = index_array(indices)
        target = output_rows(out, self._kind, (*chosen.shape, *self._row_shape), self._row_shape)
        with self._index_errors(chosen), target.written() as rows:
            self._handle.gather(chosen, rows, as_int(threads, "threads"))
        return target.result

    def _gather_on_gpu(self, indices: Any, out: Any, stream: Any, sms: int | None, in_order: bool) -> Any:
        stream = stream_of(stream, out if is_on_gpu(out) else indices)
        chosen = gpu_indices(indices, stream) if is_on_gpu(indices) else index_array(indices)
        shape = (*chosen.shape, *self._row_shape)
        target, device = self._gpu_output(empty_like(indices, self._kind, shape) if out is None else out, shape, stream)
        if isinstance(chosen, View) and chosen.elems and chosen.device_id != device:
            raise ValueError(f"indices are on cuda:{chosen.device_id}, but out is on cuda:{device}")
        if target.rows.number:
            with self._index_errors(None if isinstance(chosen, View) else chosen):
                self._readers.gather(Call(device, stream, sms), chosen, target.rows, in_order)
        return target.result

    def _gpu_output(self, out: Any, shape: tuple[int, ...], stream: Any) -> tuple[Output, int]:
        """Memory for rows on a GPU, and the number of the GPU."""
        devices = []

        def view_of(array: Any, name: str, **options: Any) -> View:
            found = gpu_view(array, name, stream, **options)
            devices.append(found.device_id)
            return found

        target = output_rows(out, self._kind, shape, self._row_shape, view_of)
        return target, devices[0]

    def fetch(
        self,
        first: int | slice,
        count: int | None = None,
        step: int = 1,
        out: Any = None,
        *,
        stream: Any = None,
        threads: int = 0,
        sms: int | None = None,
    ) -> Any:
        """Decodes a slice of rows.

        first: the first row, or a slice, as in NumPy; then count and step are not given.
        count: the number of rows; None: to the end of the table.
        step: the distance of the rows; may be negative.
        out, stream, threads, sms, result and errors: as for `gather`. If out is in GPU memory, the GPU reads the rows.
        """
        if not is_on_gpu(out):
            _reject_stream(stream)
        rows = len(self)
        if isinstance(first, slice):
            if count is not None or step != 1:
                raise TypeError("a slice has a length and a step already")
            chosen = range(*first.indices(rows))
            begin, count, step = chosen.start, len(chosen), chosen.step
        else:
            begin, step = as_index(first, "first"), as_index(step, "step")
            if count is None:
                if step == 0:
                    raise ValueError("step is 0: give a count")
                count = len(range(begin, rows if step > 0 else -1, step))
            count = as_index(count, "count")
        if count < 0 or not -(1 << 62) < step < 1 << 62:
            raise ValueError(f"count is {count} and step is {step}")
        last = begin + step * max(count - 1, 0)
        if count and not (0 <= begin < rows and 0 <= last < rows):
            raise RowIndexError(f"rows {begin} to {last} are not all among the {rows} rows")
        shape = (count, *self._row_shape)
        if is_on_gpu(out):
            stream = stream_of(stream, out)
            on_gpu, device = self._gpu_output(out, shape, stream)
            if count:
                self._readers.fetch(Call(device, stream, sms), begin, count, step, on_gpu.rows)
            return on_gpu.result
        target = output_rows(out, self._kind, shape, self._row_shape)
        with target.written() as place:
            if count:
                self._handle.fetch(begin, count, step, place, as_int(threads, "threads"))
        return target.result

    def update(self, indices: Any, rows: Any, *, threads: int = 0) -> None:
        """Replaces rows. Readers, in all threads and processes, see the old or the new row, never a mix.

        indices: as for `gather`. If one occurs several times, the last row counts.
        rows: an array of the value type with a row for each index, in host memory.

        Raises RowIndexError, and TooSmallError if the overflow entries do not suffice (`spare` of `open`), both before
        anything has changed; UnsupportedError for stores that are read-only.
        """
        chosen = index_array(indices)
        given = input_rows(rows, "rows", self._kind, self._row_shape, chosen.size)
        with self._index_errors(chosen):
            self._handle.update(chosen, given, as_int(threads, "threads"))

    def append(self, rows: Any, *, threads: int = 0) -> int:
        """Adds rows behind the last one, and returns the index of the first of them.

        rows: an array of the value type, one or more rows, in host memory.

        Raises TooSmallError if the capacity or the overflow entries do not suffice; nothing has changed then.
        """
        return self._handle.append(input_rows(rows, "rows", self._kind, self._row_shape), as_int(threads, "threads"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table with all changes to a file, which is replaced only after everything has been written.

        Rows can be read and changed meanwhile: each is saved as it was at some time during the call.
        """
        with new_file(Path(path)) as file:
            self._handle.save(file.fileno())

    def verify(self, *, threads: int = 0) -> VerifyReport:
        """Decodes all rows, and with host="mmap" checks all checksums of the file."""
        return _verify_report(self._handle.verify(as_int(threads, "threads")))

    def close(self) -> None:
        """Releases the memory. Changes that were not saved are lost (host="shared": when the last process closes).

        Waits for calls on GPUs. Graphs with captured calls must not run afterwards.
        """
        self._readers.close()
        self._handle.close()

    def __len__(self) -> int:
        return int(self._handle.info().rows)

    def __getitem__(self, index: Any) -> Any:
        """Rows as from a NumPy array: an integer, a slice, or an array of integers or bools; negative ones count from
        the end. Further indices of a tuple apply to the decoded rows. Indices in GPU memory are those of `gather`."""
        if isinstance(index, tuple):
            if not index:
                return self[:]
            first = index[0]
            if first is Ellipsis or first is None:
                return self[:][index]
            picked = self[first]
            own = (slice(None),) * (picked.ndim - len(self._row_shape))
            return picked[own + index[1:]]
        if index is Ellipsis:
            return self[:]
        if isinstance(index, slice):
            return self.fetch(index)
        if isinstance(index, (int, np.integer)):
            row, rows = int(index), len(self)
            if not -rows <= row < rows:
                raise RowIndexError(f"index {row} is out of range: the store has {rows} rows")
            return self.fetch(row % rows, 1)[0]
        if is_on_gpu(index):
            return self.gather(index)
        array = np.asarray(index)
        if array.dtype == bool:
            if array.shape != (len(self),):
                raise RowIndexError(f"the mask has shape {array.shape}, but the store has {len(self)} rows")
            return self.gather(np.flatnonzero(array))
        # int64: a sum with the number of rows may not fit int32.
        chosen = index_array(index).astype(np.int64, copy=False)
        return self.gather(np.where(chosen < 0, chosen + len(self), chosen))

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._name!r}: {self.dtype} {list(self.shape)}, {self.layout}, {self.host}>"

    @contextlib.contextmanager
    def _index_errors(self, chosen: Any) -> Any:
        """Errors of the library that are about an index become RowIndexError."""
        try:
            yield
        except InvalidArgumentError as error:
            if chosen is not None and chosen.size and (chosen.min() < 0 or chosen.max() >= len(self)):
                raise RowIndexError(str(error)) from None
            raise


def _reject_stream(stream: object) -> None:
    if stream is not None:
        raise UnsupportedError("stream is only for GPU memory: on the host, calls return when they are complete")


def build(
    source: Any,
    codec: str = "auto",
    layout: str = "auto",
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: DType | None = None,
    tensor: str | None = None,
    capacity: int | None = None,
    spare: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    threads: int = 0,
    device: int | str | None = None,
    progress: Callable[[int], None] | None = None,
    host: str | None = "pinned",
    report: Callable[[BuildReport], None] | None = None,
) -> Store | None:
    """Encodes the rows of a tensor, and opens the result.

    source: an array, whose rows are those of its first dimension, in host memory (NumPy, ml_dtypes, torch, DLPack, a
        memory-mapped file) or in GPU memory (torch, CuPy, DLPack, `__cuda_array_interface__`); the path of a
        safetensors file, encoded or not, or of an npy file; or an iterable of blocks of rows in host memory. Only a
        part of it is in memory at a time, so it may be larger than memory.
    codec: a row codec, such as "window" or "trim+window"; "auto" fits all candidates to a sample of at most 10% of the
        rows, or to 512 rows if these are more. With layout "blocks", a codec of `narrowcast.codecs()`.
    layout: "stride" (slots of one size; rows can be replaced), "packed" (smaller if sizes vary), "blocks" (for slices;
        read-only), or "auto".
    path: the table file, which is replaced only after everything has been written; None: in memory.
    dtype: the value type of an array without one, as for bytes and uint16 bits.
    tensor: the name of the tensor in a safetensors file with several.
    capacity: rows for which an open store reserves space, for `append`.
    spare: free overflow entries of an open store, for `update`; None: chosen by the library.
    metadata: any JSON object, stored in the file.
    threads: that encode and write at the same time; 0: as many as CPUs that this process may use.
    device: what encodes the rows: "cpu", or the ordinal of a GPU, "cuda" or "cuda:1"; None: the GPU that has the rows,
        or the CPU. The file has the same bytes. On a GPU, rows in page-locked host memory (torch's pin_memory) are
        fastest. The codec is fitted on the CPU, which also encodes rows of layout "blocks".
    progress: called with the number of raw bytes that were encoded since the last call.
    host: as for `open`; None: do not open the file.
    report: called with the sizes, and with how the codec was chosen.

    Returns the open store; None if host is None. Raises TypeError and ValueError for invalid arguments,
    UnsupportedError, CudaError if the GPU cannot be used, and OSError.
    """
    if path is None and host not in ("pinned", None):
        raise ValueError(f"host is {host!r}, but without a path the store is only in the memory of this process")
    if host is not None:
        choice(host, STORE_HOSTS, "host")

    def write(file: int) -> BuildReport:
        return _write(file, source, codec, layout, dtype, tensor, capacity, spare, metadata, threads, device, progress)

    with contextlib.ExitStack() as files:
        if path is None:
            descriptor, place = files.enter_context(memory_file())
            name, written = "<memory>", write(descriptor)
        else:
            place = name = os.fspath(path)
            with new_file(Path(path)) as file:
                written = write(file.fileno())
        if report is not None:
            report(written)
        if host is None:
            return None
        return Store(Handle(place, host=host, threads=threads), name)


def _write(
    file: int,
    source: Any,
    codec: str,
    layout: str,
    dtype: DType | None,
    tensor: str | None,
    capacity: int | None,
    spare: int | None,
    metadata: Mapping[str, Any] | None,
    threads: int,
    device: int | str | None,
    progress: Callable[[int], None] | None,
) -> BuildReport:
    rows = source_of(source, dtype, tensor)
    builder = Builder(
        file,
        rows.kind,
        rows.row_shape,
        codec=codec,
        layout=layout,
        rows=rows.rows,
        capacity=capacity,
        spare=spare,
        metadata="" if metadata is None else json.dumps(dict(metadata), allow_nan=False),
        threads=threads,
        device=build_device(device, rows.device),
    )
    with contextlib.closing(builder):
        if rows.sample.number:
            builder.sample(rows.sample)
        for block in rows.blocks:
            builder.add(block)
            if progress is not None:
                progress(block.stride * block.number)
        return BuildReport(**builder.finish())


def open(
    path: str | os.PathLike[str],
    host: str = "pinned",
    *,
    numa: int | None = None,
    capacity: int | None = None,
    spare: int | None = None,
    threads: int = 0,
    allow_damage: bool = False,
) -> Store:
    """Opens a table file.

    host: where the rows are. "pinned": in memory of this process, read from the file and verified; without a GPU this
        is plain memory. "mmap": in the pages of the file, verified when they are first used; read-only. "shared": in
        shared memory, one copy for all processes of this user that open the same file, with their changes.
    numa: the NUMA node for the memory; None: the system chooses. Not with "mmap".
    capacity, spare: as for `build`; None: what the file says.
    threads: that load the file; 0: as many as CPUs that this process may use.
    allow_damage: open a damaged file; reading damaged rows raises CorruptError, the others are unaffected.

    Raises CorruptError, which says what is damaged, and OSError.
    """
    handle = Handle(
        path, host=host, numa=numa, capacity=capacity, spare=spare, threads=threads, allow_damage=allow_damage
    )
    return Store(handle, os.fspath(path))


def verify(path: str | os.PathLike[str], *, threads: int = 0) -> VerifyReport:
    """Checks all checksums of a table file, and decodes all rows.

    Raises CorruptError if the file is so damaged that it cannot be opened, and OSError.
    """
    with open(path, "mmap", threads=threads) as table:
        return table.verify(threads=threads)


def _verify_report(report: dict[str, Any]) -> VerifyReport:
    return VerifyReport(report["rows"], report["damaged_rows"], tuple(report["damaged"]), tuple(report["faults"]))
