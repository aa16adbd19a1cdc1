"""GPU memory for the tests, by the driver; everything in this folder skips where there is no GPU."""

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
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))


@pytest.fixture(autouse=True)
def device():
    """The first GPU is current."""
    with cuda_driver.on_device(0):
        yield
        # A kernel that faulted is seen in its own test.
        cuda_driver.call("cuCtxSynchronize")


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def status() -> DeviceBuffer:
    return DeviceBuffer(16).fill(0)
