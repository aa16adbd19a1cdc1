"""CTA limits of communicators, and suspended communicators. On the fakes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from nccl_ranks import Ranks

ZERO_CTAS = {"the communicator's CTA policy is NCCL_CTA_POLICY_ZERO"}
SPLITS = ["", "alone", "grouped", "alone, with a configuration", "grouped, with a configuration"]


@pytest.fixture
def on_ranks(before_the_engine, preloaded, monkeypatch, tmp_path):
    monkeypatch.setenv("TEST_CONFIGS", str(tmp_path / "configs"))
    return Ranks(preloaded, "nccl_resource_jobs")


@pytest.fixture
def limits(tmp_path):
    """max_ctas and max_collective_ctas of the engine's communicators that were created."""

    def read() -> list[tuple[int, int]]:
        path = tmp_path / "configs"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[1]), int(line.split()[2])) for line in lines]

    return read


@pytest.mark.parametrize("variable", [None, "65", "many"])
def test_without_a_valid_limit_only_long_collectives_leave_sms_to_compute(on_ranks, limits, monkeypatch, variable):
    if variable is not None:
        monkeypatch.setenv("NARROWCAST_MAX_CTAS", variable)
        monkeypatch.setenv("NARROWCAST_P2P", "perhaps")
    assert on_ranks("limited") == [True] * 3
    assert limits() == [(64, 28)] * 3


@pytest.mark.parametrize("split", SPLITS)
def test_the_lowest_max_ctas_of_all_ranks_counts(on_ranks, limits, split):
    assert on_ranks("limited", max_ctas=[16, 8, 24], split=split) == [True] * 3
    assert limits() == [(8, 0)] * 3


@pytest.mark.parametrize(("own", "effective"), [("4", 4), ("12", 8)])
def test_a_setting_and_a_configuration_both_limit_the_ctas(on_ranks, limits, monkeypatch, own, effective):
    monkeypatch.setenv("NARROWCAST_MAX_CTAS", own)
    assert on_ranks("limited", max_ctas=[16, 8, 24]) == [True] * 3
    assert limits() == [(effective, 0)] * 3


def test_the_efficiency_policy_limits_the_ctas(on_ranks, limits):
    assert on_ranks("limited", policy="efficiency") == [True] * 3
    assert limits() == [(16, 0)] * 3


@pytest.mark.parametrize("split", ["", "alone", "grouped, with a configuration"])
def test_the_zero_cta_policy_leaves_a_communicator_to_nccl(on_ranks, limits, split):
    assert on_ranks("limited", policy="zero", split=split) == [True] * 3
    assert limits() == []
    assert on_ranks.taken()["all_gather"] == (0, 1) if not split else on_ranks.reasons() == ZERO_CTAS
    assert on_ranks.reasons() == ZERO_CTAS


def test_variables_of_nccl_take_precedence(on_ranks, limits, monkeypatch):
    monkeypatch.setenv("NCCL_CTA_POLICY", "DEFAULT")
    monkeypatch.setenv("NCCL_MAX_CTAS", "20")
    assert on_ranks("limited", policy="zero", max_ctas=[8, 8, 8]) == [True] * 3
    assert limits() == [(20, 0)] * 3


def test_suspended_communicators_hold_no_memory(on_ranks, limits):
    expected = {"correct": [True] * 3, "held": [True, False, True, False, True]}
    assert on_ranks("suspended", attached=True) == [expected] * 3
    assert len(limits()) == 9
    assert on_ranks.taken() == {"all_gather": (1, 0), "send": (2, 0), "recv": (2, 0)}
    # Traffic on all three communicators of the engine is counted.
    assert {raw_bytes for raw_bytes, _ in on_ranks.links("send").values()} == {2 * 4000}


def test_unattached_communicators_stay_unattached_after_a_suspension(on_ranks, limits):
    expected = {"correct": [True] * 2, "held": [False] * 5}
    assert on_ranks("suspended", attached=False) == [expected] * 3
    assert limits() == []


def test_one_thread_suspends_all_ranks_in_a_group(on_ranks):
    assert on_ranks("suspended_by_one_thread", alone=True) == [{"correct": [True] * 2, "held": [True, False, True]}]


def test_memory_used_by_graphs_is_kept(on_ranks, limits):
    assert on_ranks("suspended_with_a_graph") == [
        {"correct": [True] * 2, "held": True},
        {"correct": [True] * 2, "held": True},
        {"correct": [True], "held": True},
    ]
    assert len(limits()) == 3


def test_the_drop_in_stays_loaded_after_dlclose(host_drop_in):
    program = """
import _ctypes, pathlib, sys
_ctypes.dlclose(_ctypes.dlopen(sys.argv[1], 2))
print(sys.argv[1] in pathlib.Path("/proc/self/maps").read_text())
"""
    command = [sys.executable, "-c", program, str(host_drop_in)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"
