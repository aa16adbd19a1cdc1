"""Ranks on hosts that have names of their own, and what the process that creates the id must know."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import narrowcast
import numpy as np
import pytest
from narrowcast.errors import NarrowcastError

from hosts.forked_ranks import ForkedRank, Report, end, fork_rank, wait_for_reports

_VARIABLES = (
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "SLURM_STEP_NUM_NODES",
    "NARROWCAST_HOSTID",
    "NCCL_HOSTID",
    "NARROWCAST_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
)


def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    hosts: list[str],
    body: Callable[[narrowcast.Communicator, Report], None],
    timeout_seconds: float = 20,
    own: Mapping[int, dict[str, str]] = MappingProxyType({}),
) -> list[ForkedRank]:
    """Creates an id with these variables, and a rank on each host without them. own: further ones of some ranks."""
    without_variables(monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    unique_id = narrowcast.unique_id()
    for name in variables:
        monkeypatch.delenv(name)

    def start(rank: int) -> ForkedRank:
        def work(report: Report) -> None:
            os.environ.update({"NARROWCAST_HOSTID": hosts[rank], **own.get(rank, {})})
            try:
                with narrowcast.Communicator(unique_id, rank, len(hosts), timeout_seconds=timeout_seconds) as comm:
                    body(comm, report)
            except NarrowcastError as error:
                report({"error": type(error).__name__, "message": str(error)})

        return fork_rank(work)

    ranks = [start(rank) for rank in range(len(hosts))]
    try:
        assert wait_for_reports(ranks, lambda: False, 60)
    finally:
        end(ranks)
    assert all(rank.status == 0 for rank in ranks)
    return ranks


def sum_of_ones(comm: narrowcast.Communicator, report: Report) -> None:
    report({"sum": float(comm.all_reduce(np.ones(10, np.float32))[0])})


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "2"},
        {"SLURM_STEP_NUM_NODES": "2"},
        {"NARROWCAST_SOCKET_IFNAME": "=lo"},
        {"NCCL_SOCKET_IFNAME": "lo"},
        {"NARROWCAST_HOSTID": "login"},
    ],
    ids=lambda variables: "-".join(variables),
)
def test_ids_span_hosts_if_the_environment_says_so(monkeypatch, variables: dict[str, Any]) -> None:
    ranks = run(monkeypatch, variables, ["one", "two"], sum_of_ones)
    assert [rank.of("sum") for rank in ranks] == [2.0, 2.0], [rank.reports for rank in ranks]


@pytest.mark.parametrize("variables", [{}, {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}], ids=["none", "one-node"])
def test_a_rank_on_another_host_than_the_id_is_for_is_told(monkeypatch, variables: dict[str, Any]) -> None:
    for rank in run(monkeypatch, variables, ["one", "two"], sum_of_ones):
        assert rank.of("error") == "UnsupportedError", rank.reports
        assert "NARROWCAST_SOCKET_IFNAME" in rank.of("message")


def test_ranks_that_exchange_bytes_learn_at_once_that_one_is_on_another_host(monkeypatch, tmp_path) -> None:
    def start(rank: int) -> ForkedRank:
        def exchange(mine: bytes) -> list[bytes]:
            (tmp_path / f"{rank}.new").write_bytes(mine)
            (tmp_path / f"{rank}.new").rename(tmp_path / str(rank))
            while not all((tmp_path / str(other)).exists() for other in range(3)):
                time.sleep(0.01)
            return [(tmp_path / str(other)).read_bytes() for other in range(3)]

        def work(report: Report) -> None:
            os.environ["NCCL_HOSTID" if rank == 2 else "UNRELATED"] = "elsewhere"
            try:
                narrowcast.Communicator.by_exchange(exchange, rank, 3, timeout_seconds=20).close()
            except NarrowcastError as error:
                report({"error": type(error).__name__, "message": str(error)})

        return fork_rank(work)

    without_variables(monkeypatch)
    ranks = [start(rank) for rank in range(3)]
    try:
        assert wait_for_reports(ranks, lambda: False, 10), "ranks wait for each other"
    finally:
        end(ranks)
    for rank in ranks:
        assert rank.of("error") == "UnsupportedError", rank.reports
        assert "rank 2 is on another host" in rank.of("message")


def test_communicators_of_several_hosts_are_split_within_hosts_and_across(monkeypatch) -> None:
    hosts = ["one", "one", "two", "three", "two"]

    def body(comm: narrowcast.Communicator, report: Report) -> None:
        mine = np.full(10, float(comm.rank), np.float32)
        with comm.split(["one", "two", "three"].index(hosts[comm.rank])) as near:
            report({"near": float(near.all_reduce(mine.copy())[0]), "near_ranks": near.ranks})
        with comm.split(0 if comm.rank in (1, 2, 3) else 1, key=-comm.rank) as far:
            report({"far": far.all_gather(mine).reshape(-1, 10)[:, 0].tolist()})

    ranks = run(monkeypatch, {"NARROWCAST_SOCKET_IFNAME": "lo"}, hosts, body)
    assert [rank.of("near") for rank in ranks] == [1.0, 1.0, 6.0, 3.0, 6.0], [rank.reports for rank in ranks]
    assert [rank.of("near_ranks") for rank in ranks] == [2, 2, 2, 1, 2]
    assert [rank.of("far") for rank in ranks] == [[4, 0], [3, 2, 1], [3, 2, 1], [3, 2, 1], [4, 0]]
