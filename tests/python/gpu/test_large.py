"""Calls of more than 4 GiB between two GPUs, or with NARROWCAST_TEST_RANKS_PER_GPU=2 on one."""

from __future__ import annotations

import os

import narrowcast
import pytest
from codec_names import EXACT
from narrowcast._bench.launch import run_ranks
from narrowcast._native.cuda_driver import free_bytes
from narrowcast.cuda import device_count

RANKS = 2
ELEMS = (1 << 31) + 12_345  # of 2 bytes
RANKS_PER_GPU = int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))

pytestmark = pytest.mark.skipif(device_count() * RANKS_PER_GPU < RANKS, reason="fewer than 2 GPUs")


@pytest.mark.parametrize("codec", EXACT)
def test_calls_of_more_than_4_gib_are_correct(rank_jobs, codec):
    of_a_rank = (1 + 1 + RANKS) * 2 * ELEMS
    if free_bytes() < RANKS_PER_GPU * (of_a_rank + (1 << 30)):
        pytest.skip("too little memory on this GPU")
    unique_id = narrowcast.unique_id().hex()
    shared = {"unique_id": unique_id, "ranks": RANKS, "elems": ELEMS, "codec": codec}
    ranks = [{"rank": rank, "device": rank % device_count(), **shared} for rank in range(RANKS)]
    results: list[list[int]] = []
    run_ranks("large_jobs:calls", ranks, results.extend, timeout_seconds=150)
    assert results == [[0, 0, 0]] * RANKS
