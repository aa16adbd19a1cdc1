"""The library's error where the driver is older than the CUDA that it is built with, shown on the fake driver."""

import os
import subprocess
import sys

import narrowcast
import pytest
from narrowcast._native.library import library_path

PROGRAM = """
import narrowcast
try:
    narrowcast.Communicator(narrowcast.unique_id(), 0, 1, backend="cuda")
except narrowcast.UnsupportedError as error:
    print(error)
"""


def error_with(cuda_version: str, folder: str) -> str:
    changes = {
        "NARROWCAST_TEST_CUDA_VERSION": cuda_version,
        "LD_LIBRARY_PATH": folder,
        "NARROWCAST_LIBRARY": str(library_path().absolute()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env={**os.environ, **changes}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_old_driver_is_reported_with_the_minimum_and_the_remedy(fakes):
    error = error_with("12080", str(fakes))
    assert "the driver supports CUDA 12.8, and Narrowcast needs driver 580 or newer" in error
    assert "forward-compatibility package (cuda-compat-13-0)" in error


def test_a_missing_driver_is_not_reported_as_old(tmp_path):
    if narrowcast.cuda.device_count() > 0:
        pytest.skip("there is a driver")
    error = error_with("12080", str(tmp_path))
    assert "no usable GPU" in error
    assert "compat" not in error
