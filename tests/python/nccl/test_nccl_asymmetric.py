"""Situations that differ between ranks: groups, aborts, failures. On the fakes."""

from __future__ import annotations

import pytest
from nccl_ranks import Ranks


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_asymmetric_jobs")


@pytest.fixture
def executes_long_transfers(preloaded, tmp_path, monkeypatch):
    rules = "[[rule]]\noperation = 'send'\nmax_bytes = 1000\ntake = 'never'\n[[rule]]\ntake = 'always'\n"
    (tmp_path / "rules.toml").write_text(rules)
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")


def test_transfers_are_executed_in_groups_with_a_call_that_cannot_wait(on_ranks):
    assert on_ranks("grouped_with_a_reduction") == [True] * 3
    statistics = on_ranks.statistics()
    assert (statistics[0]["send"]["taken"], statistics[1]["recv"]["taken"]) == (1, 1)


@pytest.mark.usefixtures("executes_long_transfers")
def test_a_communicator_does_not_wait_for_the_forwarded_calls_of_another(on_ranks):
    assert on_ranks("two_communicators") == [[True] * 3] * 3


def test_communicators_that_hang_are_aborted_one_after_the_other(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_TEST_FREE_WAITS", "1")
    assert max(on_ranks("aborted_together", 2)) < 5


def test_an_abort_ends_a_first_call_that_would_be_forwarded(on_ranks):
    internal_error = 3
    assert on_ranks("aborted_at_a_first_reduction", 2) == [internal_error, None]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_without_memory_has_no_calls(on_ranks, ranks):
    unhandled_cuda_error = 1
    for rank, status in enumerate(on_ranks("out_of_memory", ranks, refused_bytes=512 * (ranks + 1))):
        assert 0 not in status[:1]
        if rank == 1:
            assert status == [unhandled_cuda_error] * 3


def test_a_call_rejected_on_one_rank_ends_on_all(on_ranks):
    assert on_ranks("rejected_by_one", 2) == [True] * 2
