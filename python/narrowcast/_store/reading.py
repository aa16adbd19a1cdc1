"""Rows of an open table, by index and by slice, on the host and on GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._arrays.view import View
from .._native.numbers import as_index, as_int
from ..errors import InvalidArgumentError, UnsupportedError
from ..types import ValueType
from .gpu import Call, GpuReaders, empty_like, gpu_indices, gpu_view, is_on_gpu, stream_of
from .handle import Handle
from .reports import RowIndexError
from .rows import Output, index_array, output_rows


class Reading:
    """Reads rows of a table. The arguments of the methods are those of `Store`."""

    def __init__(self, handle: Handle, readers: GpuReaders, kind: ValueType, row_shape: tuple[int, ...]) -> None:
        self._handle, self._readers = handle, readers
        self._kind, self._row_shape = kind, row_shape

    def __len__(self) -> int:
        return int(self._handle.info().rows)

    def gather(
        self,
        indices: Any,
        out: Any = None,
        stream: Any = None,
        threads: int = 0,
        sms: int | None = None,
        in_order: bool = False,
    ) -> Any:
        if is_on_gpu(indices) or is_on_gpu(out):
            return self._gather_on_gpu(indices, out, stream, sms, in_order)
        _reject_stream(stream)
        chosen = index_array(indices)
        target = output_rows(out, self._kind, (*chosen.shape, *self._row_shape), self._row_shape)
        with self.index_errors(chosen), target.written() as rows:
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
            with self.index_errors(None if isinstance(chosen, View) else chosen):
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
        stream: Any = None,
        threads: int = 0,
        sms: int | None = None,
    ) -> Any:
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
                if not 0 <= begin <= rows:
                    raise RowIndexError(f"row {begin} is not among the {rows} rows")
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

    def __getitem__(self, index: Any) -> Any:
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
        if isinstance(index, (bool, np.bool_)):
            raise TypeError("a single bool is not an index of rows")
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

    @contextlib.contextmanager
    def index_errors(self, chosen: Any) -> Iterator[None]:
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
