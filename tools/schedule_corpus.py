"""Merges the groups of all plans in folders, for example the published ones of MSCCL, and says how idle they are left.

    schedule_corpus.py FOLDER... -o FILE [--bytes 256M] [--batches 1]

Plans that are not proved are left out. Every plan is simulated with one CTA for each of its groups, and scheduled so
that it takes no longer. FILE gets a line for each plan, with the groups before and after, as soon as it has been
scheduled. Plans that differ in their names only are scheduled once, and those that FILE has from the same commit and
for the same calls are kept. Needs the library, not a GPU.

For plans that remain idle in calls of one micro-batch, idle_bound.py says how idle a group must be in any plan with the
same steps and rings that takes no longer, in its replicas of up to four instances, and in those of any number. If that
is more than 22% of the time, groups can only be less idle in other plans, in more instances, or with more groups on a
rank than any rank of the given plan has.
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
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from idle_bound import idle_bound, idle_bound_of_any_instances, most_groups
from narrowcast._native.plan import NativePlan
from narrowcast._plan import simulation
from narrowcast._plan.loading import read
from narrowcast.cli._sizes import parse_size
from narrowcast.errors import NarrowcastError
from verify_corpus import plans_below

ROOT = Path(__file__).parents[1]
MOST_IDLE = 0.22  # what ResCCL reports
MOST_INSTANCES = 64  # that plans are replicated into
BOUNDED_INSTANCES = 4  # bounds for more take long, unless they are for any number
BOUNDS = ("idle_bound", "idle_bound_of_instances", "idle_bound_of_any_instances")


def lowered(path: Path) -> tuple[str, int] | None:
    """The lowered plan of a file, without its name, and the number of its ranks; None if it is not proved."""
    try:
        plan = read(path.read_bytes(), str(path))
        if not plan.verify().proved:
            return None
    except NarrowcastError:
        return None
    document = json.loads(NativePlan.read(plan.json()).lower().write())
    del document["name"]
    return json.dumps(document), len(plan.model.ranks)


def bounds_of(document: str, machine: str, piece_bytes: int, microseconds: float) -> dict[str, float | None]:
    """How idle a group is, at least, in any schedule of a lowered plan, in any of it or up to four instances of it, and
    in any of any number of instances.

    Three and four are not tried if groups may be busy enough with fewer ones.
    """
    plan = json.loads(document)
    groups = most_groups(plan)
    alone = least = idle_bound(plan, machine, piece_bytes, microseconds)
    for instances in range(2, BOUNDED_INSTANCES + 1):
        if least is None or least <= MOST_IDLE:
            break
        replicated = json.loads(NativePlan.read(json.dumps(plan | {"instances": instances})).lower().write())
        found = idle_bound(replicated, machine, piece_bytes, microseconds, groups)
        least = None if found is None else min(least, found)
    any_number = idle_bound_of_any_instances(plan, machine, piece_bytes, microseconds)
    return {
        "idle_bound": rounded(alone),
        "idle_bound_of_instances": rounded(least),
        "idle_bound_of_any_instances": rounded(any_number),
    }


def rounded(bound: float | None) -> float | None:
    return None if bound is None else round(bound, 4)


def schedule(document: str, ranks: int, nbytes: int, batches: int) -> dict[str, Any]:
    """The row of a plan."""
    start = time.perf_counter()
    plan = NativePlan.read(document)
    machine, piece_bytes = (
        simulation.machine_text(None, ranks),
        simulation.piece_bytes(read(document.encode(), "").model, nbytes),
    )
    merged, report = plan.schedule(
        machine,
        piece_bytes=piece_bytes,
        ratio=1.0,
        batches=batches,
        max_instances=MOST_INSTANCES,
        any_executor=True,
    )
    instances = json.loads(merged.write()).get("chunks", 1) // json.loads(document).get("chunks", 1)
    seconds = round(time.perf_counter() - start, 2)
    bounds: dict[str, float | None] = dict.fromkeys(BOUNDS)
    if batches == 1 and report["after"]["most_idle"] > MOST_IDLE:
        bounds = bounds_of(document, machine, piece_bytes, report["before"]["microseconds"])
    return {"ranks": ranks, **report, "instances": instances, **bounds, "seconds": seconds}


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
        "idle_at_most_22_percent_before": sum(before["most_idle"] <= MOST_IDLE for before, _ in sides),
        "idle_at_most_22_percent_after": sum(after["most_idle"] <= MOST_IDLE for _, after in sides),
        **{
            f"more_{key}_above_22_percent": sum(
                row["after"]["most_idle"] > MOST_IDLE and (row[key] or 0) > MOST_IDLE for row in rows
            )
            for key in BOUNDS
        },
        "replicated": sum(row["instances"] > 1 for row in rows),
    }


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
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header = {
        "command": shlex.join(["tools/schedule_corpus.py", *sys.argv[1:]]),
        "commit": commit.strip(),
        "bytes": options.bytes,
        "batches": options.batches,
    }
    rows = rows_of(options.output, header)
    with ProcessPoolExecutor(options.jobs) as pool:
        names: dict[tuple[str, int], list[str]] = defaultdict(list)  # of the files with this plan
        for path, plan in zip(paths, pool.map(lowered, paths), strict=True):
            if plan is not None and str(path.relative_to(root)) not in rows:
                names[plan].append(str(path.relative_to(root)))
        shortest_first = sorted(names, key=lambda plan: len(plan[0]))
        work = {
            pool.submit(schedule, *plan, parse_size(options.bytes), options.batches): plan for plan in shortest_first
        }
        for done in as_completed(work):
            rows.update(dict.fromkeys(names[work[done]], done.result()))
            write(options.output, header, rows)
    print(json.dumps(summary_of(list(rows.values())), indent=1))


def rows_of(output: Path, header: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows that an earlier run for the same commit and calls has written."""
    if not output.exists():
        return {}
    found = json.loads(output.read_text())
    is_same = all(found.get(key) == header[key] for key in ("commit", "bytes", "batches"))
    return dict(found["plans"]) if is_same else {}


def write(output: Path, header: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    text = json.dumps({**header, "summary": summary_of(list(rows.values()))}, indent=1).removesuffix("\n}")
    output.write_text(f'{text},\n "plans": {{\n  {lines}\n }}\n}}\n')


if __name__ == "__main__":
    main()
