"""Fixtures for GPU memory. All tests in this folder are skipped without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from narrowcast import cuda
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer, Stream

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if cuda.device_count():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU was found"))


@pytest.fixture(autouse=True)
def device():
    """Makes the first GPU current."""
    with cuda_driver.on_device(0):
        yield
        # Reports a fault of a kernel in the test that launched it.
        cuda_driver.call("cuCtxSynchronize")


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def status() -> DeviceBuffer:
    return DeviceBuffer(16).fill(0)
