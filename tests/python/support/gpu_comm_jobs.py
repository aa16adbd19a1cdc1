"""Rank processes of gpu/test_communicators.py."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import narrowcast
import numpy as np
from narrowcast._native.cuda_driver import DeviceBuffer, Stream, on_device

INTERRUPT_SECONDS = 0.5


def _create(unique_id: str, rank: int, ranks: int, device: int, **options: Any) -> narrowcast.Communicator:
    options = {"backend": "cuda", "device": device, "timeout_seconds": 60, **options}
    return narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, **options)


def _all_reduced(comm: narrowcast.Communicator, value: float, stream: Stream) -> float:
    values = DeviceBuffer(4000).write(np.full(1000, value, np.float32))
    comm.all_reduce(values, dtype="float32", stream=stream)
    stream.synchronize()
    return float(values.read().view(np.float32)[-1])


def splitting(*, unique_id: str, rank: int, ranks: int, device: int, emit: Any) -> None:
    """The ranks in reverse order, then each alone. The GPU is that of the communicator, whichever is current."""
    with on_device(device), _create(unique_id, rank, ranks, device) as comm:
        stream = Stream()
        with comm.split(0, -rank) as reverse:
            found = [reverse.rank, reverse.ranks, _all_reduced(reverse, rank + 1.0, stream)]
        with comm.split(rank) as alone:
            found.append(alone.ranks)
        emit([*found, _all_reduced(comm, 1.0, stream)])


def moving(*, unique_id: str, rank: int, ranks: int, device: int, emit: Any) -> None:
    """bool and int16 values, as bytes."""
    with on_device(device), _create(unique_id, rank, ranks, device) as comm:
        stream, same = Stream(), []
        for name in ("bool", "int16"):
            every = [np.random.default_rng(r).integers(0, 2, 5001).astype(name) for r in range(ranks)]
            own = DeviceBuffer(every[0].nbytes).write(every[rank])
            out = DeviceBuffer(ranks * own.count_bytes).fill(7)
            comm.all_gather(own, out, dtype=name, stream=stream)
            stream.synchronize()
            same.append(out.read().tobytes() == b"".join(one.tobytes() for one in every))
        emit(same)


def interrupted(*, unique_id: str, rank: int, ranks: int, device: int, emit: Any) -> None:
    """The last rank makes no call. Rank 0 is interrupted while close() waits for its kernel."""
    with on_device(device):
        comm = _create(unique_id, rank, ranks, device)
        stream = Stream()
        _all_reduced(comm, 1.0, stream)
        if rank == ranks - 1:
            while comm.async_error() is None:
                time.sleep(0.01)
            emit([type(comm.async_error()).__name__, 0.0])
            comm.close()
            return
        values = DeviceBuffer(4000).fill(0)
        comm.all_reduce(values, dtype="float32", stream=stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if rank == 0:
            threading.Timer(INTERRUPT_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin, name = time.monotonic(), "nothing"
        try:
            comm.close()
        except KeyboardInterrupt:
            name = "KeyboardInterrupt"
        emit([name, time.monotonic() - begin])


def registered(*, unique_id: str, host_id: str, rank: int, ranks: int, device: int, library: str, emit: Any) -> None:
    """The calls with a user's codec whose bits differ from those of CPUs, and the ratios of both."""
    narrowcast.register_codec(library)
    host = narrowcast.Communicator(bytes.fromhex(host_id), rank, ranks, backend="host", timeout_seconds=60)
    with on_device(device), _create(unique_id, rank, ranks, device) as comm, host:
        stream, wrong = Stream(), []

        def compare(name: str, dtype: str, codec: str, values: np.ndarray[Any, Any], results: int) -> None:
            own, out = DeviceBuffer(values.nbytes).write(values), DeviceBuffer(results * values.nbytes).fill(7)
            getattr(comm, name)(own, out, dtype=dtype, codec=codec, stream=stream)
            stream.synchronize()
            right = np.zeros(results * values.size, values.dtype)
            getattr(host, name)(values, right, dtype=dtype, codec=codec)
            if out.read().tobytes() != right.tobytes():
                wrong.append(f"{name} of {values.size} {dtype} by {codec}")

        # The backends cut a vector that has a partial block into other pieces, so sums of it can differ.
        for count in (5 * 4096 + 5, 1 << 20):
            floats = np.random.default_rng(rank).standard_normal(count).astype(np.float32)
            for dtype, values in (("float32", floats), ("bfloat16", (floats.view(np.uint32) >> 16).astype(np.uint16))):
                for codec in ("uniform:bits=6!", "uniform:bits=4,dither=1!"):
                    compare("all_gather", dtype, codec, values, ranks)
                    if count % 4096 == 0:
                        compare("all_reduce", dtype, codec, values, 1)
        emit([wrong, *(sizes.wire_bytes / sizes.raw_bytes for sizes in (comm.counters(), host.counters()))])


def torch_backend(*, folder: str, rank: int, ranks: int, device: int, emit: Any) -> None:
    """Collectives, messages and DistributedDataParallel with CUDA tensors, on a stream that is not the default."""
    import narrowcast.torch_backend  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(device)
    timeout = timedelta(seconds=60)
    store = f"file://{folder}/store"
    dist.init_process_group("narrowcast", init_method=store, rank=rank, world_size=ranks, timeout=timeout)
    right = []
    with torch.cuda.stream(torch.cuda.Stream()):
        value = torch.full((1000,), rank + 1.0, device="cuda", dtype=torch.bfloat16)
        dist.all_reduce(value)
        right.append(bool((value == ranks * (ranks + 1) / 2).all()))
        whole = torch.zeros(ranks * 10, device="cuda")
        dist.all_gather_into_tensor(whole, torch.full((10,), float(rank), device="cuda"))
        right.append(whole.tolist() == [float(r) for r in range(ranks) for _ in range(10)])
        truth = torch.tensor([rank == 0], device="cuda")
        dist.broadcast(truth, 0)
        right.append(truth.tolist() == [True])
        received = torch.zeros(300_000, device="cuda")
        sent = torch.full((300_000,), float(rank), device="cuda")
        messages = [
            dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        right.append(bool((received == (rank - 1) % ranks).all()))
        torch.manual_seed(0)
        model = torch.nn.Linear(20, 3).cuda()
        parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
        inputs = torch.randn(ranks * 8, 20, generator=torch.Generator().manual_seed(1)).cuda()
        parallel(inputs[8 * rank : 8 * rank + 8]).pow(2).mean().backward()
        found = model.weight.grad.clone()
        model.zero_grad()
        model(inputs).pow(2).mean().backward()
        right.append(bool(torch.allclose(found, model.weight.grad, atol=1e-5)))
    torch.cuda.synchronize()
    emit(right)
    dist.destroy_process_group()
