"""Merges the groups of all plans in folders, for example the published ones of MSCCL.

    schedule_corpus.py FOLDER... -o FILE [--bytes 256M] [--instances 2]

Plans that are not proved are left out. Every plan is simulated in one micro-batch with one CTA for each of its groups,
and scheduled so that it takes no longer. FILE gets a line for each plan, with its groups before and after. Plans that
differ in their names only are scheduled once. Needs the library, not a GPU.
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
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from narrowcast._native.plan import NativePlan
from narrowcast._plan import simulation
from narrowcast._plan.loading import read
from narrowcast.cli._sizes import parse_size
from narrowcast.errors import NarrowcastError
from verify_corpus import plans_below

ROOT = Path(__file__).parents[1]
RESCCL_IDLE = 0.22  # of the time; ResCCL reports that no thread block is idle for longer


def lowered(path: Path) -> str | None:
    """The lowered plan of a file, without its name; None if it is not proved."""
    try:
        plan = read(path.read_bytes(), str(path))
        if not plan.verify().proved:
            return None
    except NarrowcastError:
        return None
    document = json.loads(NativePlan.read(plan.json()).lower().write())
    del document["name"]
    return json.dumps(document)


def schedule(document: str, nbytes: int, instances: int) -> dict[str, Any]:
    """The row of a plan."""
    model = read(document.encode(), "").model
    plan = NativePlan.read(document)
    start = time.perf_counter()
    _, report = plan.schedule(
        simulation.machine_text(None, len(model.ranks)),
        piece_bytes=simulation.piece_bytes(model, nbytes),
        ratio=1.0,
        max_instances=instances,
        any_executor=True,
    )
    return {"ranks": len(model.ranks), **report, "seconds": round(time.perf_counter() - start, 2)}


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    sides = [(row["before"], row["after"]) for row in rows]
    fewer = [1 - after["groups"] / before["groups"] for before, after in sides]
    return {
        "plans": len(rows),
        "groups_before": sum(before["groups"] for before, _ in sides),
        "groups_after": sum(after["groups"] for _, after in sides),
        "fewer_groups_mean": round(statistics.mean(fewer), 4),
        "fewer_groups_most": round(max(fewer), 4),
        "longer": sum(after["microseconds"] > before["microseconds"] * (1 + 1e-6) for before, after in sides),
        "idle_at_most_22_percent_before": sum(before["most_idle"] <= RESCCL_IDLE for before, _ in sides),
        "idle_at_most_22_percent_after": sum(after["most_idle"] <= RESCCL_IDLE for _, after in sides),
        "seconds_most": max(row["seconds"] for row in rows),
        "over_a_second": sum(row["seconds"] > 1 for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE")
    parser.add_argument("--bytes", default="256M", help="of the larger buffer of every call")
    parser.add_argument("--instances", type=int, default=2, help="that plans are replicated into, at most")
    parser.add_argument("--suffix", default=".xml", help="of the files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    paths = [path for path in plans_below(options.folders) if path.suffix == options.suffix]
    if not paths:
        parser.error("there are no plans")
    root = Path(os.path.commonpath([path.parent for path in paths]))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with ProcessPoolExecutor(options.jobs) as pool:
        names: dict[str, list[str]] = defaultdict(list)  # of the files with this plan
        for path, plan in zip(paths, pool.map(lowered, paths), strict=True):
            if plan is not None:
                names[plan].append(str(path.relative_to(root)))
        row_of = partial(schedule, nbytes=parse_size(options.bytes), instances=options.instances)
        rows = {name: row for plan, row in zip(names, pool.map(row_of, names), strict=True) for name in names[plan]}
    header = {"command": shlex.join(["tools/schedule_corpus.py", *sys.argv[1:]]), "commit": commit.strip()}
    report = header | {"summary": summary_of(list(rows.values()))}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    options.output.write_text(f'{json.dumps(report, indent=1)[:-2]},\n "plans": {{\n  {lines}\n }}\n}}\n')
    print(json.dumps(report["summary"], indent=1))


if __name__ == "__main__":
    main()
