"""Plans that are ready to run on a communicator."""

from __future__ import annotations

import weakref
from ctypes import byref, c_void_p, sizeof
from types import TracebackType
from typing import Any

from .._arrays.view import View
from .._native.library import check, library
from .._native.numbers import as_unsigned
from .._native.operations import operations
from .._native.plan import NativePlan
from .._native.plan_structures import PlanUseC
from ..types import DType, ValueType
from .calls import Calls
from .handles import OfThisProcess


class LoadedPlan(OfThisProcess):
    """A plan for calls of one value type and reduction on a communicator. `Communicator.load_plan` makes it.

    Calling it executes the plan's operation. Close it when its calls have run on all ranks; CUDA graphs that contain
    them must not be launched afterwards. As a context manager it closes at the end.
    """

    def __init__(self, communicator: Calls, plan: NativePlan, dtype: ValueType, reduction: int) -> None:
        handle = c_void_p()
        check(library().ncast_plan_load(communicator.handle, plan.handle, dtype.number, reduction, byref(handle)))
        self._communicator, self._dtype, self._info, self._handle = communicator, dtype, plan.info(), handle
        self._finalizer = weakref.finalize(self, library().ncast_loaded_plan_destroy, handle)

    def __call__(self, values: Any, out: Any, *, stream: Any = None, dtype: DType | None = None) -> None:
        """Executes the plan. values, out: input and output, as for the operation; the same array if it is in place.

        A plan that only works in place needs the same array, also in an all-to-all, which otherwise does not work in
        place.

        Both hold the value type of the plan, which `dtype` repeats for arrays without one. An array that the operation
        does not have on this rank is ignored. Raises ValueError for arrays of the wrong size, and what the operation
        raises.
        """
        if not self._finalizer.alive:
            raise ValueError("the plan is closed")
        communicator, operation = self._communicator, operations()[self._info.operation]
        at_root = communicator.rank == self._info.root

        def viewed(array: Any, name: str, pieces: int, writable: bool) -> tuple[View | None, int | None]:
            if not pieces:
                return None, None
            found = communicator._view(array, name, stream, dtype=dtype, holds=self._dtype, writable=writable)
            if found.elems % pieces:
                raise ValueError(f"{name} holds {found.elems} values, which {pieces} ranks cannot share equally")
            return found, found.elems // pieces

        source, count = viewed(values, "values", operation.send.pieces(communicator.ranks, at_root), False)
        target, elems = viewed(out, "out", operation.recv.pieces(communicator.ranks, at_root), True)
        if count is not None and elems is not None and count != elems:
            raise ValueError(f"pieces of values hold {count} values and pieces of out {elems}")
        given, taken = (one.pointer if one else None for one in (source, target))
        piece = count if count is not None else elems

        def call(handle: Any) -> None:
            self.run_on(given, taken, piece or 0, handle)

        communicator._enqueue(call, stream, *(one for one in (source, target) if one))

    def run_on(self, values: int | None, out: int | None, count: int, stream: Any) -> None:
        """Executes the plan without any checks. For measurements.

        values, out: addresses; None for one that the operation does not have on this rank.
        count, stream: as in the C API.
        """
        check(library().ncast_loaded_plan_run(self._handle, values, out, count, stream))

    def use(self, *, always: bool = False, min_bytes: int = 0, max_bytes: int | None = None) -> LoadedPlan:
        """Lets the communicator's own calls of the plan's operation, root, type and reduction run the plan.

        always: all calls that it suits. Otherwise those for which the cost model has times of the plan that are shorter
            than those of the built-in way, if the plan has the same results.
        min_bytes, max_bytes: of the `count` values of a call. The limits of the plan itself apply too.

        All ranks call it with the same arguments, at the same place in the order of the communicator's calls. It ends
        when the plan is closed, again at the same place on all ranks, or with the communicator.

        A plan that only works in place, or only out of place, runs only calls that are so. Each rank knows this of
        itself only, so such a call must be made alike on all ranks, which otherwise get a MismatchError.

        Raises UnsupportedError for such plans of operations with a root, and, on GPUs, for plans that let other ranks
        access inputs or outputs: whether a call is suitable would not be known to all ranks.
        """
        if not self._finalizer.alive:
            raise ValueError("the plan is closed")
        limits = {"min_bytes": as_unsigned(min_bytes, "min_bytes")}
        if max_bytes is not None:
            limits["max_bytes"] = as_unsigned(max_bytes, "max_bytes")
            if not max_bytes:
                raise ValueError("max_bytes is 0: use None for no limit")
        given = PlanUseC(struct_bytes=sizeof(PlanUseC), always=always, **limits)
        check(library().ncast_loaded_plan_use(self._handle, byref(given)))
        self._communicator._used_plans.add(self)
        return self

    def close(self) -> None:
        """Waits for the calls of this rank and frees the plan. Further calls have no effect.

        If the plan accesses memory of other ranks, this waits until all of them close it.
        """
        self._communicator._used_plans.discard(self)
        if self._finalizer.detach() is not None:
            check(library().ncast_loaded_plan_destroy(self._handle))

    def __enter__(self) -> LoadedPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
