#!/usr/bin/env python3
"""Raw GB/s of building tables: on the GPU from page-locked and GPU memory, and on all CPUs.

    tools/gpu/store_build_speed.py -o bench/results/h200/store_build.json

`encode` is a block of 2 GiB that a builder encodes, with the checksums of the file, which is /dev/null: what a file
system costs is left out. `build` is `narrowcast.store.build` as a whole, to a file in the folder for temporary
files. Copies in both directions are measured next to them. The file of a small table is compared with that of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from narrowcast import store
from narrowcast._bench.null_builder import null_builder
from narrowcast._store.rows import Rows
from narrowcast.types import value_type
from provenance import provenance

CASES = [  # value type, elements of a row, share of zeros, codec, layout
    ("bfloat16", 32, 0.0, "window", "stride"),
    ("bfloat16", 64, 0.0, "window", "stride"),
    ("bfloat16", 256, 0.0, "window", "stride"),
    ("bfloat16", 256, 0.0, "window", "packed"),
    ("bfloat16", 1024, 0.0, "window", "stride"),
    ("bfloat16", 32768, 0.0, "window", "stride"),
    ("float32", 256, 0.0, "window", "stride"),
    ("float32", 128, 0.8, "zeros+trim", "stride"),
    ("float32", 1433, 0.95, "zeros+trim+window", "packed"),
    ("bfloat16", 256, 0.0, "invariant", "stride"),
]
CPU_ELEMS = (256, 1024, 1433)
SAMPLE_ROWS = 1024


def table(kind: str, elems: int, zeros: float, size: int) -> torch.Tensor:
    """Rows on the GPU: an eighth of them is different."""
    dtype = getattr(torch, kind)
    rows = size // 8 // (elems * dtype.itemsize)
    block = torch.randn((rows, elems), device="cuda").mul_(0.02)
    block[torch.rand_like(block) < zeros] = 0
    return torch.cat([block.to(dtype)] * 8)


def seconds_to_encode(
    rows: torch.Tensor, kind: str, codec: str, layout: str, device: int | None, repeats: int
) -> float:
    """The shortest time in which a builder took the rows, after some others."""
    count, elems = rows.shape
    row_bytes = elems * rows.element_size()
    # An odd step: others would take the same rows of every repetition, and a codec can be fitted to a few rows.
    sample = rows[:: count // SAMPLE_ROWS | 1][:SAMPLE_ROWS].cpu().contiguous()
    fitted_to = Rows(sample.data_ptr(), row_bytes, len(sample), sample)
    options: dict[str, Any] = {"codec": codec, "layout": layout, "device": device}
    times = []
    with null_builder(value_type(kind), (elems,), count, fitted_to, **options) as builder:
        builder.add(Rows(rows.data_ptr(), row_bytes, min(count, (64 << 20) // row_bytes), rows))
        for _ in range(repeats):
            begin = time.perf_counter()
            builder.add(Rows(rows.data_ptr(), row_bytes, count, rows))
            times.append(time.perf_counter() - begin)
    return min(times)


def built(rows: torch.Tensor, codec: str, layout: str, device: str, folder: str) -> tuple[bytes, float, float]:
    """The file, or nothing if it is large; its ratio; and the seconds that it took."""
    reports: list[store.BuildReport] = []
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "table.ncs"
        begin = time.perf_counter()
        store.build(rows, codec, layout, path, device=device, host=None, report=reports.append)
        taken = time.perf_counter() - begin
        content = path.read_bytes() if path.stat().st_size < 64 << 20 else b""
    return content, reports[0].ratio, taken


def rate(size: int, seconds: float) -> float:
    return round(size / seconds / 1e9, 1)


def copies(size: int) -> dict[str, float]:
    """GB/s of the copy engine."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    found = {}
    for name, target, source in (("to_gpu", device, host), ("to_host", host, device)):
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        found[f"copy_{name}_gb_per_s"] = rate(size, min(times))
    return found


def measure(kind: str, elems: int, zeros: float, codec: str, layout: str, size: int) -> dict[str, Any]:
    on_gpu = table(kind, elems, zeros, size)
    pinned = torch.empty(on_gpu.shape, dtype=on_gpu.dtype, pin_memory=True)
    pinned.copy_(on_gpu)
    raw_bytes = on_gpu.numel() * on_gpu.element_size()
    small = pinned[: max(64, (4 << 20) // (elems * pinned.element_size()))]
    with tempfile.TemporaryDirectory() as folder:
        expected, ratio, _ = built(small, codec, layout, "cpu", folder)
        found, _, _ = built(small, codec, layout, "cuda", folder)
    result: dict[str, Any] = {
        "rows": f"{kind}, {elems} elements, {zeros:.0%} zeros",
        "row_bytes": elems * pinned.element_size(),
        "codec": codec,
        "layout": layout,
        "ratio": round(ratio, 4),
        "same_bytes_as_the_cpu": found == expected,
    }
    for place, rows in (("pinned", pinned), ("gpu", on_gpu)):
        result[f"encode_from_{place}_gb_per_s"] = rate(raw_bytes, seconds_to_encode(rows, kind, codec, layout, 0, 3))
    if elems in CPU_ELEMS:
        taken = seconds_to_encode(pinned, kind, codec, layout, None, 2)
        result["encode_on_cpus_gb_per_s"] = rate(raw_bytes, taken)
    if elems == CPU_ELEMS[1]:
        for device in ("cuda", "cpu"):
            _, _, taken = built(pinned, codec, layout, device, tempfile.gettempdir())
            result[f"build_on_{device}_gb_per_s"] = rate(raw_bytes, taken)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the results to this file")
    parser.add_argument("--gib", type=int, default=2, help="size of a table")
    arguments = parser.parse_args()
    size = arguments.gib << 30
    results: dict[str, Any] = {
        **provenance(),
        "cpus": len(os.sched_getaffinity(0)),
        **copies(1 << 30),
        "tables": [],
    }
    for case in CASES:
        results["tables"].append(measure(*case, size))
        print(json.dumps(results["tables"][-1]), file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    if not arguments.output:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
