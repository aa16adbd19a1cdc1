"""The operations of communicators: arrays become pointers and counts for the functions of the library."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_uint64, pointer, sizeof
from typing import Any, TypeVar, cast

from .._arrays.results import Result, item_bytes_of, scaled, shape_of
from .._arrays.streams import stream_handle
from .._arrays.view import View, host_view, view
from .._native.codecs import comm_codec_number
from .._native.library import check, library
from .._native.numbers import as_index, as_int, as_unsigned
from .._native.operations import describe
from .._native.structures import ReductionOptionsC
from ..types import DType, ValueType, reduction_number
from .groups import Stream, open_group
from .handles import OfThisProcess

Array = TypeVar("Array")


class Calls(OfThisProcess, abc.ABC):
    """The operations. `Communicator` adds creation and destruction, and documents what all calls have in common."""

    rank: int
    ranks: int
    backend: str
    _used_plans: set[Any]

    @property
    @abc.abstractmethod
    def handle(self) -> int:
        """The `ncast_comm`."""

    # Transfers.

    def send(
        self, values: Any, peer: int, *, codec: str = "auto", stream: Any = None, dtype: DType | None = None
    ) -> None:
        """Sends `values` to rank `peer`, which must receive the same number of values."""
        source = self._view(values, "values", stream, moves=True, dtype=dtype)
        self._run(
            "ncast_send",
            (source.pointer, source.c_count, source.dtype.number, as_int(peer, "peer")),
            codec,
            stream,
            source,
        )

    def recv(
        self, out: Array, peer: int, *, codec: str = "auto", stream: Any = None, dtype: DType | None = None
    ) -> Array:
        """Receives from rank `peer` as many values as `out` holds. Returns `out`."""
        target = self._view(out, "out", stream, moves=True, dtype=dtype, writable=True)
        self._run(
            "ncast_recv",
            (target.pointer, target.c_count, target.dtype.number, as_int(peer, "peer")),
            codec,
            stream,
            target,
        )
        return out

    # Collectives that move data.

    def broadcast(
        self,
        values: Array | None,
        out: Array | None = None,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Array:
        """Copies the root's `values` to `out` on every rank; in place, to `values`, when `out` is None.

        On ranks other than the root `values` is used only when `out` is None.
        """
        root = as_int(root, "root")
        array, name = (cast(Array, values), "values") if out is None else (out, "out")
        target = self._view(array, name, stream, moves=True, dtype=dtype, writable=True)
        source = target if out is None or self.rank != root else self._like(values, target, target.elems, stream, dtype)
        self._run(
            "ncast_broadcast",
            (source.pointer, target.pointer, target.c_count, target.dtype.number, root),
            codec,
            stream,
            source,
            target,
        )
        return array

    def gather(
        self,
        values: Any,
        out: Array | None = None,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Array | None:
        """Gathers the `values` of all ranks, in rank order, into `out` of the root, which holds `ranks` times as many.

        out: None: a new array, as for `all_gather`. On ranks other than the root it is ignored. In place when `values`
            is the root's part of it.
        """
        root = as_int(root, "root")
        source = self._view(values, "values", stream, moves=True, dtype=dtype)
        views, target, result = [source], None, None
        if self.rank == root:
            result = self._result(out, values, lambda: scaled(shape_of(values), self.ranks, 1), stream)
            views.append(self._target(result.array, source, source.elems * self.ranks, stream))
            target = views[-1].pointer
        self._run(
            "ncast_gather", (source.pointer, target, source.c_count, source.dtype.number, root), codec, stream, *views
        )
        return result.get() if result else None

    def scatter(
        self,
        values: Any,
        out: Array,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Array:
        """Sends part r of the root's `values` to `out` of rank r. `values` holds `ranks` times as many values as `out`.

        On ranks other than the root `values` is ignored and may be None. In place when `out` is the root's part of
        `values`.
        """
        root = as_int(root, "root")
        target = self._view(out, "out", stream, moves=True, dtype=dtype, writable=True)
        views, source = [target], None
        if self.rank == root:
            views.append(self._like(values, target, target.elems * self.ranks, stream, dtype))
            source = views[-1].pointer
        self._run(
            "ncast_scatter", (source, target.pointer, target.c_count, target.dtype.number, root), codec, stream, *views
        )
        return out

    def all_gather(
        self, values: Any, out: Any = None, *, codec: str = "auto", stream: Any = None, dtype: DType | None = None
    ) -> Any:
        """Gathers the `values` of all ranks, in rank order, into `out` of every rank (`ranks` times as many).

        out: None: a new array like `values`, in which those of the ranks follow each other along the first axis. In
            place when `values` is this rank's part of `out`.
        """
        source = self._view(values, "values", stream, moves=True, dtype=dtype)
        result = self._result(out, values, lambda: scaled(shape_of(values), self.ranks, 1), stream)
        target = self._target(result.array, source, source.elems * self.ranks, stream)
        self._move("ncast_all_gather", source, target, source.c_count, codec, stream)
        return result.get()

    def all_to_all(
        self, values: Any, out: Any = None, *, codec: str = "auto", stream: Any = None, dtype: DType | None = None
    ) -> Any:
        """Sends part r of `values` to rank r and receives part r of `out` from it. Both hold `ranks` equal parts.

        out: None: a new array like `values`, with which it must not overlap.
        """
        source = self._view(values, "values", stream, moves=True, dtype=dtype)
        count = self._part(source, "values") * source.dtype.units
        result = self._result(out, values, lambda: shape_of(values), stream)
        target = self._target(result.array, source, source.elems, stream)
        self._move("ncast_all_to_all", source, target, count, codec, stream)
        return result.get()

    def all_to_all_v(
        self,
        values: Any,
        out: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        send_offsets: Sequence[int] | None = None,
        recv_offsets: Sequence[int] | None = None,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Any:
        """As `all_to_all`, with a separate count for each rank.

        out: None: a new array of one axis for the values that arrive, end to end.
        send_counts, recv_counts: the number of values to and from each rank; zero is allowed. The send count of a rank
            for another must equal the other's receive count for it.
        send_offsets, recv_offsets: the positions of the parts in `values` and `out`, in values; None: end to end in
            rank order.

        `values` and `out` must not overlap, nor must parts of `out`.
        """
        source = self._view(values, "values", stream, moves=True, dtype=dtype)
        if out is None and recv_offsets is not None:
            raise ValueError("out is needed with recv_offsets, which do not say where it ends")

        def shape() -> tuple[int, ...]:
            elems = sum(as_unsigned(count, f"recv_counts[{rank}]") for rank, count in enumerate(recv_counts))
            return (elems * source.dtype.bytes // item_bytes_of(values),)

        result = self._result(out, values, shape, stream)
        target = self._view(result.array, "out", stream, moves=True, holds=source.dtype, writable=True)
        sent = self._ranges(source, "values", "send", send_counts, send_offsets)
        received = self._ranges(target, "out", "recv", recv_counts, recv_offsets)
        arguments = (source.pointer, *sent, target.pointer, *received, source.dtype.number)
        self._run("ncast_all_to_all_v", arguments, codec, stream, source, target)
        return result.get()

    # Reductions.

    def reduce(
        self,
        values: Array,
        out: Array | None = None,
        *,
        root: int = 0,
        op: str = "sum",
        factor: Any = None,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Array | None:
        """Reduces `values` over all ranks into `out` of the root; in place when its `out` is None.

        On ranks other than the root `out` is ignored. op, factor: as for `all_reduce`.
        """
        root = as_int(root, "root")
        is_root = self.rank == root
        source = self._view(values, "values", stream, dtype=dtype, writable=is_root and out is None)
        target = source if out is None or not is_root else self._target(out, source, source.elems, stream)
        self._reduce("reduce", source, target, source.elems, op, factor, codec, stream, root)
        if not is_root:
            return None
        return values if out is None else out

    def reduce_scatter(
        self,
        values: Any,
        out: Any = None,
        *,
        op: str = "sum",
        factor: Any = None,
        codec: str = "auto",
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Any:
        """Reduces `values` over all ranks and stores part r of the result in `out` of rank r.

        values: `ranks` equal parts, divided along the first axis if it can be.
        out: one part; None: a new array like `values`. In place when it is this rank's part of `values`.
        op, factor: as for `all_reduce`.
        """
        source = self._view(values, "values", stream, dtype=dtype)
        part = self._part(source, "values")
        result = self._result(out, values, lambda: scaled(shape_of(values), 1, self.ranks), stream)
        target = self._target(result.array, source, part, stream)
        self._reduce("reduce_scatter", source, target, part, op, factor, codec, stream)
        return result.get()

    def all_reduce(
        self,
        values: Array,
        out: Array | None = None,
        *,
        op: str = "sum",
        factor: Any = None,
        codec: str = "auto",
        result_codec: str | None = None,
        stream: Any = None,
        dtype: DType | None = None,
    ) -> Array:
        """Reduces `values` over all ranks into `out` on every rank; in place when `out` is None.

        op: "sum", "prod", "min", "max" or "avg".
        factor: a number by which this rank multiplies its floats before a sum, or an array of one value, of their type,
            which is read when the call runs. Either all ranks have one or none. The values are multiplied in fp32
            (float64: in fp64) and rounded to their type before they are encoded or sent.
        result_codec: of the results that ranks send each other; None: `codec`, which is that of the contributions.
            Codecs that quantise groups of values combine with each other and with "raw".
        """
        source = self._view(values, "values", stream, dtype=dtype, writable=out is None)
        target = source if out is None else self._target(out, source, source.elems, stream)
        self._reduce("all_reduce", source, target, source.elems, op, factor, codec, stream, result_codec=result_codec)
        return values if out is None else out

    def _view(
        self,
        array: Any,
        name: str,
        stream: Any,
        *,
        dtype: DType | None = None,
        holds: ValueType | None = None,
        moves: bool = False,
        writable: bool = False,
    ) -> View:
        if self.backend == "host":
            return host_view(array, name, dtype=dtype, holds=holds, moved=moves, writable=writable)
        found = view(array, name, dtype=dtype, holds=holds, moved=moves, writable=writable, stream=stream)
        if found.device != "cuda":
            raise ValueError(
                f"{name} is in host memory: copy it to the GPU first, or use a communicator of the host backend"
            )
        return found

    def _result(self, out: Any, values: Any, shape: Callable[[], tuple[int, ...]], stream: Any) -> Result:
        completes = self.backend == "host" and stream is None and not open_group.depth
        return Result.of(out, values, shape, completes=completes)

    def _target(self, out: Any, source: View, elems: int, stream: Any) -> View:
        target = self._view(out, "out", stream, holds=source.dtype, writable=True)
        if target.elems != elems:
            raise ValueError(f"out holds {target.elems} values, not {elems}")
        return target

    def _like(self, values: Any, target: View, elems: int, stream: Any, dtype: DType | None) -> View:
        source = self._view(values, "values", stream, dtype=dtype, moves=True)
        if source.dtype != target.dtype or source.elems != elems:
            raise ValueError(
                f"values holds {source.elems} {source.dtype.name}, but out holds {target.elems} {target.dtype.name}"
            )
        return source

    def _ranges(
        self, whole: View, name: str, prefix: str, counts: Sequence[int], offsets: Sequence[int] | None
    ) -> tuple[Any, Any]:
        """Counts and offsets as C arrays, checked to be inside the array."""
        numbers = [as_index(count, f"{prefix}_counts[{rank}]") for rank, count in enumerate(counts)]
        if offsets is None:
            starts = [*itertools.accumulate(numbers, initial=0)][:-1]
        else:
            starts = [as_index(offset, f"{prefix}_offsets[{rank}]") for rank, offset in enumerate(offsets)]
        for kind, listed in (("counts", numbers), ("offsets", starts)):
            if len(listed) != self.ranks:
                raise ValueError(f"{prefix}_{kind} has {len(listed)} numbers for {self.ranks} ranks")
        for rank, (count, start) in enumerate(zip(numbers, starts, strict=True)):
            if count < 0 or (count and not 0 <= start <= whole.elems - count):
                raise ValueError(
                    f"{name} has {whole.elems} values, {prefix}_counts[{rank}] is {count} and its offset {start}"
                )
        array, units = c_uint64 * self.ranks, whole.dtype.units
        # The library ignores the offset where the count is zero, and c_uint64 accepts any number.
        return array(*(units * count for count in numbers)), array(*(units * start for start in starts))

    def _part(self, whole: View, name: str) -> int:
        if whole.elems % self.ranks:
            raise ValueError(f"{name} has {whole.elems} values, which is not a multiple of {self.ranks} ranks")
        return whole.elems // self.ranks

    def _move(self, function: str, source: View, target: View, count: int, codec: str, stream: Any) -> None:
        self._run(function, (source.pointer, target.pointer, count, source.dtype.number), codec, stream, source, target)

    def _reduce(
        self,
        operation: str,
        source: View,
        target: View,
        count: int,
        op: str,
        factor: Any,
        codec: str,
        stream: Any,
        root: int = 0,
        result_codec: str | None = None,
    ) -> None:
        dtype, number, views = source.dtype, reduction_number(op), [source, target]
        options = ReductionOptionsC(struct_bytes=sizeof(ReductionOptionsC))
        if isinstance(factor, (int, float)):
            options.factor = pointer(c_double(factor))
        elif factor is not None:
            views.append(self._view(factor, "factor", stream, holds=dtype))
            if views[-1].elems != 1:
                raise ValueError(f"factor holds {views[-1].elems} values, not one")
            options.device_factor = views[-1].pointer
        if result_codec is not None:
            options.result_codec = pointer(c_uint64(comm_codec_number(result_codec)))
        arguments = describe(operation).number, source.pointer, target.pointer, count, dtype.number, number, root
        allowed = comm_codec_number(codec)

        def call(handle: Any) -> None:
            check(library().ncast_run_reduction(*arguments, allowed, byref(options), self.handle, handle))

        self._enqueue(call, stream, *views)

    def _run(self, function: str, arguments: tuple[Any, ...], codec: str, stream: Any, *views: View) -> None:
        number = comm_codec_number(codec)

        def call(handle: Any) -> None:
            check(getattr(library(), function)(*arguments, number, self.handle, handle))

        self._enqueue(call, stream, *views)

    def _enqueue(self, call_on: Callable[[Any], None], stream: Any, *views: View) -> None:
        """Calls the library, and keeps the buffers alive as long as it may use them, except on CUDA streams."""
        owners = [one.owner for one in views]
        host_stream: Stream | None = None
        if self.backend == "cuda":
            if isinstance(stream, Stream):
                raise TypeError("stream is a narrowcast.Stream of the host backend: pass a CUDA stream")
            handle = stream_handle(stream) or None
        elif stream is None:
            handle = None
        else:
            if not isinstance(stream, Stream):
                raise TypeError(f"stream is of type {type(stream).__name__}, not a narrowcast.Stream")
            host_stream, handle = stream, stream.handle

        def call() -> None:
            call_on(handle)

        if open_group.depth:
            open_group.kept.append((host_stream, owners))
            call()
        elif host_stream is not None:
            host_stream._enqueue(call, owners)
        else:
            call()
