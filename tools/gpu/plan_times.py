"""Measurements of plans.py: times of generated kernels beside those of the hand-written ones.

The hand-written kernel is the one that the library chooses for the call. If it has another algorithm than the plan, and
there is a hand-written kernel with the plan's algorithm, that one is measured, too, beside the plan.

Times depend on where memory is: the buffers, those of the communicator, the code, and the graphs. So kernels are
compared in turns, on the same buffers and communicator, with new graphs in each turn. A process measures one placement;
plans.py runs several.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph_times import elsewhere, microseconds, warm_up
from plan_forms import document_of, measured_op
from plan_ranks import Ranks

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
REPLAYS, TURNS = 4, 5
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


def ranks_with_path(ranks: int, path: str) -> Ranks:
    os.environ["NARROWCAST_PATH"] = path
    try:
        return Ranks(ranks)
    finally:
        del os.environ["NARROWCAST_PATH"]


def medians(calls: dict[str, tuple[Ranks, Callable[[int], None]]]) -> dict[str, float]:
    """Microseconds of calls that take turns, the first one last in every second turn."""
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    for turn in range(TURNS):
        for kind in list(calls) if turn % 2 == 0 else reversed(calls):
            group, call = calls[kind]
            times[kind].append(microseconds(group.streams, call, REPLAYS))
    return {kind: round(statistics.median(of_kind), 3) for kind, of_kind in times.items()}


def measure(ranks: int, cells: Cells) -> dict[str, Any]:
    """With memory in one place: by plan and codec the milliseconds of loading and, by bytes, microseconds of calls."""
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer

    found: dict[str, dict[str, Any]] = {}
    taken = [elsewhere()]
    group = Ranks(ranks)
    forced = {
        key: ranks_with_path(ranks, path)
        for key, (path, _) in SAME_ALGORITHM.items()
        if key in itertools.product(cells.plans, cells.codecs)
    }
    values = samples.sample("weights", "bfloat16").view("uint8")
    most = max(cells.sizes)
    taken.append(elsewhere())
    sent = [DeviceBuffer(most).write_tiled(values) for _ in range(ranks)]
    received = [DeviceBuffer(most) for _ in range(ranks)]

    def call_of(
        of: Ranks, operation: str, codec: str, whole: int, plans: list[Any] | None = None, *, in_place: bool = False
    ) -> tuple[Ranks, Callable[[int], None]]:
        part = whole // ranks if operation == "all_gather" else whole

        def call(rank: int) -> None:
            source, target = sent[rank].part(0, part), received[rank].part(0, whole)
            if in_place:
                target = sent[rank].part(0, whole)
                source = target.part(rank * part if operation == "all_gather" else 0, part)
            if plans is None:
                run = getattr(of.comms[rank], operation)
                run(source, target, codec=f"{codec}!", dtype="bfloat16", stream=of.streams[rank])
            else:
                plans[rank](source, target, dtype="bfloat16", stream=of.streams[rank])

        return of, call

    warm_up(group.streams, call_of(group, "all_reduce", "raw", min(cells.sizes))[1])
    for name, codec in itertools.product(cells.plans, cells.codecs):
        document = document_of(name, ranks, codec)
        operation, in_place = document["operation"], document.get("in_place") == "yes"
        op = measured_op(name, ranks, codec)
        row = found.setdefault(f"{Path(name).name} {codec}", {})
        taken.append(elsewhere())
        begin = time.monotonic()
        loaded = group.load(name, codec, "bfloat16", op)
        row["load_ms"] = round((time.monotonic() - begin) * 1e3, 1)
        same = forced.get((name, codec))
        beside_same = same.load(name, codec, "bfloat16", op) if same else []
        for whole in cells.sizes:
            if name == "one_shot" and whole > MIB:
                continue
            calls = {
                "builtin": call_of(group, operation, codec, whole),
                "generated": call_of(group, operation, codec, whole, loaded, in_place=in_place),
            }
            if same:
                chosen, other = (
                    one.comms[0].explain(operation, whole // 2, dtype="bfloat16", codec=f"{codec}!").plan
                    for one in (group, same)
                )
                algorithm = SAME_ALGORITHM[name, codec][1]
                if chosen != algorithm == other:
                    calls["same_algorithm"] = call_of(same, operation, codec, whole)
                    calls["beside_it"] = call_of(same, operation, codec, whole, beside_same)
            row[str(whole)] = medians(calls)
        group.close_plans(loaded)
        if same:
            same.close_plans(beside_same)
    for one in (group, *forced.values()):
        one.close()
    return found


def summary(placements: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the placements, and the least, median and greatest ratio of a plan to the hand-written kernel."""
    found: dict[str, Any] = {}
    for name, row in placements[0].items():
        rows = [one[name] for one in placements]
        found[name] = {"load_ms": statistics.median(one["load_ms"] for one in rows)}
        pairs = [("generated", "builtin"), ("beside_it", "same_algorithm")]
        for size in (key for key in row if key not in found[name]):
            cells = [one[size] for one in rows]
            summed = {kind: round(statistics.median(cell[kind] for cell in cells), 2) for kind in cells[0]}
            summed["ratios"] = {}
            for kind, other in pairs:
                if kind not in cells[0]:
                    continue
                ratios = [cell[kind] / cell[other] for cell in cells]
                summed["ratios"][kind] = [round(of(ratios), 3) for of in (min, statistics.median, max)]
            found[name][size] = summed
    return found
