"""Shared by the programs that use torch.distributed: the group, comparisons, digests, times, and the report.

The report allows runs with and without Narrowcast to be compared. It contains:
  faults    messages; empty if all results were correct
  moved     digests of results of calls that only move data: must have the same bits with and without Narrowcast
  summed    digests of results that depend on sums: must be the same in all runs of one library
  near      values that depend on sums, and the tolerance of their difference between libraries
  chosen    tokens selected by sums, and their margins over the next candidates: must be the same if these suffice
  seconds   times, of the slowest rank
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_DIGEST_WORDS = 1 << 24
#: About 5 ms on a Hopper: longer than the host takes to make the calls of a measurement.
_HELD_CYCLES = 10_000_000


def parser(program_doc: str) -> argparse.ArgumentParser:
    """The options of every program."""
    options = argparse.ArgumentParser(description=program_doc.splitlines()[0])
    options.add_argument("--json", type=Path, help="file for the report")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: uses gloo, to try a program")
    return options


class Job:
    """One rank of a program started by torchrun, and its report."""

    def __init__(self, options: argparse.Namespace, seconds: float = 120) -> None:
        """seconds: the timeout of calls of torch.distributed."""
        self.json = options.json
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.on_gpu = options.device == "cuda"
        # The workspace size affects the kernels that cuBLAS chooses, and thus the bits.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.device = torch.device("cpu")
        if self.on_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            "nccl" if self.on_gpu else "gloo",
            timeout=timedelta(seconds=seconds),
            device_id=self.device if self.on_gpu else None,
        )
        self.faults: list[str] = []
        self._own: dict[str, dict[str, Any]] = {"moved": {}, "summed": {}, "near": {}, "chosen": {}}
        self.seconds: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def check(self, correct: bool, what: str) -> None:
        """Records a fault unless `correct`."""
        if not correct:
            self.faults.append(f"rank {self.rank}: {what}")
            print(f"WRONG rank {self.rank}: {what}", flush=True)

    def same(self, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        """Records a fault unless both have the same bits."""
        self.check(found.shape == expected.shape and torch.equal(bits(found), bits(expected)), what)

    def moved(self, name: str, *tensors: torch.Tensor) -> None:
        self._own["moved"][name] = digest(*tensors)

    def summed(self, name: str, *tensors: torch.Tensor) -> None:
        self._own["summed"][name] = digest(*tensors)

    def digests(self, kind: str) -> dict[str, Any]:
        """What this rank has recorded: of the kind "moved", "summed", "near" or "chosen"."""
        return self._own[kind]

    def near(self, name: str, values: list[float], tolerance: float | None) -> None:
        """tolerance: the maximum difference relative to the largest value; None: differences are only reported."""
        self._own["near"][name] = {"values": [value.hex() for value in values], "tolerance": tolerance}

    def chosen(self, name: str, tokens: list[list[int]], margins: list[list[float]], enough: float) -> None:
        """enough: the margin above which rounding cannot change the choice of a token."""
        self._own["chosen"][name] = {"tokens": tokens, "margins": margins, "enough": enough}

    def barrier(self) -> None:
        dist.barrier(device_ids=[self.device.index] if self.on_gpu else None)

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def median(self, calls: Callable[[], object], repeats: int, warm_up: int = 1, *, held: bool = False) -> float:
        """Seconds that the calls take on the slowest rank: the median of the repetitions. held: see time()."""
        for _ in range(warm_up):
            calls()
        own = []
        for _ in range(repeats):
            self.synchronize()
            self.barrier()
            own.append(self.time(calls, held=held))
        return statistics.median(self.slowest(own))

    def slowest(self, own: list[float]) -> list[float]:
        """The maximum over all ranks of each value."""
        every = torch.tensor(own, dtype=torch.float64, device=self.device)
        dist.all_reduce(every, dist.ReduceOp.MAX)
        return every.tolist()

    def time(self, calls: Callable[[], object], *, held: bool = False) -> float:
        """Seconds that the calls take on this rank. held: the GPU begins when the host has made them all, so that the
        time of the host does not count."""
        if not self.on_gpu:
            start = time.perf_counter()
            calls()
            return time.perf_counter() - start
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if held:
            torch.cuda._sleep(_HELD_CYCLES)
        before.record()
        calls()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1000

    def graph(self, calls: Callable[[], object]) -> Callable[[], object]:
        """Runs the calls a few times and captures them in a CUDA graph. Returns its replay; on CPUs the calls."""
        if not self.on_gpu:
            return calls
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                calls()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # The watchdog of torch.distributed queries events during the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            calls()
        self._graphs.append(graph)
        return graph.replay

    def drop_graphs(self) -> None:
        """Frees the graphs: NCCL cannot destroy a communicator while graphs use it."""
        self.synchronize()
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()

    def end(self) -> None:
        """Writes the report of all ranks, leaves the group, and exits, with status 1 if a result was wrong."""
        self.drop_graphs()
        every: list[Any] = [None] * self.ranks
        dist.all_gather_object(every, (self.faults, self._own))
        # No rank leaves while others still wait for its data.
        self.barrier()
        dist.destroy_process_group()
        faults = [fault for found, _ in every for fault in found]
        if self.rank == 0:
            report: dict[str, Any] = {"command": sys.argv, "ranks": self.ranks, "torch": torch.__version__}
            if self.on_gpu:
                report["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            report |= {"faults": faults, "seconds": self.seconds, "facts": self.facts}
            for kind in self._own:
                report[kind] = {
                    f"{name}, rank {rank}": value
                    for rank, (_, own) in enumerate(every)
                    for name, value in own[kind].items()
                }
            if self.json is not None:
                self.json.write_text(json.dumps(report) + "\n")
            for name, seconds in self.seconds.items():
                print(f"{name:50} {seconds * 1e3:10.3f} ms")
            print("all results are correct" if not faults else f"{len(faults)} results are WRONG", flush=True)
        sys.exit(1 if faults else 0)


def bits(values: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor."""
    return values.detach().contiguous().reshape(-1).view(torch.uint8)


def digest(*tensors: torch.Tensor) -> str:
    """A hash of 64 bits that depends on every bit and its position, computed on the device of the tensors."""
    total = 0
    for number, tensor in enumerate(tensors):
        content = bits(tensor)
        count = content.numel()
        for start in range(0, count, 8 * _DIGEST_WORDS):
            part = content[start : start + 8 * _DIGEST_WORDS]
            # A copy that is aligned and padded to 8 bytes.
            words = torch.nn.functional.pad(part, (0, -part.numel() % 8)).clone().view(torch.int64)
            place = torch.arange(words.numel(), device=words.device) + (start // 8 + (number << 40))
            words ^= place * -0x61C8864680B583EB
            for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
                words = (words ^ (words >> shift & (1 << 64 - shift) - 1)) * factor
            total += int(words.sum()) + count
    return f"{total % (1 << 64):016x}"
