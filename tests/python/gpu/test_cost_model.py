"""Ranks on GPUs agree: on rank 0's cost model, the least shared memory, and a forced path if all ranks force it.

Between two GPUs, or with NARROWCAST_TEST_RANKS_PER_GPU=2 on one.
"""

from __future__ import annotations

import os

import pytest
from narrowcast._bench.launch import run_ranks
from narrowcast.comm import unique_id
from narrowcast.cuda import device_count

pytestmark = pytest.mark.skipif(
    device_count() * int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1")) < 2, reason="fewer than 2 GPUs"
)

OWN = """narrowcast-costs 2 a machine
all_reduce 2 nvlink packets 1:3 1000000:3
all_reduce 2 nvlink blocks:raw 1:2 1000000:2
all_reduce 2 nvlink blocks:window 1:1 1000000:1
"""


@pytest.fixture
def explained_by(rank_jobs):
    """How two ranks with different environment variables explain and run an all_reduce."""

    def run(*variables):
        rows = []
        shared = {"unique_id": unique_id().hex(), "ranks": 2, "variables": list(variables)}
        arguments = [{**shared, "rank": rank, "device": rank % device_count()} for rank in range(2)]
        run_ranks(f"{rank_jobs}:choices_on_gpus", arguments, rows.append, timeout_seconds=60)
        return rows[0]

    return run


def test_the_cost_model_of_rank_0_applies(explained_by, tmp_path):
    path = tmp_path / "own.costs"
    path.write_text(OWN)
    for one in explained_by({"NARROWCAST_COST_MODEL": str(path)}, {"NARROWCAST_COST_MODEL": "/nowhere"}):
        assert (one["path"], one["codec"], one["chosen"], one["sum"]) == ("blocks", "window", 1, 3)


def test_an_invalid_model_is_an_error_on_all_ranks(explained_by, tmp_path):
    path = tmp_path / "own.costs"
    path.write_text(OWN + "all_reduce fast\n")
    first, second = explained_by({"NARROWCAST_COST_MODEL": str(path)}, {})
    assert f"{path}, line 5: 'fast' is not a number of ranks" in first["error"]
    assert "rank 0" in second["error"]
    assert f"{path}, line 5" in second["error"]


@pytest.mark.parametrize("path", ["packets", "blocks"])
def test_the_requested_path_is_used(explained_by, path):
    for one in explained_by({"NARROWCAST_PATH": path}, {"NARROWCAST_PATH": path}):
        assert (one["path"], one["sum"]) == (path, 3)
        # 12 of the 16 bytes of a packet are values.
        assert (one["ratio"] > 1.2) == (path == "packets")


def test_kernels_have_the_warps_for_which_every_gpu_has_room(explained_by):
    blocks = {"NARROWCAST_PATH": "blocks"}
    for one in explained_by(blocks, {**blocks, "NARROWCAST_SHARED_KIB": "99"}):
        assert one["sum"] == 3
        assert " CTAs of 8 warps: " in one["sentence"]


def test_each_rank_encodes_the_long_pieces_of_its_own_counts(rank_jobs):
    rows = []
    shared = {"unique_id": unique_id().hex(), "ranks": 2, "counts": [16 << 20, 3000]}
    arguments = [{**shared, "rank": rank, "device": rank % device_count()} for rank in range(2)]
    run_ranks(f"{rank_jobs}:counts_on_gpus", arguments, rows.append, timeout_seconds=60)
    first, second = rows[0]
    assert first["arrived"]
    assert second["arrived"]
    assert first["ratio"] < 0.8
    assert 1 <= second["ratio"] < 1.1


def test_ranks_that_request_different_paths_do_not_join(explained_by):
    for one in explained_by({"NARROWCAST_PATH": "packets"}, {}):
        assert "NARROWCAST_PATH" in one["error"]
