"""The drop-in for NCCL on communicators of two ranks, which attach at their first call of any kind; on the fakes."""

from __future__ import annotations

import pytest
from nccl_ranks import Ranks

NOT_ATTACHED = "the communicator is not attached yet"


@pytest.fixture
def two(preloaded):
    """Runs a job on two ranks."""
    on_ranks = Ranks(preloaded, "nccl_meeting_jobs")

    def run(job, **arguments):
        for right in on_ranks(job, 2, **arguments):
            assert all(right)
        return on_ranks

    return run


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_creation_jobs")


@pytest.mark.parametrize("way", ["by rank", "with a configuration", "scalable", "in a group"])
def test_programs_that_only_send_and_receive_are_taken(on_ranks, way):
    assert on_ranks("transfers", 2, way=way) == [[True] * 2] * 2
    assert on_ranks.taken() == {"send": (2, 0), "recv": (2, 0)}


@pytest.mark.parametrize("job", ["one_way_first", "collective_first"])
def test_first_calls_are_taken_though_they_differ(two, job):
    found = two(job)
    assert found.reasons() == set()


def test_a_transfer_to_oneself_is_no_first_call(two):
    found = two("to_itself_first")
    assert found.statistics()[1]["send"]["taken"] == 1
    assert found.statistics()[0]["send"]["taken"] == 1
    assert found.reasons() == {NOT_ATTACHED}


@pytest.mark.parametrize("job", ["captured_by_one", "not_blocking_on_one"])
def test_ranks_of_which_one_cannot_attach_are_left_to_nccl(two, job):
    assert two(job).reasons() == {NOT_ATTACHED}


def test_a_call_that_cannot_wait_keeps_nobody_waiting(two):
    assert two("collective_first", users=True).reasons() == {"a user-defined reduction", NOT_ATTACHED}


def test_a_rank_without_the_drop_in_keeps_nobody_waiting(two):
    assert two("without_the_other").reasons() == {NOT_ATTACHED}


def test_ranks_do_not_attach_for_what_is_not_worth_it(two, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "send,recv")
    assert two("one_way_first").taken() == {"send": (0, 2), "recv": (0, 2)}


@pytest.mark.parametrize("end", ["CommDestroy", "CommAbort"])
def test_a_communicator_may_end_before_its_first_call(on_ranks, end):
    assert on_ranks("ended_at_once", 2, end=end) == [True] * 2


def test_an_abort_ends_the_wait_for_the_other_rank(preloaded):
    (status, seconds), _ = Ranks(preloaded, "nccl_meeting_jobs")("aborted", 2)
    assert status == 3
    assert seconds < 10


def test_communicators_that_do_not_block_wait_for_a_collective(on_ranks):
    assert on_ranks("not_blocking", 2) == [True] * 2
    assert on_ranks.reasons() == {NOT_ATTACHED}


def test_one_id_for_all_communicators_leads_nobody_to_another(on_ranks, monkeypatch):
    monkeypatch.setenv("NCCL_COMM_ID", "127.0.0.1:1234")
    assert on_ranks("transfers", 2, way="by rank") == [[True] * 2] * 2
    assert on_ranks.reasons() == {NOT_ATTACHED}
