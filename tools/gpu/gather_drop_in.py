"""Combines the runs of tools/gpu/drop_in.sh in one document, compares the runs of each program, and reports violations.

    gather_drop_in.py RUNS [PROGRAM] >drop_in.json

RUNS has one folder per program with the output of each run: nccl.json, auto.json, auto.stats.json, auto.status,
auto.log and so on, and of further rounds nccl_round2.json and so on. If there are rounds, `medians` has the median of
each time by variant. Other .json files in RUNS are included unchanged. With PROGRAM, only the verdict on that program
is printed, to stderr. The exit status is 1 if there is a violation.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import compare_reports
from narrowcast.cli._provenance import commit
from provenance import machine

BASE, ALWAYS, REPEATED, ROUND = "nccl", "always", "_again", "_round"
LOG_LINES = 8
# Fields that serve only the comparison, and are long.
_COMPARED = ("moved", "summed", "near", "chosen")
_SUMMED = ("taken", "captured", "forwarded", "raw_bytes", "wire_bytes", "saved_seconds")


def counters(stats: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of all communicators, by operation."""
    found: dict[str, dict[str, Any]] = {}
    for communicator in stats["communicators"]:
        for one in communicator["operations"]:
            total = found.setdefault(
                one["operation"],
                {
                    "operation": one["operation"],
                    **dict.fromkeys(_SUMMED, 0),
                    "reasons": {},
                },
            )
            for name in _SUMMED:
                # A rank does not know its bytes if its communicator was aborted; then the sum is unknown too.
                total[name] = None if None in (total[name], one[name]) else total[name] + one[name]
            for reason, count in one["reasons"].items():
                total["reasons"][reason] = total["reasons"].get(reason, 0) + count
    return list(found.values())


def run_of(folder: Path, variant: str) -> dict[str, Any]:
    """The output of one run of a program."""
    run: dict[str, Any] = {"status": int((folder / f"{variant}.status").read_text()), "faults": []}
    report = folder / f"{variant}.json"
    if report.exists():
        run |= json.loads(report.read_text())
    if run["status"] or not report.exists():
        lines = (folder / f"{variant}.log").read_text(errors="replace").splitlines()
        run["log"] = lines[-LOG_LINES:]
        run["faults"] = [*run["faults"], f"ended with status {run['status']}" if run["status"] else "left no report"]
    stats = folder / f"{variant}.stats.json"
    if stats.exists():
        content = json.loads(stats.read_text())
        run |= {"counters": counters(content), "faults_of_counters": content["faults"]}
        # Programs on CPUs do not call NCCL.
        if variant.startswith(ALWAYS) and not calls_of(run, "taken") and os.environ.get("DEVICE") != "cpu":
            run["faults"] = [*run["faults"], "no call was executed"]
    return run


def calls_of(run: dict[str, Any], kind: str) -> int:
    """kind: taken or forwarded."""
    return sum(one[kind] for one in run.get("counters", []))


def program_of(folder: Path) -> dict[str, Any]:
    """The runs of a program, without the fields that serve only the comparison, and the result of the comparison."""
    statuses = sorted(folder.glob("*.status"), key=lambda path: path.stat().st_mtime_ns)
    runs = {path.stem: run_of(folder, path.stem) for path in statuses}
    faults = {variant: list(run["faults"]) for variant, run in runs.items()}
    found: dict[str, Any] = {}
    for variant, run in runs.items():
        first = variant.split(ROUND)[0].removesuffix(REPEATED)
        if first != variant and first in runs and first != BASE:
            faults[variant] += compare_reports.between_runs(runs[first], run)
        if first != BASE and BASE in runs and not runs[BASE]["faults"] and not run["faults"]:
            wrong, found[variant] = compare_reports.with_nccl(runs[BASE], run)
            faults[variant] += wrong
    kept = {
        variant: {name: value for name, value in run.items() if name not in _COMPARED} for variant, run in runs.items()
    }
    result = {"program": folder.name, "faults": faults, "comparison": found, "runs": kept}
    if any(ROUND in variant for variant in runs):
        result["medians"] = medians = medians_of(runs)
        for variant in medians.keys() - {BASE}:
            if BASE in medians:
                found.setdefault(variant, {})["times faster than NCCL"] = {
                    name: round(medians[BASE][name] / seconds, 4)
                    for name, seconds in medians[variant].items()
                    if name in medians[BASE]
                }
    return result


def medians_of(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By variant: the median over its rounds of each time, of the runs without faults."""
    times: dict[str, dict[str, list[float]]] = {}
    for variant, run in runs.items():
        if not run["faults"]:
            for name, seconds in run.get("seconds", {}).items():
                times.setdefault(variant.split(ROUND)[0], {}).setdefault(name, []).append(seconds)
    return {
        variant: {name: statistics.median(found) for name, found in by_name.items()}
        for variant, by_name in times.items()
    }


def verdict(program: dict[str, Any]) -> list[str]:
    """Lines that summarise the runs of a program."""
    lines = []
    for variant, faults in program["faults"].items():
        if ROUND in variant and not faults:
            continue
        run = program["runs"][variant]
        calls = f"  {calls_of(run, 'taken')} calls executed, {calls_of(run, 'forwarded')} forwarded"
        calls = "" if variant == BASE else calls
        lines.append(f"   {program['program']:20} {variant:14} {'FAILED' if faults else 'ok'}{calls}")
        lines += [f"      {fault}" for fault in faults[:6]]
        ratios = program["comparison"].get(variant, {}).get("times faster than NCCL", {})
        lines += [f"      {name}: {ratio:.2f} times NCCL's speed" for name, ratio in ratios.items()]
        lines += [f"      | {line}" for line in run.get("log", [])]
    return lines


def main() -> None:
    runs, only = Path(sys.argv[1]), sys.argv[2:]
    programs = [program_of(folder) for folder in sorted(runs.iterdir()) if folder.is_dir()]
    report = {
        "machine": machine(),
        "command": os.environ.get("DROP_IN_COMMAND", ""),
        "commit": commit(),
        "programs": programs,
        **{path.stem: json.loads(path.read_text()) for path in sorted(runs.glob("*.json"))},
    }
    print(json.dumps(report, indent=1))
    reported = [program for program in programs if not only or program["program"] in only]
    for program in reported:
        print(*verdict(program), sep="\n", file=sys.stderr)
    # A failure with NCCL alone is not Narrowcast's; its line reports it.
    found = [one for program in reported for one in program["faults"].items()]
    if any(faults for variant, faults in found if not variant.startswith(BASE)):
        sys.exit(1)


if __name__ == "__main__":
    main()
