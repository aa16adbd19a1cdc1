"""Measurements of plans.py: times of generated kernels beside those of the hand-written ones.

The hand-written kernel is the one that the library chooses for the call. If it has another algorithm than the plan, and
there is a hand-written kernel with the plan's algorithm, that one is measured, too.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plan_forms import FORMS, document_of, groups_of, measured_op
from plan_ranks import Ranks

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
CALLS, REPLAYS, TURNS = 20, 4, 8
MEASURED = ("two_shot", "one_shot", "all_gather")
CODECS = ("raw", "window")


#: The settings with which calls use the hand-written kernel that has the algorithm of a plan, by plan and codec, and
#: the name of that algorithm.
SAME_ALGORITHM = {
    ("two_shot", "raw"): ("packets:two_shot", "two_shot"),
    ("one_shot", "raw"): ("packets:one_shot", "one_shot"),
}


@dataclass(frozen=True)
class Cells:
    """Which plans are measured, with which codecs and sizes in bytes."""

    plans: tuple[str, ...] = MEASURED
    codecs: tuple[str, ...] = CODECS
    sizes: tuple[int, ...] = SIZES
    scheduled: bool = False  # also in their scheduled forms

    def forms_of(self, plan: str) -> dict[str, str]:
        """Names of the plan in the forms that are measured, by what rows call these."""
        forms = {form: f"{form} {plan}" for form in FORMS} if self.scheduled else {}
        return {"generated": plan, **forms}


def ranks_with_path(ranks: int, path: str) -> Ranks:
    os.environ["NARROWCAST_PATH"] = path
    try:
        return Ranks(ranks)
    finally:
        del os.environ["NARROWCAST_PATH"]


def measure(ranks: int, cells: Cells) -> dict[str, Any]:
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer, Event

    found: dict[str, dict[str, dict[str, float]]] = {}
    group = Ranks(ranks)
    forced = {key: ranks_with_path(ranks, path) for key, (path, _) in SAME_ALGORITHM.items()}
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

    def call_of(
        operation: str,
        codec: str,
        whole: int,
        plans: list[Any] | None = None,
        *,
        comms: Any = None,
        in_place: bool = False,
    ) -> Callable[[int], None]:
        part = whole // ranks if operation == "all_gather" else whole

        def call(rank: int) -> None:
            source, target = sent[rank].part(0, part), received[rank].part(0, whole)
            if in_place:
                target = sent[rank].part(0, whole)
                source = target.part(rank * part if operation == "all_gather" else 0, part)
            if plans is None:
                run = getattr((comms or group.comms)[rank], operation)
                run(source, target, codec=codec, dtype="bfloat16", stream=group.streams[rank])
            else:
                plans[rank](source, target, dtype="bfloat16", stream=group.streams[rank])

        return call

    for name, codec in itertools.product(cells.plans, cells.codecs):
        document = document_of(name, ranks, codec)
        operation, in_place = document["operation"], document.get("in_place") == "yes"
        row = found.setdefault(f"{Path(name).name} {codec}", {"load_ms": {}, "groups": {}})
        loaded = {}
        for form, full_name in cells.forms_of(name).items():
            begin = time.monotonic()
            loaded[form] = group.load(full_name, codec, "bfloat16", measured_op(name, ranks, codec))
            row["load_ms"][form] = round((time.monotonic() - begin) * 1e3, 1)
            row["groups"][form] = groups_of(full_name, ranks, codec)
        for whole in cells.sizes:
            if name == "one_shot" and whole > MIB:
                continue
            calls = {
                "builtin": call_of(operation, codec, whole),
                **{form: call_of(operation, codec, whole, plans, in_place=in_place) for form, plans in loaded.items()},
            }
            if same := forced.get((name, codec)):
                chosen, other = (
                    one.comms[0].explain(operation, whole // 2, dtype="bfloat16", codec=codec).plan
                    for one in (group, same)
                )
                algorithm = SAME_ALGORITHM[name, codec][1]
                if chosen != algorithm == other:
                    calls["same_algorithm"] = call_of(operation, codec, whole, comms=same.comms)
            times: dict[str, list[float]] = {kind: [] for kind in calls}
            for _ in range(TURNS):
                for kind, call in calls.items():
                    times[kind].append(time_of(call))
            row[str(whole)] = {kind: round(min(of_kind), 2) for kind, of_kind in times.items()}
            print(name, codec, whole, row[str(whole)], file=sys.stderr, flush=True)
        for plans in loaded.values():
            group.close_plans(plans)
    for one in (group, *forced.values()):
        one.close()
    return {"ranks": ranks, "microseconds": found}
