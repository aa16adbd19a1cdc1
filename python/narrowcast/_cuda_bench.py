"""What the rank processes of the benchmark run on GPUs. A process a GPU: rank r is on device r."""

from __future__ import annotations

from typing import Any

from . import _cuda_driver, _samples
from ._cuda_contenders import Contender, Opponents, run_ours, set_bytes
from ._cuda_driver import DeviceBuffer
from ._cuda_stand import Schedule, Stand, meet, set_environment, source_of
from ._launch import Emit
from ._library import library_version
from ._operations import Call
from .comm import Communicator
from .types import value_type


def bench(
    *,
    host_id: str,
    unique_id: str,
    rank: int,
    ranks: int,
    operation: str,
    counts: list[int],
    dtype: str,
    data: str,
    codecs: list[str],
    op: str,
    root: int,
    pattern: str,
    in_place: bool,
    iterations: int,
    warmup: int,
    batches: int,
    graph_calls: int,
    check: bool,
    against: list[str],
    required: bool,
    nccl: str | None,
    ctas: int,
    register: bool,
    timeout_seconds: float,
    emit: Emit,
) -> None:
    """Times one operation over several counts: first what takes part, then a result a count.

    against: variants of NCCL; with `required` it is an error when one cannot be had, otherwise a note.
    register: Narrowcast's buffers are registered memory.
    graph_calls: calls captured into one graph; 0: launched one by one.
    """
    set_environment(ctas)
    sample = _samples.sample(data, dtype)
    calls = [
        Call(operation, value_type(dtype), count, rank, ranks, op=op, root=root, pattern=pattern) for count in counts
    ]
    on_gpu: dict[str, Any] = {"backend": "cuda", "device": rank}
    with (
        # For what the processes tell each other beside the GPUs.
        Communicator(bytes.fromhex(host_id), rank, ranks, timeout_seconds=timeout_seconds) as host,
        _cuda_driver.on_device(rank),
        Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=timeout_seconds, **on_gpu) as comm,
    ):
        schedule = Schedule(
            in_place=in_place,
            iterations=iterations,
            warmup=max(1, warmup),
            batches=batches,
            graph_calls=graph_calls,
            check=check,
            l2_bytes=_cuda_driver.device_attribute(_cuda_driver.L2_BYTES, rank),
        )
        plain = DeviceBuffer(max(set_bytes(call, in_place) * schedule.sets(call) for call in calls))
        if register:
            comm.register(plain)
        opponents = Opponents(host, against, operation, required=required, path=nccl)
        opponents.join(plain)
        contenders = [Contender(name, plain, run_ours(comm, name), comm=comm) for name in codecs]
        contenders += opponents.contenders
        emit(
            {
                "device": _cuda_driver.device_name(rank),
                "versions": {"narrowcast": library_version(), "nccl": opponents.version},
                "contenders": [one.name for one in contenders],
                "notes": opponents.notes,
            }
        )
        source = source_of(sample, max(call.send_elems for call in calls))
        stand = Stand(host, contenders, sample, source, schedule)
        for call in calls:
            emit(stand.measure(call))
        stand.close()
        # Nobody leaves while another one may still use its memory.
        meet(host)
        opponents.close()
