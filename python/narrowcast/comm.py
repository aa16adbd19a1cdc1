"""Communicators: collectives and transfers between ranks, with a codec for each call.

Ranks are processes or threads, on one host or several. Data is in host memory, or in GPU memory with backend="cuda".
Calls that move data deliver identical bits. Reductions accumulate in fp32 (fp64 for float64) in rank order and round
once, so the result has the same bits on all ranks and in all runs, with every codec. "min" and "max" ignore NaN, unless
all values are NaN.

    unique_id = narrowcast.unique_id()           # on one rank; send the bytes to the others
    with narrowcast.Communicator(unique_id, rank, ranks) as comm:
        comm.all_reduce(gradients, op="avg")
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from ctypes import byref, c_int, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._comm import at_exit
from ._comm.calls import Calls
from ._comm.config import CommunicatorOptions, comm_config
from ._comm.counters import Counters, OperationCounters, counters_of
from ._comm.exchange import Exchange, ExchangeCall
from ._comm.explain import Explanation, explanation_of, plan_call
from ._comm.loaded_plan import LoadedPlan
from ._comm.pending import Pending
from ._comm.registration import Registration, register
from ._native.library import check, library
from ._native.numbers import as_int
from ._native.operations import Buffer, Operation, operations
from ._native.plan import NativePlan, json_of
from ._native.plan_selector import Selector, as_c_function
from ._native.structures import UNIQUE_ID_BYTES, CommConfigC, UniqueIdC
from .errors import InvalidArgumentError, NarrowcastError, Status, UnsupportedError, error_of
from .types import DType, reduction_number, value_type

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Buffer",
    "Communicator",
    "CommunicatorOptions",
    "Counters",
    "Operation",
    "OperationCounters",
    "Pending",
    "operations",
    "unique_id",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def unique_id(*, local: bool = False) -> bytes:
    """The id of a new communicator: 128 bytes, created on one rank and sent to the others by the caller.

    An id is for one communicator, also if its creation fails: ranks that use it later get the failure. With backend
    "host", its ranks must be on this host, unless the environment says that they may be on several: the variables of
    launchers such as torchrun, or NARROWCAST_SOCKET_IFNAME.

    local: all ranks are on this host, in the same container. With backend "cuda" they connect to this process, which
        then listens on loopback only, unless NARROWCAST_SOCKET_IFNAME names an interface.
    """
    made = UniqueIdC()
    function = library().ncast_get_local_unique_id if local else library().ncast_get_unique_id
    check(function(byref(made)))
    return ctypes.string_at(byref(made), UNIQUE_ID_BYTES)


def _ranks_of(handle: int) -> tuple[int, int]:
    """The rank and the number of ranks of an `ncast_comm`."""
    rank, ranks = c_int(), c_int()
    check(library().ncast_comm_rank(handle, byref(rank)))
    check(library().ncast_comm_ranks(handle, byref(ranks)))
    return rank.value, ranks.value


_NO_COLOR = -1  # NCAST_SPLIT_NOCOLOR


def _keep(handle: int) -> None:
    """The finalizer of a handle that another object frees."""


class Communicator(Calls):
    """One rank of a communicator.

    unique_id: from `unique_id()` on one rank; the same on all ranks.
    rank, ranks: this rank, 0 to ranks - 1, and the number of ranks.
    backend: "host" for processes or threads, "cuda" for GPUs.
    device: the GPU of this rank, with backend "cuda"; None: the current one.
    options: see `CommunicatorOptions`.

    The constructor returns when every rank has joined. It raises RemoteError when a peer dies, and PeerTimeoutError on
    every rank that waits when a peer does not join in time.

    Every call takes `codec`, `stream` and `dtype`, the value type (`types.DType`) of an array without one. Arrays are
    contiguous and aligned to their value type, and their sizes give the counts. All ranks call with the same counts,
    types, op, root and codec. A difference raises MismatchError on every rank; on GPUs the error is asynchronous
    (`async_error`).

    A call returns the array with its result: `out`, or `values` if it works in place; None on a rank without a result.
    Where the shape follows from `values`, `out` may be None: the result is then a new array of the same framework and
    type, on the same device. (JAX arrays are immutable, so there they are made of it when the call has ended.)
    On a stream the array is complete once the stream has run the call.

    `close()` waits for the calls of this rank. As a context manager the communicator closes at the end, and aborts
    first when the body raised. A program that ends without closing it waits for its calls for up to a second, then
    aborts.

    codec: what the call allows: a codec such as "window" (lossless), "raw" (none), "auto" (every exact codec), the
        default, or "within:relative=R", also the lossy ones whose stated error for the call is at most R times the
        largest magnitude that a result can have. The library sends the values raw or with an allowed codec, whichever
        is predicted to be fastest on this link by what all ranks know. Exact codecs do not change the result. Lossy
        ones are for floats and, in reductions, for "sum" and "avg": otherwise InvalidArgumentError is raised. "window!"
        forces a codec, even if it is slower. On the host backend values are sent raw unless a codec is forced or the
        cost model has its times.

    Backend "host": arrays are in host memory. `stream` is a `Stream`, which keeps the arrays alive until it has run the
    call. None runs the call before it returns.

    Backend "cuda": arrays are in the memory of this rank's GPU. `stream` is an integer, a torch or CuPy stream, or an
    object with `__cuda_stream__`; None is the default stream. Calls are asynchronous on it. The caller keeps the arrays
    alive and unchanged until the stream has run the call: the communicator holds references only during the call, or
    until the end of its group.
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
        self._adopt(handle.value or 0, rank, ranks, backend, device, options, owned=True)

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
        """As the constructor, for ranks that can already exchange bytes, without a unique id.

        exchange: an all-gather of bytes. It is called once on every rank with at most 512 bytes, the same number on
            each, and returns the bytes of all ranks in rank order, such as a list of `bytes`. It is also called when
            other arguments are invalid, so that the other ranks do not wait; the error is raised afterwards.

        Raises what the constructor raises. Raises RemoteError also when another rank had invalid arguments, and when
        `exchange` raised (that exception is the cause) or returned something else. Ranks whose own exchange succeeded
        do not learn of this, and wait for `create_timeout_seconds`.
        """
        refusal: TypeError | ValueError | None = None
        try:
            for number, name in ((rank, "rank"), (ranks, "ranks")):
                as_int(number, name)
            config = comm_config(backend, device, **options)
        except (TypeError, ValueError) as error:
            refusal, config = error, CommConfigC()  # invalid: the library rejects it and tells the other ranks
        call = ExchangeCall(exchange, rank, ranks)
        handle = c_void_p()
        status = library().ncast_comm_create_by_exchange(byref(handle), ranks, rank, call.pointer, None, byref(config))
        call.check(status, refusal)
        return cls.__new__(cls)._adopt(handle.value or 0, rank, ranks, backend, device, options, owned=True)

    @classmethod
    def in_background(
        cls,
        unique_id: bytes,
        rank: int,
        ranks: int,
        *,
        backend: str = "host",
        device: int | None = None,
        **options: Unpack[CommunicatorOptions],
    ) -> Pending[Communicator]:
        """As the constructor, but returns at once: `result()` of the returned object waits for the communicator.

        With backend "cuda", `device` is required, because the current GPU is a property of the calling thread.
        """
        if backend == "cuda" and device is None:
            raise ValueError("in_background needs device= with backend 'cuda': the current GPU belongs to this thread")
        return Pending(lambda: cls(unique_id, rank, ranks, backend=backend, device=device, **options))

    def split(
        self, color: int | None, key: int = 0, *, device: int | None = None, **options: Unpack[CommunicatorOptions]
    ) -> Communicator | None:
        """Divides the ranks into new communicators, of the ranks with the same `color`.

        color: 0 or more; None: this rank joins no new communicator.
        key: ranks are ordered by it, and by their rank in this communicator where it is equal.
        device, options: of the new communicator, as in the constructor; by default those of this one.

        Returns the new communicator, or None for a rank without a color. Collective: every rank calls it at the same
        place in the order of the communicator's calls. It returns when the ranks of the new communicator have joined:
        one thread cannot call it for several ranks. Both communicators are used and closed independently.

        Raises what the constructor raises, and RemoteError when the arguments of another rank were invalid.
        """
        device = self._device if device is None else device
        own = CommunicatorOptions(**{**self._options, **options})
        config = comm_config(self.backend, device, **own)
        number, place = _NO_COLOR if color is None else as_int(color, "color"), as_int(key, "key")
        made = c_void_p()
        check(library().ncast_comm_split(self.handle, number, place, byref(config), byref(made)))
        if not made.value:
            return None
        rank, ranks = _ranks_of(made.value)
        made_here = Communicator.__new__(Communicator)
        return made_here._adopt(made.value, rank, ranks, self.backend, device, own, owned=True)

    def _adopt(
        self,
        handle: int,
        rank: int,
        ranks: int,
        backend: str,
        device: int | None,
        options: CommunicatorOptions,
        *,
        owned: bool,
    ) -> Communicator:
        """Stores a handle, and the device and options of its creation. owned: this object frees it."""
        self._device, self._options = device, options
        self._handle, self.rank, self.ranks, self.backend = handle, rank, ranks, backend
        self._owned = owned
        self._selectors: list[Any] = []
        self._used_plans: set[LoadedPlan] = set()  # closed with the communicator, not when they are collected
        self._closed = False  # set at the end of close(); the finalizer is dead from its start
        at_exit.register()
        self._finalizer = weakref.finalize(self, library().ncast_comm_destroy if owned else _keep, handle)
        return self

    def _leave(self) -> None:
        """Marks the communicator as closed. Another object frees the handle."""
        self._finalizer.detach()
        self._closed = True

    @property
    def handle(self) -> int:
        """The `ncast_comm`."""
        if not self._finalizer.alive:
            raise ValueError("the communicator is closed")
        return self._handle

    def register(self, buffer: Any) -> Registration:
        """GPUs: lets senders write uncompressed data directly into this buffer, without staging.

        This applies to calls whose values are sent raw. The call is collective: every
        rank makes it at the same place in the order of the communicator's calls.

        buffer: an array within one allocation of cudaMalloc, which stays alive until the registration is closed; None
            on a rank that registers nothing.

        Close the registration before the communicator. Raises InvalidArgumentError or UnsupportedError on all ranks
        when the buffer of a rank is not such memory, and UnsupportedError on the host backend.
        """
        return register(self.handle, buffer)

    def load_plan(self, plan: Any, dtype: DType, *, op: str = "sum") -> LoadedPlan:
        """Prepares a plan for calls of one value type, and returns a function `call(values, out, stream=None)`.

        plan: a `narrowcast.plan.Plan`, or the JSON form as a string. The call is collective: every rank makes it with
            the same arguments, at the same place in the order of the communicator's calls.
        dtype: of the values, as for calls.
        op: "sum", "prod", "min", "max" or "avg", if the plan's operation reduces.

        GPUs: a kernel is generated and compiled, which takes about a second, unless it is in the cache
        (`NARROWCAST_PLAN_CACHE`, by default ~/.cache/narrowcast/plans). This needs the package nvidia-cuda-nvrtc or a
        CUDA toolkit.

        Raises InvalidArgumentError, MismatchError and UnsupportedError, with the line of the program if the plan is not
        proved; RemoteError, with the rank and the reason, if another rank cannot load the plan. The communicator
        remains usable.
        """
        try:
            arguments = NativePlan.read(json_of(plan)), value_type(dtype), reduction_number(op)
        except Exception as error:
            with contextlib.suppress(NarrowcastError):
                self.decline_plan(str(error))
            raise
        try:
            return LoadedPlan(self, *arguments)
        except (InvalidArgumentError, UnsupportedError) as error:
            fault = None if isinstance(plan, str) else plan.verify().fault
            if fault is None or fault.where.site is None:
                raise
            # The library does not know the program.
            raise type(error)(f"{error} ({fault.where.site})") from None

    def decline_plan(self, reason: str) -> None:
        """Takes part in `load_plan` of the other ranks if this rank cannot call it, for example without the file.

        They get a RemoteError with this rank and the reason.
        """
        check(library().ncast_plan_decline(self.handle, reason.encode(errors="replace")))

    def choose_plans(self, selector: Selector | None) -> None:
        """Chooses the plans of calls by a function; None: by their measured times, which is the default.

        selector: takes a call (`PlanCall`) and the names of the plans that can run it, and returns one of these names,
            `narrowcast.plan.BUILT_IN` or `narrowcast.plan.BY_COST`. Its result must depend on the arguments only, and
            be the same on all ranks; otherwise calls raise MismatchError. It must not make calls. Any thread may call
            it, and not again for calls whose result is remembered.

        All ranks call this at the same place in the order of the communicator's calls.
        """
        function = as_c_function(selector)
        check(library().ncast_comm_set_plan_selector(self.handle, function, None))
        # Decisions that have begun may still use the earlier ones.
        self._selectors.append(function)

    def use_costs(self, text: str) -> None:
        """Replaces the cost model, by which the communicator chooses how calls run.

        text: as in a file that `narrowcast tune` writes.

        All ranks call this with the same text, at the same place in the order of the communicator's calls. Raises
        InvalidArgumentError with the line if the text is invalid.
        """
        check(library().ncast_comm_set_costs(self.handle, text.encode()))

    def abort(self) -> None:
        """Ends all calls in flight on all ranks with AbortedError, including those that close() waits for.

        May be called from any thread. Afterwards only close() may be called.
        """
        if self._closed:
            raise ValueError("the communicator is closed")
        check(library().ncast_comm_abort(self._handle))

    def async_error(self) -> NarrowcastError | None:
        """The first error of a call on a stream of this communicator, or None."""
        message = ctypes.create_string_buffer(1024)
        status = library().ncast_comm_async_error(self.handle, message, len(message))
        return None if status == Status.OK else error_of(status, message.value.decode("utf-8", "replace"))

    def counters(self) -> Counters:
        """The totals of this rank since the communicator was created.

        GPUs: kernels count the bytes that they send, so replays of graphs are included, but wire bytes of calls in
        flight are not. Short messages, which are sent as packets, are counted when the call is made, and not in graphs.
        """
        return counters_of(self.handle)

    def explain(
        self,
        operation: str,
        count: int,
        *,
        dtype: DType,
        codec: str = "auto",
        result_codec: str | None = None,
        op: str = "sum",
        root: int = 0,
        in_place: bool | None = None,
    ) -> Explanation:
        """How this communicator runs a call, as `narrowcast.explain`. The same on all ranks.

        result_codec: as in `all_reduce`.
        op, root, in_place: only the choice between plans depends on them. in_place: None: not known; plans that only
            work in place, or only out of place, are then not considered.
        """
        options: dict[str, Any] = {"result_codec": result_codec, "op": op, "root": root, "in_place": in_place}
        call = plan_call(operation, count, dtype=dtype, codec=codec, **options)
        made = c_void_p()
        check(library().ncast_comm_explain_call(self.handle, byref(call), byref(made)))
        return explanation_of(made)

    def close(self) -> None:
        """Waits for the calls of this rank and frees the communicator. Further calls have no effect."""
        if not self._owned:
            raise ValueError("communicators of LocalRanks are closed together, by LocalRanks.close()")
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
            # Peers would wait for this rank. The exception of the body is the one to raise.
            with contextlib.suppress(NarrowcastError):
                self.abort()
            with contextlib.suppress(NarrowcastError):
                self.close()
            return
        self.close()
