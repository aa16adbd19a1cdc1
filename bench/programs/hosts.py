"""Measures ranks of the host backend on several hosts, beside a plain socket.

    tools/shaped_hosts.sh 2 1gbit python bench/programs/hosts.py --data tensors.safetensors --json hosts.json

Every host runs this program, with its number in RANK, the number of hosts in WORLD_SIZE, its address in HOST_ADDRESS, a
NARROWCAST_HOSTID, and in HOSTS_FOLDER an empty folder that the hosts share. It starts the ranks of its host. Times are
medians of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np

PORT = 29600


def values_of(path: Path | None, count: int) -> np.ndarray:
    """bfloat16 values, as uint16: of a tensor of the file, repeated, or normal random."""
    if path is None:
        found = np.random.default_rng(0).standard_normal(count).astype(np.float32).view(np.uint32) >> 16
        return found.astype(np.uint16)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    start, end = next(entry["data_offsets"] for entry in header.values() if entry.get("dtype") == "BF16")
    begin = 8 + int.from_bytes(content[:8], "little")
    return np.resize(np.frombuffer(content[begin + start : begin + end], np.uint16), count)


def unique_id(folder: Path, rank: int) -> bytes:
    file = folder / "unique_id"
    if rank == 0:
        made = narrowcast.unique_id()
        file.with_suffix(".new").write_bytes(made)
        file.with_suffix(".new").rename(file)
        return made
    while not file.exists():
        time.sleep(0.01)
    return file.read_bytes()


def barrier(comm: narrowcast.Communicator) -> None:
    comm.all_reduce(np.zeros(1, np.float32), codec="raw")


def start_ranks(per_host: int) -> int:
    """Runs the ranks of this host as processes. Returns the status of the first that failed."""
    host, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    processes = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "RANK": str(host * per_host + local), "WORLD_SIZE": str(hosts * per_host), "LOCAL": "1"},
        )
        for local in range(per_host)
    ]
    return next((status for status in [process.wait() for process in processes] if status), 0)


def stream_seconds(
    comm: narrowcast.Communicator, sender: int, address: str, payload: memoryview, repeats: int
) -> float:
    """The time of the payload through a plain socket, from a rank to rank 0."""
    seconds = []
    if comm.rank == 0:
        with socket.create_server((address, PORT)) as listener:
            barrier(comm)
            with listener.accept()[0] as peer:
                into = memoryview(bytearray(len(payload)))
                for _ in range(repeats):
                    begin, got = time.perf_counter(), 0
                    while got < len(into):
                        got += peer.recv_into(into[got:])
                    peer.sendall(b"1")
                    seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)
    barrier(comm)
    if comm.rank == sender:
        with socket.create_connection((address, PORT)) as peer:
            for _ in range(repeats):
                peer.sendall(payload)
                peer.recv(1)
    return 0.0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--data", type=Path, help="a safetensors file with a tensor of bfloat16; default: normal random"
    )
    options.add_argument("--bytes", type=int, default=64 << 20, help="size of a call (64 MiB)")
    options.add_argument("--codecs", nargs="+", default=["raw", "window!", "dense!", "int8!"])
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--ranks-per-host", type=int, default=1)
    options.add_argument("--costs", type=Path, help="a file to write a cost model to, with the rate of the network")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    if "LOCAL" not in os.environ:
        sys.exit(start_ranks(chosen.ranks_per_host))
    rank, ranks, address = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["HOST_ADDRESS"]
    # Other values on every rank: sums of equal ones would be as short as the values.
    values = np.roll(values_of(chosen.data, chosen.bytes // 2), 4099 * rank)
    rows: list[dict[str, Any]] = []
    with narrowcast.Communicator(
        unique_id(Path(os.environ["HOSTS_FOLDER"]), rank), rank, ranks, backend="host"
    ) as comm:
        first = address.rpartition(".")[0] + ".1"
        far = chosen.ranks_per_host  # the first rank of the second host
        seconds = stream_seconds(comm, far, first, values.data.cast("B"), chosen.repeats)
        if rank == 0:
            rows.append({"operation": "plain socket", "codec": "", "seconds": seconds})

        into = np.zeros(values.size * ranks, np.uint16)
        kind = "bfloat16"

        def send_recv(codec: str) -> None:
            if rank == far:
                comm.send(values, 0, dtype=kind, codec=codec)
            elif rank == 0:
                comm.recv(into[: values.size], far, dtype=kind, codec=codec)

        calls: dict[str, Callable[[str], object]] = {
            "send": send_recv,
            "all_gather": lambda codec: comm.all_gather(values, into, dtype=kind, codec=codec),
            "all_reduce": lambda codec: comm.all_reduce(values, into[: values.size], dtype=kind, codec=codec),
        }
        for operation, call in calls.items():
            for codec in chosen.codecs:
                own = []
                for _ in range(chosen.repeats):
                    barrier(comm)
                    begin = time.perf_counter()
                    call(codec)
                    own.append(time.perf_counter() - begin)
                slowest = np.array([statistics.median(own)])
                comm.all_reduce(slowest, op="max", codec="raw")
                rows.append({"operation": operation, "codec": codec, "seconds": float(slowest[0])})
    if rank != 0:
        return
    for row in rows:
        print(f"{row['operation']:14} {row['codec']:10} {row['seconds'] * 1e3:9.1f} ms", flush=True)
    if chosen.costs:
        gbps = chosen.bytes * 8 / 1e9 / rows[0]["seconds"]
        chosen.costs.write_text(f"narrowcast-costs 2 hosts\nkernels unknown\nnetwork_gbps {gbps:.3g}\n")
    if chosen.json:
        report = {
            "ranks": ranks,
            "ranks_per_host": chosen.ranks_per_host,
            "bytes": chosen.bytes,
            "data": str(chosen.data or "normal"),
            "rows": rows,
        }
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
