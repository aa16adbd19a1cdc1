"""Communicators: collectives and transfers between ranks, with a codec chosen per call.

Ranks are processes (or threads) of one machine, data is in host memory. Calls that move data give every bit as it was;
reductions accumulate in fp32 (fp64 for float64) in rank order and round once, so that all ranks and all runs get the
same bits whatever the codec.

    unique_id = narrowcast.unique_id()           # on one rank; carry the bytes to the others
    with narrowcast.Communicator(unique_id, rank, ranks) as comm:
        comm.all_reduce(gradients, op="avg")
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Iterator
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ._arrays import View, host_view
from ._library import BACKENDS, UNIQUE_ID_BYTES, CommConfigC, CommCountersC, UniqueIdC, check, library
from .errors import NarrowcastError, Status, error_of
from .types import codec_number, reduction_number


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


class Stream:
    """A stream of the host backend: calls on it run in order on its own thread, and the caller goes on.

    Buffers of calls on a stream stay untouched by the caller until `synchronize()`; the stream keeps them alive until
    then. A context manager: leaving it synchronizes and frees the stream.
    """

    def __init__(self) -> None:
        handle = c_void_p()
        check(library().ncast_stream_create(byref(handle)))
        self._handle = handle.value or 0
        self._kept: list[object] = []
        self._finalizer = weakref.finalize(self, library().ncast_stream_destroy, self._handle)

    @property
    def handle(self) -> int:
        """The `ncast_stream`."""
        if not self._finalizer.alive:
            raise ValueError("the stream is closed")
        return self._handle

    def synchronize(self) -> None:
        """Waits for all calls on the stream. Raises the first error among those since the last synchronize."""
        status = library().ncast_stream_synchronize(self.handle)
        self._kept.clear()
        check(status)

    def close(self) -> None:
        """Waits for the calls on the stream and frees it. May be called again."""
        if self._finalizer.detach():
            status = library().ncast_stream_destroy(self._handle)
            self._kept.clear()
            check(status)

    def _keep(self, *owners: object) -> None:
        self._kept.extend(owners)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.synchronize()
        finally:
            self.close()


class _Group(threading.local):
    """Per thread: how deep groups nest, and the buffers of grouped calls without a stream, until they have run."""

    depth = 0

    def __init__(self) -> None:
        self.kept: list[object] = []


_group = _Group()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls inside run together: sends and receives without deadlock whatever their order.

    Groups nest; leaving the outermost one launches the calls, and raises what they came to where they have no stream.
    When the body raises, the calls made before still run, since other ranks may wait for them.
    """
    check(library().ncast_group_start())
    _group.depth += 1
    try:
        yield
    except BaseException:
        with contextlib.suppress(NarrowcastError):
            _end_group()
        raise
    else:
        _end_group()


def _end_group() -> None:
    _group.depth -= 1
    status = library().ncast_group_end()
    if _group.depth == 0:
        _group.kept.clear()
    check(status)


class Communicator:
    """A rank's membership in a group of ranks.

    unique_id: from `unique_id()` on one rank, the same on all.
    rank, ranks: this rank, 0 to ranks - 1, and how many there are.
    backend: "host": processes or threads of one machine.
    scratch_bytes: staging that this rank may hold, all peers together; None: the library's default.
    timeout_seconds: how long a call, or the creation, waits for a peer that is alive; 0: for ever; None: the library's
        default.

    Returns when every rank has joined. Raises RemoteError when a peer dies, PeerTimeoutError when one does not come.

    Every call takes `codec` ("window", lossless, or "raw"), `stream` (a `Stream`; None runs the call before it returns)
    and `dtype` (the value type, for arrays that do not say it). Arrays are contiguous, in host memory, and aligned to
    their value type; counts come from their sizes. Every rank calls with the same counts, types, op, root and codec; a
    difference is MismatchError on the ranks that see it. Closing waits; a context manager closes, and aborts first when
    its body raised.
    """

    def __init__(
        self,
        unique_id: bytes,
        rank: int,
        ranks: int,
        *,
        backend: str = "host",
        scratch_bytes: int | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"{backend!r} is not a backend (known: {', '.join(BACKENDS)})")
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ValueError(f"unique_id has {len(unique_id)} bytes, not {UNIQUE_ID_BYTES}")
        config = CommConfigC()
        library().ncast_comm_config_init(byref(config))
        config.backend = BACKENDS[backend]
        if scratch_bytes is not None:
            config.scratch_bytes = scratch_bytes
        if timeout_seconds is not None:
            config.timeout_seconds = timeout_seconds
        made = UniqueIdC.from_buffer_copy(unique_id)
        handle = c_void_p()
        check(library().ncast_comm_create(byref(handle), ranks, byref(made), rank, byref(config)))
        self._handle = handle.value or 0
        self.rank = rank
        self.ranks = ranks
        self._finalizer = weakref.finalize(self, library().ncast_comm_destroy, self._handle)

    @property
    def handle(self) -> int:
        """The `ncast_comm`."""
        if not self._finalizer.alive:
            raise ValueError("the communicator is closed")
        return self._handle

    # Transfers.

    def send(
        self, values: Any, peer: int, *, codec: str = "window", stream: Stream | None = None, dtype: str | None = None
    ) -> None:
        """Sends `values` to the rank `peer`, which receives as many."""
        source = host_view(values, "values", dtype=dtype)
        self._run("ncast_send", (source.pointer, source.elems, source.dtype.number, peer), codec, stream, source)

    def recv(
        self, out: Any, peer: int, *, codec: str = "window", stream: Stream | None = None, dtype: str | None = None
    ) -> None:
        """Receives from the rank `peer` as many values as `out` holds."""
        target = host_view(out, "out", dtype=dtype, writable=True)
        self._run("ncast_recv", (target.pointer, target.elems, target.dtype.number, peer), codec, stream, target)

    # Collectives that move data.

    def broadcast(
        self,
        values: Any,
        out: Any = None,
        *,
        root: int = 0,
        codec: str = "window",
        stream: Stream | None = None,
        dtype: str | None = None,
    ) -> None:
        """Copies the root's `values` to `out` on every rank; in place, to `values`, when `out` is None.

        On other ranks than the root `values` is only looked at when `out` is None.
        """
        target = host_view(
            values if out is None else out, "values" if out is None else "out", dtype=dtype, writable=True
        )
        source = target if out is None or self.rank != root else self._like(values, target, target.elems, dtype)
        self._run(
            "ncast_broadcast",
            (source.pointer, target.pointer, target.elems, target.dtype.number, root),
            codec,
            stream,
            source,
            target,
        )

    def all_gather(
        self, values: Any, out: Any, *, codec: str = "window", stream: Stream | None = None, dtype: str | None = None
    ) -> None:
        """Puts every rank's `values`, in rank order, into `out`, which holds ranks times as many.

        In place when `values` is this rank's part of `out`.
        """
        source = host_view(values, "values", dtype=dtype)
        target = self._target(out, source, source.elems * self.ranks)
        self._move("ncast_all_gather", source, target, source.elems, codec, stream)

    def all_to_all(
        self, values: Any, out: Any, *, codec: str = "window", stream: Stream | None = None, dtype: str | None = None
    ) -> None:
        """Sends part r of `values` to rank r and receives part r of `out` from it; both hold `ranks` equal parts.

        Not in place.
        """
        source = host_view(values, "values", dtype=dtype)
        target = self._target(out, source, source.elems)
        self._move("ncast_all_to_all", source, target, self._part(source, "values"), codec, stream)

    # Reductions.

    def reduce_scatter(
        self,
        values: Any,
        out: Any,
        *,
        op: str = "sum",
        codec: str = "window",
        stream: Stream | None = None,
        dtype: str | None = None,
    ) -> None:
        """Reduces `values` over all ranks and leaves part r of the result in `out` of rank r.

        values: `ranks` equal parts. out: one part; in place when it is this rank's part of `values`.
        op: "sum", "prod", "min", "max" or "avg".
        """
        source = host_view(values, "values", dtype=dtype)
        part = self._part(source, "values")
        target = self._target(out, source, part)
        arguments = (source.pointer, target.pointer, part, source.dtype.number, reduction_number(op))
        self._run("ncast_reduce_scatter", arguments, codec, stream, source, target)

    def all_reduce(
        self,
        values: Any,
        out: Any = None,
        *,
        op: str = "sum",
        codec: str = "window",
        stream: Stream | None = None,
        dtype: str | None = None,
    ) -> None:
        """Reduces `values` over all ranks into `out` on every rank; in place when `out` is None.

        op: "sum", "prod", "min", "max" or "avg".
        """
        source = host_view(values, "values", dtype=dtype, writable=out is None)
        target = source if out is None else self._target(out, source, source.elems)
        arguments = (source.pointer, target.pointer, source.elems, source.dtype.number, reduction_number(op))
        self._run("ncast_all_reduce", arguments, codec, stream, source, target)

    # The communicator itself.

    def abort(self) -> None:
        """Ends every call in flight on every rank, from any thread: they raise AbortedError.

        Only close() is left afterwards.
        """
        check(library().ncast_comm_abort(self.handle))

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

    def library_ranks(self) -> tuple[int, int]:
        """Rank and number of ranks as the library has them."""
        rank, ranks = c_int(), c_int()
        check(library().ncast_comm_rank(self.handle, byref(rank)))
        check(library().ncast_comm_ranks(self.handle, byref(ranks)))
        return rank.value, ranks.value

    def close(self) -> None:
        """Waits for this rank's streams, leaves the communicator and frees it. May be called again."""
        if self._finalizer.detach():
            check(library().ncast_comm_destroy(self._handle))

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

    def _target(self, out: Any, source: View, elems: int) -> View:
        target = host_view(out, "out", holds=source.dtype, writable=True)
        if target.elems != elems:
            raise ValueError(f"out holds {target.elems} values, not the {elems} that {source.elems} values give")
        return target

    def _like(self, values: Any, target: View, elems: int, dtype: str | None) -> View:
        source = host_view(values, "values", dtype=dtype)
        if source.dtype != target.dtype or source.elems != elems:
            raise ValueError(
                f"values are {source.elems} of {source.dtype.name}, out holds {target.elems} of {target.dtype.name}"
            )
        return source

    def _part(self, whole: View, name: str) -> int:
        if whole.elems % self.ranks:
            raise ValueError(f"{name} has {whole.elems} values, which {self.ranks} ranks do not share evenly")
        return whole.elems // self.ranks

    def _move(self, function: str, source: View, target: View, count: int, codec: str, stream: Stream | None) -> None:
        self._run(function, (source.pointer, target.pointer, count, source.dtype.number), codec, stream, source, target)

    def _run(self, function: str, arguments: tuple[int, ...], codec: str, stream: Stream | None, *views: View) -> None:
        """Calls the library and keeps the buffers for as long as it may use them."""
        number = codec_number(codec)
        handle = None if stream is None else stream.handle
        owners = [view.owner for view in views]
        if stream is not None:
            stream._keep(*owners)
        elif _group.depth:
            _group.kept.extend(owners)
        check(getattr(library(), function)(*arguments, number, self.handle, handle))
