"""The conformance tests on the CUDA backend, with 2 GPUs and with all of them.

NARROWCAST_TEST_RANKS_PER_GPU=k puts k ranks on each GPU, rank r on GPU r % gpus, and runs fewer cases.
"""

from __future__ import annotations

import os

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401
from narrowcast.cuda import device_count

_MOST_RANKS = 8
_RANKS_PER_GPU = int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))
_RANKS = min(_MOST_RANKS, device_count() * _RANKS_PER_GPU)

pytestmark = pytest.mark.skipif(_RANKS < 2, reason="fewer than 2 GPUs")


@pytest.fixture(scope="class", params=sorted({2, max(2, _RANKS)}), ids=lambda ranks: f"{ranks}-ranks")
def setting(request: pytest.FixtureRequest) -> Setting:
    devices = tuple(rank % device_count() for rank in range(request.param))
    return Setting("cuda", request.param, devices, "all" if _RANKS_PER_GPU == 1 else "some", 240)


class TestTheCudaBackend(Conformance):
    pass
