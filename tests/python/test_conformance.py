"""The conformance tests on the host backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401

# The host of each rank, if there are several.
_HOSTS = {"4-ranks-on-3-hosts": (0, 1, 2, 1), "2-hosts-over-plugin": (0, 1), "2-hosts-over-ucx": (0, 1)}


@pytest.fixture(scope="class", params=["2-ranks", "3-ranks", *_HOSTS])
def setting(request: pytest.FixtureRequest, carrier: Callable[[str], dict[str, str]]) -> Iterator[Setting]:
    hosts = _HOSTS.get(request.param, ())
    ranks = len(hosts) or int(request.param[0])
    with pytest.MonkeyPatch.context() as patch:
        if hosts:
            patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        _, over, network = request.param.partition("-over-")
        for name, value in carrier(network).items() if over else ():
            patch.setenv(name, value)
        # With fewer than three ranks the order of a reduction does not matter.
        amount = "some" if request.param == "3-ranks" else "few"
        yield Setting("host", ranks, tuple(range(ranks)), amount, 120, hosts, has_threads=request.param == "3-ranks")


class TestTheHostBackend(Conformance):
    pass
