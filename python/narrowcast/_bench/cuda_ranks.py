"""The rank processes of benchmarks on GPUs."""

from __future__ import annotations

from typing import Any

from .._native import cuda_driver
from .._native.cuda_driver import DeviceBuffer
from .._native.library import library_version
from ..comm import Communicator
from ..types import value_type
from . import samples
from .contenders import Contender, Opponents, run_ours, set_bytes
from .harness import Harness, Schedule, enter_host, set_environment, source_of
from .launch import Emit
from .launched import device_of
from .operations import Call, barrier


def bench(
    *,
    host_id: str,
    unique_id: str,
    rank: int,
    ranks: int,
    operation: str,
    blocks: list[tuple[str, str, list[int]]],
    data: str,
    codecs: list[str],
    root: int,
    pattern: str,
    in_place: bool,
    iterations: int,
    warmup: int,
    batches: int,
    graph_calls: int,
    group_calls: int,
    blocking: bool,
    check: bool,
    against: list[str],
    required: bool,
    nccl: str | None,
    ctas: int,
    register: bool,
    hosts: int,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Measures one operation for several counts. Emits the contenders, then one result for each count.

    blocks: value type, reduction and counts of each block of measurements.
    codecs: each is used even where it does not pay; "auto" chooses.
    against: variants of NCCL. If one is not available: an error with `required`, otherwise a note.
    register: register the buffers of Narrowcast.
    hosts: the number of hosts that the ranks take themselves to be on, in order.
    graph_calls: iterations captured into one graph; 0: individual launches.
    group_calls: calls per iteration, in one group.
    blocking: the host waits for each launch before the next.
    """
    set_environment(ctas)
    enter_host(rank, ranks, hosts)
    calls = [
        [Call(operation, value_type(dtype), count, rank, ranks, op=op, root=root, pattern=pattern) for count in counts]
        for dtype, op, counts in blocks
    ]
    device = device_of(rank)
    on_gpu: dict[str, Any] = {"backend": "cuda", "device": device}
    with (
        # For communication between the processes outside of the GPUs.
        Communicator(bytes.fromhex(host_id), rank, ranks, timeout_seconds=timeout_seconds) as host,
        cuda_driver.on_device(device),
        Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds, **on_gpu) as comm,
    ):
        schedule = Schedule(
            in_place=in_place,
            iterations=iterations,
            warmup=max(1, warmup),
            batches=batches,
            graph_calls=graph_calls,
            check=check,
            l2_bytes=cuda_driver.device_attribute(cuda_driver.L2_BYTES, device),
            group_calls=group_calls,
            blocking=blocking,
        )
        every = [call for own in calls for call in own]
        plain = DeviceBuffer(max(set_bytes(call, in_place) * schedule.sets(call) for call in every))
        if register:
            comm.register(plain)
        opponents = Opponents(host, against, operation, required=required, path=nccl)
        opponents.join(plain)
        contenders = [Contender(name, plain, run_ours(comm, name), comm=comm) for name in codecs]
        contenders += opponents.contenders
        emit(
            {
                "device": cuda_driver.device_name(device),
                "link": comm.explain("send", 1, dtype="int8").link,
                "versions": {"narrowcast": library_version(), "nccl": opponents.version},
                "contenders": [one.name for one in contenders],
                "notes": opponents.notes,
            }
        )
        for (dtype, _, _), own in zip(blocks, calls, strict=True):
            sample = samples.sample(data, dtype)
            source = source_of(sample, max(call.send_elems for call in own))
            harness = Harness(host, contenders, sample, source, schedule)
            for call in own:
                emit(harness.measure(call))
            harness.close()
        # No rank leaves while others may still use its memory.
        barrier(host)
        opponents.close()
