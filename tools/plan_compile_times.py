"""Measures how long the kernels of plans take to compile, each plan in a new process with an empty cache.

    plan_compile_times.py [--ranks N]... [--plan NAME]... [--codec CODEC]... [-o FILE]

Needs NVRTC but no GPU. `cold_seconds` includes loading NVRTC, and the kernels of a plan are compiled at the same time.
Other work on the machine makes it longer, but hardly the CPU time of each kernel.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

from sample_plans import PLANS

MEASURED = ("all_gather", "one_shot", "two_shot", "ring", "after", "puts_in_scratch")
CODECS = ("raw", "window")
ARCHITECTURE = 90
REPEATED = 5


def compile_one(text: str) -> dict[str, Any]:
    from narrowcast._native.plan import NativePlan
    from narrowcast.types import reduction_number, value_type

    report = NativePlan.read(text).compile(value_type("bfloat16").number, reduction_number("sum"), ARCHITECTURE)
    return dict(json.loads(report))


def compile_in_new_process(text: str) -> dict[str, Any]:
    """NVRTC has a cache of its own, which is off."""
    from narrowcast._native.settings import environment_of

    with (
        tempfile.TemporaryDirectory() as folder,
        environment_of(NARROWCAST_PLAN_CACHE=folder, CUDA_CACHE_DISABLE="1"),
        ProcessPoolExecutor(1) as pool,
    ):
        cold, *warm = pool.map(compile_one, [text] * REPEATED)
    kernels = [{key: one[key] for key in ("kernel", "bytes", "cpu_seconds")} for one in cold["kernels"] if one["bytes"]]
    return {
        "cold_seconds": round(cold["seconds"], 2),
        "warm_milliseconds": round(1e3 * statistics.median(one["seconds"] for one in warm), 2),
        "kernels": kernels,
    }


def main() -> None:
    from narrowcast.cli._provenance import commit, processor

    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ranks", type=int, action="append")
    options.add_argument("--plan", action="append", choices=list(PLANS))
    options.add_argument("--codec", action="append", choices=CODECS)
    options.add_argument("-o", "--output", type=Path)
    chosen = options.parse_args()
    plans = {
        f"{name} {codec}, {ranks} ranks": PLANS[name][1](ranks, codec)
        for ranks, name, codec in itertools.product(
            chosen.ranks or (4, 8), chosen.plan or MEASURED, chosen.codec or CODECS
        )
    }
    report = {
        "machine": processor(),
        "cpus": os.cpu_count(),
        "command": " ".join(["tools/plan_compile_times.py", *sys.argv[1:]]),
        "commit": commit(),
        "plans": {name: compile_in_new_process(text) for name, text in plans.items()},
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if chosen.output:
        chosen.output.write_text(text)


if __name__ == "__main__":
    main()
