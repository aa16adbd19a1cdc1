"""Groups whose calls are on several streams, between two GPUs, or with NARROWCAST_TEST_RANKS_PER_GPU=2 on one."""

from __future__ import annotations

import os

import narrowcast
import pytest
from narrowcast._bench.launch import run_ranks
from narrowcast.cuda import device_count

RANKS = 2

pytestmark = pytest.mark.skipif(
    device_count() * int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1")) < RANKS, reason="fewer than 2 GPUs"
)


def test_groups_are_ordered_with_other_work_on_all_of_their_streams(rank_jobs):
    unique_id = narrowcast.unique_id().hex()
    ranks = [
        {"unique_id": unique_id, "rank": rank, "ranks": RANKS, "device": rank % device_count()} for rank in range(RANKS)
    ]
    results: list[list[bool]] = []
    run_ranks("group_jobs:two_streams", ranks, results.extend, timeout_seconds=100)
    assert results == [[True, True]] * RANKS
