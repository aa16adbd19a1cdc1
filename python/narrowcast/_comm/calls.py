"""The calls of communicators: arrays to pointers and counts, and the library's functions."""

from __future__ import annotations

import abc
import itertools
import operator
from collections.abc import Sequence
from ctypes import c_uint64
from typing import Any

from .._arrays.streams import stream_handle
from .._arrays.view import View, host_view, view
from .._native.integers import as_int
from .._native.library import check, library
from ..types import ValueType, comm_codec_number, reduction_number
from .groups import Stream, open_group


class Calls(abc.ABC):
    """What a communicator can be asked for. Its class makes and ends it, and says what all calls have in common."""

    rank: int
    ranks: int
    backend: str

    @property
    @abc.abstractmethod
    def handle(self) -> int:
        """The `ncast_comm`."""

    # Transfers.

    def send(
        self, values: Any, peer: int, *, codec: str = "auto", stream: Any = None, dtype: str | None = None
    ) -> None:
        """Sends `values` to the rank `peer`, which receives as many."""
        peer = as_int(peer, "peer")
        source = self._view(values, "values", stream, dtype=dtype)
        self._run(
            "ncast_send",
            (source.pointer, source.elems, source.dtype.number, as_int(peer, "peer")),
            codec,
            stream,
            source,
        )

    def recv(self, out: Any, peer: int, *, codec: str = "auto", stream: Any = None, dtype: str | None = None) -> None:
        """Receives from the rank `peer` as many values as `out` holds."""
        peer = as_int(peer, "peer")
        target = self._view(out, "out", stream, dtype=dtype, writable=True)
        self._run(
            "ncast_recv",
            (target.pointer, target.elems, target.dtype.number, as_int(peer, "peer")),
            codec,
            stream,
            target,
        )

    # Collectives that move data.

    def broadcast(
        self,
        values: Any,
        out: Any = None,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Copies the root's `values` to `out` on every rank; in place, to `values`, when `out` is None.

        On other ranks than the root `values` is only looked at when `out` is None.
        """
        root = as_int(root, "root")
        array, name = (values, "values") if out is None else (out, "out")
        target = self._view(array, name, stream, dtype=dtype, writable=True)
        source = target if out is None or self.rank != root else self._like(values, target, target.elems, stream, dtype)
        self._run(
            "ncast_broadcast",
            (source.pointer, target.pointer, target.elems, target.dtype.number, root),
            codec,
            stream,
            source,
            target,
        )

    def gather(
        self,
        values: Any,
        out: Any = None,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Puts every rank's `values`, in rank order, into `out` of the root, which holds ranks times as many.

        On other ranks than the root `out` is not looked at. In place when `values` is the root's part of `out`.
        """
        root = as_int(root, "root")
        source = self._view(values, "values", stream, dtype=dtype)
        views, target = [source], None
        if self.rank == root:
            views.append(self._target(out, source, source.elems * self.ranks, stream))
            target = views[-1].pointer
        self._run(
            "ncast_gather", (source.pointer, target, source.elems, source.dtype.number, root), codec, stream, *views
        )

    def scatter(
        self,
        values: Any,
        out: Any,
        *,
        root: int = 0,
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Puts part r of the root's `values` into `out` of rank r; `values` holds ranks times as many as `out`.

        On other ranks than the root `values` is not looked at and may be None. In place when `out` is the root's part
        of `values`.
        """
        root = as_int(root, "root")
        target = self._view(out, "out", stream, dtype=dtype, writable=True)
        views, source = [target], None
        if self.rank == root:
            views.append(self._like(values, target, target.elems * self.ranks, stream, dtype))
            source = views[-1].pointer
        self._run(
            "ncast_scatter", (source, target.pointer, target.elems, target.dtype.number, root), codec, stream, *views
        )

    def all_gather(
        self, values: Any, out: Any, *, codec: str = "auto", stream: Any = None, dtype: str | None = None
    ) -> None:
        """Puts every rank's `values`, in rank order, into `out`, which holds ranks times as many.

        In place when `values` is this rank's part of `out`.
        """
        source = self._view(values, "values", stream, dtype=dtype)
        target = self._target(out, source, source.elems * self.ranks, stream)
        self._move("ncast_all_gather", source, target, source.elems, codec, stream)

    def all_to_all(
        self, values: Any, out: Any, *, codec: str = "auto", stream: Any = None, dtype: str | None = None
    ) -> None:
        """Sends part r of `values` to rank r and receives part r of `out` from it; both hold `ranks` equal parts.

        Not in place.
        """
        source = self._view(values, "values", stream, dtype=dtype)
        target = self._target(out, source, source.elems, stream)
        self._move("ncast_all_to_all", source, target, self._part(source, "values"), codec, stream)

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
        dtype: str | None = None,
    ) -> None:
        """As `all_to_all`, with as many values to and from each rank as the counts say.

        send_counts, recv_counts: one a rank, in values; zero is allowed. What a rank sends is what the other receives.
        send_offsets, recv_offsets: where in `values` and `out` they are; None: one after the other, in rank order.

        Not in place, and the parts of `out` do not overlap.
        """
        source = self._view(values, "values", stream, dtype=dtype)
        target = self._view(out, "out", stream, holds=source.dtype, writable=True)
        sent = self._ranges(source, "values", "send", send_counts, send_offsets)
        received = self._ranges(target, "out", "recv", recv_counts, recv_offsets)
        arguments = (source.pointer, *sent, target.pointer, *received, source.dtype.number)
        self._run("ncast_all_to_all_v", arguments, codec, stream, source, target)

    # Reductions.

    def reduce(
        self,
        values: Any,
        out: Any = None,
        *,
        root: int = 0,
        op: str = "sum",
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Reduces `values` over all ranks into `out` of the root; in place, to its `values`, when `out` is None.

        On other ranks than the root `out` is not looked at. op: "sum", "prod", "min", "max" or "avg".
        """
        root = as_int(root, "root")
        is_root = self.rank == root
        source = self._view(values, "values", stream, dtype=dtype, writable=is_root and out is None)
        target = source if out is None or not is_root else self._target(out, source, source.elems, stream)
        arguments = (source.pointer, target.pointer, source.elems, source.dtype.number, reduction_number(op), root)
        self._run("ncast_reduce", arguments, codec, stream, source, target)

    def reduce_scatter(
        self,
        values: Any,
        out: Any,
        *,
        op: str = "sum",
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Reduces `values` over all ranks and leaves part r of the result in `out` of rank r.

        values: `ranks` equal parts. out: one part; in place when it is this rank's part of `values`.
        op: "sum", "prod", "min", "max" or "avg".
        """
        source = self._view(values, "values", stream, dtype=dtype)
        part = self._part(source, "values")
        target = self._target(out, source, part, stream)
        arguments = (source.pointer, target.pointer, part, source.dtype.number, reduction_number(op))
        self._run("ncast_reduce_scatter", arguments, codec, stream, source, target)

    def all_reduce(
        self,
        values: Any,
        out: Any = None,
        *,
        op: str = "sum",
        codec: str = "auto",
        stream: Any = None,
        dtype: str | None = None,
    ) -> None:
        """Reduces `values` over all ranks into `out` on every rank; in place when `out` is None.

        op: "sum", "prod", "min", "max" or "avg".
        """
        source = self._view(values, "values", stream, dtype=dtype, writable=out is None)
        target = source if out is None else self._target(out, source, source.elems, stream)
        arguments = (source.pointer, target.pointer, source.elems, source.dtype.number, reduction_number(op))
        self._run("ncast_all_reduce", arguments, codec, stream, source, target)

    def _view(
        self,
        array: Any,
        name: str,
        stream: Any,
        *,
        dtype: str | None = None,
        holds: ValueType | None = None,
        writable: bool = False,
    ) -> View:
        if self.backend == "host":
            return host_view(array, name, dtype=dtype, holds=holds, writable=writable)
        found = view(array, name, dtype=dtype, holds=holds, writable=writable, stream=stream)
        if found.device != "cuda":
            raise ValueError(f"{name} is in host memory: this communicator is of GPUs, copy it there first")
        return found

    def _target(self, out: Any, source: View, elems: int, stream: Any) -> View:
        target = self._view(out, "out", stream, holds=source.dtype, writable=True)
        if target.elems != elems:
            raise ValueError(f"out holds {target.elems} values, not the {elems} that {source.elems} values give")
        return target

    def _like(self, values: Any, target: View, elems: int, stream: Any, dtype: str | None) -> View:
        source = self._view(values, "values", stream, dtype=dtype)
        if source.dtype != target.dtype or source.elems != elems:
            raise ValueError(
                f"values are {source.elems} of {source.dtype.name}, out holds {target.elems} of {target.dtype.name}"
            )
        return source

    def _ranges(
        self, whole: View, name: str, prefix: str, counts: Sequence[int], offsets: Sequence[int] | None
    ) -> tuple[Any, Any]:
        """Counts and offsets as the library takes them, all inside the array."""
        numbers = [operator.index(count) for count in counts]
        starts = (
            [*itertools.accumulate(numbers, initial=0)][:-1] if offsets is None else list(map(operator.index, offsets))
        )
        for kind, listed in (("counts", numbers), ("offsets", starts)):
            if len(listed) != self.ranks:
                raise ValueError(f"{prefix}_{kind} has {len(listed)} numbers, not one for each of {self.ranks} ranks")
        for rank, (count, start) in enumerate(zip(numbers, starts, strict=True)):
            if count < 0 or (count and not 0 <= start <= whole.elems - count):
                raise ValueError(
                    f"{name} has {whole.elems} values, {prefix}_counts[{rank}] is {count} and its offset {start}"
                )
        array = c_uint64 * self.ranks
        # The library does not look at the offset of a count of zero, and c_uint64 takes any.
        return array(*numbers), array(*starts)

    def _part(self, whole: View, name: str) -> int:
        if whole.elems % self.ranks:
            raise ValueError(f"{name} has {whole.elems} values, which {self.ranks} ranks do not share evenly")
        return whole.elems // self.ranks

    def _move(self, function: str, source: View, target: View, count: int, codec: str, stream: Any) -> None:
        self._run(function, (source.pointer, target.pointer, count, source.dtype.number), codec, stream, source, target)

    def _run(self, function: str, arguments: tuple[Any, ...], codec: str, stream: Any, *views: View) -> None:
        """Calls the library and keeps the buffers for as long as it may use them, but for those on CUDA streams."""
        number = comm_codec_number(codec)
        owners = [one.owner for one in views]
        host_stream: Stream | None = None
        if self.backend == "cuda":
            if isinstance(stream, Stream):
                raise TypeError("stream is one of the host backend: give a CUDA stream")
            handle = stream_handle(stream) or None
        elif stream is None:
            handle = None
        else:
            if not isinstance(stream, Stream):
                raise TypeError(f"stream is a {type(stream).__name__}, not a Stream of the host backend")
            host_stream, handle = stream, stream.handle

        def call() -> None:
            check(getattr(library(), function)(*arguments, number, self.handle, handle))

        if open_group.depth:
            open_group.kept.append((host_stream, owners))
            call()
        elif host_stream is not None:
            host_stream._enqueue(call, owners)
        else:
            call()
