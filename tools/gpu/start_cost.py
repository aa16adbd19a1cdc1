"""Measures what the preloaded drop-in costs programs that never call NCCL: their start time with and without it.

start_cost.py --json start_cost.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from narrowcast._dropin import preload

# The interpreter itself, because python3 may be a script that starts other programs first.
COMMANDS = ([sys.executable, "-c", "pass"], ["bash", "-c", ":"], ["git", "--version"])
LIMIT_MS = 1.0
# Must not be loaded before the first NCCL call.
LATE = ("libcuda.so", "libcudart", "libnarrowcast.so")


def milliseconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--times", type=int, default=50)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    drop_in = preload.drop_in()
    without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    preloaded = {**without, "LD_PRELOAD": str(drop_in)}
    faults, starts = [], []
    for command in COMMANDS:
        times: dict[str, list[float]] = {"without": [], "with": []}
        # In alternation, so that other activity on the machine affects both.
        for _ in range(chosen.times + 3):
            times["without"].append(milliseconds(command, without))
            times["with"].append(milliseconds(command, preloaded))
        # Other activity on the machine only adds time, so the lower quartile contains little of it.
        quartile = {name: statistics.quantiles(found[3:], n=4)[0] for name, found in times.items()}
        cost = quartile["with"] - quartile["without"]
        name = " ".join([Path(command[0]).name, *command[1:]])
        starts.append({"command": name, "milliseconds": quartile, "cost_milliseconds": cost})
        plain, loaded = quartile["without"], quartile["with"]
        print(f"   {name:20} {plain:.3f} ms, preloaded {loaded:.3f} ms: {cost:+.3f} ms")
        if cost >= LIMIT_MS:
            faults.append(f"{name} starts {cost:.3f} ms slower")
    command = [sys.executable, "-c", "print(open('/proc/self/maps').read())"]
    maps = subprocess.run(command, env=preloaded, capture_output=True, text=True, check=True).stdout
    if drop_in.name not in maps:
        faults.append(f"{drop_in.name} was not preloaded")
    faults += [f"{name} is loaded before any call" for name in LATE if name in maps]
    report = {"commands": starts, "times": chosen.times, "faults": faults}
    if chosen.json:
        chosen.json.write_text(json.dumps(report) + "\n")
    print(*(f"   FAILED: {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
