"""Stores and builders of the library (include/narrowcast/store.h)."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Iterator
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import Any

import numpy.typing as npt

from .._native.library import check, library
from .._native.numbers import as_int, as_unsigned
from .._native.paths import path_bytes
from .._native.plan import take_text, text_of
from .._native.store_structures import (
    STORE_ALLOW_DAMAGE,
    STORE_HOSTS,
    STORE_LAYOUTS,
    StoreBuildOptionsC,
    StoreCountersC,
    StoreInfoC,
    StoreOpenOptionsC,
)
from ..errors import InvalidArgumentError
from ..types import ValueType
from .rows import Rows


def choice(value: str, known: dict[str, int], name: str) -> int:
    """The number of a name. Raises ValueError for an unknown one."""
    if value not in known:
        raise ValueError(f"{name} is {value!r} (known: {', '.join(known)})")
    return known[value]


class Builder:
    """Writes a table to a file that is open for writing."""

    def __init__(
        self,
        file: int,
        kind: ValueType,
        row_shape: tuple[int, ...],
        *,
        codec: str,
        layout: str,
        rows: int | None,
        capacity: int | None,
        spare: int | None,
        metadata: str,
        threads: int,
        device: int | None,
    ) -> None:
        if not isinstance(codec, str) or "\0" in codec:
            raise TypeError(f"codec is {codec!r}, not a text such as 'window'")
        options = StoreBuildOptionsC(
            struct_bytes=sizeof(StoreBuildOptionsC),
            dtype=kind.number,
            layout=choice(layout, STORE_LAYOUTS, "layout"),
            row_rank=len(row_shape),
            capacity=0 if capacity is None else as_unsigned(capacity, "capacity"),
            spare=-1 if spare is None else as_unsigned(spare, "spare", 31),
            rows=rows or 0,
            codec=codec.encode(),
            metadata=metadata.encode(),
            threads=as_int(threads, "threads"),
        )
        if len(row_shape) > len(options.row_shape):
            raise ValueError(f"rows have {len(row_shape)} dimensions, but {len(options.row_shape)} are the most")
        options.row_shape[: len(row_shape)] = row_shape
        self._handle = c_void_p()
        check(library().ncast_store_builder_create(file, byref(options), byref(self._handle)))
        self.close = weakref.finalize(self, library().ncast_store_builder_destroy, self._handle)
        if device is not None:
            check(library().ncast_store_builder_set_device(self._handle, device))

    def sample(self, rows: Rows) -> None:
        """Fits the codec and the layout to rows."""
        check(library().ncast_store_builder_sample(self._handle, rows.pointer, rows.stride, rows.number))

    def add(self, rows: Rows) -> None:
        """Encodes and writes rows."""
        check(library().ncast_store_builder_add(self._handle, rows.pointer, rows.stride, rows.number))

    def finish(self) -> dict[str, Any]:
        """Completes the file. Returns the report of ncast_store_builder_finish."""
        call = library().ncast_store_builder_finish
        report: dict[str, Any] = json.loads(text_of(lambda text: int(call(self._handle, text))))
        return report


class Handle:
    """An open store. Calls may run at the same time, except for close(), which does not wait for them."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        host: str,
        numa: int | None = None,
        capacity: int | None = None,
        spare: int | None = None,
        threads: int = 0,
        allow_damage: bool = False,
    ) -> None:
        options = StoreOpenOptionsC(
            struct_bytes=sizeof(StoreOpenOptionsC),
            host=choice(host, STORE_HOSTS, "host"),
            flags=STORE_ALLOW_DAMAGE if allow_damage else 0,
            numa_node_plus_one=0 if numa is None else as_unsigned(numa, "numa", 30) + 1,
            threads=as_int(threads, "threads"),
            capacity=0 if capacity is None else as_unsigned(capacity, "capacity"),
            spare_plus_one=0 if spare is None else as_unsigned(spare, "spare", 31) + 1,
        )
        handle = c_void_p()
        encoded = path_bytes(path, "path")
        os.stat(path)  # noqa: PTH116 - raises FileNotFoundError, and the others that Python's open() would
        check(library().ncast_store_open(encoded, byref(options), byref(handle)))
        self._handle = handle
        self._close = weakref.finalize(self, library().ncast_store_close, handle)

    def close(self) -> None:
        self._close()

    @property
    def pointer(self) -> c_void_p:
        """The ncast_store. Raises InvalidArgumentError if it is closed."""
        if not self._close.alive:
            raise InvalidArgumentError("the store is closed")
        return self._handle

    def info(self) -> StoreInfoC:
        info = StoreInfoC(struct_bytes=sizeof(StoreInfoC))
        check(library().ncast_store_describe(self.pointer, byref(info)))
        return info

    def counters(self) -> dict[str, int]:
        counters = StoreCountersC(struct_bytes=sizeof(StoreCountersC))
        check(library().ncast_store_get_counters(self.pointer, byref(counters)))
        return {name: getattr(counters, name) for name, *_ in counters._fields_[1:]}

    def codec(self) -> str:
        return text_of(lambda text: int(library().ncast_store_codec(self.pointer, text)))

    def metadata(self) -> str:
        return text_of(lambda text: int(library().ncast_store_metadata(self.pointer, text)))

    def gather(self, indices: npt.NDArray[Any], out: Rows, threads: int) -> None:
        check(
            library().ncast_store_gather(
                self.pointer, indices.ctypes.data, indices.itemsize, indices.size, out.pointer, out.stride, threads
            )
        )

    def fetch(self, first: int, count: int, step: int, out: Rows, threads: int) -> None:
        check(library().ncast_store_fetch(self.pointer, first, count, step, out.pointer, out.stride, threads))

    def update(self, indices: npt.NDArray[Any], rows: Rows, threads: int) -> None:
        check(
            library().ncast_store_update(
                self.pointer, indices.ctypes.data, indices.itemsize, indices.size, rows.pointer, rows.stride, threads
            )
        )

    def append(self, rows: Rows, threads: int) -> int:
        first = c_uint64()
        check(library().ncast_store_append(self.pointer, rows.pointer, rows.stride, rows.number, byref(first), threads))
        return first.value

    def save(self, file: int) -> None:
        check(library().ncast_store_save(self.pointer, file))

    def verify(self, threads: int) -> dict[str, Any]:
        """The report of ncast_store_verify, also if there is damage."""
        text = c_void_p()
        status = library().ncast_store_verify(self.pointer, threads, byref(text))
        if not text:
            check(status)
        report: dict[str, Any] = json.loads(take_text(text))
        return report


@contextlib.contextmanager
def memory_file() -> Iterator[tuple[int, str]]:
    """A file in memory: its descriptor, and a path by which it can be opened meanwhile."""
    file = os.memfd_create("narrowcast-store", os.MFD_CLOEXEC)
    try:
        yield file, f"/proc/self/fd/{file}"
    finally:
        os.close(file)
