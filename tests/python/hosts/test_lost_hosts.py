"""Hosts that are lost: no packet comes from them any more, and nothing says so."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping

import narrowcast
import pytest

from hosts.fake_hosts import FakeHosts
from hosts.forked_ranks import ForkedRank, end, fork_rank, take_part, wait_for_reports

TIMEOUT_SECONDS = 3.0
MANY = 1_000_000  # calls
HOSTS = (0, 1, 1, 2)  # of each rank


def start_ranks(hosts: FakeHosts, calls: int | None, carrier: Mapping[str, str]) -> list[ForkedRank]:
    unique_id = narrowcast.unique_id()

    def start(rank: int) -> ForkedRank:
        def body(report) -> None:
            hosts.enter(HOSTS[rank])
            os.environ.update(carrier)
            # Hosts that are faked on one machine would share memory otherwise.
            os.environ["NARROWCAST_HOSTID"] = f"host{HOSTS[rank]}"
            take_part(report, unique_id, rank, len(HOSTS), TIMEOUT_SECONDS, 0, calls)

        return fork_rank(body)

    ranks = [start(rank) for rank in range(len(HOSTS))]
    assert wait_for_reports(ranks, lambda: all(rank.of("called") is not None for rank in ranks), 30)
    return ranks


@pytest.mark.parametrize(
    ("lost", "network", "calls"),
    [
        (0, "tcp", MANY),
        (1, "tcp", MANY),
        (1, "tcp", None),
        (2, "tcp", None),
        (1, "plugin", MANY),
        (1, "plugin", None),
        (1, "ucx", MANY),
        (1, "ucx", None),
    ],
)
def test_a_lost_host_is_named(fake_hosts, carrier, lost, network, calls) -> None:
    ranks = start_ranks(fake_hosts, calls, carrier(network))
    try:
        if calls is None:
            time.sleep(0.5)  # all of them wait
        fake_hosts.unplug(lost)
        assert wait_for_reports(ranks, lambda: False, 15), "ranks hang"
    finally:
        fake_hosts.plug(lost)
        end(ranks)
    for rank, one in enumerate(ranks):
        message = one.of("message")
        assert one.status == 0, rank
        assert one.of("error") == "RemoteError", (rank, message)
        named = re.search(r"rank (\d) \(pid \d+ on host(\d)\) (is lost|died)|connection to rank (\d)", message)
        assert named, (rank, message)
        assert one.of("left") == {}, rank
        if HOSTS[rank] != lost:
            assert any(f"rank {other} (pid" in message for other in range(4) if HOSTS[other] == lost), message


@pytest.mark.parametrize("network", ["tcp", "plugin", "ucx"])
def test_a_host_whose_processes_are_killed_is_named(fake_hosts, carrier, network) -> None:
    ranks = start_ranks(fake_hosts, None, carrier(network))
    for rank in (1, 2):
        os.kill(ranks[rank].pid, signal.SIGKILL)
    try:
        assert wait_for_reports(ranks, lambda: False, 15), "ranks hang"
    finally:
        end(ranks)
    for rank in (0, 3):
        assert re.search(r"rank [12] \(pid \d+ on host1\) died", ranks[rank].of("message")), ranks[rank].of("message")
        assert ranks[rank].of("left") == {}
