"""Programs for the tests of `narrowcast try`: each rank is a process that makes calls and computes for a known time."""

from __future__ import annotations

import os
import sys
import time
from ctypes import c_void_p

import narrowcast
import numpy as np
from narrowcast._bench.launch import run_ranks
from narrowcast._native.cuda_driver import Stream
from nccl_program import BFLOAT16, SUM, Program, program

RANKS = 2
LARGE, SMALL = 40_000, 2


class Steps:
    """Makes the calls of a step and computes: sleeps. Narrowcast's part is faster by a factor that a test sets."""

    def __init__(self, nccl: Program, comm: c_void_p, stream: Stream) -> None:
        self._nccl, self._comm, self._stream = nccl, comm, stream
        self._buffer = nccl.put(np.zeros(LARGE + 3, np.uint16))
        slow = os.environ.get("NARROWCAST_TAKE") == "never"
        self._factor = 1.0 if slow else float(os.environ.get("TRY_FACTOR", "1"))

    def call(self, count: int) -> None:
        self._nccl("AllReduce", self._buffer, self._buffer, count, BFLOAT16, SUM, self._comm, self._stream)

    def compute(self, milliseconds: float) -> None:
        self._stream.synchronize()
        time.sleep(milliseconds / 1e3 * self._factor)


def _train(steps: Steps, rank: int, count: int) -> None:
    """Buckets of gradients, a norm, sometimes a loss; ranks compute at different times."""
    for number in range(3):
        steps.call(100 + number)
    for number in range(count):
        steps.compute(3 if (number + rank) % 2 else 9)
        for size in (LARGE, LARGE + 1, LARGE):
            steps.call(size)
        steps.call(SMALL)
        if number % 10 == 9:
            steps.call(1)
        steps.compute(12)


def _changing(steps: Steps, rank: int, count: int) -> None:
    """The pattern changes for good, some steps have a call more or less, and there are evaluations between steps."""
    for number in range(count):
        steps.call(LARGE)
        if number < count // 4:
            steps.call(LARGE + 7)
        elif number % 9:
            steps.call(LARGE - 1)
        if number % 11 == 0:
            steps.call(LARGE + 2)
        steps.compute(2 + 2 * rank)
        if number % 30 == 29:
            for _ in range(6):
                steps.call(LARGE + 3)
                steps.compute(9)


def _irregular(steps: Steps, rank: int, count: int) -> None:
    generator = np.random.default_rng(5)
    for _ in range(count):
        steps.call(int(generator.integers(3000, LARGE)))
        steps.compute(1)


def _marked(steps: Steps, rank: int, count: int) -> None:
    for _ in range(count):
        narrowcast.mark_step()
        steps.compute(8)
        if rank == 0:
            time.sleep(0.0005)
    steps.call(LARGE)


def _hanging(steps: Steps, rank: int, count: int) -> None:
    steps.call(LARGE)
    steps.compute(1)
    time.sleep(600)


def _failing(steps: Steps, rank: int, count: int) -> None:
    steps.call(LARGE)
    steps.compute(1)
    if steps._factor != 1:
        print("out of luck", file=sys.stderr)
        sys.exit(3)
    _train(steps, rank, count)


PROGRAMS = {one.__name__[1:]: one for one in (_train, _changing, _irregular, _marked, _hanging, _failing)}


def rank_of(*, rank: int, ranks: int, name: str, count: int, emit: object) -> None:
    with program(rank, ranks) as (nccl, comm, stream):
        PROGRAMS[name](Steps(nccl, comm, stream), rank, count)
        stream.synchronize()
        nccl("CommDestroy", comm)


def main(name: str, count: str) -> None:
    """The command that tests try."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEST_FOLDER"] = folder
        arguments = [{"rank": rank, "ranks": RANKS, "name": name, "count": int(count)} for rank in range(RANKS)]
        run_ranks("try_jobs:rank_of", arguments, lambda results: None, timeout_seconds=600)


if __name__ == "__main__":
    main(*sys.argv[1:])
