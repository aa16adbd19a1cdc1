"""PyTorch's own tests of process groups, which are part of its wheel, on CPU ranks of the backend narrowcast.

Most of them are meant for backends of certain names. Those for gloo run here, and those of all-to-all, which are for
MPI only.
"""

from __future__ import annotations

import multiprocessing
import os
import unittest
from pathlib import Path

# torch and its tests read these when they are imported. The time limit is that of a test, in seconds.
os.environ.update(
    BACKEND="gloo",
    WORLD_SIZE="3",
    MASTER_ADDR="127.0.0.1",
    CUDA_VISIBLE_DEVICES="",
    OMP_NUM_THREADS="1",
    DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="120",
)

import narrowcast.torch_backend
import torch
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import ddp_under_dist_autograd_test as autograd_test
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

common_distributed.TIMEOUT_OVERRIDE.clear()

# Ranks are forked from a process that has imported this module, which takes longer than most tests.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload([__name__])


class Ranks:
    """Runs each test in ranks whose process groups are of `backend`."""

    backend = narrowcast.torch_backend.NAME

    def setUp(self) -> None:
        super().setUp()
        # Ranks have the environment of the process that they are forked from: the folder is passed with the file.
        common_distributed.initialize_temp_directories()
        self.file_name = str(Path(os.environ["TEMP_DIR"]) / "store")
        self._start_processes(FORKED.Process)

    def tearDown(self) -> None:
        super().tearDown()
        common_distributed.cleanup_temp_dir()

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **options):
        os.environ["TEMP_DIR"] = str(Path(file_name).parent)
        create = torch.distributed.init_process_group
        torch.distributed.init_process_group = lambda backend, **others: create(cls.backend, **others)
        super()._run(rank, test_name, file_name, pipe, **options)


class DistributedTest(Ranks, distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def test_get_backend(self) -> None:
        distributed_test.BACKEND = self.backend
        super().test_get_backend()


class RpcRanks(Ranks, TensorPipeRpcAgentTestFixture, common_distributed.MultiProcessTestCase):
    """The same, with the servers of remote calls, which create the process groups themselves."""


class DdpComparisonTest(RpcRanks, autograd_test.DdpComparisonTest):
    pass


class DdpUnderDistAutogradTest(RpcRanks, autograd_test.DdpUnderDistAutogradTest):
    pass


class OnGloo:
    """The same tests on gloo, which `passes_elsewhere` runs."""

    class DistributedTest(DistributedTest):
        __test__, backend = False, "gloo"

    class DdpComparisonTest(DdpComparisonTest):
        __test__, backend = False, "gloo"

    class DdpUnderDistAutogradTest(DdpUnderDistAutogradTest):
        __test__, backend = False, "gloo"


for test in vars(distributed_test.DistributedTest._DistTestBase).values():
    if getattr(test, "__unittest_skip_why__", "").startswith("Only MPI supports"):
        del test.__unittest_skip__


def passes_elsewhere(tests: str, name: str) -> tuple[str, bool]:
    """The peer, and whether it passes a test of a class."""
    result = unittest.TestResult()
    getattr(OnGloo, tests)(name).run(result)
    return "gloo", result.wasSuccessful() and not result.skipped
