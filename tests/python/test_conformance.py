"""The conformance tests on the host backend."""

from __future__ import annotations

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401


@pytest.fixture(scope="class", params=[2, 3, 4], ids=lambda ranks: f"{ranks}-ranks")
def setting(request: pytest.FixtureRequest) -> Setting:
    # With fewer than three ranks the order of a reduction does not matter.
    return Setting("host", request.param, tuple(range(request.param)), "some" if request.param == 3 else "few", 120)


class TestTheHostBackend(Conformance):
    pass
