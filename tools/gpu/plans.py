"""Measures generated kernels of plans, between ranks that share one GPU.

    plans.py [--ranks N]... [--plan NAME]... [--codec CODEC]... [--bytes N]... [--placements N] >FILE

The library is NARROWCAST_LIBRARY. Hand-written kernels and generated ones run in turns, on the same memory, in CUDA
graphs: "builtin" is what the library chooses for the call, "same_algorithm" the hand-written kernel with the plan's
algorithm, if that is another one, and "beside_it" the plan on that kernel's communicator. Results are medians over
several processes, in each of which memory is elsewhere, because times depend on its place, and the least, median and
greatest ratio of a plan to the hand-written kernel. Data travels through the GPU's L2 cache and not over NVLink. --plan
names the plans, instead of those of hand-written kernels; plan_forms.py says how. --codec and --bytes restrict
measurements to some cells.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from plan_forms import known, measured_op, text_of
from plan_times import CODECS, MEASURED, SIZES, Cells, measure, summary
from provenance import provenance

SMS = 128
ARCHITECTURE = 90


def compile_one(job: tuple[str, int, str, str, str]) -> float:
    """Seconds."""
    from narrowcast._native.plan import NativePlan
    from narrowcast.types import reduction_number, value_type

    name, ranks, codec, dtype, op = job
    text = text_of(name, ranks, codec)
    report = NativePlan.read(text).compile(value_type(dtype).number, reduction_number(op), ARCHITECTURE)
    return float(json.loads(report)["seconds"])


def compile_all(ranks: list[int], cells: Cells) -> dict[str, Any]:
    jobs = [
        (name, n, codec, "bfloat16", measured_op(name, n, codec))
        for n in ranks
        for name in cells.plans
        for codec in cells.codecs
    ]
    processes = os.cpu_count()
    with ProcessPoolExecutor(processes) as pool:
        seconds = list(pool.map(compile_one, dict.fromkeys(jobs)))
    return {
        "kinds": len(seconds),
        "median": statistics.median(seconds),
        "max": max(seconds),
        "processes": processes,
    }


def measured(ranks: int, cells: Cells, placements: int) -> dict[str, Any]:
    chosen = {"plan": cells.plans, "codec": cells.codecs, "bytes": cells.sizes}
    options = [f"--{name}={value}" for name, values in chosen.items() for value in values]
    found = []
    for _ in range(placements):
        own = {
            "NARROWCAST_MAX_CTAS": str(SMS // ranks),  # the kernels of all ranks run concurrently
            "CUDA_DEVICE_MAX_CONNECTIONS": "32",
            "CUDA_MODULE_LOADING": "EAGER",
        }
        command = [sys.executable, __file__, "--measure-ranks", str(ranks), *options]
        done = subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, timeout=280, check=False)
        if done.returncode != 0:
            return {"ranks": ranks, "exit status": done.returncode}
        found.append(json.loads(done.stdout))
    return {"ranks": ranks, "placements": placements, "microseconds": summary(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--plan", action="append", type=known, metavar="NAME")
    parser.add_argument("--codec", action="append", choices=CODECS)
    parser.add_argument("--bytes", type=int, action="append")
    parser.add_argument("--placements", type=int, default=5)
    parser.add_argument("--measure-ranks", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cells = Cells(tuple(options.plan or MEASURED), tuple(options.codec or CODECS), tuple(options.bytes or SIZES))
    if options.measure_ranks:
        from narrowcast._native.cuda_driver import on_device

        with on_device(0):
            print(json.dumps(measure(options.measure_ranks, cells)))
        return
    counts = options.ranks or [2, 4]
    result: dict[str, Any] = provenance()
    result["compile_seconds"] = compile_all(counts, cells)
    result["runs"] = [measured(n, cells, options.placements) for n in counts]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
