"""What the tests of the Python package share: the command line as a process, tensors of every type."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from narrowcast import _library, _samples
from narrowcast.cli import main
from narrowcast.types import VALUE_TYPES

settings.register_profile("narrowcast", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("narrowcast")

HERE = Path(__file__).parent
CLI_SECONDS = 60

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `narrowcast` with arguments, in a folder of its own."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "narrowcast", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=CLI_SECONDS,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200", **environment},
            check=False,
        )

    return run


@pytest.fixture
def cli_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """As `cli`, in this process, which is quicker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def rank_jobs(monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of functions that rank processes of the tests run, importable by them."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    return "rank_jobs"


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what stands for libcuda.so.1 and libnccl.so.2, and an NCCL from before 2.28."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    folder = tmp_path_factory.mktemp("fakes")
    for source, result, options in (
        ("cuda.cc", "libcuda.so.1", []),
        ("nccl.cc", "libnccl.so.2", [str(folder / "libcuda.so.1")]),
        ("nccl.cc", "libnccl_old.so.2", [str(folder / "libcuda.so.1"), "-DFAKE_NCCL_OLD"]),
    ):
        command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{result}"]
        source_file = str(HERE / "fakes" / source)
        subprocess.run([*command, "-o", str(folder / result), source_file, *options], check=True)
    return folder


@pytest.fixture(params=VALUE_TYPES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest):
    """Every value type."""
    return request.param


@pytest.fixture(scope="session")
def slices() -> Path:
    """The packaged safetensors file of real tensors."""
    return _samples.SLICES


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what stands for libcuda.so.1 and libnccl.so.2, and an NCCL from before 2.28."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    folder = tmp_path_factory.mktemp("fakes")
    for source, result, options in (
        ("cuda.cc", "libcuda.so.1", []),
        ("nccl.cc", "libnccl.so.2", [str(folder / "libcuda.so.1")]),
        ("nccl.cc", "libnccl_old.so.2", [str(folder / "libcuda.so.1"), "-DFAKE_NCCL_OLD"]),
        ("malloc.cc", "libmalloc.so", []),
    ):
        command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{result}"]
        source_file = str(HERE / "fakes" / source)
        subprocess.run([*command, "-o", str(folder / result), source_file, *options], check=True)
    return folder


@pytest.fixture(scope="session")
def drop_in() -> Path:
    """The drop-in for NCCL: NARROWCAST_TEST_DROP_IN, else beside the library."""
    named = os.environ.get("NARROWCAST_TEST_DROP_IN")
    path = Path(named) if named else _library.library_path().with_name("libnarrowcast_nccl.so")
    if not path.is_file():
        pytest.skip(f"no drop-in for NCCL at {path}")
    return path.absolute()
