"""Communicators that are finalized, destroyed or aborted, and ranks that die. On the fakes."""

from __future__ import annotations

import json

import pytest
from narrowcast import errors
from nccl_ranks import Ranks


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_ends_jobs")


def test_finalizing_a_communicator_waits_for_its_calls(on_ranks):
    assert on_ranks("finalized") == [[True, True, 5, 4]] * 3
    assert on_ranks.taken() == {"all_gather": (6, 1)}
    assert on_ranks.reasons() == {"the communicator was finalized"}


def test_destroying_a_communicator_waits_for_its_calls(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    assert on_ranks("destroyed_with_pending_calls") == [[True] * 4] * 3
    assert on_ranks.taken() == {"all_gather": (4, 0), "broadcast": (0, 4)}
    assert [on_ranks.statistics()[rank, 1]["all_gather"]["taken"] for rank in range(3)] == [8] * 3


@pytest.mark.usefixtures("before_the_engine")
def test_the_ranks_of_a_process_are_destroyed_together(on_ranks):
    assert on_ranks("destroyed_in_turn", alone=True) == [[True] * 6]
    assert {operations["all_reduce"]["taken"] for operations in on_ranks.statistics().values()} == {1}


@pytest.mark.parametrize("by", [0, 1])
def test_an_abort_ends_long_transfers(on_ranks, monkeypatch, by):
    monkeypatch.setenv("NARROWCAST_CODEC", "window!")
    found = on_ranks("aborted_with_pending_calls", 2, by=by)
    assert max(seconds for seconds, _, _ in found) < 10
    assert [last_came for _, last_came, _ in found] == [False] * 2
    assert [error for _, _, error in found] == [0 if rank == by else 3 for rank in range(2)]


def test_an_abort_ends_executed_calls(on_ranks):
    assert max(on_ranks("aborted")) < 10
    # The counters were not read before the abort.
    assert set(on_ranks.links("all_reduce").values()) == {(None, None)}


@pytest.mark.parametrize("with_pending_call", [False, True])
def test_an_abort_of_a_peer_is_an_error_only_if_it_ends_a_call(on_ranks, with_pending_call):
    found = on_ranks("finalized_after_an_abort", with_pending_call=with_pending_call)
    assert found[0] == (3 if with_pending_call else 0)


def test_the_death_of_a_peer_is_reported_as_an_asynchronous_error(on_ranks, tmp_path):
    with pytest.raises(errors.RemoteError, match="signal 9"):
        on_ranks("a_peer_dies")
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text().startswith("[0, 6] ")


def test_statistics_follow_no_links(on_ranks, monkeypatch, tmp_path):
    """In a shared folder, such as /tmp, another user can create a link of any name that can be guessed."""
    precious, shared = tmp_path / "precious", tmp_path / "shared"
    precious.write_text("precious")
    shared.mkdir()
    reports = [shared / f"{rank}.json" for rank in range(2)]
    for path in reports:
        path.symlink_to(precious)
        path.with_suffix(".json.unfinished").symlink_to(precious)
    monkeypatch.setenv("NARROWCAST_STATS", str(shared / "%r.json"))
    on_ranks("aborted")
    assert precious.read_text() == "precious"
    for path in reports:
        assert not path.is_symlink()
        assert len(json.loads(path.read_text())["communicators"]) == 1
    assert {path.suffix for path in shared.iterdir()} == {".json", ".unfinished"}  # nothing else is left behind


def test_statistics_are_named_by_rank_and_written_while_the_process_runs(on_ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("NARROWCAST_STATS", str(tmp_path / "rank-%r.json"))
    monkeypatch.setenv("NARROWCAST_STATS_SECONDS", "1e-9")
    with pytest.raises(errors.RemoteError):
        on_ranks("a_peer_dies", 2)
    # The killed rank has written its report before its last call.
    reports = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert [report["nccl"]["version"] for report in reports] == ["2.28.9"] * 2
    ids = {one["id"] for report in reports for one in report["communicators"]}
    assert len(ids) == 1
    assert len(ids.pop()) == 16
