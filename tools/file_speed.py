"""Measures `narrowcast encode`, `decode` and `ratio` on files, against `cp`.

    taskset -c 0,1 tools/file_speed.py --folder tmpfs=/dev/shm --folder disk=/var/tmp >file_speed.json

Whole commands are timed, with the start of Python, in turns, and the fastest run of each is reported. The input is in
the page cache. The machine should be otherwise idle; the CPU time shows if it was not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast._bench import samples
from narrowcast.cli._provenance import commit, processor

TENSOR_BYTES = 64 << 20
SMALL_TENSORS = 100_000


def write_safetensors(path: Path, kind: str, shape: list[int], tensors: list[bytes | memoryview]) -> None:
    header, at = {}, 0
    for number, content in enumerate(tensors):
        end = at + len(content)
        header[f"layers.{number}.weight"] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for content in tensors:
            file.write(content)


def write_model(path: Path, gib: float) -> None:
    """bfloat16 weights of a Llama, repeated."""
    weights = samples.tiled(samples.packaged()["weights_bf16"][1], TENSOR_BYTES)
    write_safetensors(path, "BF16", [TENSOR_BYTES // 2], [weights.data] * int(gib * (1 << 30) / TENSOR_BYTES))


def timed(command: list[str], output: Path, sync: bool) -> dict[str, Any]:
    """Runs a command that writes `output`, which does not exist before."""
    output.unlink(missing_ok=True)
    if sync:
        os.sync()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if sync:
        os.sync()
    return {
        "seconds": seconds,
        "seconds_to_disk": time.perf_counter() - begin if sync else None,
        "cpu_seconds": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
    }


def measure_folder(name: str, folder: Path, gib: float, runs: int, narrowcast: list[str]) -> list[dict[str, Any]]:
    model, encoded, decoded, copy = (folder / f"file_speed.{end}" for end in ("model", "encoded", "decoded", "copy"))
    write_model(model, gib)
    commands = {
        "cp": (["cp", str(model), str(copy)], copy),
        "encode": ([*narrowcast, "encode", "-f", str(model), "-o", str(encoded)], encoded),
        "decode": ([*narrowcast, "decode", "-f", str(encoded), "-o", str(decoded)], decoded),
    }
    found: dict[str, list[dict[str, Any]]] = {operation: [] for operation in commands}
    for _ in range(runs):
        for operation, (command, output) in commands.items():
            found[operation].append(timed(command, output, sync=name != "tmpfs"))
    subprocess.run(["cmp", model, decoded], check=True)
    raw_bytes, wire_bytes = model.stat().st_size, encoded.stat().st_size
    for path in (model, encoded, decoded, copy):
        path.unlink()
    rows = []
    for operation, all_runs in found.items():
        best = min(all_runs, key=lambda run: run["seconds"])
        rows.append(
            {
                "folder": name,
                "operation": operation,
                "raw_bytes": raw_bytes,
                "wire_bytes": raw_bytes if operation == "cp" else wire_bytes,
                **best,
                "gb_per_s": raw_bytes / best["seconds"] / 1e9,
                "seconds_of_all_runs": [run["seconds"] for run in all_runs],
            }
        )
    return rows


def measure_small(folder: Path, runs: int, narrowcast: list[str]) -> dict[str, Any]:
    """Encodes a file of one-value tensors, and shows its ratios."""
    model, encoded = folder / "file_speed.small", folder / "file_speed.encoded"
    values = np.random.default_rng(0).bytes(4 * SMALL_TENSORS)
    write_safetensors(model, "F32", [1], [values[4 * i : 4 * i + 4] for i in range(SMALL_TENSORS)])
    encode = [timed([*narrowcast, "encode", "-f", str(model), "-o", str(encoded)], encoded, False) for _ in range(runs)]
    raw_bytes, wire_bytes = model.stat().st_size, encoded.stat().st_size
    nothing = folder / "file_speed.nothing"
    ratio = [timed([*narrowcast, "ratio", str(model)], nothing, False) for _ in range(runs)]
    model.unlink()
    encoded.unlink()
    return {
        "tensors": SMALL_TENSORS,
        "raw_bytes": raw_bytes,
        "wire_bytes": wire_bytes,
        "encode": min(encode, key=lambda run: run["seconds"]),
        "ratio": min(ratio, key=lambda run: run["seconds"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", action="append", required=True, metavar="NAME=PATH", help="tmpfs=PATH, or others")
    parser.add_argument("--gib", type=float, default=4, help="size of the model")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    folders = dict(text.split("=", 1) for text in arguments.folder)
    narrowcast = [sys.executable, "-m", "narrowcast"]
    cpus = len(os.sched_getaffinity(0))
    rows = []
    for name, path in folders.items():
        rows += measure_folder(name, Path(path), arguments.gib, arguments.runs, narrowcast)
    report = {
        "machine": f"{processor()}, {cpus} of {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "commit": commit(),
        "command": shlex.join(["tools/file_speed.py", *sys.argv[1:]]),
        "cpus": cpus,
        "runs": arguments.runs,
        "rows": rows,
        "small_tensors": measure_small(Path(next(iter(folders.values()))), arguments.runs, narrowcast),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
