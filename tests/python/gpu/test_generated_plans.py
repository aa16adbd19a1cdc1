"""Plans run as generated kernels, between ranks that share a GPU: imported plans, and plans in a communicator's calls.

tools/gpu/plans.py tests all steps, value types and alignments.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from narrowcast._native.cuda_driver import DeviceBuffer, call
from narrowcast._plan import loading
from narrowcast.plan import BUILT_IN

TREE = Path(__file__).parents[3]
for folder in (TREE / "tools" / "gpu", TREE / "tests" / "python" / "plan"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
ranks_of_tools: Any = importlib.import_module("plan_ranks")
sample_plans: Any = importlib.import_module("sample_plans")
xml: Any = importlib.import_module("msccl_documents")
mscclpp: Any = importlib.import_module("mscclpp_documents")

Document = Callable[[], Any]
# The ranks' kernels must fit on the GPU at the same time.
MAX_CTAS = "32"
TIMEOUT_SECONDS = 10

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
    "json: get": mscclpp.all_reduce_get,
    "json: packets": mscclpp.all_reduce_packets,
    "json: packets, sent on": lambda: mscclpp.all_reduce_packets("recspkt"),
    "json: switch": mscclpp.all_reduce_switch,
    "json: switch, pipeline": lambda: mscclpp.all_reduce_switch(True),
    "json: earlier schema": mscclpp.earlier_all_reduce,
    "json: earlier schema, packets": mscclpp.earlier_all_reduce_packets,
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWCAST_MAX_CTAS", MAX_CTAS)


@contextmanager
def sharing(ranks: int) -> Iterator[Any]:
    group = ranks_of_tools.Ranks(ranks, TIMEOUT_SECONDS)
    try:
        yield group
    finally:
        group.close()


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
def test_imported_plans_have_the_results_of_the_operations(name):
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


def finish(group: Any) -> None:
    group.synchronize()
    for comm in group.comms:
        if error := comm.async_error():
            raise error


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
