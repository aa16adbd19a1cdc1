"""Plans run as generated kernels, between ranks that share a GPU: imported and scheduled plans, and plans in a
communicator's calls.

test_plan_values.py tests all steps, value types and alignments.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np
import pytest
from conformance.plan_traffic import ChunkBlocks, Frames, Sent, traffic
from narrowcast._bench.operations import Call
from narrowcast._native.cuda_driver import DeviceBuffer, call
from narrowcast._plan import loading
from narrowcast.plan import BUILT_IN, build
from narrowcast.types import value_type
from plan.packet_documents import packets_in_loops, packets_relay
from shared_gpu import finish, plan_forms, sample_plans, sharing

from plan import msccl_documents as xml
from plan import mscclpp_documents as mscclpp

Document = Callable[[], Any]
BLOCK_BYTES = 4096
ANY_BYTES = 1 << 62

DOCUMENTS: dict[str, Document] = {
    "xml: ring, 2 ranks": lambda: xml.all_gather_ring(2),
    "xml: ring, 4 ranks": lambda: xml.all_gather_ring(4),
    "xml: ring with copies": lambda: xml.all_gather_ring(2, copies=True, in_place=False),
    "xml: ring out of place": lambda: xml.all_gather_ring(3, 2, in_place=False),
    "xml: pairs, 2 ranks": lambda: xml.all_reduce_pairs(2),
    "xml: pairs, 4 ranks": lambda: xml.all_reduce_pairs(4),
    "xml: pairs, LL": lambda: xml.all_reduce_pairs(2, "LL"),
    "xml: pairs, LL128": lambda: xml.all_reduce_pairs(4, "LL128"),
    "xml: scatter, 2 ranks": lambda: xml.reduce_scatter_pairs(2),
    "xml: scatter, 4 ranks": lambda: xml.reduce_scatter_pairs(4),
    "scheduled: tree": lambda: plan_forms.text_of("merged tree", 4, "raw"),
    "scheduled: instances of a tree, encoded": lambda: plan_forms.text_of("replicated tree", 4, "window"),
    "scheduled: pairs": lambda: plan_forms.text_of("merged pairs", 4, "raw"),
    "json: get": mscclpp.all_reduce_get,
    "json: packets": mscclpp.all_reduce_packets,
    "json: packets, sent on": lambda: mscclpp.all_reduce_packets("recspkt"),
    "json: switch": mscclpp.all_reduce_switch,
    "json: switch, pipeline": lambda: mscclpp.all_reduce_switch(True),
    "json: earlier schema": mscclpp.earlier_all_reduce,
    "json: earlier schema, packets": mscclpp.earlier_all_reduce_packets,
}


def expected(operation: str, values: list[np.ndarray], rank: int) -> np.ndarray:
    """Sums of int32 do not depend on the order."""
    if operation == "all_gather":
        return np.concatenate(values)
    total = np.sum(values, axis=0, dtype=np.int32)
    return total if operation == "all_reduce" else total.reshape(len(values), -1)[rank]


def places(operation: str, rank: int, ranks: int, count: int, in_place: bool, buffers: Any) -> tuple[Any, Any]:
    """The input and the output of a call on a rank. `count`: values that one rank sends another."""
    own, out = buffers
    sends, receives = 4 * count, 4 * count
    if operation == "all_gather":
        receives *= ranks
    elif operation == "reduce_scatter":
        sends *= ranks
    if not in_place:
        return own.part(0, sends), out.part(0, receives)
    source = out.part(4 * count * rank if operation == "all_gather" else 0, sends)
    return source, out.part(4 * count * rank if operation == "reduce_scatter" else 0, receives)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_imported_and_scheduled_plans_have_the_results_of_the_operations(name):
    document = DOCUMENTS[name]()
    plan = loading.read((document if isinstance(document, str) else json.dumps(document)).encode(), name)
    assert plan.verify().proved
    model, ranks = plan.model, len(plan.model.ranks)
    with sharing(ranks) as group:
        buffers = [(DeviceBuffer(4 << 20), DeviceBuffer(4 << 20)) for _ in range(ranks)]
        for each in zip(*buffers, strict=True):
            group.register(list(each))
        loaded = group.together(lambda rank: group.comms[rank].load_plan(plan, "int32"))
        modes = {"yes": [True], "no": [False]}.get(model.in_place, [False, True])
        for count in (8, 1000, 30_001, 200_000):
            for in_place in modes:
                random = np.random.default_rng(count)
                sent = count * (ranks if model.operation == "reduce_scatter" else 1)
                values = [random.integers(0, 1000, sent).astype(np.int32) for _ in range(ranks)]
                calls = [places(model.operation, r, ranks, count, in_place, buffers[r]) for r in range(ranks)]
                for (source, _), own, (_, out) in zip(calls, values, buffers, strict=True):
                    out.fill(0xEE)
                    source.write(own.view(np.uint8))
                call("cuCtxSynchronize")
                for rank, (source, target) in enumerate(calls):
                    loaded[rank](source, target, stream=group.streams[rank], dtype="int32")
                finish(group)
                for rank, (_, target) in enumerate(calls):
                    wanted = expected(model.operation, values, rank)
                    assert np.array_equal(target.read().view(np.int32), wanted), (count, in_place, rank)
        group.close_plans(loaded)


def built(name: str, ranks: int) -> Document:
    return lambda: build(name, "all_reduce", ranks, codec="window").json()


# Ranks, the document, and how many bytes of values a frame of the host backend has at most.
ENCODED_PACKETS: dict[str, tuple[int, Document, int]] = {
    "one shot, 2 ranks": (2, built("one_shot", 2), ANY_BYTES),
    "one shot, 4 ranks": (4, built("one_shot", 4), ANY_BYTES),
    "two shots, 3 ranks": (3, built("two_shot", 3), ANY_BYTES),
    "puts, messages and gets": (4, lambda: packets_relay("window"), ANY_BYTES),
    "loops": (2, lambda: packets_in_loops(8192, 4096, "window"), 4096),
    "loop and no loop": (2, lambda: packets_in_loops(0, 12288, "window"), 12288),
    "loops shorter than a block": (2, lambda: packets_in_loops(2048, 1024, "window"), 1024),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ENCODED_PACKETS)
def test_encoded_packets_are_the_blocks_of_the_frames_of_the_host_executor(name, dtype):
    ranks, document, frame_bytes = ENCODED_PACKETS[name]
    plan = loading.read(document().encode(), name)
    kind = value_type(dtype)
    blocks = ChunkBlocks("window" if frame_bytes >= BLOCK_BYTES else "raw", BLOCK_BYTES)
    frames = Frames("window", frame_bytes // kind.bytes)
    with sharing(ranks) as group, narrowcast.LocalRanks(ranks) as host:
        loaded = group.together(lambda rank: group.comms[rank].load_plan(plan, kind))
        on_host = group.together(lambda rank: host[rank].load_plan(plan, kind))
        for count in (1000, 30_001):  # one micro-batch on the host, or frames would end earlier
            values = [
                (np.random.default_rng([count, rank]).standard_normal(count) * 0.02).astype(dtype)
                for rank in range(ranks)
            ]
            results = [Call(plan.model.operation, kind, count, rank, ranks).recv_elems for rank in range(ranks)]
            found, sent = run_on_gpu(group, loaded, values, results)
            assert sent == traffic(plan.model, values.__getitem__, count, kind, blocks), count
            right, sent = run_on_host(group, list(host), on_host, values, results)
            assert sent == traffic(plan.model, values.__getitem__, count, kind, frames), count
            for rank in range(ranks):
                assert not results[rank] or np.array_equal(found[rank], right[rank]), (count, rank)
        group.close_plans(loaded)
        group.close_plans(on_host)


def run_on_gpu(
    group: Any, plans: list[Any], values: list[np.ndarray], results: list[int]
) -> tuple[list[np.ndarray], list[Sent]]:
    """Results of so many values, and what each rank sends."""
    sources = [DeviceBuffer(one.nbytes).write(one.view(np.uint8)) for one in values]
    outs = [DeviceBuffer(elems * values[0].itemsize) for elems in results]
    call("cuCtxSynchronize")
    before = [totals(comm) for comm in group.comms]
    for plan, source, out, stream in zip(plans, sources, outs, group.streams, strict=True):
        plan(source, out, stream=stream, dtype=values[0].dtype.name)
    finish(group)
    return [out.read().view(values[0].dtype) for out in outs], sent_since(before, group.comms)


def run_on_host(
    group: Any, comms: list[Any], plans: list[Any], values: list[np.ndarray], results: list[int]
) -> tuple[list[np.ndarray], list[Sent]]:
    outs = [np.zeros(elems, values[0].dtype) for elems in results]
    before = [totals(comm) for comm in comms]
    group.together(lambda rank: plans[rank](values[rank], outs[rank]))
    return outs, sent_since(before, comms)


def sent_since(before: list[tuple[int, int]], comms: list[Any]) -> list[Sent]:
    after = [totals(comm) for comm in comms]
    return [Sent(new[0] - old[0], new[1] - old[1]) for new, old in zip(after, before, strict=True)]


def totals(comm: Any) -> tuple[int, int]:
    counters = comm.counters()
    return counters.raw_bytes, counters.wire_bytes


@pytest.mark.parametrize("asks", [False, True])
def test_plans_of_packets_run_by_packets_where_the_operation_uses_blocks(asks):
    document = json.loads(sample_plans.two_shot(2, "raw"))
    for channel in document["channels"]:
        channel["packets"] = asks
    plan = loading.read(json.dumps(document).encode(), "two shots")
    count = 1 << 21  # 8 MiB: the packets of a call from one rank to another fit into 14 MiB
    with sharing(2) as group:
        assert group.comms[0].explain("all_reduce", count, dtype="int32", codec="raw").path == "blocks"
        loaded = group.together(lambda rank: group.comms[rank].load_plan(plan, "int32"))
        values = [np.random.default_rng(rank).integers(0, 1000, count).astype(np.int32) for rank in range(2)]
        found, sent = run_on_gpu(group, loaded, values, [count, count])
        assert all(np.array_equal(one, values[0] + values[1]) for one in found)
        for one in sent:
            assert one.raw_bytes == 4 * count
            assert one.wire_bytes == (one.raw_bytes // 15 * 16 if asks else one.raw_bytes)
        group.close_plans(loaded)


class Reduction:
    """An all-reduce of the ranks of a group, and its results."""

    count = 5000

    def __init__(self, group: Any) -> None:
        self.group = group
        self.outs = [DeviceBuffer(4 * self.count) for _ in group.comms]
        self.values = []
        for rank in range(group.count):
            values = np.random.default_rng(rank).standard_normal(self.count).astype(np.float32)
            self.values.append(DeviceBuffer(4 * self.count).write(values.view(np.uint8)))
        call("cuCtxSynchronize")

    def run(self) -> list[bytes]:
        for out in self.outs:
            out.fill(0xEE)
        call("cuCtxSynchronize")
        for rank, comm in enumerate(self.group.comms):
            stream = self.group.streams[rank]
            comm.all_reduce(self.values[rank], self.outs[rank], dtype="float32", codec="raw", stream=stream)
        finish(self.group)
        return [out.read().tobytes() for out in self.outs]

    def explain(self) -> Any:
        return self.group.comms[0].explain("all_reduce", self.count, dtype="float32", codec="raw")


def plans_of_ranks(ranks: int) -> dict[str, str]:
    """Documents by name."""
    return {
        name: json.dumps({**json.loads(sample_plans.PLANS[name][1](ranks, "raw")), "name": f"own {name}"})
        for name in ("two_shot", "one_shot")
    }


def test_calls_run_the_plans_that_were_added_and_those_that_a_selector_chooses():
    with sharing(2) as group:
        reduction = Reduction(group)
        built_in = reduction.run()
        documents = plans_of_ranks(2)

        def load(name: str) -> list[Any]:
            loaded = group.together(lambda rank: group.comms[rank].load_plan(documents[name], "float32"))
            for one in loaded:
                one.use(always=True)
            return loaded

        first = load("two_shot")
        said = reduction.explain()
        assert (said.plan, said.path) == ("own two_shot", "plan")
        assert reduction.run() == built_in
        second = load("one_shot")
        offered = []

        def last(_: Any, plans: Any) -> str:
            offered.append(tuple(plans))
            return plans[-1]

        for comm in group.comms:
            comm.choose_plans(last)
        assert reduction.explain().plan == "own one_shot"
        assert reduction.run() == built_in
        assert set(offered) == {("own two_shot", "own one_shot")}
        for comm in group.comms:
            comm.choose_plans(lambda _, plans: BUILT_IN)
        assert reduction.explain().path != "plan"
        assert reduction.run() == built_in
        group.close_plans(first)
        group.close_plans(second)
