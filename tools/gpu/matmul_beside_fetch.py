"""Measures how much slices of a store that are fetched at the same time slow down a matrix multiplication.

    matmul_beside_fetch.py --json matmul_beside_fetch.json

The rows are 2 KiB of bfloat16, fetched in slices of 128 MiB on a stream of their own; next to them, the same tensor is
copied by cudaMemcpy. Clocks drift by more than a fetch costs, so each multiplication beside something is compared with
one alone before and one after it. Needs torch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from narrowcast import store
from provenance import provenance

SIZE = 8192
ROWS, VALUES = 1 << 16, 1024
CALLS, WARM_UP = 30, 3
ROUNDS, WARM_UP_ROUNDS = 15, 2


class Bench:
    """A matrix multiplication on one stream, and room for what runs beside it."""

    def __init__(self) -> None:
        self.left = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.right, self.product = torch.randn_like(self.left), torch.empty_like(self.left)
        self.main, self.side = torch.cuda.Stream(), torch.cuda.Stream()

    def multiply(self, beside: Callable[[], object] | None) -> float:
        """Milliseconds of a multiplication, while `beside` is called all the time, which enqueues work on `side`."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        running, stop = threading.Event(), threading.Event()
        if beside is not None:
            caller = threading.Thread(target=self._call, args=(beside, running, stop))
            caller.start()
            running.wait()
        with torch.cuda.stream(self.main):
            for i in range(WARM_UP + CALLS):
                if i == WARM_UP:
                    begin.record()
                torch.mm(self.left, self.right, out=self.product)
            end.record()
        end.synchronize()
        if beside is not None:
            stop.set()
            caller.join()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / CALLS

    def _call(self, beside: Callable[[], object], running: threading.Event, stop: threading.Event) -> None:
        """Keeps two calls enqueued."""
        ends = [torch.cuda.Event() for _ in range(2)]
        for i in itertools.count():
            ends[i % 2].synchronize()
            beside()
            ends[i % 2].record(self.side)
            running.set()
            if stop.is_set():
                return

    def speed(self, call: Callable[[], object], out_bytes: int) -> float:
        """GB/s of calls with nothing beside them."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        begin.record(self.side)
        for _ in range(ROUNDS):
            call()
        end.record(self.side)
        end.synchronize()
        return ROUNDS * out_bytes / float(begin.elapsed_time(end)) / 1e6


def measure() -> dict[str, Any]:
    """Slow-downs by what runs beside the multiplication; by "nothing", what the clock alone makes of them."""
    torch.manual_seed(0)
    bench = Bench()
    source = (torch.randn(ROWS, VALUES) * 0.02).to(torch.bfloat16)
    pinned, out = source.pin_memory(), torch.empty_like(source, device="cuda")
    table = store.build(source, "window", "stride")
    assert table is not None
    table.prepare(stream=bench.side)

    def copy() -> None:
        with torch.cuda.stream(bench.side):
            out.copy_(pinned, non_blocking=True)

    def fetch(sms: int) -> Callable[[], object]:
        return lambda: table.fetch(0, ROWS, out=out, stream=bench.side, sms=sms)

    calls: dict[str, Callable[[], object] | None] = {"nothing": None, "cudaMemcpy": copy}
    calls |= {f"fetch on {sms} SMs": fetch(sms) for sms in (2, 4, 8)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    ratios: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(WARM_UP_ROUNDS + ROUNDS):
        before = bench.multiply(None)
        for name, call in calls.items():
            time = bench.multiply(call)
            after = bench.multiply(None)
            if i >= WARM_UP_ROUNDS:
                times[name].append(time)
                ratios[name].append(2 * time / (before + after))
            before = after
    rows = []
    for name, call in calls.items():
        lowest, _, highest = statistics.quantiles(ratios[name], n=4)
        row: dict[str, Any] = {"beside": name, "ms": statistics.median(times[name])}
        row |= {"slow_down": statistics.median(ratios[name]), "slow_down_quartiles": [lowest, highest]}
        row["slow_down_range"] = [min(ratios[name]), max(ratios[name])]
        if call is not None:
            row["gb_per_s_alone"] = bench.speed(call, out.nbytes)
            out.zero_()
            call()
            torch.cuda.synchronize()
            row["exact"] = torch.equal(out.cpu().view(torch.uint8), source.view(torch.uint8))
        rows.append(row)
    return {"matrix": SIZE, "dtype": "bfloat16", "row_bytes": 2 * VALUES, "ratio": table.ratio, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    result = provenance() | measure()
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
