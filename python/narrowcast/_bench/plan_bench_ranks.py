"""The rank processes of `narrowcast plan bench`: they measure a plan and the built-in way in turns."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer, Stream
from ..comm import Communicator
from ..plan import BUILT_IN
from ..types import ValueType, value_type
from . import operations, samples
from .contenders import Contender, run_ours, run_plan, set_bytes
from .harness import Harness, Schedule, set_environment, source_of
from .launch import Emit
from .operations import Call, barrier
from .plan_gpu_ranks import count_wrong, run_once

BUILT_IN_NAME, PLAN_NAME = "built-in", "plan"


@dataclass(frozen=True)
class _Job:
    """What the ranks measure, on rank `rank`."""

    unique_id: str
    rank: int
    ranks: int
    plan: str  #: in JSON
    operation: str
    root: int
    dtype: str
    op: str
    codec: str  #: of the built-in way; forced
    in_place: bool
    exact: bool  #: whether reductions of the plan must have the result of the library
    counts: list[int]
    iterations: int
    batches: int
    timeout_seconds: float

    @property
    def kind(self) -> ValueType:
        return value_type(self.dtype)

    def sample(self) -> Any:
        return samples.sample("normal", self.dtype)

    def communicator(self, **options: Any) -> Communicator:
        unique_id = bytes.fromhex(self.unique_id)
        return Communicator(unique_id, self.rank, self.ranks, timeout_seconds=self.timeout_seconds, **options)

    def candidate(self, comm: Communicator, count: int) -> str:
        """The built-in way of a call."""
        said = comm.explain(self.operation, count, dtype=self.dtype, codec=self.codec, op=self.op, root=self.root)
        return said.candidate


def bench_host(*, emit: Emit, **arguments: Any) -> None:
    """Emits a result for each count: the built-in candidate, and for each contender microseconds and wrong values.

    arguments: of `_Job`.
    """
    job = _Job(**arguments)
    kind, sample = job.kind, job.sample()
    with (
        job.communicator() as comm,
        comm.load_plan(job.plan, job.dtype, op=job.op) as loaded,
    ):
        # Measured times of other plans do not count.
        comm.choose_plans(lambda call, plans: BUILT_IN)
        for count in job.counts:
            built_in, own = (
                operations.prepare(
                    job.operation,
                    comm,
                    sample,
                    kind,
                    count,
                    codec=job.codec,
                    op=job.op,
                    root=job.root,
                    in_place=job.in_place,
                )
                for _ in range(2)
            )
            own.run = partial(loaded, own.values, own.out, dtype=kind)
            contenders = {BUILT_IN_NAME: built_in, PLAN_NAME: own}
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for turn in range(job.batches + 1):
                for name, call in contenders.items():
                    call.restore()
                    barrier(comm)
                    begin = time.perf_counter()
                    for _ in range(job.iterations):
                        call.run()
                    if turn:  # the first one warms up
                        times[name].append((time.perf_counter() - begin) / job.iterations)
            wrong = {}
            for name, call in contenders.items():
                call.poison()
                barrier(comm)
                call.run()
                wrong[name] = call.call.count_wrong(call.out, sample, exact=job.exact or name == BUILT_IN_NAME)
            emit(_result(count, job.candidate(comm, count), times, wrong))


def bench_cuda(*, host_id: str, emit: Emit, **arguments: Any) -> None:
    """As bench_host, between GPUs. Rank r uses device r. Calls run in CUDA graphs.

    host_id: of another communicator, of the host backend, with which the ranks wait for each other.
    """
    set_environment(0)
    job = _Job(**arguments)
    sample = job.sample()
    calls = [
        Call(job.operation, job.kind, count, job.rank, job.ranks, op=job.op, root=job.root) for count in job.counts
    ]
    with (
        replace(job, unique_id=host_id).communicator() as host,
        cuda_driver.on_device(job.rank),
        job.communicator(backend="cuda", device=job.rank) as comm,
        comm.load_plan(job.plan, job.dtype, op=job.op) as loaded,
    ):
        schedule = Schedule(
            in_place=job.in_place,
            iterations=job.iterations,
            warmup=3,
            batches=job.batches,
            graph_calls=job.iterations,
            check=False,
            l2_bytes=cuda_driver.device_attribute(cuda_driver.L2_BYTES, job.rank),
        )
        memory = DeviceBuffer(max(set_bytes(call, job.in_place) * schedule.sets(call) for call in calls))
        # Plans may let other ranks access inputs and outputs.
        comm.register(memory)
        contenders = [
            Contender(BUILT_IN_NAME, memory, run_ours(comm, job.codec), comm=comm),
            Contender(PLAN_NAME, memory, run_plan(loaded), comm=comm),
        ]
        harness = Harness(host, contenders, sample, source_of(sample, max(call.send_elems for call in calls)), schedule)
        for call in calls:
            measured = harness.measure(call)["contenders"]
            wrong = {one.name: _count_wrong(host, one, call, sample, job) for one in contenders}
            seconds = {name: one["seconds"] for name, one in measured.items()}
            emit(_result(call.count, job.candidate(comm, call.count), seconds, wrong))
        harness.close()
        # No rank leaves while others may still use its memory.
        barrier(host)


def _result(count: int, candidate: str, times: dict[str, list[float]], wrong: dict[str, int]) -> dict[str, Any]:
    contenders = {
        name: {"microseconds": 1e6 * statistics.median(own), "wrong": wrong[name]} for name, own in times.items()
    }
    return {"count": count, "candidate": candidate, "contenders": contenders}


def _count_wrong(host: Communicator, one: Contender, call: Call, sample: Any, job: _Job) -> int:
    """The number of wrong values of one call on this rank."""
    one.begin(call, 1, job.in_place)
    run_once(host, one, call, sample, Stream())
    return count_wrong(one, call, sample, exact=job.exact or one.name == BUILT_IN_NAME)
