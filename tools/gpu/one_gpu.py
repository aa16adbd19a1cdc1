"""Measures calls between ranks that share one GPU, in CUDA graphs, to compare the kernels of several commits.

    one_gpu.py [--ranks N]... [--shared-kib N]... [--max-ctas N]... COMMIT=CHECKOUT... >one_gpu.json

A checkout has its library in build/gpu/. --shared-kib measures it also with the kernels of GPUs that have less shared
memory (NARROWCAST_SHARED_KIB), --max-ctas with these limits instead of as many CTAs as fit on the GPU. The checkouts
alternate, each in its own process with its own Python package. A result is the least, median and greatest of several
processes, and in each one memory is elsewhere, because times depend on its place: compare medians, and expect them to
differ by a part of the spread. Data travels through the GPU's L2 cache and not over NVLink, so the times show how
commits compare and not how fast a machine is. Few CTAs are slower than NVLink, so the times of long calls with at most
16 are close to those between two GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from graph_times import elsewhere, microseconds, warm_up
from provenance import machine

KIB, MIB = 1 << 10, 1 << 20
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
REGISTERED = "send to registered memory"
SIZES = {"raw": (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB), "window": (MIB, 4 * MIB, 16 * MIB)}
MAX_BYTES = 16 * MIB
SMS = 128
REPLAYS, TURNS = 5, 8


def measure(ranks: int) -> dict[str, dict[str, float]]:
    """Operation and codec -> bytes, counted as by nccl-tests -> microseconds of the slowest rank."""
    import narrowcast
    from narrowcast._bench import samples
    from narrowcast._native.cuda_driver import DeviceBuffer, Stream, on_device

    found: dict[str, dict[str, float]] = {}
    with on_device(0):
        taken = [elsewhere()]
    with narrowcast.LocalRanks(ranks, backend="cuda", devices=[0] * ranks, timeout_seconds=10) as comms, on_device(0):
        streams = [Stream() for _ in comms]
        taken.append(elsewhere())
        values = samples.sample("weights", "bfloat16").view("uint8")
        sent = [DeviceBuffer(MAX_BYTES).write_tiled(values) for _ in comms]
        received = [DeviceBuffer(MAX_BYTES) for _ in comms]

        def call(operation: str, codec: str, whole_bytes: int, rank: int) -> None:
            whole, part = (0, whole_bytes), (0, whole_bytes // ranks)
            options: dict[str, Any] = {"codec": codec, "dtype": "bfloat16", "stream": streams[rank]}
            if operation in ("send", REGISTERED):
                if rank == 0:
                    comms[0].send(sent[0].part(*whole), 1, **options)
                elif rank == 1:
                    comms[1].recv(received[1].part(*whole), 0, **options)
                return
            source = sent[rank].part(*(part if operation == "all_gather" else whole))
            target = received[rank].part(*(part if operation == "reduce_scatter" else whole))
            getattr(comms[rank], operation)(source, target, **options)

        def measure_sizes(operation: str, codec: str) -> None:
            times = found.setdefault(f"{operation} {codec}", {})
            for size in SIZES[codec]:
                of_rank = partial(call, operation, forced(codec), size)
                times[str(size)] = round(microseconds(streams, of_rank, REPLAYS), 2)

        def register(rank: int) -> None:  # for as long as the communicators exist
            with on_device(0):
                comms[rank].register(received[rank])

        warm_up(streams, partial(call, "all_reduce", "raw", KIB))
        for codec, operation in itertools.product(SIZES, OPERATIONS):
            measure_sizes(operation, codec)
        with ThreadPoolExecutor(ranks) as threads:  # all ranks register together
            list(threads.map(register, range(ranks)))
        measure_sizes(REGISTERED, "raw")
    return found


def forced(codec: str) -> str:
    """The codec of a call that uses it even where it does not pay, as older libraries always do."""
    import narrowcast

    try:
        narrowcast.explain("send", 1, dtype="bfloat16", ranks=2, codec=f"{codec}!")
    except ValueError:  # an older library
        return codec
    return f"{codec}!"


def spread(times: list[float]) -> list[float]:
    """The least, median and greatest."""
    return [min(times), round(statistics.median(times), 2), max(times)]


def measured_by(checkout: Path, ranks: int, shared_kib: str, max_ctas: int | None) -> dict[str, dict[str, float]]:
    own = {
        "NARROWCAST_SHARED_KIB": shared_kib,
        "NARROWCAST_LIBRARY": str(checkout / "build/gpu/libnarrowcast.so"),
        "PYTHONPATH": str(checkout / "python"),
        # The kernels of all ranks run concurrently.
        "NARROWCAST_MAX_CTAS": str(max_ctas or SMS // ranks),
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "CUDA_MODULE_LOADING": "EAGER",
    }
    command = [sys.executable, __file__, "--measure", str(ranks)]
    done = subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, check=True, timeout=120)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--shared-kib", action="append", default=[], metavar="N")
    parser.add_argument("--max-ctas", type=int, action="append", metavar="N")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    parser.add_argument("checkouts", nargs="*", metavar="COMMIT=CHECKOUT")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    checkouts = {commit: Path(path).resolve() for commit, path in (one.split("=", 1) for one in options.checkouts)}
    measured = list(itertools.product(checkouts, ["", *options.shared_kib], options.max_ctas or [None]))
    runs: list[dict[str, Any]] = []
    for ranks in options.ranks or [2]:
        turns = [{one: measured_by(checkouts[one[0]], ranks, *one[1:]) for one in measured} for _ in range(TURNS)]
        for one in measured:
            commit, shared_kib, max_ctas = one
            of_turns = [turn[one] for turn in turns]
            times = {
                name: {size: spread([turn[name][size] for turn in of_turns]) for size in sizes}
                for name, sizes in of_turns[0].items()
            }
            limits = {"shared_kib": int(shared_kib)} if shared_kib else {}
            limits |= {"max_ctas": max_ctas} if max_ctas else {}
            runs.append({"commit": commit, "ranks": ranks, **limits, "microseconds": times})
    words = [f"--ranks {ranks}" for ranks in options.ranks or [2]]
    words += [f"--shared-kib {shared_kib}" for shared_kib in options.shared_kib]
    words += [f"--max-ctas {max_ctas}" for max_ctas in options.max_ctas or []]
    command = f"tools/gpu/one_gpu.py {' '.join(words)} COMMIT=CHECKOUT..."
    print(json.dumps({"machine": machine()[0], "command": command, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
