"""Generated kernels of all steps, value types, reductions and alignments have the bits of the operations, between ranks
that share a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast._native.cuda_driver import DeviceBuffer, call
from narrowcast.types import VALUE_TYPES
from shared_gpu import finish, plan_forms, sharing

MOST_BYTES = 6 << 20
# Reductions of one shots by value type; others are summed.
ONE_SHOTS = {
    "int8": "max",
    "float16": "avg",
    "float64": "min",
    "int32": "avg",
    "bfloat16": "prod",
    "float8_e4m3": "avg",
}


def kinds(ranks: int) -> Iterator[tuple[str, str, str, str]]:
    """Plan, codec, value type and reduction."""
    for dtype in [kind.name for kind in VALUE_TYPES] if ranks == 2 else ("bfloat16", "float64", "int8"):
        for codec in ("raw", "window"):
            yield "two_shot", codec, dtype, "sum"
        yield "all_gather", "window", dtype, "sum"
        yield "one_shot", "raw", dtype, ONE_SHOTS.get(dtype, "sum")
    for name in ("after", "barrier", "pairs", "packets_in_scratch", "puts_in_scratch", "put_all_gather", "all_gather"):
        yield name, "raw", "bfloat16", "sum"
    yield "packets_in_scratch", "window", "float64", "avg"
    for name in ("packets_in_scratch", "after"):
        yield name, "window", "bfloat16", "sum"
    for codec in ("raw", "window"):  # these round in every step
        for name in ("ring", "tree"):
            yield name, codec, "int32", "sum"
            yield name, codec, "bfloat16", "max"


def bytes_of(dtype: str, count: int, seed: int) -> np.ndarray:
    """Normally distributed values, or integers, whose sums are neither NaN nor infinite."""
    random = np.random.default_rng(seed)
    if dtype in ("float16", "float32", "float64"):
        return random.standard_normal(count).astype(dtype).view(np.uint8)
    if dtype == "bfloat16":
        return (random.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    size = narrowcast.types.value_type(dtype).bytes
    return random.integers(0, 120 if size == 1 else 256, count * size, np.uint8)


class World:
    def __init__(self, group: Any) -> None:
        self.group = group
        self.inputs, self.wanted, self.outputs = ([DeviceBuffer(MOST_BYTES) for _ in group.comms] for _ in range(3))
        group.register(self.inputs)
        group.register(self.outputs)

    def check(self, plans: list[Any], operation: str, dtype: str, op: str, count: int, shift: int, mode: str) -> None:
        """shift: bytes between the beginning of a buffer and the values. mode: "out" or "in" place, or in a "graph"."""
        group, ranks, gathers = self.group, range(self.group.count), operation == "all_gather"
        values = [bytes_of(dtype, count, 1000 * count + rank) for rank in ranks]
        piece = values[0].size
        whole = piece * (group.count if gathers else 1)
        wanted = [buffer.part(0, whole) for buffer in self.wanted]
        results = [buffer.part(shift, whole) for buffer in self.outputs]
        for rank in ranks:
            self.outputs[rank].fill(0xEE)
            self.inputs[rank].part(0, piece).write(values[rank])
        call("cuCtxSynchronize")  # copies from pageable memory may return early, and the streams do not wait for them
        for rank in ranks:
            options: dict[str, Any] = {} if gathers else {"op": op}
            run = getattr(group.comms[rank], operation)
            own = self.inputs[rank].part(0, piece)
            run(own, wanted[rank], dtype=dtype, codec="raw", stream=group.streams[rank], **options)
        group.synchronize()
        sources = [buffer.part(shift, piece) for buffer in self.inputs]
        if mode == "in":
            sources = [results[rank].part(rank * piece if gathers else 0, piece) for rank in ranks]
        for rank in ranks:
            sources[rank].write(values[rank])
        call("cuCtxSynchronize")
        if mode == "graph":
            graphs = []
            for rank in ranks:
                with group.streams[rank].capture() as graph:
                    for _ in range(3):
                        plans[rank](sources[rank], results[rank], stream=group.streams[rank], dtype=dtype)
                graphs.append(graph)
            for _ in range(5):
                for graph, stream in zip(graphs, group.streams, strict=True):
                    graph.launch(stream)
        else:
            for rank in ranks:
                plans[rank](sources[rank], results[rank], stream=group.streams[rank], dtype=dtype)
        finish(group)
        for rank in ranks:
            np.testing.assert_array_equal(
                results[rank].read(), wanted[rank].read(), f"{count}, {shift}, {mode}, {rank}"
            )


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[int, World]]:
    from narrowcast._native.cuda_driver import on_device

    with on_device(0), sharing(2) as two, sharing(4) as four:
        yield {2: World(two), 4: World(four)}


CASES = [(ranks, *kind) for ranks in (2, 4) for kind in dict.fromkeys(kinds(ranks))]


@pytest.mark.parametrize(("ranks", "name", "codec", "dtype", "op"), CASES)
def test_plans_have_the_bits_of_the_operations(worlds, ranks, name, codec, dtype, op):
    world, size = worlds[ranks], narrowcast.types.value_type(dtype).bytes
    document = plan_forms.document_of(name, ranks, codec)
    plans = world.group.load(name, codec, dtype, op)
    for count, shift, mode in (
        (1, 0, "out"),
        (1000, 0, "out"),
        (4096 // size * 24, 0, "in"),
        (70_001, 0, "out"),
        (70_001, size, "in"),
        (300_000 // size, 0, "graph"),
        (1_000_003 // size, size, "out"),
    ):
        world.check(plans, document["operation"], dtype, op, count, shift, mode)
    world.group.close_plans(plans)


@pytest.mark.parametrize("count", [1000, 1_000_000])
def test_ranks_that_wait_in_a_generated_kernel_end_when_another_one_aborts(count):
    with sharing(2) as group:
        plans = group.load("two_shot", "raw", "bfloat16", "sum")
        buffers = [DeviceBuffer(2 * count).fill(0) for _ in range(2)]
        plans[1](buffers[1], buffers[1], stream=group.streams[1], dtype="bfloat16")
        begin = time.monotonic()
        group.comms[0].abort()
        group.synchronize()
        assert time.monotonic() - begin < 5
        with pytest.raises(narrowcast.NarrowcastError):
            plans[1](buffers[1], buffers[1], stream=group.streams[1], dtype="bfloat16")
