"""Calls on open tables read into the memory that they are given, and keep none of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Rows of 8 MiB, read and changed by a process that may allocate 1 MiB more than it has. One thread, because every
# other one would have a stack.
_BOUNDED = """
import contextlib, resource, sys
import numpy as np
from narrowcast import store

rng = np.random.default_rng(0)
rows = rng.standard_normal((1 << 14, 128), np.float32)
index = rng.permutation(len(rows)) if sys.argv[1] != "blocks" else np.arange(len(rows))[::-1].copy()
gathered, fetched = np.zeros_like(rows), np.zeros_like(rows)
few, fewer = index[:256], rows[index[:256]]
layout = sys.argv[1]

@contextlib.contextmanager
def bounded():
    used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
    unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 20), unlimited[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, unlimited)

with store.build(rows, layout=layout, spare=None if layout == "blocks" else 300) as table:
    with bounded():
        for _ in range(2):
            table.gather(index, out=gathered, threads=1)
            table.fetch(0, out=fetched, threads=1)
        for _ in range(0 if layout == "blocks" else 50):  # 6 MiB in all
            table.update(few, fewer, threads=1)
        try:
            table.gather(index, threads=1)
            sys.exit("the limit is without effect")
        except MemoryError:
            pass
    assert np.array_equal(gathered, rows[index])
    assert np.array_equal(fetched, rows)
"""


@pytest.mark.parametrize("layout", ["stride", "packed", "blocks"])
def test_reads_into_given_memory_and_updates_take_no_more_of_it(layout):
    # Blocks that are freed go back to the system, and are counted again when they are allocated again.
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _BOUNDED, layout],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
