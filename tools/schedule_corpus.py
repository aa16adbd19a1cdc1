"""Merges the groups of all plans in folders, for example the published ones of MSCCL, and says how idle they are left.

    schedule_corpus.py FOLDER... -o FILE [--bytes 256M] [--batches 1]

Plans that are not proved are left out. Every plan is simulated with one CTA for each of its groups, and scheduled so
that it takes no longer. FILE gets a line for each plan, with the groups before and after. Needs the library, not a GPU.

For calls of one micro-batch idle_bound.py says how idle a group must be in any plan with the same steps and rings that
takes no longer. If that is more than 22% of the time, no schedule can keep all groups busy for 78%.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from idle_bound import idle_bound
from narrowcast._native.plan import NativePlan
from narrowcast._plan import simulation
from narrowcast._plan.loading import read
from narrowcast.cli._sizes import parse_size
from narrowcast.errors import NarrowcastError
from verify_corpus import plans_below

ROOT = Path(__file__).parents[1]
MOST_IDLE = 0.22  # what ResCCL reports


def schedule(path: Path, nbytes: int, batches: int) -> dict[str, Any] | None:
    """The row of a file; None if its plan is not proved."""
    try:
        plan = read(path.read_bytes(), str(path))
        if not plan.verify().proved:
            return None
    except NarrowcastError:
        return None
    ranks = len(plan.model.ranks)
    start = time.perf_counter()
    lowered = NativePlan.read(plan.json()).lower()
    machine, piece_bytes = simulation.machine_text(None, ranks), simulation.piece_bytes(plan.model, nbytes)
    _, report = lowered.schedule(machine, piece_bytes=piece_bytes, ratio=1.0, batches=batches)
    seconds = round(time.perf_counter() - start, 2)
    bound = None
    if batches == 1:
        bound = idle_bound(json.loads(lowered.write()), machine, piece_bytes, report["before"]["microseconds"])
    return {"ranks": ranks, **report, "idle_bound": bound if bound is None else round(bound, 4), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE")
    parser.add_argument("--bytes", default="256M", help="of the larger buffer of every call")
    parser.add_argument("--batches", type=int, default=1, help="micro-batches at most")
    parser.add_argument("--suffix", default=".xml", help="of the files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    paths = [path for path in plans_below(options.folders) if path.suffix == options.suffix]
    if not paths:
        parser.error("there are no plans")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    work = partial(schedule, nbytes=parse_size(options.bytes), batches=options.batches)
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip((str(path.relative_to(root)) for path in paths), pool.map(work, paths), strict=True))
    rows = {name: row for name, row in found.items() if row is not None}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sides = [(row["before"], row["after"]) for row in rows.values()]
    fewer = [1 - after["groups"] / before["groups"] for before, after in sides]
    summary = {
        "plans": len(rows),
        "groups_before": sum(before["groups"] for before, _ in sides),
        "groups_after": sum(after["groups"] for _, after in sides),
        "fewer_groups_mean": round(statistics.mean(fewer), 4),
        "fewer_groups_most": round(max(fewer), 4),
        "longer": sum(after["microseconds"] > before["microseconds"] * (1 + 1e-6) for before, after in sides),
        "idle_at_most_22_percent_before": sum(before["most_idle"] <= MOST_IDLE for before, _ in sides),
        "idle_at_most_22_percent_after": sum(after["most_idle"] <= MOST_IDLE for _, after in sides),
        "idle_bound_above_22_percent": sum((row["idle_bound"] or 0) > MOST_IDLE for row in rows.values()),
    }
    header = {
        "command": shlex.join(["tools/schedule_corpus.py", *sys.argv[1:]]),
        "commit": commit.strip(),
        "bytes": options.bytes,
        "batches": options.batches,
        "summary": summary,
    }
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    text = json.dumps(header, indent=1).removesuffix("\n}")
    options.output.write_text(f'{text},\n "plans": {{\n  {lines}\n }}\n}}\n')
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
