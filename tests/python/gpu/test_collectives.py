"""The conformance tests on the CUDA backend, with 2 GPUs and with all of them; and, with fewer cases, with the kernels
of GPUs that have less shared memory, with one hardware queue, as Megatron-LM requires, and with ranks that are on
several hosts, as their environment says.

NARROWCAST_TEST_RANKS_PER_GPU=k puts k ranks on each GPU, rank r on GPU r % gpus, and runs fewer cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from conformance.suite import Conformance, Setting, failures, report  # noqa: F401
from narrowcast.cuda import device_count

_MOST_RANKS = 8
_RANKS_PER_GPU = int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))
_RANKS = min(_MOST_RANKS, device_count() * _RANKS_PER_GPU)

pytestmark = pytest.mark.skipif(_RANKS < 2, reason="fewer than 2 GPUs")


@dataclass(frozen=True)
class Parameters:
    ranks: int
    shared_kib: int = 0  # that a CTA may have; 0: those of the GPU
    hosts: tuple[int, ...] = ()  # of each rank
    queues: int = 0  # CUDA_DEVICE_MAX_CONNECTIONS; 0: its default

    def __str__(self) -> str:
        hosts = f"-on-{max(self.hosts) + 1}-hosts" if self.hosts else ""
        queues = f"-{self.queues}-queue" if self.queues else ""
        return f"{self.ranks}-ranks" + f"-{self.shared_kib}-KiB" * bool(self.shared_kib) + hosts + queues


_PARAMETERS = [
    *(Parameters(ranks) for ranks in sorted({2, max(2, _RANKS)})),
    Parameters(max(2, _RANKS), 99),
    Parameters(2, 163),
    Parameters(2, hosts=(0, 1)),
    Parameters(2, queues=1),
]
if _RANKS > 2:
    _PARAMETERS.append(Parameters(_RANKS, hosts=(0, 1, 1, 2, 0, 2, 3, 3)[:_RANKS]))


@pytest.fixture(scope="class", params=_PARAMETERS, ids=str)
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    given: Parameters = request.param
    devices = tuple(rank % device_count() for rank in range(given.ranks))
    is_usual = not (given.shared_kib or given.hosts or given.queues)
    amount = "all" if _RANKS_PER_GPU == 1 and is_usual else "some"
    with pytest.MonkeyPatch.context() as patch:
        if given.shared_kib:
            patch.setenv("NARROWCAST_SHARED_KIB", str(given.shared_kib))
        if given.queues:
            patch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", str(given.queues))
        if given.hosts:
            patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        yield Setting("cuda", given.ranks, devices, amount, 240, given.hosts)


class TestTheCudaBackend(Conformance):
    pass
