"""The conformance tests on the host backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401


@pytest.fixture(scope="class", params=["2-ranks", "3-ranks", "4-ranks", "3-hosts"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    ranks = int(request.param[0])
    with pytest.MonkeyPatch.context() as patch:
        if request.param.endswith("hosts"):
            patch.setenv("NARROWCAST_HOSTID", "one")
        # With fewer than three ranks the order of a reduction does not matter.
        yield Setting("host", ranks, tuple(range(ranks)), "some" if request.param == "3-ranks" else "few", 120)


class TestTheHostBackend(Conformance):
    pass
