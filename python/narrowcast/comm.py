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
import weakref
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._comm.calls import Calls
from ._comm.config import CommunicatorOptions, comm_config
from ._comm.exchange import Exchange, ExchangeCall
from ._comm.explain import Explanation, asked, explanation_of
from ._comm.registration import Registration, register
from ._native.integers import as_int
from ._native.library import check, library
from ._native.structures import UNIQUE_ID_BYTES, CommConfigC, CommCountersC, ExplanationC, UniqueIdC
from .errors import NarrowcastError, Status, error_of
from .types import OPERATIONS

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Communicator", "CommunicatorOptions", "Counters", "OperationCounters", "unique_id"]


def __dir__() -> list[str]:
    return sorted(__all__)


def unique_id() -> bytes:
    """The id of a new communicator: 128 bytes, made on one rank and carried to the others by the caller."""
    made = UniqueIdC()
    check(library().ncast_get_unique_id(byref(made)))
    return ctypes.string_at(byref(made), UNIQUE_ID_BYTES)


@dataclass(frozen=True)
class OperationCounters:
    """What a rank did in calls of one operation, or of all of them."""

    calls: int  #: that were made; one that a CUDA graph captured counts once
    raw_bytes: int  #: of values that the rank sent others
    wire_bytes: int  #: what these came to on the link, headers included

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes; None before anything was sent."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


@dataclass(frozen=True)
class Counters(OperationCounters):
    """Totals since the communicator was made; and what the rank holds."""

    scratch_bytes: int  #: bytes of staging: no more than the communicator was given
    operations: dict[str, OperationCounters]  #: by name, such as "all_gather": of those that had calls


def _nothing(handle: int) -> None:
    """Frees nothing."""


class Communicator(Calls):
    """A rank's membership in a group of ranks.

    unique_id: from `unique_id()` on one rank, the same on all.
    rank, ranks: this rank, 0 to ranks - 1, and how many there are.
    backend: "host": processes or threads of one machine; "cuda": GPUs of one machine.
    device: the GPU of this rank, with backend "cuda"; None: the current one.
    options: scratch_bytes, timeout_seconds, create_timeout_seconds, max_ctas, p2p, cost_model, as
        `CommunicatorOptions` says.

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
        **options: Unpack[CommunicatorOptions],
    ) -> None:
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ValueError(f"unique_id has {len(unique_id)} bytes, not {UNIQUE_ID_BYTES}")
        rank, ranks = as_int(rank, "rank"), as_int(ranks, "ranks")
        config = comm_config(backend, device, **options)
        made = UniqueIdC.from_buffer_copy(unique_id)
        handle = c_void_p()
        check(library().ncast_comm_create(byref(handle), ranks, byref(made), rank, byref(config)))
        self._adopt(handle.value or 0, rank, ranks, backend, alone=True)

    @classmethod
    def by_exchange(
        cls,
        exchange: Exchange,
        rank: int,
        ranks: int,
        *,
        backend: str = "host",
        device: int | None = None,
        **options: Unpack[CommunicatorOptions],
    ) -> Communicator:
        """As the constructor, for ranks that can exchange bytes already: no id is carried by hand.

        exchange: called once on every rank with at most 512 bytes, as many on each; returns every rank's: `ranks`
            objects of bytes in the order of the ranks, such as a list of `bytes`. It is called where other arguments
            are refused, too, so that the others need not wait for this rank; what is wrong is raised after it.

        Raises what the constructor does. RemoteError also when another rank was refused, and when `exchange` raised or
        returned something else, with that as its cause. Ranks whose own exchange came back do not know of it, and wait
        for `create_timeout_seconds`.
        """
        refusal: TypeError | ValueError | None = None
        try:
            for number, name in ((rank, "rank"), (ranks, "ranks")):
                as_int(number, name)
            config = comm_config(backend, device, **options)
        except (TypeError, ValueError) as error:
            refusal, config = error, CommConfigC()  # which the library refuses, and has the others told
        call = ExchangeCall(exchange, rank, ranks)
        handle = c_void_p()
        status = library().ncast_comm_create_by_exchange(byref(handle), ranks, rank, call.pointer, None, byref(config))
        call.check(status, refusal)
        return cls.__new__(cls)._adopt(handle.value or 0, rank, ranks, backend, alone=True)

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

    def register(self, buffer: Any) -> Registration:
        """GPUs: what this buffer receives as it is (codec "raw", or "auto" where it chooses that) is written there by
        its sender, in place of coming through scratch memory.

        buffer: an array within one allocation of cudaMalloc; None on a rank that registers none. It lives until the
        registration is closed; close that before the communicator. Every rank calls this at the same place in the order
        of the communicator's calls. Raises InvalidArgumentError or UnsupportedError, on all ranks, when a rank's buffer
        is no such memory; UnsupportedError on the host backend.
        """
        return register(self.handle, buffer)

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
        """Totals of what this rank did since the communicator was made.

        GPUs: kernels count the bytes that they send, so that what graphs replay counts, and while calls are under way
        wire bytes are behind by theirs. Short messages, which go by packets, count when made, and not in graphs.
        """
        totals = CommCountersC()
        check(library().ncast_comm_get_counters(self.handle, byref(totals)))
        counted = {name: totals.operations[number] for name, number in OPERATIONS.items()}
        operations = {
            name: OperationCounters(one.calls, one.raw_bytes, one.wire_bytes)
            for name, one in counted.items()
            if one.calls
        }
        return Counters(totals.calls, totals.raw_bytes, totals.wire_bytes, totals.scratch_bytes, operations)

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
