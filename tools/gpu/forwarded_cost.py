"""Measures the cost of forwarding: the time until a call returns, through the drop-in and from NCCL directly.

    forwarded_cost.py --json forwarded_cost.json

One process per GPU alternates between the drop-in and NCCL, with the same call of the same communicator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any

from narrowcast import cuda
from narrowcast._bench import nccl_library
from narrowcast._bench.launch import Emit, run_ranks
from narrowcast._comm.explain import explain
from narrowcast._dropin import nccl_search, preload
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from narrowcast.types import value_type

LIMIT_US = 1.0
CALLS, BATCHES = 40, 60


def measure(function: str, count: int, rank: int, ranks: int, real: str, id_file: str, emit: Emit) -> None:
    """Runs one rank and emits microseconds per call of every batch, through the drop-in and in NCCL."""
    through = nccl_library.Nccl(str(preload.drop_in()))
    with cuda_driver.on_device(rank):
        stream, buffer, comm = Stream(), DeviceBuffer(count * 2), c_void_p()
        through.call("ncclCommInitRank", byref(comm), ranks, unique_id(through, rank, Path(id_file)), rank)
        # The drop-in has loaded NCCL by now, with the flags that it needs.
        alone = nccl_library.Nccl(real)
        root = [0] if function == "ncclReduce" else []
        values = (buffer.pointer, buffer.pointer, count, value_type("bfloat16").number)
        arguments = (*values, 0, *root, comm, stream.handle)
        batches: dict[str, list[float]] = {"through": [], "alone": []}
        for batch in range(BATCHES):
            # Alternates the order, so that it does not affect the result.
            sides = [("through", through), ("alone", alone)]
            for name, library in sides if batch % 2 else reversed(sides):
                start = time.perf_counter()
                for _ in range(CALLS):
                    library.call(function, *arguments, comm=comm)
                batches[name].append((time.perf_counter() - start) / CALLS * 1e6)
                stream.synchronize()
        through.call("ncclCommDestroy", comm)
    emit(batches)


def unique_id(library: nccl_library.Nccl, rank: int, file: Path) -> Any:
    """The unique id of rank 0, distributed through a file."""
    if rank == 0:
        file.with_suffix(".part").write_bytes(library.unique_id())
        file.with_suffix(".part").rename(file)
    while not file.exists():
        time.sleep(0.01)
    return nccl_library.UniqueId.from_buffer_copy(file.read_bytes())


def run(take: str, function: str, count: int, ranks: int, real: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            LD_PRELOAD=str(preload.drop_in()),
            NARROWCAST_TAKE=take,
            NARROWCAST_NCCL_LIBRARY=real,
            NARROWCAST_STATS=f"{folder}/%p.json",
            PYTHONPATH=f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
        )
        found: list[list[dict[str, list[float]]]] = []
        common = {"function": function, "count": count, "ranks": ranks, "real": real, "id_file": f"{folder}/id"}
        arguments = [{**common, "rank": rank} for rank in range(ranks)]
        run_ranks("forwarded_cost:measure", arguments, found.append, timeout_seconds=60)
        reports = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    counted = [one for report in reports for comm in report["communicators"] for one in comm["operations"]]
    # Other activity on the machine only adds time, and little to the lower quartile. The slowest rank counts.
    medians = [
        {name: statistics.quantiles(times[4:], n=4)[0] for name, times in of_rank.items()} for of_rank in found[0]
    ]
    costs = [median["through"] - median["alone"] for median in medians]
    return {
        "function": function,
        "count": count,
        "microseconds": medians,
        "cost_microseconds": max(costs),
        "forwarded": sum(one["forwarded"] for one in counted),
        "taken": sum(one["taken"] for one in counted),
        "reasons": sorted({reason for one in counted for reason in one["reasons"]}),
    }


def slower_reduce(ranks: int) -> int:
    """The count of an ncclReduce for which the cost model predicts the largest slowdown compared with NCCL."""

    def by_nccl(count: int) -> float:
        times = explain("reduce", count, dtype="bfloat16", ranks=ranks).predicted
        return times.chosen / times.nccl_default if times.chosen and times.nccl_default else 0.0

    return max((1 << bits for bits in range(28)), key=by_nccl)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    nccl = nccl_search.chosen(nccl_search.candidates())
    ranks = cuda.device_count()
    if nccl is None or ranks < 2:
        raise SystemExit("no NCCL was found" if nccl is None else "fewer than 2 GPUs")
    # Reason for forwarding -> setting, function and count of a call that is forwarded for it.
    wanted = {
        "NARROWCAST_TAKE=never": ("never", "ncclAllReduce", 1),
        "NCCL is as fast": ("auto", "ncclReduce", slower_reduce(ranks)),
    }
    cases, faults = {}, []
    for why, (take, function, count) in wanted.items():
        case = cases[why] = run(take, function, count, ranks, str(nccl.path))
        cost = case["cost_microseconds"]
        print(f"   {function} of {count}, {why}: {cost:+.3f} us, {case['forwarded']} forwarded, {case['reasons']}")
        if cost > LIMIT_US:
            faults.append(f"{function} of {count}, {why}: {cost:.3f} us more")
        if case["taken"] or case["forwarded"] < CALLS * BATCHES * ranks:
            faults.append(f"{function} of {count}, {why}: {case['taken']} taken, {case['forwarded']} forwarded")
    if chosen.json:
        chosen.json.write_text(json.dumps({"cases": cases, "faults": faults}) + "\n")
    print(*(f"   FAILED: {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
