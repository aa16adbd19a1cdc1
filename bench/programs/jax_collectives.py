"""Runs JAX's collectives in one process over all GPUs, jitted, and compares every result with NumPy's.

python jax_collectives.py --json jax_collectives.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Leave memory for NCCL and Narrowcast.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "ranks"
COUNTS = (1024, 300_000)
TYPES = ("int32", "bfloat16", "float32")
TIMED_BYTES = (16 << 20, 256 << 20)
TIMES = 10


def on_each(mesh: Mesh, body: Callable[[jax.Array], jax.Array]) -> Any:
    """The jitted body, applied to each device's row of an array. Stacks the results."""
    rows = PartitionSpec(AXIS)
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=rows))


def bodies(ranks: int) -> dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], np.ndarray]]]:
    """By name: the operation on a row [1, count] of each device, and the expected result from all rows."""
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]

    def exchange(row: jax.Array) -> jax.Array:
        return lax.all_to_all(row.reshape(ranks, -1), AXIS, 0, 0, tiled=True).reshape(1, -1)

    def transposed(rows: np.ndarray) -> np.ndarray:
        return rows.reshape(ranks, ranks, -1).swapaxes(0, 1).reshape(ranks, -1)

    def summed(rows: np.ndarray) -> np.ndarray:
        return np.repeat(rows.sum(0, dtype=rows.dtype)[None], ranks, 0)

    return {
        "psum": (lambda row: lax.psum(row, AXIS) + 0 * row, summed),
        "pmax": (lambda row: lax.pmax(row, AXIS) + 0 * row, lambda rows: np.repeat(rows.max(0)[None], ranks, 0)),
        "psum_scatter": (
            lambda row: lax.psum_scatter(row.reshape(ranks, -1), AXIS, scatter_dimension=0, tiled=True),
            lambda rows: rows.sum(0, dtype=rows.dtype).reshape(ranks, -1),
        ),
        "all_gather": (
            lambda row: lax.all_gather(row[0], AXIS, tiled=True)[None],
            lambda rows: np.repeat(rows.reshape(1, -1), ranks, 0),
        ),
        "all_to_all": (exchange, transposed),
        "ppermute": (lambda row: lax.ppermute(row, AXIS, ring), lambda rows: np.roll(rows, 1, axis=0)),
    }


def seconds_of(call: Callable[[Any], Any], values: Any) -> float:
    """The median time of several calls, measured on the host."""
    found = []
    for _ in range(TIMES + 2):
        start = time.perf_counter()
        jax.block_until_ready(call(values))
        found.append(time.perf_counter() - start)
    return statistics.median(found[2:])


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ranks", type=int, help="number of devices; default: all")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    devices = jax.devices()[: chosen.ranks]
    ranks = len(devices)
    mesh = Mesh(np.array(devices), (AXIS,))
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    calls = {name: (on_each(mesh, body), expected) for name, (body, expected) in bodies(ranks).items()}
    faults, compared = [], 0
    for kind in TYPES:
        for count in COUNTS:
            length = count // ranks * ranks
            # Small integers, whose sums are exact.
            rows = np.random.default_rng(count).integers(-8, 9, (ranks, length)).astype(jnp.dtype(kind))
            values = jax.device_put(rows, sharding)
            for name, (call, expected) in calls.items():
                found, right = np.asarray(call(values)), expected(rows)
                compared += 1
                if found.shape != right.shape or not np.array_equal(found, right):
                    faults.append(f"{name} of {length} x {kind} on {ranks} devices")
    seconds = {}
    for size in TIMED_BYTES if devices[0].platform == "gpu" else TIMED_BYTES[:1]:
        normal = np.random.default_rng(0).standard_normal((ranks, 1 << 20), np.float32).astype(jnp.bfloat16)
        values = jax.device_put(np.tile(normal, (1, size // normal[0].nbytes)), sharding)
        for name, (call, _) in calls.items():
            # The result on every device has the size of the whole array.
            if name != "all_gather" or size == TIMED_BYTES[0]:
                seconds[f"{name}, {size >> 20} MiB of each device"] = seconds_of(call, values)
    report = {
        "command": sys.argv,
        "ranks": ranks,
        "jax": jax.__version__,
        "platform": devices[0].platform,
        "faults": faults,
        "seconds": seconds,
        "facts": {"compared": compared},
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(report) + "\n")
    for name, value in seconds.items():
        print(f"{name:40} {value * 1e3:10.3f} ms")
    print(*faults[:20] or ["all results are correct"], sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
