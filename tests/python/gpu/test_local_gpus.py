"""All GPUs driven by one thread."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from conformance.places import GpuPlace
from narrowcast.cuda import device_count

RANKS = min(8, device_count())

pytestmark = pytest.mark.skipif(RANKS < 2, reason="fewer than 2 GPUs")


@pytest.mark.parametrize("count", [100, 3_000_001])
@pytest.mark.parametrize("grouped", [True, False])
def test_one_thread_drives_all_gpus(count, grouped):
    places, streams, buffers = [GpuPlace(rank, 64 << 20) for rank in range(RANKS)], [], []
    for rank, place in enumerate(places):
        with place.current():
            streams.append(place.stream())
            buffers.append(place.carve(4 * count))
            place.write(buffers[-1], np.full(count, rank + 1, np.float32), streams[-1])
    with narrowcast.LocalRanks(RANKS, backend="cuda", timeout_seconds=20) as comms:
        for _ in range(2):
            if grouped:
                with narrowcast.group():
                    for comm, buffer, stream in zip(comms, buffers, streams, strict=True):
                        comm.all_reduce(buffer, op="max", stream=stream, dtype="float32", codec="window")
            else:
                for comm, buffer, stream in zip(comms, buffers, streams, strict=True):
                    comm.all_reduce(buffer, op="max", stream=stream, dtype="float32")
        for place, comm, buffer, stream in zip(places, comms, buffers, streams, strict=True):
            with place.current():
                place.finish(comm, stream)
                assert (place.read(buffer, stream).view(np.float32) == RANKS).all()
