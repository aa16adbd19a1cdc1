"""Runs plans between GPUs, on ranks that are processes with a GPU each, and checks their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Stream
from ..comm import Communicator, unique_id
from ..plan import Plan
from ..types import value_type
from . import operations, samples
from .contenders import Contender, run_plan, set_bytes
from .harness import set_environment
from .launch import Emit, run_ranks
from .operations import Call, barrier
from .plan_ranks import Outcome, places_of

_RUN_TIMEOUT_SECONDS = 1800.0


def run_plan_on_gpus(
    plan: Plan,
    sizes: Sequence[int],
    *,
    dtype: str,
    op: str,
    iterations: int,
    exact: bool,
    timeout_seconds: float = 60.0,
    job: str = f"{__name__}:run",
) -> list[Outcome]:
    """As `run_plan`, between GPUs. Rank r uses device r. Times are those until the host sees the end of a call.

    job: the function that ranks run.

    Raises RemoteError with the message of a rank that failed.
    """
    model, kind = plan.model, value_type(dtype)
    ranks = len(model.ranks)
    calls = [
        (nbytes, operations.count_of(model.operation, nbytes, kind, ranks), in_place)
        for nbytes in sizes
        for in_place in places_of(plan)
    ]
    arguments = {
        # Created here, because this process lives as long as the ranks.
        "identity": unique_id(local=True).hex(),
        "host_identity": unique_id(local=True).hex(),
        "ranks": ranks,
        "plan": plan.json(),
        "operation": model.operation,
        "root": model.root,
        "dtype": kind.name,
        "op": op,
        "exact": exact,
        "calls": [(count, in_place) for _, count, in_place in calls],
        "iterations": iterations,
        "timeout_seconds": timeout_seconds,
    }
    found: list[list[dict[str, Any]]] = []
    run_ranks(
        job,
        [{**arguments, "rank": rank} for rank in range(ranks)],
        found.append,
        timeout_seconds=_RUN_TIMEOUT_SECONDS,
    )
    return [
        Outcome(
            nbytes, in_place, max(one["microseconds"] for one in results), sum(int(one["wrong"]) for one in results)
        )
        for (nbytes, _, in_place), results in zip(calls, found, strict=True)
    ]


def run(
    *,
    identity: str,
    host_identity: str,
    rank: int,
    ranks: int,
    plan: str,
    operation: str,
    root: int,
    dtype: str,
    op: str,
    exact: bool,
    calls: list[tuple[int, bool]],
    iterations: int,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """A rank. Emits for each call the microseconds of the fastest repetition and the wrong values of the last.

    calls: their counts, and whether they are in place.
    """
    set_environment(0)
    kind, sample = value_type(dtype), samples.sample("normal", dtype)
    described = [(Call(operation, kind, count, rank, ranks, op=op, root=root), in_place) for count, in_place in calls]
    with (
        Communicator(bytes.fromhex(host_identity), rank, ranks, timeout_seconds=timeout_seconds) as host,
        cuda_driver.on_device(rank),
        Communicator(
            bytes.fromhex(identity), rank, ranks, timeout_seconds=timeout_seconds, backend="cuda", device=rank
        ) as comm,
        comm.load_plan(plan, dtype, op=op) as loaded,
    ):
        memory = DeviceBuffer(max(set_bytes(call, in_place) for call, in_place in described))
        # Plans may let other ranks access inputs and outputs.
        comm.register(memory)
        contender, stream = Contender("plan", memory, run_plan(loaded), comm=comm), Stream()
        for call, in_place in described:
            contender.begin(call, 1, in_place)
            seconds = [run_once(host, contender, call, sample, stream) for _ in range(iterations)]
            emit(
                {
                    "microseconds": 1e6 * min(seconds),
                    "wrong": count_wrong(contender, call, sample, exact=exact),
                }
            )
        # No rank leaves while others may still use its memory.
        barrier(host)


def run_once(host: Communicator, one: Contender, call: Call, sample: Any, stream: Stream) -> float:
    """Makes a call in the first set of a contender's buffers, after overwriting its output. Returns its seconds.

    host: a communicator of the host backend, with which the ranks wait for each other.
    """
    values, out = one.sets[0]
    out.fill(operations.POISON)
    values.write(np.ascontiguousarray(call.sent(sample, call.rank)).view(np.uint8))
    cuda_driver.call("cuCtxSynchronize")
    barrier(host)
    began = time.perf_counter()
    one.run(call, values, out, stream)
    stream.synchronize()
    seconds = time.perf_counter() - began
    barrier(host)
    return seconds


def count_wrong(one: Contender, call: Call, sample: Any, *, exact: bool) -> int:
    """The wrong values of this rank after `run_once`."""
    if not call.has_result:
        return 0
    return call.count_wrong(one.sets[0][1].read().view(call.kind.numpy), sample, exact=exact)
