"""Tests and measures generated kernels of plans, between ranks that share one GPU.

    plans.py [--ranks N]... [--plan NAME]... [--codec CODEC]... [--bytes N]... [--test] [--measure] [--placements N]
        [--scheduled] >FILE

The library is NARROWCAST_LIBRARY. Tests compare the bits of plans with those of the operations. Measurements run the
hand-written kernels and the generated ones in turns, on the same memory, in CUDA graphs: "builtin" is what the library
chooses for the call, "same_algorithm" the hand-written kernel with the plan's algorithm, if that is another one, and
"beside_it" the plan on that kernel's communicator. Results are medians over several processes, in each of which memory
is elsewhere, because times depend on its place, and the least, median and greatest ratio of a plan to the hand-written
kernel. Data travels through the GPU's L2 cache and not over NVLink. --plan names the plans, instead of all for tests
and those of hand-written kernels for measurements; plan_forms.py says how. --codec and --bytes restrict measurements to
some cells. With --scheduled the plans are tested and measured in their scheduled forms, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from plan_forms import FORMS, known, measured_op, text_of
from plan_tests import kinds, test_abort, test_some
from plan_times import CODECS, MEASURED, SIZES, Cells, measure, summary
from provenance import provenance
from sample_plans import PLANS

SMS = 128
MAX_RESTARTS = 40  # of the process that runs the tests
ARCHITECTURE = 90


def compile_one(job: tuple[str, int, str, str, str]) -> float:
    """Seconds."""
    from narrowcast._native.plan import NativePlan
    from narrowcast.types import reduction_number, value_type

    name, ranks, codec, dtype, op = job
    text = text_of(name, ranks, codec)
    report = NativePlan.read(text).compile(value_type(dtype).number, reduction_number(op), ARCHITECTURE)
    return float(json.loads(report)["seconds"])


def compile_all(ranks: list[int], cells: Cells, tested: Iterable[str]) -> dict[str, Any]:
    forms = [form for name in cells.plans for form in cells.forms_of(name).values()]
    jobs = [
        (name, n, codec, "bfloat16", measured_op(name, n, codec))
        for n in ranks
        for name in forms
        for codec in cells.codecs
    ]
    jobs += [(name, n, codec, dtype, op) for n in ranks for name, codec, dtype, op in kinds(n, tested)]
    processes = os.cpu_count()
    with ProcessPoolExecutor(processes) as pool:
        seconds = list(pool.map(compile_one, dict.fromkeys(jobs)))
    return {
        "kinds": len(seconds),
        "median": statistics.median(seconds),
        "max": max(seconds),
        "processes": processes,
    }


def in_process(option: str, ranks: int, *more: str) -> subprocess.CompletedProcess[str]:
    own = {
        "NARROWCAST_MAX_CTAS": str(SMS // ranks),  # the kernels of all ranks run concurrently
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "CUDA_MODULE_LOADING": "EAGER",
    }
    command = [sys.executable, __file__, option, str(ranks), *more]
    return subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, text=True, timeout=280, check=False)


def test(ranks: int, plans: list[str]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    options = [f"--plan={name}" for name in plans]
    for _ in range(MAX_RESTARTS):
        done = in_process("--test-some", ranks, "--skip", str(len(found)), *options)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if not lines:
            lines = [{"cases": 0, "failures": [f"kind {len(found)}: the process ended with {done.returncode}"]}]
        for line in lines:
            for failure in line["failures"]:
                print(failure, file=sys.stderr, flush=True)
        found += lines
        if len(found) == len(kinds(ranks, plans)):
            break
    failures = [failure for line in found for failure in line["failures"]]
    done = in_process("--test-abort", ranks)
    failures += json.loads(done.stdout) if done.returncode == 0 else [f"the test of abort ended with {done.returncode}"]
    return {"ranks": ranks, "kinds": len(found), "cases": sum(line["cases"] for line in found), "failures": failures}


def measured(ranks: int, cells: Cells, placements: int) -> dict[str, Any]:
    chosen = {"plan": cells.plans, "codec": cells.codecs, "bytes": cells.sizes}
    options = [f"--{name}={value}" for name, values in chosen.items() for value in values]
    options += ["--scheduled"] if cells.scheduled else []
    found = []
    for _ in range(placements):
        done = in_process("--measure-ranks", ranks, *options)
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
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--placements", type=int, default=5)
    parser.add_argument("--scheduled", action="store_true")
    for option in ("--test-some", "--test-abort", "--measure-ranks", "--skip"):
        parser.add_argument(option, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tested = options.plan or list(PLANS)
    if options.scheduled:
        tested = [*tested, *(f"{form} {name}" for name in tested for form in FORMS)]
    cells = Cells(
        tuple(options.plan or MEASURED),
        tuple(options.codec or CODECS),
        tuple(options.bytes or SIZES),
        options.scheduled,
    )
    works: list[tuple[Callable[[int], None], int | None]] = [
        (lambda ranks: test_some(ranks, kinds(ranks, tested)[options.skip :]), options.test_some),
        (lambda ranks: print(json.dumps(test_abort(ranks))), options.test_abort),
        (lambda ranks: print(json.dumps(measure(ranks, cells))), options.measure_ranks),
    ]
    for work, ranks in works:
        if ranks:
            from narrowcast._native.cuda_driver import on_device

            with on_device(0):
                work(ranks)
            return
    counts = options.ranks or [2, 4]
    result: dict[str, Any] = provenance()
    result["compile_seconds"] = compile_all(counts, cells, tested if options.test else ())
    if options.test:
        result["tests"] = [test(n, tested) for n in counts]
    if options.measure:
        result["runs"] = [measured(n, cells, options.placements) for n in counts]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
