"""Measures how the place of memory changes the times of plans and of hand-written kernels.

    plan_placement.py [--processes N] [--case RANKS:PLAN:BYTES]... >FILE

Ranks share one GPU, as in plans.py. Each process creates several groups of communicators, each with memory of its own,
and measures raw calls of all of them in turns, in CUDA graphs: of the plan, and twice of the hand-written kernel with
the plan's algorithm. The difference between the latter two is noise, that between groups is due to their memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from gather_results import commit, machine
from plan_ranks import Ranks
from plan_times import CALLS, SAME_ALGORITHM, ranks_with_path
from sample_plans import PLANS

SMS = 128
GROUPS, TURNS, REPLAYS = 3, 15, 4
CASES = ("2:one_shot:1024", "4:two_shot:1048576")


def graphs_of(group: Ranks, call: Callable[[int], None]) -> list[Any]:
    for rank in range(group.count):
        call(rank)
    group.synchronize()
    graphs = []
    for rank, stream in enumerate(group.streams):
        with stream.capture() as graph:
            for _ in range(CALLS):
                call(rank)
        graphs.append(graph)
    return graphs


def microseconds(group: Ranks, graphs: list[Any]) -> float:
    from narrowcast._native.cuda_driver import Event

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
    return min(slowest) / CALLS * 1e6


def measure(ranks: int, name: str, size: int) -> dict[str, Any]:
    """Medians of the turns."""
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer

    groups = [ranks_with_path(ranks, SAME_ALGORITHM[name, "raw"][0]) for _ in range(GROUPS)]
    values = samples.sample("weights", "bfloat16").view("uint8")
    sent = [DeviceBuffer(size).write_tiled(values) for _ in range(ranks)]
    received = [DeviceBuffer(size) for _ in range(ranks)]
    loads, cells = [], {}
    for number, group in enumerate(groups):
        begin = time.monotonic()
        plans = group.load(name, "raw", "bfloat16", "sum")
        loads.append(round((time.monotonic() - begin) * 1e3, 2))

        def hand_written(rank: int, group: Ranks = group) -> None:
            run, stream = group.comms[rank].all_reduce, group.streams[rank]
            run(sent[rank], received[rank], codec="raw", dtype="bfloat16", stream=stream)

        def plan(rank: int, group: Ranks = group, plans: list[Any] = plans) -> None:
            plans[rank](sent[rank], received[rank], dtype="bfloat16", stream=group.streams[rank])

        calls = {"hand_written": hand_written, "plan": plan, "hand_written_again": hand_written}
        for kind, call in calls.items():
            cells[number, kind] = (group, graphs_of(group, call))
    times: dict[tuple[int, str], list[float]] = {cell: [] for cell in cells}
    for turn in range(TURNS):
        for cell in list(cells) if turn % 2 == 0 else reversed(cells):
            times[cell].append(microseconds(*cells[cell]))
    found: list[dict[str, float]] = [{} for _ in groups]
    for (number, kind), of_cell in times.items():
        found[number][kind] = round(statistics.median(of_cell), 3)
    return {"load_milliseconds": loads, "groups": found}


def in_process(case: str) -> Any:
    own = {
        "NARROWCAST_MAX_CTAS": str(SMS // int(case.split(":")[0])),  # the kernels of all ranks run concurrently
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "CUDA_MODULE_LOADING": "EAGER",
    }
    command = [sys.executable, __file__, "--measure", case]
    done = subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--case", action="append")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        from narrowcast._native.cuda_driver import on_device

        ranks, name, size = options.measure.split(":")
        assert PLANS[name][0] == "all_reduce"
        with on_device(0):
            print(json.dumps(measure(int(ranks), name, int(size))))
        return
    cases = options.case or list(CASES)
    result: dict[str, Any] = {
        "machine": machine()[0],
        "command": " ".join(["tools/gpu/plan_placement.py", *sys.argv[1:]]),
        "commit": commit(),
        "microseconds": {case: [] for case in cases},
    }
    for _ in range(options.processes):
        for case in cases:
            result["microseconds"][case].append(in_process(case))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
