"""Communicators: collectives and transfers between ranks, with a codec chosen per call.

Ranks are processes (or threads) of one machine, and data is in host memory, or in that of GPUs with backend="cuda".
Calls that move data give every bit as it was; reductions accumulate in fp32 (fp64 for float64) in rank order and round
once, so that all ranks and all runs get the same bits whatever the codec.

    unique_id = narrowcast.unique_id()           # on one rank; carry the bytes to the others
    with narrowcast.Communicator(unique_id, rank, ranks) as comm:
        comm.all_reduce(gradients, op="avg")
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import operator
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ._arrays import View, host_view, view
from ._explain import Explanation, asked, explanation_of
from ._groups import Stream, open_group
from ._library import BACKENDS, UNIQUE_ID_BYTES, CommConfigC, CommCountersC, ExplanationC, UniqueIdC, check, library
from ._registration import Registration, register
from ._streams import stream_handle
from .errors import NarrowcastError, Status, error_of
from .types import ValueType, comm_codec_number, reduction_number


def comm_config(
    backend: str, scratch_bytes: int | None, timeout_seconds: float | None, create_timeout_seconds: float | None
) -> CommConfigC:
    """The library's settings, with its defaults for what is None."""
    if backend not in BACKENDS:
        raise ValueError(f"{backend!r} is not a backend (known: {', '.join(BACKENDS)})")
    config = CommConfigC()
    library().ncast_comm_config_init(byref(config))
    config.backend = BACKENDS[backend]
    if scratch_bytes is not None:
        config.scratch_bytes = scratch_bytes
    if timeout_seconds is not None:
        config.timeout_seconds = timeout_seconds
    if create_timeout_seconds is not None:
        config.create_timeout_seconds = create_timeout_seconds
    return config


def unique_id() -> bytes:
    """The id of a new communicator: 128 bytes, made on one rank and carried to the others by the caller."""
    made = UniqueIdC()
    check(library().ncast_get_unique_id(byref(made)))
    return ctypes.string_at(byref(made), UNIQUE_ID_BYTES)


@dataclass(frozen=True)
class Counters:
    """Totals since the communicator was made, over what this rank sent."""

    raw_bytes: int  #: bytes of values
    wire_bytes: int  #: bytes that crossed the link, headers included
    calls: int

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes; None before anything was sent."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


def _nothing(handle: int) -> None:
    """Frees nothing."""


class Communicator:
    """A rank's membership in a group of ranks.

    unique_id: from `unique_id()` on one rank, the same on all.
    rank, ranks: this rank, 0 to ranks - 1, and how many there are.
    backend: "host": processes or threads of one machine; "cuda": GPUs of one machine.
    device: the GPU of this rank, with backend "cuda"; None: the current one.
    scratch_bytes: staging that this rank may hold, all peers together; None: the library's default.
    timeout_seconds: how long a call waits for a peer that is alive; 0: for ever; None: the library's default.
    create_timeout_seconds: how long the creation does; 0 or None: as timeout_seconds.

    Returns when every rank has joined. Raises RemoteError when a peer dies, PeerTimeoutError when one does not come.

    Every call takes `codec`, `stream` and `dtype` (the value type, for arrays that do not say it). Arrays are
    contiguous and aligned to their value type; counts come from their sizes. Every rank calls with the same counts,
    types, op, root and codec; a difference is MismatchError on the ranks that see it. Closing waits; a context manager
    closes, and aborts first when its body raised.

    codec: "window" (lossless), "raw", or "auto": the library chooses, by what all ranks know. That is the default on
        every backend, since which codec is fastest depends on the link, and the results are the same bits whatever it
        is. On the host backend it is raw.

    Backend "host": arrays are in host memory. `stream` is a `Stream`, which keeps the arrays alive until it has run the
    call; None runs the call before it returns.

    Backend "cuda": arrays are in the memory of this rank's GPU. `stream` is what `narrowcast.cuda` takes: an integer, a
    torch or CuPy stream, or anything with `__cuda_stream__`; None is the default stream. Calls are enqueued there. The
    arrays have to stay alive and untouched until the stream has passed the call, and nobody but the caller sees to
    that: the communicator keeps them for the call alone, or to the end of its group.
    """

    def __init__(
        self,
        unique_id: bytes,
        rank: int,
        ranks: int,
        *,
        backend: str = "host",
        device: int | None = None,
        scratch_bytes: int | None = None,
        timeout_seconds: float | None = None,
        create_timeout_seconds: float | None = None,
    ) -> None:
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ValueError(f"unique_id has {len(unique_id)} bytes, not {UNIQUE_ID_BYTES}")
        config = comm_config(backend, scratch_bytes, timeout_seconds, create_timeout_seconds)
        if device is not None:
            config.device = device
        made = UniqueIdC.from_buffer_copy(unique_id)
        handle = c_void_p()
        check(library().ncast_comm_create(byref(handle), ranks, byref(made), rank, byref(config)))
        self._adopt(handle.value or 0, rank, ranks, backend, alone=True)

    def _adopt(self, handle: int, rank: int, ranks: int, backend: str, *, alone: bool) -> Communicator:
        """Becomes the one of this handle. alone: that it frees itself."""
        self._handle, self.rank, self.ranks, self.backend = handle, rank, ranks, backend
        self._alone = alone
        self._closed = False  # unlike the finalizer, which is dead from the start of close()
        self._finalizer = weakref.finalize(self, library().ncast_comm_destroy if alone else _nothing, handle)
        return self

    def _leave(self) -> None:
        """Its handle is freed by others."""
        self._finalizer.detach()
        self._closed = True

    @property
    def handle(self) -> int:
        """The `ncast_comm`."""
        if not self._finalizer.alive:
            raise ValueError("the communicator is closed")
        return self._handle

    # Transfers.

    def send(
        self, values: Any, peer: int, *, codec: str = "auto", stream: Any = None, dtype: str | None = None
    ) -> None:
        """Sends `values` to the rank `peer`, which receives as many."""
        source = self._view(values, "values", stream, dtype=dtype)
        self._run("ncast_send", (source.pointer, source.elems, source.dtype.number, peer), codec, stream, source)

    def recv(self, out: Any, peer: int, *, codec: str = "auto", stream: Any = None, dtype: str | None = None) -> None:
        """Receives from the rank `peer` as many values as `out` holds."""
        target = self._view(out, "out", stream, dtype=dtype, writable=True)
        self._run("ncast_recv", (target.pointer, target.elems, target.dtype.number, peer), codec, stream, target)

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

    def register(self, buffer: Any) -> Registration:
        """GPUs: what this buffer receives as it is (codec "raw", or "auto" where it chooses that) is written there by
        its sender, in place of coming through scratch memory.

        buffer: an array within one allocation of cudaMalloc; None on a rank that registers none. It lives until the
        registration is closed; close that before the communicator. Every rank calls this at the same place in the order
        of the communicator's calls. Raises InvalidArgumentError or UnsupportedError, on all ranks, when a rank's buffer
        is no such memory; UnsupportedError on the host backend.
        """
        return register(self.handle, buffer)

    # The communicator itself.

    def abort(self) -> None:
        """Ends every call in flight on every rank, from any thread, those that close() waits for too: AbortedError.

        Only close() is left afterwards.
        """
        if self._closed:
            raise ValueError("the communicator is closed")
        check(library().ncast_comm_abort(self._handle))

    def async_error(self) -> NarrowcastError | None:
        """The first error that a call on a stream of this communicator met, or None."""
        message = ctypes.create_string_buffer(1024)
        status = library().ncast_comm_async_error(self.handle, message, len(message))
        return None if status == Status.OK else error_of(status, message.value.decode("utf-8", "replace"))

    def counters(self) -> Counters:
        """Totals of what this rank sent since the communicator was made."""
        totals = CommCountersC()
        check(library().ncast_comm_get_counters(self.handle, byref(totals)))
        return Counters(totals.raw_bytes, totals.wire_bytes, totals.calls)

    def explain(self, operation: str, count: int, *, dtype: str, codec: str = "auto") -> Explanation:
        """What this communicator of GPUs does with a call, as `narrowcast.explain` says it; the same on all ranks."""
        made = ExplanationC()
        check(library().ncast_comm_explain(self.handle, *asked(operation, count, dtype, codec), byref(made)))
        return explanation_of(made)

    def library_ranks(self) -> tuple[int, int]:
        """Rank and number of ranks as the library has them."""
        rank, ranks = c_int(), c_int()
        check(library().ncast_comm_rank(self.handle, byref(rank)))
        check(library().ncast_comm_ranks(self.handle, byref(ranks)))
        return rank.value, ranks.value

    def close(self) -> None:
        """Waits for this rank's streams, leaves the communicator and frees it. May be called again."""
        if not self._alone:
            raise ValueError("the ranks of one thread are closed together, by LocalRanks.close()")
        if self._finalizer.detach():
            status = library().ncast_comm_destroy(self._handle)
            self._closed = True
            check(status)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._finalizer.alive:
            # Peers wait for a rank that will not come; the error of the body is the one to tell.
            with contextlib.suppress(NarrowcastError):
                self.abort()
            with contextlib.suppress(NarrowcastError):
                self.close()
            return
        self.close()

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
