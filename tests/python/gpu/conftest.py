"""Fixtures for GPU memory, and for programs that call NCCL. All tests in this folder are skipped without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from narrowcast import cuda, errors
from narrowcast._bench import nccl_library
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from nccl_ranks import Ranks

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


@pytest.fixture(scope="session")
def nccl() -> nccl_library.Nccl:
    try:
        return nccl_library.Nccl()
    except errors.UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture
def on_ranks(
    drop_in: Path, nccl: nccl_library.Nccl, rank_jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ranks:
    """Runs programs that call NCCL on ranks with the preloaded drop-in."""
    for name, value in {
        "LD_PRELOAD": str(drop_in),
        "NARROWCAST_TAKE": "always",
        "NARROWCAST_STATS": str(tmp_path / "%p.json"),
        "NCCL_NVLS_ENABLE": "0",
        "TEST_FOLDER": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    # Otherwise the drop-in uses the NCCL that the loader has found.
    if nccl.path.startswith("/"):
        monkeypatch.setenv("NARROWCAST_NCCL_LIBRARY", nccl.path)
    return Ranks(tmp_path)
