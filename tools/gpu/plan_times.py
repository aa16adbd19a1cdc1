"""Measurements of plans.py: times of generated kernels beside those of the hand-written ones."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plan_ranks import Ranks
from sample_plans import PLANS

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
CALLS, REPLAYS, TURNS = 20, 4, 8
MEASURED = ("two_shot", "one_shot", "all_gather")
CODECS = ("raw", "window")


@dataclass(frozen=True)
class Cells:
    """Which plans are measured, with which codecs and sizes in bytes."""

    plans: tuple[str, ...] = MEASURED
    codecs: tuple[str, ...] = CODECS
    sizes: tuple[int, ...] = SIZES


def measure(ranks: int, cells: Cells) -> dict[str, Any]:
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer, Event

    found: dict[str, dict[str, dict[str, float]]] = {}
    group = Ranks(ranks)
    values = samples.sample("weights", "bfloat16").view("uint8")
    most = max(cells.sizes)
    sent = [DeviceBuffer(most).write_tiled(values) for _ in range(ranks)]
    received = [DeviceBuffer(most) for _ in range(ranks)]

    def time_of(call: Callable[[int], None]) -> float:
        graphs = []
        for rank in range(ranks):
            call(rank)
        group.synchronize()
        for rank, stream in enumerate(group.streams):
            with stream.capture() as graph:
                for _ in range(CALLS):
                    call(rank)
            graphs.append(graph)
        slowest = []
        for _ in range(REPLAYS):
            events = [(Event(), Event()) for _ in graphs]
            for graph, stream, (begin, end) in zip(graphs, group.streams, events, strict=True):
                graph.launch(stream)
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
            group.synchronize()
            slowest.append(max(end.seconds_since(begin) for begin, end in events))
        for graph in graphs:
            graph.close()
        return min(slowest) / CALLS * 1e6

    def call_of(operation: str, codec: str, whole: int, plans: list[Any] | None) -> Callable[[int], None]:
        part = whole // ranks if operation == "all_gather" else whole

        def call(rank: int) -> None:
            source, target = sent[rank].part(0, part), received[rank].part(0, whole)
            if plans is None:
                run = getattr(group.comms[rank], operation)
                run(source, target, codec=codec, dtype="bfloat16", stream=group.streams[rank])
            else:
                plans[rank](source, target, dtype="bfloat16", stream=group.streams[rank])

        return call

    for name, codec in itertools.product(cells.plans, cells.codecs):
        operation = PLANS[name][0]
        begin = time.monotonic()
        plans = group.load(name, codec, "bfloat16", "sum")
        loading = time.monotonic() - begin
        row = found.setdefault(f"{name} {codec}", {"load": {"milliseconds": round(loading * 1e3, 1)}})
        for whole in cells.sizes:
            if name == "one_shot" and whole > MIB:
                continue
            builtin = call_of(operation, codec, whole, None)
            generated = call_of(operation, codec, whole, plans)
            times: dict[str, list[float]] = {"builtin": [], "generated": []}
            for _ in range(TURNS):
                times["builtin"].append(time_of(builtin))
                times["generated"].append(time_of(generated))
            row[str(whole)] = {kind: round(min(of_kind), 2) for kind, of_kind in times.items()}
            print(name, codec, whole, row[str(whole)], file=sys.stderr, flush=True)
        group.close_plans(plans)
    group.close()
    return {"ranks": ranks, "microseconds": found}
