#!/usr/bin/env python3
"""GB/s of encoding, decoding and gathering rows of a store on CPUs, beside numpy.take of the same rows.

    tools/store_cpu_speed.py --threads 1,16 -o store.json

`encode` is a block of rows that a builder encodes with the checksums of the file, which is /dev/null. `decode` is a
slice of an open table, and `gather` rows of it in random order. All rows are compared with the input. The machine
should be otherwise idle: the load before the measurements is in the result. With `--cpu-time`, for one thread, rates
are those of CPU time, which other programs affect less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from narrowcast import store
from narrowcast._bench.null_builder import null_builder
from narrowcast._store.sources import source_of
from narrowcast.cli._provenance import commit, processor
from narrowcast.types import value_type

CASES = [  # value type, bytes of a row, share of zeros, codec, layout
    ("bfloat16", 512, 0.0, "window", "stride"),
    ("bfloat16", 2048, 0.0, "window", "stride"),
    ("bfloat16", 512, 0.0, "window", "packed"),
    ("bfloat16", 2048, 0.0, "window", "packed"),
    ("float32", 512, 0.0, "window", "stride"),
    ("float32", 2048, 0.0, "window", "stride"),
    ("float32", 512, 0.0, "window", "packed"),
    ("bfloat16", 512, 0.0, "invariant", "stride"),
    ("float32", 2048, 0.8, "invariant", "stride"),
    ("float32", 512, 0.8, "zeros+trim+window", "stride"),
    ("float32", 2048, 0.95, "zeros+trim+window", "packed"),
    ("int32", 2048, 0.8, "invariant", "stride"),
    ("int32", 2048, 0.8, "zeros+invariant", "stride"),
    ("int32", 2048, 0.8, "trim+invariant", "stride"),
    ("int32", 2048, 0.8, "zeros+trim+invariant", "stride"),
    ("int32", 512, 0.8, "zeros+trim+invariant", "stride"),
]
GATHERED_ROWS = 100_000

Table = npt.NDArray[Any]


def table(kind: str, row_bytes: int, zeros: float, size: int) -> Table:
    """Normally distributed rows, or of small counts, of which a sixteenth is different."""
    rng = np.random.default_rng(1)
    shape = size // 16 // row_bytes, row_bytes // (2 if kind == "bfloat16" else 4)
    if kind == "int32":
        values = rng.geometric(0.5, shape).astype(np.int32)
    else:
        values = rng.standard_normal(shape, np.float32) * np.float32(0.02)
    values[rng.random(values.shape) < zeros] = 0
    if kind == "bfloat16":
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    return np.concatenate([values] * 16)


clock: Callable[[], float] = time.perf_counter


def rate(size: int, run: Callable[[], object], repeats: int) -> float:
    """GB/s of the median call, after one more."""
    times = []
    for _ in range(repeats + 1):
        begin = clock()
        run()
        times.append(clock() - begin)
    return round(size / statistics.median(times[1:]) / 1e9, 2)


def encode_rate(rows: Table, kind: str, codec: str, layout: str, threads: int, repeats: int) -> float:
    source = source_of(rows, value_type(kind), None)
    assert source.rows is not None
    blocks = list(source.blocks)
    options: dict[str, Any] = {"codec": codec, "layout": layout, "threads": threads}
    with null_builder(source.kind, source.row_shape, source.rows, source.sample, **options) as builder:

        def encode() -> None:
            for block in blocks:
                builder.add(block)

        return rate(rows.nbytes, encode, repeats)


def measure(
    case: tuple[str, int, float, str, str], size: int, thread_counts: list[int], repeats: int
) -> dict[str, Any]:
    kind, row_bytes, zeros, codec, layout = case
    rows = table(kind, row_bytes, zeros, size)
    picked = np.random.default_rng(2).integers(0, len(rows), GATHERED_ROWS)
    gathered, taken = np.empty_like(rows, shape=(GATHERED_ROWS, rows.shape[1])), np.take(rows, picked, axis=0)
    whole = np.empty_like(rows)
    result: dict[str, Any] = {
        "rows": f"{kind}, {row_bytes} bytes, {zeros:.0%} zeros",
        "codec": codec,
        "layout": layout,
        "threads": {},
    }
    made = store.build(rows, codec, layout, dtype=kind)
    assert made is not None
    with made:
        result["ratio"] = round(made.ratio, 4)
        for threads in thread_counts:
            decode = partial(made.fetch, 0, len(rows), 1, whole, threads=threads)
            gather = partial(made.gather, picked, gathered, threads=threads)
            result["threads"][threads] = {
                "encode": encode_rate(rows, kind, codec, layout, threads, repeats),
                "decode": rate(rows.nbytes, decode, repeats),
                "gather": rate(taken.nbytes, gather, repeats),
            }
        result["exact"] = bool(
            np.array_equal(whole.view(np.uint8), rows.view(np.uint8))
            and np.array_equal(gathered.view(np.uint8), taken.view(np.uint8))
        )
    result["numpy_take"] = rate(taken.nbytes, lambda: np.take(rows, picked, axis=0, out=gathered, mode="clip"), repeats)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the results to this file")
    parser.add_argument("--mib", type=int, default=256, help="size of a table")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--codec", default="", help="only codecs whose name contains this")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time; for one thread")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        if arguments.threads != "1":
            parser.error("--cpu-time is for one thread")
        global clock
        clock = time.process_time
    cpus = len(os.sched_getaffinity(0))
    results: dict[str, Any] = {
        "machine": f"{processor()}, {cpus} of {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "commit": commit(),
        "command": shlex.join(["tools/store_cpu_speed.py", *sys.argv[1:]]),
        "load_before": os.getloadavg()[0],
        "unit": "GB/s of raw bytes" + (", by CPU time" if arguments.cpu_time else ""),
        "tables": [],
    }
    threads = [int(one) for one in arguments.threads.split(",")]
    for case in CASES:
        if arguments.codec not in case[3]:
            continue
        results["tables"].append(measure(case, arguments.mib << 20, threads, arguments.runs))
        print(json.dumps(results["tables"][-1]), file=sys.stderr, flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    if not arguments.output:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
