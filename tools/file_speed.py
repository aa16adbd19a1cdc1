"""Measures `narrowcast encode` and `decode` on files, against `cp`.

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

from narrowcast._bench import samples
from narrowcast.cli._provenance import commit, processor

TENSOR_BYTES = 64 << 20


def write_model(path: Path, gib: float) -> None:
    """A safetensors file of bfloat16 weights of a Llama, repeated."""
    weights = samples.tiled(samples.packaged()["weights_bf16"][1], TENSOR_BYTES)
    count = int(gib * (1 << 30) / TENSOR_BYTES)
    header = {
        f"layers.{i}.weight": {
            "dtype": "BF16",
            "shape": [TENSOR_BYTES // 2],
            "data_offsets": [i * TENSOR_BYTES, (i + 1) * TENSOR_BYTES],
        }
        for i in range(count)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(count):
            file.write(weights.data)


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
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
