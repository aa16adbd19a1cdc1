"""GPU memory for the tests, by the driver; everything in this folder skips where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from narrowcast import _cuda_driver, cuda
from narrowcast._cuda_driver import DeviceBuffer, Stream

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
    with _cuda_driver.on_device(0):
        yield
        # A kernel that faulted is seen in its own test.
        _cuda_driver.call("cuCtxSynchronize")


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def status() -> DeviceBuffer:
    return DeviceBuffer(16).fill(0)
