"""Runs nccl-tests with the drop-in in every mode and counts the wrong values that the tests report.

    nccl_tests.py DIR --ranks 2 --json nccl_tests.json

DIR contains the built programs (*_perf). A run that fails with the drop-in is repeated with NCCL alone; if it fails
there too, NCCL is the cause. The drop-in executes every call that it can (--take auto: those that are predicted to be
faster).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gather_drop_in import calls_of, counters
from narrowcast._dropin import nccl_search

SIZES = ["-b", "8", "-e", "256M", "-f", "32"]
FEW_SIZES = ["-b", "8K", "-e", "8M", "-f", "32"]
QUICK = ["-c", "1", "-n", "2", "-w", "1"]
LOG_LINES = 6


def ways(ranks: int) -> dict[str, list[str]]:
    """The options of each mode."""
    one_thread, threads = ["-g", str(ranks), *QUICK], ["-t", str(ranks), "-g", "1", *QUICK]
    return {
        "one thread": [*one_thread, *SIZES],
        "threads": [*threads, *SIZES],
        "processes": ["-g", "1", *QUICK, *SIZES],
        "types and operations": [*threads, "-d", "all", "-o", "all", *FEW_SIZES],
        "graphs": [*threads, "-G", "2", *SIZES],
        "registered": [*threads, "-R", "1", *SIZES],
        "symmetric windows": [*threads, "-R", "2", *SIZES],
        "blocking": [*threads, "-z", "1", *SIZES],
        "groups of two": [*threads, "-m", "2", *SIZES],
    }


def known_part(library: Path) -> str:
    """The part of the path that does not depend on the machine."""
    parts = library.parts
    return "/".join(parts[parts.index("site-packages") :]) if "site-packages" in parts else library.name


def is_for_mpi(program: Path) -> bool:
    return "libmpi" in subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout


def run(command: list[str], environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """The result of a run: `right` if it succeeded and reported no wrong value."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            ["timeout", "--kill-after=5", str(seconds), *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return {"right": False, "log": [str(error)]}
    wrong = re.findall(r"Out of bounds values\s*:\s*(\d+)", done.stdout)
    found: dict[str, Any] = {
        "right": done.returncode == 0 and bool(wrong) and not any(map(int, wrong)),
        "status": done.returncode,
        "wrong_values": int(wrong[-1]) if wrong else None,
        "wall_seconds": round(time.monotonic() - start, 1),
    }
    if not found["right"]:
        found["log"] = done.stdout.splitlines()[-LOG_LINES:]
    return found


def with_drop_in(command: list[str], environment: dict[str, str], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        found = run(
            [sys.executable, "-m", "narrowcast", "run", "-q", "--stats", str(stats), "--", *command],
            environment,
            seconds,
        )
        return {**found, "counters": counters(json.loads(stats.read_text())) if stats.exists() else []}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folder", type=Path, metavar="DIR")
    options.add_argument("--ranks", type=int, required=True)
    options.add_argument("--json", type=Path, required=True, help="the report, written after every run")
    options.add_argument("--take", choices=("auto", "always"), default="always")
    options.add_argument("--ways", nargs="+", choices=list(ways(2)), help="only these modes")
    options.add_argument("--programs", nargs="+", help="only these programs, such as all_reduce")
    options.add_argument("--seconds", type=float, default=60, help="time limit of a run")
    options.add_argument("--until", type=float, default=480, help="seconds after which no further run starts")
    chosen = options.parse_args()
    programs = sorted(path.resolve() for path in chosen.folder.glob("*_perf*") if os.access(path, os.X_OK))
    programs = [path for path in programs if not chosen.programs or path.name.partition("_perf")[0] in chosen.programs]
    nccl = nccl_search.chosen(nccl_search.candidates())
    if not programs or nccl is None:
        raise SystemExit(f"{chosen.folder} has no such program" if nccl else "no NCCL was found")
    folders = f"{nccl.path.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": folders, "NARROWCAST_TAKE": chosen.take}
    end = time.monotonic() + chosen.until
    runs: list[dict[str, Any]] = []
    left_out: list[str] = []
    for way, arguments in ways(chosen.ranks).items():
        if chosen.ways and way not in chosen.ways:
            continue
        for program in programs:
            name = f"{program.name}, {way}"
            command = [str(program), *arguments]
            if way == "processes":
                if not is_for_mpi(program) or not shutil.which("mpirun"):
                    left_out.append(f"{name}: built without MPI, or no mpirun")
                    continue
                command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(chosen.ranks), *command]
            if time.monotonic() > end:
                left_out.append(f"{name}: no time left")
                continue
            one = with_drop_in(command, environment, chosen.seconds)
            if not one["right"]:
                one["nccl_alone"] = run(command, environment, chosen.seconds)
            shown_command = " ".join(command).replace(f"{program.parent}/", "")
            runs.append({"program": program.name, "way": way, "command": shown_command, **one})
            report = {"nccl": known_part(nccl.path), "take": chosen.take, "runs": runs, "left_out": left_out}
            chosen.json.write_text(json.dumps(report) + "\n")
            print_run(name, one)
    ours = [one for one in runs if not one["right"] and one["nccl_alone"]["right"]]
    theirs = sum(not one["right"] for one in runs) - len(ours)
    print(f"   {len(runs)} runs: {len(ours)} fail on the drop-in alone, {theirs} on NCCL too; {len(left_out)} skipped")
    for name in left_out:
        print(f"   skipped: {name}")
    if not any(calls_of(one, "taken") for one in runs):
        raise SystemExit("the drop-in executed no call, so the runs prove nothing")
    sys.exit(1 if ours else 0)


def print_run(name: str, one: dict[str, Any]) -> None:
    taken, forwarded = (calls_of(one, kind) for kind in ("taken", "forwarded"))
    verdict = "ok"
    if not one["right"]:
        verdict = "FAILED" if one["nccl_alone"]["right"] else "fails on NCCL alone too"
    print(f"   {name:45} {verdict}  {taken} executed, {forwarded} forwarded", flush=True)
    if not one["right"]:
        print(*(f"      | {line}" for line in one["log"]), sep="\n", flush=True)


if __name__ == "__main__":
    main()
