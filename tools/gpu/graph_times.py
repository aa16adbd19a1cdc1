"""Times of calls in CUDA graphs, between ranks that share one GPU."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

CALLS = 20  # in a graph
WARM_UP_SECONDS = 0.5


def elsewhere() -> Any:
    """Memory that what is allocated next cannot have."""
    from narrowcast._native.cuda_driver import DeviceBuffer

    return DeviceBuffer(random.randrange(1, 65) << 20)


def microseconds(streams: Sequence[Any], call: Callable[[int], None], replays: int) -> float:
    """Of a call, on the slowest rank: the least of several replays. call: enqueues a rank's part on its stream."""
    from narrowcast._native.cuda_driver import Event

    def synchronize() -> None:
        for stream in streams:
            stream.synchronize()

    for rank in range(len(streams)):
        call(rank)
    synchronize()
    graphs = []
    for rank, stream in enumerate(streams):
        with stream.capture() as graph:
            for _ in range(CALLS):
                call(rank)
        graphs.append(graph)
    slowest = []
    for _ in range(replays):
        events = [(Event(), Event()) for _ in graphs]
        for graph, stream, (begin, end) in zip(graphs, streams, events, strict=True):
            graph.launch(stream)  # absorbs the skew between the starts of the ranks
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
        synchronize()
        slowest.append(max(end.seconds_since(begin) for begin, end in events))
    for graph in graphs:
        graph.close()
    return min(slowest) / CALLS * 1e6


def warm_up(streams: Sequence[Any], call: Callable[[int], None]) -> None:
    """The GPU's clock may rise while it works, and the first calls that are measured would be slower than others."""
    begin = time.monotonic()
    while time.monotonic() < begin + WARM_UP_SECONDS:
        microseconds(streams, call, 1)
