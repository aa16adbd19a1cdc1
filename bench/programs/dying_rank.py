"""Kills one rank during all-reduces. Torch's watchdog must end the other ranks soon, with an error.

    python dying_rank.py --ranks 2 --json dying_rank.json

Starts the ranks itself, because torchrun would end all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

GROUP_SECONDS = 10
# After the death: the timeout of the group, and the time that the watchdog needs to end the process.
LIMIT_SECONDS = 60
START_SECONDS = 120
TRAFFIC_SECONDS = 5


def rank_main(device: str) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        timeout=timedelta(seconds=GROUP_SECONDS),
        device_id=place if device == "cuda" else None,
    )
    values = torch.ones(4 << 20, dtype=torch.bfloat16, device=place)
    gathered = values.new_empty(ranks * values.numel())
    call, begin = 0, time.monotonic()
    while True:
        dist.all_reduce(values, dist.ReduceOp.MAX)
        dist.all_gather_into_tensor(gathered, values)
        call += 1
        # Other calls are pending.
        if rank == ranks - 1 and time.monotonic() > begin + TRAFFIC_SECONDS:
            os.kill(os.getpid(), signal.SIGKILL)
        if call % 10 == 0 and device == "cuda":
            torch.cuda.synchronize()


def start(ranks: int, device: str, logs: Path) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        # The watchdog ends the process without writing a dump first.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    }
    command = [sys.executable, __file__, "--rank", "--device", device]
    started = []
    for rank in range(ranks):
        with logs.with_suffix(f".{rank}.log").open("w") as log:
            own = {**shared, "RANK": str(rank)}
            started.append(subprocess.Popen(command, env=own, stdout=log, stderr=subprocess.STDOUT))
    return started


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument(
        "--json",
        type=Path,
        default=Path("dying_rank.json"),
        help="file for the report; the logs of the ranks are written beside it",
    )
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.rank:
        rank_main(chosen.device)
    processes = start(chosen.ranks, chosen.device, chosen.json)
    faults = []
    try:
        processes[-1].wait(START_SECONDS)
    except subprocess.TimeoutExpired:
        faults.append(f"the calls before the death did not end within {START_SECONDS} s")
    died = time.monotonic()
    if not faults and processes[-1].returncode != -signal.SIGKILL:
        faults.append(f"the last rank ended with {processes[-1].returncode} before it was killed")
    ends: dict[str, float | int] = {}
    left = dict(enumerate(processes[:-1]))
    while left and time.monotonic() < died + LIMIT_SECONDS and not faults:
        for rank, process in list(left.items()):
            if process.poll() is not None:
                ends[f"rank {rank}: seconds"] = time.monotonic() - died
                ends[f"rank {rank}: status"] = process.returncode
                del left[rank]
        time.sleep(0.01)
    faults += [f"rank {rank} still ran {LIMIT_SECONDS} s after the death" for rank in left if not faults]
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    faults += [f"{name} is 0, although a peer died" for name, end in ends.items() if "status" in name and end == 0]
    seconds = {name: end for name, end in ends.items() if "seconds" in name}
    statuses = {name: end for name, end in ends.items() if "status" in name}
    report = {
        "command": sys.argv,
        "ranks": chosen.ranks,
        "torch": torch.__version__,
        "faults": faults,
        "seconds": {"from the death to the end of the last": max(seconds.values(), default=0.0)},
        "facts": {**seconds, **statuses, "group seconds": GROUP_SECONDS},
    }
    chosen.json.write_text(json.dumps(report) + "\n")
    print(*faults, *(f"{name} {end:g}" for name, end in ends.items()), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
