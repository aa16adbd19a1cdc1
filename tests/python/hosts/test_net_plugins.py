"""Collectives over the network plugins of NCCL, in every version of their interface."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import narrowcast
import pytest
from narrowcast._bench.launch import run_ranks

SUPPORT = str(Path(__file__).parents[1] / "support")
HOSTS = [0, 1]


def results(**environment: str) -> list[dict[str, str]]:
    """Digests of the results of all operations with several codecs, by rank."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        patch.setenv("PYTHONPATH", os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")]))
        for name, value in environment.items():
            patch.setenv(name, value)
        shared = {"unique_id": narrowcast.unique_id().hex(), "hosts": HOSTS, "count": 50_001}
        arguments = [{**shared, "rank": rank} for rank in range(len(HOSTS))]
        run_ranks("host_jobs:digests", arguments, found.append, timeout_seconds=60)
    return found[0]


@functools.cache
def results_over_tcp() -> list[dict[str, str]]:
    return results(NARROWCAST_NET="tcp")


@pytest.mark.parametrize("version", range(6, 13))
def test_collectives_have_the_bits_that_they_have_over_tcp(version, net_plugin):
    assert results(NARROWCAST_NET="plugin", NCCL_NET_PLUGIN=str(net_plugin(version))) == results_over_tcp()
