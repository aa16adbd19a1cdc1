"""The rank processes of `narrowcast tune --backend host`: they measure the plans with which calls can run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .._comm.loaded_plan import LoadedPlan
from .._native.library import library_version
from .._native.plan_selector import BUILT_IN, Selector
from ..comm import Communicator
from ..types import value_type
from . import operations, samples
from .launch import Emit
from .tuned_plans import TunedPlan, loaded

DTYPE = "bfloat16"
#: The series of the built-in way.
BUILT_IN_SERIES = "frames:raw"
# A batch has as many calls as fit this many bytes, within limits.
_BATCH_BYTES, _MOST_CALLS, _FEWEST_CALLS = 16 << 20, 100, 2


def tune(
    *,
    unique_id: str,
    rank: int,
    ranks: int,
    names: list[str],
    sizes: list[int],
    batches: int,
    plans: list[dict[str, Any]],
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Measures operations for several sizes. Emits the versions, then one result for each size.

    plans: those of the user, members of TunedPlan.

    A result has the operation, the count, and microseconds by series: the median of the batches on this rank. Series
    take turns, batch by batch.
    """
    emit({"versions": {"narrowcast": library_version()}})
    with (
        Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm,
        loaded(comm, [TunedPlan(**plan) for plan in plans], DTYPE) as own,
    ):
        for operation in names:
            for size in sizes:
                count = operations.count_of(operation, size, value_type(DTYPE), ranks)
                ways = {**_ways(comm, operation, count), **_own_ways(comm, own, operation, count)}
                emit(_measure(comm, operation, count, ways, batches))


#: What a way to run a call needs before a batch, and the call.
_Way = tuple[Callable[[], None], Callable[[], None]]


def _measure(comm: Communicator, operation: str, count: int, ways: dict[str, _Way], batches: int) -> dict[str, Any]:
    """ways: by series."""
    size = operations.size_of(operation, count, value_type(DTYPE), comm.ranks)
    calls = max(_FEWEST_CALLS, min(_MOST_CALLS, _BATCH_BYTES // max(1, size)))
    times: dict[str, list[float]] = {series: [] for series in ways}
    for turn in range(batches + 1):
        for series, (prepare, run) in ways.items():
            prepare()
            run()
            operations.barrier(comm)
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            if turn:  # the first one warms up
                times[series].append((time.perf_counter() - begin) / calls)
    microseconds = {series: 1e6 * statistics.median(seconds) for series, seconds in times.items()}
    return {"operation": operation, "count": count, "microseconds": microseconds}


def _ways(comm: Communicator, operation: str, count: int) -> dict[str, _Way]:
    """The built-in way, and the known algorithms that can run the call."""
    offered: list[str] = []

    def note(_: Any, plans: Any) -> str:
        offered.extend(plans)
        return BUILT_IN

    comm.choose_plans(note)
    comm.explain(operation, count, dtype=DTYPE, codec="raw")
    call = _prepared(comm, operation, count)
    names = {BUILT_IN_SERIES: BUILT_IN, **{f"plan:{name}": name for name in offered}}
    return {series: (partial(comm.choose_plans, _always(name)), call.run) for series, name in names.items()}


def _own_ways(
    comm: Communicator, plans: list[tuple[TunedPlan, LoadedPlan]], operation: str, count: int
) -> dict[str, _Way]:
    """The plans of the user that suit the call."""
    ways: dict[str, _Way] = {}
    for plan, run in plans:
        if plan.suits(operation, count, value_type(DTYPE)):
            call = _prepared(comm, operation, count, root=plan.root, in_place=plan.in_place)
            # Calls in place change their input; every batch begins with the same.
            ways[plan.series] = (call.restore, partial(run, call.values, call.out, dtype=DTYPE))
    return ways


def _prepared(
    comm: Communicator, operation: str, count: int, *, root: int = 0, in_place: bool = False
) -> operations.Prepared:
    sample = samples.sample("weights", DTYPE)
    return operations.prepare(
        operation, comm, sample, value_type(DTYPE), count, codec="raw", op="sum", root=root, in_place=in_place
    )


def _always(plan: str) -> Selector:
    return lambda call, plans: plan
