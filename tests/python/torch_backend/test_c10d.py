"""torch's own tests of collectives (DistributedTest in torch.testing), with the backend "narrowcast" on CPUs.

Only tests of what the backend has. They need torch and expecttest.
"""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("expecttest", reason="torch's tests need expecttest, which is not installed")
if sys.platform != "linux":
    pytest.skip("the host backend needs Linux", allow_module_level=True)

# Read when the module is imported, also in the processes of the ranks.
os.environ.setdefault("BACKEND", "narrowcast")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", "/tmp")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import narrowcast.torch_backend  # noqa: F401
from torch.testing._internal.distributed import distributed_test as c10d

C10D_TESTS = (
    "test_all_gather",
    "test_all_gather_full_group",
    "test_all_gather_group",
    "test_all_gather_into_cat_tensor_cpu",
    "test_all_reduce_full_group_max",
    "test_all_reduce_full_group_sum",
    "test_all_reduce_group_min",
    "test_all_reduce_group_product",
    "test_all_reduce_max",
    "test_all_reduce_min",
    "test_all_reduce_product",
    "test_all_reduce_sum",
    "test_all_reduce_sum_async",
    "test_all_to_all",
    "test_all_to_all_full_group",
    "test_all_to_all_single_equal_split",
    "test_all_to_all_single_unequal_split",
    "test_barrier",
    "test_barrier_group",
    "test_broadcast",
    "test_broadcast_group",
    "test_broadcast_object_list",
    "test_gather",
    "test_gather_group",
    "test_gather_object",
    "test_isend",
    "test_reduce_max",
    "test_reduce_scatter_tensor_cpu",
    "test_reduce_sum",
    "test_scatter",
    "test_scatter_group",
    "test_send_recv",
    "test_send_recv_with_tag",
)


class TestNarrowcast(c10d.TestDistBackend, c10d.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
