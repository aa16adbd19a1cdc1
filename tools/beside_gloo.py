#!/usr/bin/env python3
"""Measures collectives of the backend narrowcast beside gloo, on CPUs.

    tools/beside_gloo.py --ranks 2 4 --json beside_gloo.json
    tools/beside_gloo.py --table beside_gloo.json

Both backends make the same calls in turns, and their results are compared. A time is that of the slowest rank. Each
rank computes on one thread. --table prints the table of docs/guide/torch.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narrowcast.torch_backend
import torch
import torch.distributed as dist
from narrowcast.cli._provenance import commit, processor

BACKENDS = (narrowcast.torch_backend.NAME, "gloo")
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20, "64 MiB": 64 << 20}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
# Of calls that are timed together, of which there are 1 to 20.
TIMED_BYTES = 2 << 20


class Call:
    """A collective of one backend. The larger one of its buffers is as large as `values`."""

    def __init__(self, operation: str, values: torch.Tensor, group: Any) -> None:
        part = values[: values.numel() // group.size()]
        self._values = values
        self.result = torch.empty_like(part if operation == "reduce_scatter" else values)
        self.call: Callable[[], object] = {
            "all_reduce": lambda: dist.all_reduce(self.result, group=group),
            "all_gather": lambda: dist.all_gather_single(self.result, part, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_single(self.result, values, group=group),
            "all_to_all": lambda: dist.all_to_all_single(self.result, values, group=group),
            "broadcast": lambda: dist.broadcast(self.result, 0, group=group),
        }[operation]
        self._is_in_place = operation in ("all_reduce", "broadcast")

    def seconds(self, calls: int) -> float:
        """The mean time of calls one after the other, on this rank."""
        if self._is_in_place:
            self.result.copy_(self._values)
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            self.call()
        return (time.perf_counter() - begin) / calls


def measure(operation: str, kind: torch.dtype, raw_bytes: int, repeats: int, groups: dict[str, Any]) -> dict[str, Any]:
    """The times of each backend. Raises RuntimeError if their results differ."""
    values = torch.randn(raw_bytes // kind.itemsize, generator=torch.Generator().manual_seed(dist.get_rank())).to(kind)
    made = {name: Call(operation, values, group) for name, group in groups.items()}
    for call in made.values():
        call.seconds(1)
    ours, theirs = (made[name].result.float() for name in BACKENDS)
    # Sums are rounded in other orders.
    tolerance = 8 * torch.finfo(kind).eps if "reduce" in operation else 0
    if not torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
        raise RuntimeError(f"{operation} of {raw_bytes} bytes of {kind}: the results of the backends differ")
    calls = min(max(TIMED_BYTES // raw_bytes, 1), 20)
    own = torch.tensor(
        [
            [made[name].seconds(calls) for name in (BACKENDS if turn % 2 else BACKENDS[::-1])][:: 1 if turn % 2 else -1]
            for turn in range(repeats)
        ],
        dtype=torch.float64,
    )
    dist.all_reduce(own, dist.ReduceOp.MAX)
    row: dict[str, Any] = {"operation": operation, "type": str(kind).removeprefix("torch."), "raw_bytes": raw_bytes}
    for name, times in zip(BACKENDS, own.T.tolist(), strict=True):
        quarters = statistics.quantiles(times, n=4)
        row[name] = dict(zip(("lower_quartile", "median", "upper_quartile"), quarters, strict=True))
    return row


def run_rank(rank: int, ranks: int, repeats: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    rows = []
    for operation in OPERATIONS:
        for kind in TYPES.values():
            for raw_bytes in SIZES.values():
                rows.append({"ranks": ranks, **measure(operation, kind, raw_bytes, repeats, groups)})
                if rank == 0:
                    print(text_of(rows[-1]), file=sys.stderr, flush=True)
    dist.destroy_process_group()
    if rank == 0:
        Path(folder, "rows").write_text(json.dumps(rows))


def text_of(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {row[name]['median'] * 1e3:.3f} ms" for name in BACKENDS)
    return f"{row['ranks']} ranks, {row['operation']}, {row['type']}, {row['raw_bytes']} bytes: {times}"


def table(report: dict[str, Any]) -> str:
    """Times of gloo / times of narrowcast, by operation, type and size, in Markdown."""
    counts = sorted({row["ranks"] for row in report["rows"]})
    gains: dict[tuple[str, str], dict[int, list[str]]] = {}
    for row in report["rows"]:
        gain = row["gloo"]["median"] / row[narrowcast.torch_backend.NAME]["median"]
        cells = gains.setdefault((row["operation"], row["type"]), {}).setdefault(row["raw_bytes"], [])
        cells.append(f"{gain:.1f}" if gain < 9.95 else f"{gain:.0f}")
    lines = [["operation", "type", *SIZES], ["---"] * (2 + len(SIZES))]
    for (operation, kind), by_size in gains.items():
        lines.append([f"`{operation}`", kind, *(" / ".join(by_size[size]) for size in SIZES.values())])
    head = f"Ranks: {' / '.join(map(str, counts))}\n\n"
    return head + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--repeats", type=int, default=25, help="measurements of each backend")
    parser.add_argument("--json", type=Path, help="file for the report")
    parser.add_argument("--table", type=Path, metavar="REPORT", help="only print the table of a report")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    load, rows = os.getloadavg()[0], []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            arguments = (ranks, options.repeats, folder)
            torch.multiprocessing.spawn(run_rank, arguments, ranks)
            rows += json.loads(Path(folder, "rows").read_text())
    cpus = len(os.sched_getaffinity(0))
    report = {
        "machine": f"{processor()}, {cpus} cores of a virtual machine, {platform.system()} {platform.machine()}",
        "commit": commit(),
        "command": shlex.join(["tools/beside_gloo.py", *sys.argv[1:]]),
        "torch": torch.__version__,
        "load_before": load,
        "repeats": options.repeats,
        "unit": "seconds",
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
