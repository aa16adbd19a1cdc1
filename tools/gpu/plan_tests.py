"""Tests of plans.py: the results of generated kernels have the bits of the operations."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from plan_forms import document_of, form_and_base
from plan_ranks import Ranks
from sample_plans import PLANS

MAX_TEST_BYTES = 6 << 20
DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
)

# Of plans of files, which may round in every step.
FILE_KINDS = (("raw", "int32", "sum"), ("window", "bfloat16", "max"))


def kinds(ranks: int, plans: Iterable[str] = PLANS) -> list[tuple[str, str, str, str]]:
    """Plan, codec, dtype and reduction of each kind of call that is tested."""
    sample_kinds = list(dict.fromkeys(_kinds(ranks)))
    found = []
    for name in plans:
        _, base = form_and_base(name)
        own = [kind[1:] for kind in sample_kinds if kind[0] == base]
        found += [(name, *kind) for kind in own or FILE_KINDS]
    return found


def _kinds(ranks: int) -> Iterator[tuple[str, str, str, str]]:
    for dtype in DTYPES if ranks == 2 else ("bfloat16", "float64", "int8"):
        for codec in ("raw", "window"):
            yield "two_shot", codec, dtype, "sum"
        yield "all_gather", "window", dtype, "sum"
        yield (
            "one_shot",
            "raw",
            dtype,
            {
                "int8": "max",
                "float16": "avg",
                "float64": "min",
                "int32": "avg",
                "bfloat16": "prod",
                "float8_e4m3": "avg",
            }.get(dtype, "sum"),
        )
    for name in ("after", "barrier", "pairs", "packets_in_scratch", "puts_in_scratch", "put_all_gather"):
        yield name, "raw", "bfloat16", "sum"
    yield "packets_in_scratch", "window", "float64", "avg"
    yield "packets_in_scratch", "window", "bfloat16", "sum"
    yield "after", "window", "bfloat16", "sum"
    for codec in ("raw", "window"):
        for name in ("ring", "tree"):
            yield name, codec, "int32", "sum"
            yield name, codec, "bfloat16", "max"
        yield "all_gather", "raw", "bfloat16", "sum"


def random_values(dtype: str, count: int, seed: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(seed)
    if dtype in ("float16", "float32", "float64"):
        return rng.standard_normal(count).astype(dtype).view(np.uint8)
    if dtype == "bfloat16":
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    size = {"int8": 1, "uint8": 1, "float8_e4m3": 1, "float8_e5m2": 1}.get(dtype, 4 if "32" in dtype else 8)
    return rng.integers(0, 120 if size == 1 else 256, count * size, dtype=np.uint8)


class Tests:
    """Runs plans, and compares their results with those of the operations."""

    def __init__(self, ranks: int) -> None:
        from narrowcast._native.cuda_driver import DeviceBuffer

        self.ranks = ranks
        self.inputs, self.expected, self.outputs = (
            [DeviceBuffer(MAX_TEST_BYTES) for _ in range(ranks)] for _ in range(3)
        )
        self.start()

    def start(self) -> None:
        self.group = Ranks(self.ranks, 4)
        self.group.register(self.inputs)
        self.group.register(self.outputs)

    def check(self, name: str, codec: str, dtype: str, op: str) -> Iterator[str]:
        """Yields the cases, and after each an error or nothing."""
        size = len(random_values(dtype, 1, 0))
        plans = self.group.load(name, codec, dtype, op)
        document = document_of(name, self.ranks, codec)
        in_place = document.get("in_place", "either")
        for count, shift, mode in (
            (1, 0, "out"),
            (1000, 0, "out"),
            (4096 // size * 24, 0, "in"),
            (70_001, 0, "out"),
            (70_001, size, "in"),
            (300_000 // size, 0, "graph"),
            (1_000_003 // size, size, "out"),
        ):
            mode = {"yes": "in", "no": mode.replace("in", "out")}.get(in_place, mode)
            yield f"{self.ranks} ranks, {name} {codec} {dtype} {op}, {count} values, shift {shift}, {mode}"
            yield self.run(plans, document["operation"], dtype, op, (count, size, shift, mode))
        self.group.close_plans(plans)

    def run(self, plans: list[Any], operation: str, dtype: str, op: str, case: tuple[int, int, int, str]) -> str:
        from narrowcast._native.cuda_driver import call

        count, size, shift, mode = case
        group, gathers = self.group, operation == "all_gather"
        piece, whole = count * size, count * size * (self.ranks if gathers else 1)
        sources, results, wanted = [], [], []
        for rank in range(self.ranks):
            values = random_values(dtype, count, 1000 * count + rank)
            self.outputs[rank].fill(0xEE)
            wanted.append(self.expected[rank].part(0, whole))
            results.append(self.outputs[rank].part(shift, whole))
            self.inputs[rank].part(0, piece).write(values)
        call("cuCtxSynchronize")  # copies from pageable memory may return early, and the streams do not wait for them
        for rank in range(self.ranks):
            options: dict[str, Any] = {} if gathers else {"op": op}
            run = getattr(group.comms[rank], operation)
            own = self.inputs[rank].part(0, piece)
            run(own, wanted[rank], dtype=dtype, codec="raw", stream=group.streams[rank], **options)
            if mode == "in":
                sources.append(results[rank].part(rank * piece, piece) if gathers else results[rank])
        group.synchronize()
        for rank in range(self.ranks):
            values = random_values(dtype, count, 1000 * count + rank)
            if mode != "in":
                sources.append(self.inputs[rank].part(shift, piece))
            sources[rank].write(values)
        call("cuCtxSynchronize")
        calls = [(plans[r], sources[r], results[r], group.streams[r]) for r in range(self.ranks)]
        if mode == "graph":
            graphs = []
            for plan, source, result, stream in calls:
                with stream.capture() as graph:
                    for _ in range(3):
                        plan(source, result, stream=stream, dtype=dtype)
                graphs.append(graph)
            for _ in range(5):
                for graph, stream in zip(graphs, group.streams, strict=True):
                    graph.launch(stream)
        else:
            for plan, source, result, stream in calls:
                plan(source, result, stream=stream, dtype=dtype)
        group.synchronize()
        for rank in range(self.ranks):
            if error := group.comms[rank].async_error():
                raise error
        errors = [difference(r, results[r].read(), wanted[r].read(), size) for r in range(self.ranks)]
        return "; ".join(filter(None, errors))


def difference(rank: int, result: Any, wanted: Any, size: int) -> str:
    differing = (result != wanted).reshape(-1, size).any(axis=1).nonzero()[0]
    if not differing.size:
        return ""
    first, last = differing[0], differing[-1]
    at = slice(first * size, (first + 1) * size)
    return (
        f"rank {rank}: {differing.size} values differ, from {first} to {last}; the first is "
        f"{result[at].tobytes().hex()} and not {wanted[at].tobytes().hex()}"
    )


def test_some(ranks: int, tested: list[tuple[str, str, str, str]]) -> None:
    """Prints a line of JSON for each kind of plan. Ends after an exception, which may have damaged the context."""
    tests = Tests(ranks)
    for settings in tested:
        failures, checked, case = [], 0, " ".join(settings)
        begin = time.monotonic()
        try:
            results = tests.check(*settings)
            for case in results:
                error = next(results)
                checked += 1
                if error:
                    failures.append(f"{case}: {error}")
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
            print(json.dumps({"cases": checked, "failures": failures}), flush=True)
            os._exit(1)  # without waiting for kernels
        print(json.dumps({"cases": checked, "failures": failures}), flush=True)
        print(f"{' '.join(settings)}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def test_abort(ranks: int) -> list[str]:
    """Ranks that wait in a generated kernel end when another one aborts."""
    import narrowcast
    from narrowcast._native.cuda_driver import DeviceBuffer

    failures = []
    for count in (1000, 1_000_000):
        group = Ranks(ranks, 60)
        plans = group.load("two_shot", "raw", "bfloat16", "sum")
        buffers = [DeviceBuffer(2 * count).fill(0) for _ in range(ranks)]
        for rank in range(1, ranks):
            plans[rank](buffers[rank], buffers[rank], stream=group.streams[rank], dtype="bfloat16")
        begin = time.monotonic()
        group.comms[0].abort()
        group.synchronize()
        if time.monotonic() - begin > 5:
            failures.append(f"abort of {count} values took {time.monotonic() - begin:.1f} s")
        try:
            plans[1](buffers[1], buffers[1], stream=group.streams[1], dtype="bfloat16")
            failures.append("a call after an abort did not fail")
        except narrowcast.NarrowcastError:
            pass
        group.close()
    return failures
