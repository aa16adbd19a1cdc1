"""NARROWCAST_VERIFY of the drop-in: what it compares and logs, on the fakes."""

from __future__ import annotations

import pytest
from nccl_ranks import Ranks


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_verified_jobs")


@pytest.mark.parametrize("in_place", [True, False])
def test_values_are_verified_on_demand(on_ranks, monkeypatch, tmp_path, in_place):
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    on_ranks("verified", in_place=in_place, wrong=True)
    for rank in range(3):
        assert verified_by(tmp_path / f"{rank}.log") == [
            "all_gather of 5000 values: the codec preserves what this rank sends",
            "all_gather of 5000 values: the result equals what was sent",
            "all_reduce of 5000 values: the codec preserves what this rank sends",
            "all_reduce of 5000 values: the result is the same on all ranks",
            *["scatter of 5000 values: the codec preserves what this rank sends"] * (rank == 1),
            "scatter of 5000 values: the result equals what was sent",
            *["broadcast of 5000 values: the codec preserves what this rank sends"] * (rank == 1),
            *["broadcast of 5000 values: the result on rank 0 differs from what was sent by rank 1"] * (rank == 0),
            *["broadcast of 5000 values: the result equals what was sent"] * (rank != 0),
        ]


def test_with_a_bounded_codec_only_results_that_are_equal_on_all_ranks_are_compared(on_ranks, monkeypatch, tmp_path):
    rule = "[[rule]]\noperation = ['all_gather', 'broadcast', 'scatter']\nmin_bytes = 0\ncodec = 'int6!'\n"
    (tmp_path / "rules.toml").write_text(rule)
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    on_ranks("verified", in_place=False, wrong=False)
    for rank in range(3):
        assert verified_by(tmp_path / f"{rank}.log") == [
            "all_gather of 5000 values: the result is the same on all ranks",
            # Values of this type are stored raw.
            "all_reduce of 5000 values: the codec preserves what this rank sends",
            "all_reduce of 5000 values: the result is the same on all ranks",
            "broadcast of 5000 values: the result is the same on all ranks",
        ]


def test_results_that_are_not_compared_are_not_reported_as_verified(on_ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    on_ranks("verified_in_part")
    for rank in range(3):
        sent = ["reduce", "reduce_scatter", "send", "gather", "all_gather", "all_gather"]
        expected = [f"{operation} of 5000 values: the codec preserves what this rank sends" for operation in sent]
        # The root of the gather receives values. The last calls are in a group.
        expected[4:4] = ["gather of 5000 values: the result equals what was sent"] * (rank == 1)
        assert verified_by(tmp_path / f"{rank}.log") == expected


def test_different_sums_are_reported(on_ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    on_ranks("verified_sum", wrong_on=0)
    # The result of the first call is correct.
    for rank in range(3):
        others = [0] if rank != 0 else [1, 2]
        differs = f"all_reduce of 5000 values: the result on rank {rank} differs from that on rank"
        assert verified_by(tmp_path / f"{rank}.log") == [f"{differs} {other}" for other in others]


def verified_by(log):
    """The lines that the verification has logged."""
    lines = [line.partition("verify: ")[2] for line in log.read_text().splitlines()]
    return [line for line in lines if line]
