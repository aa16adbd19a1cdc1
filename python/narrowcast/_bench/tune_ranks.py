"""The rank processes of `narrowcast tune`: they measure every candidate of every operation, and NCCL."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from .._native import cuda_driver
from .._native.codecs import codec_of
from .._native.cuda_driver import DeviceBuffer
from .._native.library import library_version
from ..comm import Communicator
from ..types import value_type
from . import nccl_library, samples
from .contenders import Contender, Opponents, run_ours, run_plan, set_bytes
from .cost_model import INCOMPRESSIBLE, coded
from .harness import Harness, Schedule, enter_host, set_environment, source_of
from .launch import Emit
from .launched import device_of
from .operations import Call, barrier, call_of, count_of, describe, size_of
from .tuned_plans import TunedPlan, loaded

DTYPE = "bfloat16"
_SHRINKING = "weights"
# A batch has as many calls as fit these bytes, within limits: over slow links, long calls would take many minutes.
_BATCH_BYTES, _FEWEST_CALLS = 1 << 30, 4
# An operation for which NCCL has all variants (symmetric windows, copy engines).
_ANY_VARIANT = "all_gather"


def tune(
    *,
    host_id: str,
    packets_id: str,
    blocks_id: str,
    rank: int,
    ranks: int,
    operations: list[str],
    sizes: list[int],
    iterations: int,
    warmup: int,
    batches: int,
    graph_calls: int,
    hosts: int,
    nccl: str | None,
    codecs: list[str],
    plans: list[dict[str, Any]],
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Measures operations for several sizes. Emits the machine, then one result for each size, and for each size of a
    plan that only works in place.

    hosts: as for `narrowcast bench`.
    codecs: lossy ones, besides all exact ones. plans: those of the user, members of TunedPlan.
    """
    set_environment(0)
    enter_host(rank, ranks, hosts)
    os.environ["NARROWCAST_LEVELS"] = "1"  # curves are those of a link
    kind = value_type(DTYPE)

    def communicator(unique_id: str, **options: Any) -> Communicator:
        return Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds, **options)

    device = device_of(rank)
    on_gpu: dict[str, Any] = {"backend": "cuda", "device": device}
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(communicator(host_id))
        stack.enter_context(cuda_driver.on_device(device))
        with _forced("packets"):
            by_packets = stack.enter_context(communicator(packets_id, **on_gpu))
        with _forced("blocks"):
            by_blocks = stack.enter_context(communicator(blocks_id, **on_gpu))
        own = stack.enter_context(loaded(by_blocks, [TunedPlan(**plan) for plan in plans], DTYPE))
        schedule = Schedule(
            in_place=False,
            iterations=iterations,
            warmup=warmup,
            batches=batches,
            graph_calls=graph_calls,
            check=False,
            l2_bytes=cuda_driver.device_attribute(cuda_driver.L2_BYTES, device),
        )
        calls = {
            operation: [
                Call(operation, kind, count, rank, ranks)
                for count in dict.fromkeys(count_of(operation, size, kind, ranks) for size in sizes)
            ]
            for operation in operations
        }
        every = [call for own in calls.values() for call in own]
        within = dataclasses.replace(schedule, in_place=True)
        plain = DeviceBuffer(
            max(set_bytes(call, one.in_place) * one.sets(call) for call in every for one in (schedule, within))
        )
        opponents = Opponents(host, list(nccl_library.VARIANTS), _ANY_VARIANT, required=False, path=nccl)
        opponents.join(plain)
        packets = Contender("packets", plain, run_ours(by_packets, "raw"), comm=by_packets)
        raw = Contender("blocks:raw", plain, run_ours(by_blocks, "raw"), comm=by_blocks)
        encoded = [
            Contender(f"blocks:{name}", plain, run_ours(by_blocks, name), comm=by_blocks)
            for name in [*coded(DTYPE, exact=True), *codecs]
        ]
        # Payloads of a fixed length take as long for any values.
        incompressible = [one for one in encoded if not codec_of(one.name.removeprefix("blocks:")).fixed_payload]
        planned = [(plan, Contender(plan.series, plain, run_plan(run), comm=by_blocks)) for plan, run in own]
        emit(
            {
                "link": by_blocks.explain("send", 1, dtype=DTYPE).link,
                "versions": {"narrowcast": library_version(), "nccl": opponents.version},
                "notes": opponents.notes,
            }
        )
        for data in (_SHRINKING, INCOMPRESSIBLE):
            sample = samples.sample(data, DTYPE)
            source = source_of(sample, max(call.send_elems for call in every))
            contenders = [packets, raw, *encoded, *opponents.contenders]
            harness = Harness(host, contenders, sample, source, schedule)
            is_in_place = any(plan.in_place for plan, _ in planned)
            harness_in_place = Harness(host, contenders, sample, source, within) if is_in_place else None
            for operation in operations:
                for call in calls[operation]:
                    only, only_in_place = incompressible, []
                    if data == _SHRINKING:
                        explanation = by_packets.explain(call_of(operation), call.count, dtype=DTYPE)
                        only = [packets] if explanation.path == "packets" else []
                        only += [raw, *encoded, *_of_operation(opponents.contenders, operation)]
                        suited = [(plan, one) for plan, one in planned if plan.suits(operation, call.count, kind)]
                        only += [one for plan, one in suited if not plan.in_place]
                        only_in_place = [one for plan, one in suited if plan.in_place]
                    measured = harness.measure(call, only, suited_schedule(schedule, call))
                    emit({"operation": operation, "data": data, **measured})
                    if harness_in_place and only_in_place:
                        measured = harness_in_place.measure(call, only_in_place, suited_schedule(within, call))
                        emit({"operation": operation, "data": data, **measured})
            harness.close()
            if harness_in_place:
                harness_in_place.close()
        # No rank leaves while others may still use its memory.
        barrier(host)
        opponents.close()


def suited_schedule(schedule: Schedule, call: Call) -> Schedule:
    """The schedule with fewer calls in a batch and in a graph, if they are long."""
    size = size_of(call.operation, call.count, call.kind, call.ranks)
    calls = min(schedule.graph_calls, max(_FEWEST_CALLS, _BATCH_BYTES // max(1, size)))
    return dataclasses.replace(schedule, iterations=calls, graph_calls=calls)


@contextlib.contextmanager
def _forced(path: str) -> Iterator[None]:
    """Makes communicators that are created in the body use a path wherever possible."""
    os.environ["NARROWCAST_PATH"] = path
    try:
        yield
    finally:
        del os.environ["NARROWCAST_PATH"]


def _of_operation(contenders: list[Contender], operation: str) -> list[Contender]:
    """The contenders with an implementation of their own for the operation.

    NCCL has no symmetric kernels for rooted operations, and version 2.28.9 may fail in a broadcast with windows.
    """
    excluded = set()
    if operation not in nccl_library.COPY_ENGINE:
        excluded.add("nccl-ce")
    if describe(operation).has_root:
        excluded.add("nccl-symmetric")
    return [one for one in contenders if one.name not in excluded]
