"""The rank processes of `narrowcast tune --backend host`: they measure the plans with which calls can run."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from .._native.library import library_version
from .._native.plan_selector import BUILT_IN, Selector
from ..comm import Communicator
from ..types import value_type
from . import operations, samples
from .launch import Emit

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
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Measures operations for several sizes. Emits the versions, then one result for each size.

    A result has the operation, the count, and microseconds by series: the median of the batches on this rank. Series
    take turns, batch by batch.
    """
    emit({"versions": {"narrowcast": library_version()}})
    with Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm:
        for operation in names:
            for size in sizes:
                emit(_measure(comm, operation, size, batches))


def _measure(comm: Communicator, operation: str, size: int, batches: int) -> dict[str, Any]:
    kind = value_type(DTYPE)
    count = operations.count_of(operation, size, kind, comm.ranks)
    sample = samples.sample("weights", DTYPE)
    call = operations.prepare(operation, comm, sample, kind, count, codec="raw", op="sum", root=0)
    calls = max(_FEWEST_CALLS, min(_MOST_CALLS, _BATCH_BYTES // max(1, size)))
    times: dict[str, list[float]] = {series: [] for series in _series(comm, operation, count)}
    for turn in range(batches + 1):
        for series, seconds in times.items():
            wanted = series.partition(":")[2] if series != BUILT_IN_SERIES else BUILT_IN
            comm.choose_plans(_always(wanted))
            call.run()
            _barrier(comm)
            begin = time.perf_counter()
            for _ in range(calls):
                call.run()
            if turn:  # the first one warms up
                seconds.append((time.perf_counter() - begin) / calls)
    microseconds = {series: 1e6 * statistics.median(seconds) for series, seconds in times.items()}
    return {"operation": operation, "count": count, "microseconds": microseconds}


def _always(plan: str) -> Selector:
    return lambda call, plans: plan


def _series(comm: Communicator, operation: str, count: int) -> list[str]:
    """The built-in way, and the plans that can run the call."""
    offered: list[str] = []

    def note(_: Any, plans: Any) -> str:
        offered.extend(plans)
        return BUILT_IN

    comm.choose_plans(note)
    comm.explain(operation, count, dtype=DTYPE, codec="raw")
    return [BUILT_IN_SERIES, *(f"plan:{name}" for name in offered)]


def _barrier(comm: Communicator) -> None:
    """Returns when all ranks have called it."""
    comm.all_reduce(np.zeros(1, np.int32), codec="raw")
