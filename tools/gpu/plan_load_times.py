"""Measures how long ranks of one process that share a GPU take to load plans whose kernels are in the cache.

plan_load_times.py [--ranks N] [--json FILE]

The first process to run it compiles the kernels. A time is that of the slowest rank from the call of load_plan to its
return, and of all ranks together from the first call. The plans are loaded in the order of the results, twice each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from plan_ranks import Ranks
from provenance import provenance
from sample_plans import PLANS

MEASURED = ("two_shot", "one_shot", "all_gather", "ring", "puts_in_scratch")
SMS = 128


def load_times(count: int) -> dict[str, list[dict[str, float]]]:
    """Milliseconds by plan and codec."""
    found: dict[str, list[dict[str, float]]] = {}
    group = Ranks(count)
    for codec in ("raw", "window"):
        for name in MEASURED:
            text = PLANS[name][1](count, codec)

            def load(rank: int, text: str = text) -> tuple[Any, float, float]:
                begin = time.monotonic()
                plan = group.comms[rank].load_plan(text, "bfloat16")
                return plan, begin, time.monotonic()

            for _ in range(2):
                plans, begins, ends = zip(*group.together(load), strict=True)
                slowest = max(end - begin for begin, end in zip(begins, ends, strict=True))
                times = {"slowest_rank": slowest, "together": max(ends) - min(begins)}
                found.setdefault(f"{name} {codec}", []).append({k: round(1e3 * v, 2) for k, v in times.items()})
                group.close_plans(list(plans))
    group.close()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    os.environ.setdefault("NARROWCAST_MAX_CTAS", str(SMS // chosen.ranks))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    from narrowcast._native.cuda_driver import on_device

    with on_device(0):
        found = load_times(chosen.ranks)
    report = {
        **provenance(),
        "cpus": os.cpu_count(),
        "ranks": chosen.ranks,
        "milliseconds": found,
    }
    print(json.dumps(report, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
