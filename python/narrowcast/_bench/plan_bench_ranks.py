"""The rank processes of `narrowcast plan bench`: they measure a plan and the built-in way in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._comm.loaded_plan import LoadedPlan
from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Stream
from ..comm import Communicator
from ..plan import BUILT_IN
from ..types import value_type
from . import operations, samples
from .contenders import Contender, run_ours, set_bytes
from .harness import Harness, Schedule, barrier, set_environment, source_of
from .launch import Emit
from .operations import Call

BUILT_IN_NAME, PLAN_NAME = "built-in", "plan"


def bench_host(
    *,
    unique_id: str,
    rank: int,
    ranks: int,
    plan: str,
    operation: str,
    root: int,
    dtype: str,
    op: str,
    codec: str,
    in_place: bool,
    exact: bool,
    counts: list[int],
    iterations: int,
    batches: int,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Emits a result for each count: the built-in candidate, and for each contender microseconds and wrong values.

    plan: in JSON.
    codec: of the built-in way.
    exact: whether reductions of the plan must have the result of the library.
    """
    kind, sample = value_type(dtype), samples.sample("normal", dtype)
    with (
        Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds) as comm,
        comm.load_plan(plan, dtype, op=op) as loaded,
    ):
        # Measured times of other plans do not count.
        comm.choose_plans(lambda call, plans: BUILT_IN)
        for count in counts:
            built_in, own = (
                operations.prepare(
                    operation, comm, sample, kind, count, codec=codec, op=op, root=root, in_place=in_place
                )
                for _ in range(2)
            )
            own.run = partial(loaded, own.values, own.out, dtype=kind)
            contenders = {BUILT_IN_NAME: built_in, PLAN_NAME: own}
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for turn in range(batches + 1):
                for name, call in contenders.items():
                    call.restore()
                    barrier(comm)
                    begin = time.perf_counter()
                    for _ in range(iterations):
                        call.run()
                    if turn:  # the first one warms up
                        times[name].append((time.perf_counter() - begin) / iterations)
            wrong = {}
            for name, call in contenders.items():
                call.poison()
                barrier(comm)
                call.run()
                wrong[name] = call.call.count_wrong(call.out, sample, exact=exact or name == BUILT_IN_NAME)
            said = comm.explain(operation, count, dtype=dtype, codec=codec, op=op, root=root)
            emit(_result(count, said.candidate, times, wrong))


def bench_cuda(
    *,
    unique_id: str,
    host_id: str,
    rank: int,
    ranks: int,
    plan: str,
    operation: str,
    root: int,
    dtype: str,
    op: str,
    codec: str,
    in_place: bool,
    exact: bool,
    counts: list[int],
    iterations: int,
    batches: int,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """As bench_host, between GPUs. Rank r uses device r. Calls run in CUDA graphs."""
    set_environment(0)
    kind, sample = value_type(dtype), samples.sample("normal", dtype)
    calls = [Call(operation, kind, count, rank, ranks, op=op, root=root) for count in counts]
    options: dict[str, Any] = {"timeout_seconds": timeout_seconds}
    with (
        Communicator(bytes.fromhex(host_id), rank, ranks, **options) as host,
        cuda_driver.on_device(rank),
        Communicator(bytes.fromhex(unique_id), rank, ranks, backend="cuda", device=rank, **options) as comm,
        comm.load_plan(plan, dtype, op=op) as loaded,
    ):
        schedule = Schedule(
            in_place=in_place,
            iterations=iterations,
            warmup=3,
            batches=batches,
            graph_calls=iterations,
            check=False,
            l2_bytes=cuda_driver.device_attribute(cuda_driver.L2_BYTES, rank),
        )
        memory = DeviceBuffer(max(set_bytes(call, in_place) * schedule.sets(call) for call in calls))
        # Plans may let other ranks access inputs and outputs.
        comm.register(memory)
        contenders = [
            Contender(BUILT_IN_NAME, memory, run_ours(comm, codec), comm=comm),
            Contender(PLAN_NAME, memory, _run_plan(loaded), comm=comm),
        ]
        harness = Harness(host, contenders, sample, source_of(sample, max(call.send_elems for call in calls)), schedule)
        for call in calls:
            measured = harness.measure(call)["contenders"]
            wrong = {one.name: _count_wrong(host, one, call, sample, in_place, exact) for one in contenders}
            said = comm.explain(operation, call.count, dtype=dtype, codec=codec, op=op, root=root)
            seconds = {name: one["seconds"] for name, one in measured.items()}
            emit(_result(call.count, said.candidate, seconds, wrong))
        harness.close()
        # No rank leaves while others may still use its memory.
        barrier(host)


def _result(count: int, candidate: str, times: dict[str, list[float]], wrong: dict[str, int]) -> dict[str, Any]:
    contenders = {
        name: {"microseconds": 1e6 * statistics.median(own), "wrong": wrong[name]} for name, own in times.items()
    }
    return {"count": count, "candidate": candidate, "contenders": contenders}


def _run_plan(loaded: LoadedPlan) -> Callable[[Call, DeviceBuffer, DeviceBuffer, Stream], None]:
    def run(call: Call, values: DeviceBuffer, out: DeviceBuffer, stream: Stream) -> None:
        loaded.run_on(values.pointer, out.pointer, call.count, stream.handle)

    return run


def _count_wrong(host: Communicator, one: Contender, call: Call, sample: Any, in_place: bool, exact: bool) -> int:
    """The number of wrong values of one call on this rank."""
    stream = Stream()
    one.begin(call, 1, in_place)
    values, out = one.sets[0]
    out.fill(operations.POISON)
    values.write(np.ascontiguousarray(call.sent(sample, call.rank)).view(np.uint8))
    cuda_driver.call("cuCtxSynchronize")
    barrier(host)
    one.run(call, values, out, stream)
    stream.synchronize()
    barrier(host)
    if not call.has_result:
        return 0
    return call.count_wrong(out.read().view(call.kind.numpy), sample, exact=exact or one.name == BUILT_IN_NAME)
