"""The conformance tests on the host backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401

# The host of each rank, if there are several.
_HOSTS = {"3-hosts": (0, 1, 2), "2+3-ranks": (0, 1, 1, 0, 1), "2-hosts-over-a-plugin": (0, 1)}


@pytest.fixture(scope="class", params=["2-ranks", "3-ranks", *_HOSTS])
def setting(request: pytest.FixtureRequest, net_plugin: Callable[[int], Path]) -> Iterator[Setting]:
    hosts = _HOSTS.get(request.param, ())
    ranks = len(hosts) or int(request.param[0])
    with pytest.MonkeyPatch.context() as patch:
        if hosts:
            patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        if request.param.endswith("plugin"):
            patch.setenv("NARROWCAST_NET", "plugin")
            patch.setenv("NCCL_NET_PLUGIN", str(net_plugin(12)))
        # With fewer than three ranks the order of a reduction does not matter.
        amount = "some" if request.param == "3-ranks" else "few"
        yield Setting("host", ranks, tuple(range(ranks)), amount, 120, hosts, has_threads=request.param == "3-ranks")


class TestTheHostBackend(Conformance):
    pass
