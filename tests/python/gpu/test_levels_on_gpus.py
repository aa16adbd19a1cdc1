"""Communicators of two levels of GPUs, as if on two hosts. Two GPUs suffice with NARROWCAST_TEST_RANKS_PER_GPU=2."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conformance.suite import ConformanceOfLevels, Setting, failures, links, report  # noqa: F401
from narrowcast.cuda import device_count

_RANKS = min(8, device_count() * int(os.environ.get("NARROWCAST_TEST_RANKS_PER_GPU", "1"))) // 2 * 2

pytestmark = pytest.mark.skipif(_RANKS < 4, reason="fewer than 4 ranks on GPUs")


@pytest.fixture(scope="class")
def setting() -> Iterator[Setting]:
    hosts = tuple(rank * 2 // _RANKS for rank in range(_RANKS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        devices = tuple(rank % device_count() for rank in range(_RANKS))
        yield Setting("cuda", _RANKS, devices, "some", 240, hosts, two_levels=True)


class TestTheCudaBackend(ConformanceOfLevels):
    @pytest.mark.parametrize(("levels", "link"), [("auto", "two_levels"), ("1", "gpu_network"), ("2", "two_levels")])
    def test_has_two_levels_unless_a_setting_says_one(self, setting, monkeypatch, levels: str, link: str) -> None:
        monkeypatch.setenv("NARROWCAST_LEVELS", levels)
        assert links(setting) == [link] * setting.ranks
