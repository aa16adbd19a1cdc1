"""Measures the host's time for calls: until a call returns, through the drop-in and from NCCL directly.

    call_cost.py --json call_cost.json

One process per GPU alternates between the drop-in, which executes or forwards the calls, and NCCL, with the same calls
of the same communicator.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import asdict, dataclass
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
EXECUTED = ("ncclAllReduce", "ncclAllGather", "a message", "an exchange")
CALLS, BATCHES = 40, 60


@dataclass(frozen=True)
class Case:
    take: str  # NARROWCAST_TAKE
    what: str  # a function of NCCL, or see caller()
    count: int  # of bfloat16 values of a call or message
    reason: str = ""  # for which it is forwarded; "": it is executed

    @property
    def name(self) -> str:
        return f"{self.what} of {self.count}, {self.reason or 'executed'}"


def caller(library: nccl_library.Nccl, case: Case, rank: int, ranks: int, comm: c_void_p) -> Callable[[Stream], None]:
    """A function that makes the calls. "a message": rank 0 sends to rank 1; "an exchange": a group of messages between
    all ranks, including those of a rank to itself."""
    size, kind = 2 * case.count, value_type("bfloat16").number
    sent, received = DeviceBuffer(ranks * size).fill(0), DeviceBuffer(ranks * size).fill(0)

    def message(function: str, buffer: DeviceBuffer, part: int, peer: int, stream: Stream) -> None:
        place = buffer.pointer + part * size
        library.call(function, place, case.count, kind, peer, comm, stream.handle, comm=comm)

    def exchange(stream: Stream) -> None:
        library.call("ncclGroupStart")
        for peer in range(ranks):
            message("ncclSend", sent, peer, peer, stream)
            message("ncclRecv", received, peer, peer, stream)
        library.call("ncclGroupEnd")

    def collective(stream: Stream) -> None:
        numbers = {"ncclAllGather": (), "ncclReduce": (0, 0)}.get(case.what, (0,))  # reduction, root
        values = (sent.pointer, received.pointer, case.count, kind)
        library.call(case.what, *values, *numbers, comm, stream.handle, comm=comm)

    if case.what == "an exchange":
        return exchange
    if case.what == "a message":
        function, buffer = ("ncclRecv", received) if rank else ("ncclSend", sent)
        return lambda stream: message(function, buffer, 0, 1 - rank, stream) if rank < 2 else None
    return collective


def measure(case: dict[str, Any], rank: int, ranks: int, real: str, id_file: str, emit: Emit) -> None:
    """Runs one rank and emits microseconds per call of every batch, through the drop-in and in NCCL."""
    through = nccl_library.Nccl(str(preload.drop_in()))
    with cuda_driver.on_device(rank):
        stream, comm = Stream(), c_void_p()
        through.call("ncclCommInitRank", byref(comm), ranks, unique_id(through, rank, Path(id_file)), rank)
        # The drop-in has loaded NCCL by now, with the flags that it needs.
        alone = nccl_library.Nccl(real)
        libraries = {"through": through, "alone": alone}
        sides = [(name, caller(one, Case(**case), rank, ranks, comm)) for name, one in libraries.items()]
        batches: dict[str, list[float]] = {"through": [], "alone": []}
        for batch in range(BATCHES):
            # Alternates the order, so that it does not affect the result.
            for name, call in sides if batch % 2 else reversed(sides):
                start = time.perf_counter()
                for _ in range(CALLS):
                    call(stream)
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


def run(case: Case, ranks: int, real: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            LD_PRELOAD=str(preload.drop_in()),
            NARROWCAST_TAKE=case.take,
            NARROWCAST_NCCL_LIBRARY=real,
            NARROWCAST_STATS=f"{folder}/%p.json",
            PYTHONPATH=f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
        )
        found: list[list[dict[str, list[float]]]] = []
        common = {"case": asdict(case), "ranks": ranks, "real": real, "id_file": f"{folder}/id"}
        arguments = [{**common, "rank": rank} for rank in range(ranks)]
        run_ranks("call_cost:measure", arguments, found.append, timeout_seconds=60)
        reports = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    counted = [one for report in reports for comm in report["communicators"] for one in comm["operations"]]
    # Other activity on the machine only adds time, and little to the lower quartile. The slowest rank counts.
    quartiles = [
        {name: statistics.quantiles(times[4:], n=4)[0] for name, times in of_rank.items()} for of_rank in found[0]
    ]
    costs = [quartile["through"] - quartile["alone"] for quartile in quartiles]
    return {
        "calls": case.what,
        "count": case.count,
        "microseconds": quartiles,
        "cost_microseconds": max(costs),
        "forwarded": sum(one["forwarded"] for one in counted),
        "taken": sum(one["taken"] for one in counted),
        "reasons": sorted({reason for one in counted for reason in one["reasons"]}),
    }


def slower_reduces(ranks: int) -> list[Case]:
    """The ncclReduce for which the cost model predicts the largest slowdown compared with NCCL, if there is one."""

    def by_nccl(count: int) -> float:
        times = explain("reduce", count, dtype="bfloat16", ranks=ranks).predicted
        return times.chosen / times.nccl_default if times.chosen and times.nccl_default else 0.0

    count = max((1 << bits for bits in range(28)), key=by_nccl)
    return [Case("auto", "ncclReduce", count, "NCCL is as fast")] if by_nccl(count) >= 1 else []


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    nccl = nccl_search.chosen(nccl_search.candidates())
    ranks = cuda.device_count()
    if nccl is None or ranks < 2:
        raise SystemExit("no NCCL was found" if nccl is None else "fewer than 2 GPUs")
    cases = [
        Case("never", "ncclAllReduce", 1, "NARROWCAST_TAKE=never"),
        *slower_reduces(ranks),
        *(Case("always", what, count) for what in EXECUTED for count in (512, 512 << 10)),
    ]
    found, faults = {}, []
    for case in cases:
        one = found[case.name] = run(case, ranks, str(nccl.path))
        cost, taken, forwarded = (one[key] for key in ("cost_microseconds", "taken", "forwarded"))
        print(f"   {case.name}: {cost:+.3f} us, {taken} taken, {forwarded} forwarded, {one['reasons']}")
        if cost > LIMIT_US:
            faults.append(f"{case.name}: {cost:.3f} us more")
        if not (forwarded if case.reason else taken) or (taken if case.reason else forwarded):
            faults.append(f"{case.name}: {taken} taken, {forwarded} forwarded")
    if chosen.json:
        chosen.json.write_text(json.dumps({"cases": found, "faults": faults}) + "\n")
    print(*(f"   FAILED: {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
