"""NARROWCAST_ATTACH=init: ranks attach when a communicator is created. On the fakes."""

from __future__ import annotations

import pytest
from nccl_ranks import OPERATIONS, Ranks

NOT_ATTACHED = {"the communicator is not attached yet"}


@pytest.fixture
def at_creation(preloaded, monkeypatch):
    monkeypatch.setenv("NARROWCAST_ATTACH", "init")
    return Ranks(preloaded, "nccl_creation_jobs")


def transfers_of(statistics):
    """By rank and communicator: the numbers of executed and forwarded sends and receives."""
    return {
        place: [(one["taken"], one["forwarded"]) for one in operations.values()]
        for place, operations in statistics.items()
    }


@pytest.mark.parametrize(
    ("attach", "way"),
    [
        ("init", "by rank"),
        ("init", "with a configuration"),
        ("init", "scalable"),
        ("init", "in a group"),
        ("first", "by rank"),
    ],
)
def test_programs_that_only_send_and_receive_are_executed(at_creation, monkeypatch, attach, way):
    monkeypatch.setenv("NARROWCAST_ATTACH", attach)
    assert at_creation("transfers", way=way) == [[True] * 2] * 3
    counts = (2, 0) if attach == "init" else (0, 2)
    assert at_creation.taken() == {"send": counts, "recv": counts}
    assert at_creation.reasons() == (set() if attach == "init" else NOT_ATTACHED)


@pytest.mark.parametrize("grouped", [True, False])
def test_one_thread_creates_the_communicators_of_all_gpus(at_creation, grouped):
    assert at_creation("one_thread", alone=True, grouped=grouped) == [[True] * 3]
    assert list(transfers_of(at_creation.statistics()).values()) == [[(1, 0)] * 2] * 3


@pytest.mark.parametrize("grouped", [True, False])
def test_a_rank_may_be_left_out_of_a_split(at_creation, grouped):
    assert at_creation("split", grouped=grouped) == [[True] * 2, [True] * 2, [True]]
    taken = [(1, 0)] * 2
    assert transfers_of(at_creation.statistics()) == {
        **dict.fromkeys(range(3), taken),
        **{(rank, 1): taken for rank in range(2)},
    }


def test_ranks_that_leave_and_join_attach(at_creation):
    assert at_creation("shrunk_and_grown") == [[True] * 2, [True] * 2, [True]]
    found = transfers_of(at_creation.statistics())
    # The first communicator was not used.
    assert [found.pop(rank) for rank in range(3)] == [[]] * 3
    assert len(found) == 5
    assert list(found.values()) == [[(1, 0)] * 2] * 5


@pytest.mark.parametrize("end", ["CommDestroy", "CommAbort"])
def test_a_communicator_may_be_destroyed_before_its_first_call(at_creation, end):
    assert at_creation("destroyed_before_use", end=end) == [True] * 3
    found = transfers_of(at_creation.statistics())
    assert [found[rank] for rank in range(3)] == [[]] * 3
    assert [found[rank, 1] for rank in range(3)] == [[(1, 0)] * 2] * 3


def test_nonblocking_communicators_do_not_attach_at_creation(at_creation):
    assert at_creation("nonblocking") == [True] * 3
    assert at_creation.taken() == {"send": (0, 1), "recv": (0, 1)}
    assert at_creation.reasons() == NOT_ATTACHED


def test_no_rank_attaches_at_creation_with_nonblocking_nccl(at_creation, monkeypatch):
    monkeypatch.setenv("NCCL_COMM_BLOCKING", "0")
    assert at_creation("transfers", way="by rank") == [[True] * 2] * 3
    assert at_creation.reasons() == NOT_ATTACHED


def test_captures_continue_during_creation(at_creation):
    assert at_creation("during_a_capture") == [[True] * 3] * 3
    found = transfers_of(at_creation.statistics())
    assert len(found) == 6
    assert list(found.values()) == [[(1, 0)] * 2] * 6


@pytest.mark.parametrize("unable", [0, 2])
def test_all_calls_are_forwarded_if_a_rank_cannot_attach(at_creation, monkeypatch, engine, unable):
    monkeypatch.setenv("NARROWCAST_LIBRARY", str(engine))
    assert at_creation("refused", unable=unable) == [[True] * 2] * 3
    assert at_creation.taken() == {"send": (0, 2), "recv": (0, 2)}
    assert at_creation.reasons() == {"a rank could not attach to the communicator"}


def test_every_operation_is_executed(at_creation, preloaded):
    for correct in Ranks(preloaded)("every_operation", count=5000):
        assert set(correct) == OPERATIONS
    assert {forwarded for _, forwarded in at_creation.taken().values()} == {0}


@pytest.mark.parametrize(("value", "differing"), [("first", 0), ("init", 2)])
def test_different_attach_settings_are_detected_at_a_collective(preloaded, monkeypatch, differing, value):
    monkeypatch.setenv("NARROWCAST_ATTACH", "init" if value == "first" else "first")
    on_ranks = Ranks(preloaded)
    for correct in on_ranks("differing_settings", differing=differing, name="NARROWCAST_ATTACH", value=value):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"the ranks have different settings of Narrowcast: attach"}


def test_a_long_wait_for_other_ranks_is_reported(at_creation, tmp_path):
    assert at_creation("one_attaches_late", seconds=11) == [True] * 3
    assert at_creation.reasons() == {"the ranks have different settings of Narrowcast: attach"}
    logs = [(tmp_path / f"{rank}.log").read_text() for rank in range(3)]
    waits = "waits for the others to attach: NARROWCAST_ATTACH must be init on all ranks"
    assert [log.count(f"rank {rank} of 3 {waits}") for rank, log in enumerate(logs)] == [1, 1, 0]
