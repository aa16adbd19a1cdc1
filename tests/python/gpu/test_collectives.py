"""The conformance tests on the CUDA backend, with 2 GPUs and with all of them; and, with fewer cases, with the kernels
of GPUs that have less shared memory.

NARROWCAST_TEST_RANKS_PER_GPU=k puts k ranks on each GPU, rank r on GPU r % gpus, and runs fewer cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401
from narrowcast.cuda import device_count

_MOST_RANKS = 8
_RANKS_PER_GPU = int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))
_RANKS = min(_MOST_RANKS, device_count() * _RANKS_PER_GPU)

pytestmark = pytest.mark.skipif(_RANKS < 2, reason="fewer than 2 GPUs")


# Numbers of ranks, and KiB of shared memory that a CTA may have; 0: those of the GPU.
_PARAMETERS = [*((ranks, 0) for ranks in sorted({2, max(2, _RANKS)})), (max(2, _RANKS), 99), (2, 163)]


@pytest.fixture(scope="class", params=_PARAMETERS, ids=lambda one: f"{one[0]}-ranks" + f"-{one[1]}-KiB" * bool(one[1]))
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    ranks, shared_kib = request.param
    devices = tuple(rank % device_count() for rank in range(ranks))
    amount = "all" if _RANKS_PER_GPU == 1 and not shared_kib else "some"
    with pytest.MonkeyPatch.context() as patch:
        if shared_kib:
            patch.setenv("NARROWCAST_SHARED_KIB", str(shared_kib))
        yield Setting("cuda", ranks, devices, amount, 240)


class TestTheCudaBackend(Conformance):
    pass
