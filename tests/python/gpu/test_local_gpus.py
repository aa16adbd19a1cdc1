"""All GPUs driven by one thread."""

from __future__ import annotations

from typing import Any

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
                        comm.all_reduce(buffer, op="max", stream=stream, dtype="float32", codec="window!")
            else:
                for comm, buffer, stream in zip(comms, buffers, streams, strict=True):
                    comm.all_reduce(buffer, op="max", stream=stream, dtype="float32")
        for place, comm, buffer, stream in zip(places, comms, buffers, streams, strict=True):
            with place.current():
                place.finish(comm, stream)
                assert (place.read(buffer, stream).view(np.float32) == RANKS).all()


@pytest.mark.parametrize("codec", ["raw", "window!"])
def test_two_communicators_may_start_long_calls_in_different_orders(codec):
    # The CTAs of both calls must be resident together: on every other GPU the second call starts first.
    count = 16 << 20
    places = [GpuPlace(rank, 160 << 20) for rank in range(RANKS)]
    streams: list[list[Any]] = [[], []]
    buffers: list[list[Any]] = [[], []]
    for rank, place in enumerate(places):
        with place.current():
            for of_comm in (0, 1):
                streams[of_comm].append(place.stream())
                buffers[of_comm].append(place.carve(4 * count))
                values = np.full(count, rank + 1 + 10 * of_comm, np.float32)
                place.write(buffers[of_comm][-1], values, streams[of_comm][-1])
    with (
        narrowcast.LocalRanks(RANKS, backend="cuda", timeout_seconds=20) as first,
        narrowcast.LocalRanks(RANKS, backend="cuda", timeout_seconds=20) as second,
    ):
        comms = (first, second)
        for _ in range(5):
            for rank in range(RANKS):
                for of_comm in (0, 1) if rank % 2 == 0 else (1, 0):
                    comms[of_comm][rank].all_reduce(
                        buffers[of_comm][rank], op="max", stream=streams[of_comm][rank], dtype="float32", codec=codec
                    )
        for rank, place in enumerate(places):
            for of_comm in (0, 1):
                with place.current():
                    place.finish(comms[of_comm][rank], streams[of_comm][rank])
                    result = place.read(buffers[of_comm][rank], streams[of_comm][rank]).view(np.float32)
                    assert (result == RANKS + 10 * of_comm).all()
