"""Counts the bytes that every operation sends, and hashes its results, to compare commits.

    wire_bytes.py [--backend host|cuda] [--ranks N] >wire_bytes.json

The inputs are the same in every run. With backend cuda all ranks share GPU 0, and PyTorch provides its memory. Set
PYTHONPATH and NARROWCAST_LIBRARY to measure another checkout: only the public Python interface is used.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np

COUNTS = (1, 257, 5_000, 100_000, 700_001)  # of values that each rank sends to each other one
TYPES = ("float16", "float32")
CODECS = ("raw", "window!", "auto")


def import_torch() -> Any:
    return importlib.import_module("torch")


def arrays_of(backend: str) -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray]]:
    """How to bring values to the memory of the backend, and back."""
    if backend == "host":
        return np.copy, np.asarray
    torch = import_torch()
    return lambda values: torch.from_numpy(values).to("cuda:0"), lambda tensor: tensor.cpu().numpy()


class Calls:
    def __init__(self, comms: Any, backend: str) -> None:
        self.comms = comms
        self.ranks = len(comms)
        self.backend = backend
        self.to_backend, self.to_host = arrays_of(backend)
        self.streams: list[Any] = [None] * self.ranks
        if backend == "cuda":
            torch = import_torch()
            self.streams = [torch.cuda.Stream() for _ in comms]
            for stream in self.streams:  # the first launch on a stream may wait for running kernels
                with torch.cuda.stream(stream):
                    torch.zeros(1, device="cuda:0")

    def values(self, kind: str, count: int, rank: int) -> Any:
        random = np.random.default_rng([count, rank, len(kind)])
        return self.to_backend((random.standard_normal(count) * 0.02).astype(kind))

    def run(self, operation: str, kind: str, codec: str, count: int) -> dict[str, Any]:
        """All ranks call; the counted bytes of all ranks, and a hash of what they received."""
        many = count * self.ranks
        sends_all = operation in ("all_to_all", "all_to_all_v", "reduce_scatter", "scatter")
        holds_all = operation in ("all_gather", "all_to_all", "all_to_all_v", "gather")
        sources = [self.values(kind, many if sends_all else count, rank) for rank in range(self.ranks)]
        targets = [self.to_backend(np.zeros(many if holds_all else count, kind)) for _ in self.comms]
        before = [self.totals(comm) for comm in self.comms]
        self.synchronize()
        with narrowcast.group():
            for rank, comm in enumerate(self.comms):
                options: dict[str, Any] = {"codec": codec, "stream": self.streams[rank]}
                source, target = sources[rank], targets[rank]
                if operation == "send":
                    comm.send(source, (rank + 1) % self.ranks, **options)
                    comm.recv(target, (rank - 1) % self.ranks, **options)
                elif operation == "all_to_all_v":
                    counts = [count] * self.ranks
                    comm.all_to_all_v(source, target, counts, counts, **options)
                elif operation == "scatter":
                    comm.scatter(source if rank == 0 else None, target, **options)
                elif operation == "gather":
                    comm.gather(source, target if rank == 0 else None, **options)
                else:
                    getattr(comm, operation)(source, target, **options)
        self.synchronize()
        after = [self.totals(comm) for comm in self.comms]
        sent = [tuple(b - a for a, b in zip(old, new, strict=True)) for old, new in zip(before, after, strict=True)]
        results = hashlib.sha256(b"".join(self.to_host(target).tobytes() for target in targets)).hexdigest()[:16]
        return {"sent": sent, "results": results}

    def synchronize(self) -> None:
        if self.backend == "cuda":
            import_torch().cuda.synchronize()

    @staticmethod
    def totals(comm: Any) -> tuple[int, int]:
        counters = comm.counters()
        return counters.raw_bytes, counters.wire_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("host", "cuda"), default="host")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    operations = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast", "reduce")
    devices = {"devices": [0] * options.ranks, "max_ctas": 128 // options.ranks} if options.backend == "cuda" else {}
    found = {}
    with narrowcast.LocalRanks(options.ranks, backend=options.backend, timeout_seconds=20, **devices) as comms:
        calls = Calls(comms, options.backend)
        for operation in (*operations, "gather", "scatter", "send"):
            for kind in TYPES:
                for codec in CODECS:
                    for count in COUNTS:
                        name = f"{operation} {kind} {codec.removesuffix('!')} {count}"
                        found[name] = calls.run(operation, kind, codec, count)
    # One case per line.
    print("{" + ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in found.items()) + "}")


if __name__ == "__main__":
    main()
