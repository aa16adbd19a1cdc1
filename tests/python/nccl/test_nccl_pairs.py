"""Communicators of two ranks, which attach at their first call of any kind. On the fakes."""

from __future__ import annotations

import pytest
from nccl_ranks import Ranks

NOT_ATTACHED = "the communicator is not attached yet"


@pytest.fixture
def two(preloaded):
    """Runs a job on two ranks."""
    on_ranks = Ranks(preloaded, "nccl_pair_jobs")

    def run(job, **arguments):
        for correct in on_ranks(job, 2, **arguments):
            assert all(correct)
        return on_ranks

    return run


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_creation_jobs")


@pytest.mark.parametrize("way", ["by rank", "with a configuration", "scalable", "in a group"])
def test_programs_that_only_send_and_receive_are_executed(on_ranks, way):
    assert on_ranks("transfers", 2, way=way) == [[True] * 2] * 2
    assert on_ranks.taken() == {"send": (2, 0), "recv": (2, 0)}


@pytest.mark.parametrize("job", ["one_way_first", "collective_first"])
def test_different_first_calls_are_executed(two, job):
    found = two(job)
    assert found.reasons() == set()


def test_a_transfer_to_the_same_rank_is_not_a_first_call(two):
    found = two("to_itself_first")
    assert found.statistics()[1]["send"]["taken"] == 1
    assert found.statistics()[0]["send"]["taken"] == 1
    assert found.reasons() == {NOT_ATTACHED}


@pytest.mark.parametrize("job", ["captured_by_one", "nonblocking_on_one"])
def test_both_ranks_forward_if_one_cannot_attach(two, job):
    assert two(job).reasons() == {NOT_ATTACHED}


def test_a_call_that_cannot_wait_does_not_delay_the_peer(two):
    assert two("collective_first", users=True).reasons() == {"a user-defined reduction", NOT_ATTACHED}


def test_a_rank_without_the_drop_in_does_not_delay_the_peer(two):
    assert two("without_the_drop_in").reasons() == {NOT_ATTACHED}


def test_ranks_do_not_attach_for_calls_without_a_gain(two, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "send,recv")
    assert two("one_way_first").taken() == {"send": (0, 2), "recv": (0, 2)}


@pytest.mark.parametrize("end", ["CommDestroy", "CommAbort"])
def test_a_communicator_may_be_destroyed_before_its_first_call(on_ranks, end):
    assert on_ranks("destroyed_before_use", 2, end=end) == [True] * 2


def test_an_abort_ends_the_wait_for_the_peer(preloaded):
    (status, seconds), _ = Ranks(preloaded, "nccl_pair_jobs")("aborted", 2)
    assert status == 3
    assert seconds < 10


def test_nonblocking_communicators_do_not_attach_at_their_first_call(on_ranks):
    assert on_ranks("nonblocking", 2) == [True] * 2
    assert on_ranks.reasons() == {NOT_ATTACHED}


def test_communicators_with_the_same_id_do_not_connect_to_each_other(on_ranks, monkeypatch):
    monkeypatch.setenv("NCCL_COMM_ID", "127.0.0.1:1234")
    assert on_ranks("transfers", 2, way="by rank") == [[True] * 2] * 2
    assert on_ranks.reasons() == {NOT_ATTACHED}
