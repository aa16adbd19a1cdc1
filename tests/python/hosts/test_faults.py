"""Random faults during random calls of ranks on one, two or three hosts: no rank hangs, no value is wrong, and nothing
is left behind.

NARROWCAST_TEST_ROUNDS is the number of rounds. Without root, or the command ip, no links fail.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import time
from pathlib import Path

import narrowcast
import pytest
from narrowcast._doctor.limits import remove_stale_segments

from hosts.fake_hosts import FakeHosts
from hosts.forked_ranks import ForkedRank, end, fork_rank, leftovers, take_part, wait_for_reports

ROUNDS = int(os.environ.get("NARROWCAST_TEST_ROUNDS", "10"))
SEED = int(os.environ.get("NARROWCAST_TEST_SEED", "0"))
TIMEOUT_SECONDS = 2.0
# Of a rank that joins: the time limits of the steps of joining come one after another.
JOINING_SECONDS = 4 * TIMEOUT_SECONDS
CALLS = 40


def _segments_of(processes: set[int]) -> list[str]:
    """The named segments that these processes joined (src/bootstrap/shared_memory.h)."""
    found = []
    for path in Path("/dev/shm").glob("narrowcast.*"):
        try:
            data = path.read_bytes()[: 8 + 64 * 32]
        except OSError:  # a notice, a segment of another test that is gone, or one of another user
            continue
        owners = struct.iter_unpack("=4Q", data[8 : 8 + (len(data) - 8) // 32 * 32])
        if any(pid in processes for _, pid, _, _ in owners):
            found.append(path.name)
    return found


def _listening_ports(processes: list[int]) -> set[tuple[str, int]]:
    """The places where processes listen, over IPv4."""
    places = set()
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A":
                address, port = fields[1].split(":")
                places.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return places


def _send_garbage(chance: random.Random, ranks: list[ForkedRank]) -> None:
    for place in _listening_ports([os.getpid(), *(rank.pid for rank in ranks if rank.status is None)]):
        try:
            with socket.create_connection(place, timeout=0.2) as connection:
                connection.sendall(chance.randbytes(chance.choice([0, 1, 16, 200, 100_000])))
        except OSError:
            continue


class _Round:
    def __init__(self, number: int, hosts: FakeHosts | None) -> None:
        self.chance = chance = random.Random(f"{SEED} {number}")
        self.namespaces = hosts
        ranks = chance.randint(2, 5)
        self.hosts = [chance.randrange(3) for _ in range(ranks)]
        faults = ["none", "kill", "kill", "garbage"] + (["link"] if hosts and len(set(self.hosts)) > 1 else [])
        self.fault = chance.choice(faults)
        self.seed = chance.randrange(1 << 30)
        self.delay_seconds = chance.choice([0.0, chance.uniform(0, 0.1), chance.uniform(0, 0.5)])
        self.victim = chance.randrange(ranks)
        self.text = f"round {number}, seed {SEED}: {self.fault} after {self.delay_seconds:.3f} s, hosts {self.hosts}"
        self.text += f", victim {self.victim}"

    def _start(self, unique_id: bytes, rank: int) -> ForkedRank:
        def body(report) -> None:
            if self.namespaces:
                self.namespaces.enter(self.hosts[rank])
            os.environ["NARROWCAST_HOSTID"] = f"host{self.hosts[rank]}"
            take_part(report, unique_id, rank, len(self.hosts), TIMEOUT_SECONDS, self.seed, CALLS)

        return fork_rank(body)

    def run(self) -> None:
        unique_id = narrowcast.unique_id()
        ranks = [self._start(unique_id, rank) for rank in range(len(self.hosts))]
        link = self.hosts[self.victim] if self.fault == "link" else None
        try:
            time.sleep(self.delay_seconds)
            if self.fault == "kill":
                wait_for_reports(ranks, lambda: True, 0)
                if ranks[self.victim].status is None:
                    os.kill(ranks[self.victim].pid, signal.SIGKILL)
            elif link is not None and self.namespaces:
                self.namespaces.unplug(link)
            elif self.fault == "garbage":
                _send_garbage(self.chance, ranks)
            limit = JOINING_SECONDS + TIMEOUT_SECONDS + 10
            assert wait_for_reports(ranks, lambda: False, limit), f"{self.text}: ranks hang: {self._told(ranks)}"
        finally:
            if link is not None and self.namespaces:
                self.namespaces.plug(link)
            end(ranks)
        for rank, one in enumerate(ranks):
            self._check(rank, one)
        outcomes = ", ".join(str(one.of("error") or one.status) for one in ranks)
        print(f"{self.text}: joined {sum(one.of('joined') is not None for one in ranks)}: {outcomes}")
        left = _segments_of({one.pid for one in ranks})
        assert not left or self.fault == "kill", f"{self.text}: left {left}"
        # The next rank that is created removes what killed ranks left.
        remove_stale_segments()
        assert not _segments_of({one.pid for one in ranks}), f"{self.text}: left {left}"

    def _told(self, ranks: list[ForkedRank]) -> list[list[dict]]:
        return [rank.reports[-2:] for rank in ranks]

    def _check(self, rank: int, one: ForkedRank) -> None:
        text = f"{self.text}: rank {rank}: {one.reports[-3:]}"
        assert one.of("wrong") is None, text
        if self.fault == "kill" and rank == self.victim:
            return
        assert one.status == 0, text
        assert one.of("left") == {}, text
        if self.fault in ("none", "garbage"):
            assert one.of("error") is None, text
            return
        if one.of("error") is None:
            return  # all calls had been made
        assert one.of("error") in ("RemoteError", "PeerTimeoutError"), text
        assert "rank " in one.of("message"), text


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_random_faults_do_no_harm(request: pytest.FixtureRequest) -> None:
    hosts: FakeHosts | None = None
    try:
        hosts = request.getfixturevalue("fake_hosts")
    except pytest.skip.Exception as reason:
        print(f"no links fail: {reason}")
    before = leftovers()
    with pytest.MonkeyPatch.context() as patch:
        if hosts is None:
            patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        for number in range(ROUNDS):
            _Round(number, hosts).run()
    after = leftovers()
    # The hubs share a thread and a few sockets, which stay for a while after the last one.
    assert after["threads"] <= before["threads"] + 1
    assert after["sockets"] <= before["sockets"] + 2
