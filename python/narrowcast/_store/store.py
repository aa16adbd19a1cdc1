"""The class `narrowcast.store.Store`."""

from __future__ import annotations

import json
import math
import os
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from .._files.atomic import new_file
from .._native.library import gpu_count
from .._native.numbers import as_int, as_unsigned
from .._native.store_structures import STORE_CACHES, STORE_HOSTS, STORE_LAYOUTS
from ..errors import InvalidArgumentError, UnsupportedError
from ..types import BY_NUMBER, ValueType
from .gpu import DEFAULT_SMS, GpuReaders, current_stream
from .handle import Handle, choice
from .reading import Reading
from .reports import CacheInfo, Counters, RowIndexError, VerifyReport, verify_report
from .rows import index_array, input_rows


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
        self._reading = Reading(handle, self._readers, self._kind, self._row_shape)
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

        Without a GPU it does nothing, unless it is called with `device` or `stream`: calls on the host need no
        preparation. Raises CudaError if the memory cannot be registered, CorruptError if the store was opened with
        damage, and UnsupportedError if there is no such GPU.
        """
        count = as_unsigned(max_rows, "max_rows", 32)
        limit = as_unsigned(sms, "sms", 32)
        if not count or not limit:
            raise ValueError(f"max_rows is {count} and sms is {limit}: they must be positive")
        if self._has_gpu(device, stream):
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
        policy: which rows are in the cache: "static" (those of `warm`; others only where there is room), or "lru" (the
            rows that were gathered last).
        warm: rows to begin with, in host memory, those that are gathered most often first; None: with "static" the
            first rows of the table, otherwise none.
        device, stream: as for `prepare`.

        Waits for the stream. Rows that are updated leave the cache. A graph that was captured before must not run any
        more. `fetch` does not use the cache. Raises UnsupportedError for the layout "blocks".

        Without a GPU there is no cache, unless `device` or `stream` is given: then UnsupportedError is raised.
        """
        number = choice(policy, STORE_CACHES, "policy")
        count, size = as_unsigned(rows, "rows", 31), as_unsigned(size_bytes, "size_bytes")
        if count and size:
            raise ValueError("rows and size_bytes are both given")
        chosen = None if warm is None else index_array(warm, "warm").reshape(-1)
        if self._layout == "blocks":
            raise UnsupportedError(f"{self._name} has the layout blocks, which is not cached")
        if self._has_gpu(device, stream):
            self._readers.set_cache(*self._place(device, stream), number, size, count, chosen)
        return self.cache_info(device=device, stream=stream)

    def cache_info(self, *, device: int | None = None, stream: Any = None) -> CacheInfo:
        """The cache of a stream, and what it has done. Waits for the stream. Arguments and errors as for `cache`."""
        if not self._has_gpu(device, stream):
            return CacheInfo(**dict.fromkeys((field.name for field in fields(CacheInfo)), 0))
        return CacheInfo(**self._readers.cache_info(*self._place(device, stream)))

    @staticmethod
    def _has_gpu(device: int | None, stream: Any) -> bool:
        """Whether a call concerns a GPU: one that names none concerns the first one, if there is any."""
        return device is not None or stream is not None or gpu_count() > 0

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
        return self._reading.gather(indices, out, stream, threads, sms, in_order)

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
        return self._reading.fetch(first, count, step, out, stream, threads, sms)

    def update(self, indices: Any, rows: Any, *, threads: int = 0) -> None:
        """Replaces rows. Readers, in all threads and processes, see the old or the new row, never a mix.

        indices: as for `gather`. If one occurs several times, the last row counts.
        rows: an array of the value type with a row for each index, in host memory.

        Raises RowIndexError, and TooSmallError if the overflow entries do not suffice (`spare` of `open`), both before
        anything has changed; UnsupportedError for stores that are read-only.
        """
        chosen = index_array(indices)
        given = input_rows(rows, "rows", self._kind, self._row_shape, chosen.size)
        with self._reading.index_errors(chosen):
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
        return verify_report(self._handle.verify(as_int(threads, "threads")))

    def close(self) -> None:
        """Releases the memory. Changes that were not saved are lost (host="shared": when the last process closes).

        Waits for calls on GPUs. Graphs with captured calls must not run afterwards.
        """
        try:
            self._readers.close()
        finally:
            self._handle.close()

    def __len__(self) -> int:
        return len(self._reading)

    def __getitem__(self, index: Any) -> Any:
        """Rows as from a NumPy array: an integer, a slice, or an array of integers or bools; negative ones count from
        the end. Further indices of a tuple apply to the decoded rows. Indices in GPU memory are those of `gather`."""
        return self._reading[index]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a Store cannot be copied or pickled: save it to a file, and open that")

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            shape = str(list(self.shape))
        except InvalidArgumentError:
            return f"<Store {self._name!r}: closed>"
        return f"<Store {self._name!r}: {self.dtype} {shape}, {self.layout}, {self.host}>"
