"""The drop-in between ranks on several hosts, as their environment says. On fakes and the host backend."""

from __future__ import annotations

import json
import os

import pytest
from nccl_ranks import OPERATIONS, Ranks

LEFT = "an earlier communicator between hosts was left to NCCL"
FAILED = "a rank could not attach to the communicator"
UNKNOWN = "no call is predicted to be faster than in NCCL between its hosts"
SHORT = "the call is short, and no long call has made the hosts attach yet"


@pytest.fixture
def on_ranks(preloaded, monkeypatch):
    monkeypatch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(preloaded / "cache"))
    return Ranks(preloaded, "nccl_host_jobs")


@pytest.fixture
def as_predicted(preloaded, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")


@pytest.mark.parametrize(("hosts", "count"), [("aab", 100), ("aba", 50_000), ("abc", 100), ("abc", 50_000)])
def test_every_operation_is_executed(on_ranks, hosts, count):
    for correct in on_ranks("every_operation", hosts=list(hosts), count=count):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == set()
    assert len(on_ranks.taken()) == 10


@pytest.mark.usefixtures("may_be_elsewhere")
@pytest.mark.parametrize("place", ["boot_id", "ipc", "net", "pid", "uts"])
def test_machines_are_hosts_and_containers_of_a_machine_are_left_to_nccl(on_ranks, place):
    for correct in on_ranks("in_different_places", place=place):
        assert set(correct) == OPERATIONS
    # The host name does not matter.
    is_executed = place in ("boot_id", "uts")
    assert on_ranks.reasons() == (set() if is_executed else {"ranks on one host are in several containers"})


@pytest.mark.usefixtures("before_the_engine", "as_predicted")
def test_ranks_attach_and_measure_at_the_first_long_call(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_CALIBRATE", "1")
    counts = [1000, 20_000, 1000]
    assert on_ranks("sums", 2, counts=counts, split=True, cut_off=False) == [[[True] * 3] * 2] * 2
    # The interposer predicts the same for all calls.
    assert on_ranks.taken() == {"all_reduce": (4, 2)}
    assert on_ranks.reasons() == {SHORT}
    said = (on_ranks.folder / "log").read_text()
    # The second communicator is between the same hosts. How fast a network is, is not kept for other programs.
    assert said.count("measured the costs of 2 ranks over network in ") == 1
    assert said.count(": kept in this process\n") == 1
    assert said.count("uses the costs in this process\n") == 1
    assert not (on_ranks.folder / "cache").exists()


@pytest.mark.usefixtures("as_predicted")
def test_hosts_between_which_nothing_is_faster_are_left_to_nccl(on_ranks):
    assert on_ranks("sums", 2, counts=[20_000], split=True, cut_off=False) == [[[True]] * 2] * 2
    assert on_ranks.taken() == {"all_reduce": (0, 2)}
    assert on_ranks.reasons() == {UNKNOWN, LEFT}
    assert "WARN" not in (on_ranks.folder / "log").read_text()
    assert {one["all_reduce"]["reasons"].get(LEFT) for one in on_ranks.statistics().values()} == {None, 2}
    reports = [json.loads(path.read_text()) for path in on_ranks.folder.glob("*.json")]
    assert {one["scratch_bytes"] for report in reports for one in report["communicators"]} == {0}


@pytest.mark.usefixtures("before_the_engine")
def test_ranks_that_cannot_connect_are_left_to_nccl_and_do_not_try_again(on_ranks):
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    assert on_ranks("sums", 2, counts=[1000], split=True, cut_off=True) == [[[True]] * 2] * 2
    assert on_ranks.taken() == {"all_reduce": (0, 2)}
    assert on_ranks.reasons() == {FAILED, LEFT}
    said = (on_ranks.folder / "log").read_text()
    assert said.count("cannot attach to its communicator: ") == 2
