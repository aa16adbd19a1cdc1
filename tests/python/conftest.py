"""Shared fixtures: the command line, tensors, fakes of other libraries, the drop-in."""

from __future__ import annotations

import ctypes.util
import importlib.util
import itertools
import json
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
from narrowcast._bench import samples
from narrowcast._dropin import preload
from narrowcast._native.library import library_path
from narrowcast.cli import main
from narrowcast.types import VALUE_TYPES
from run_traffic import COMMUNICATORS

settings.register_profile("narrowcast", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("narrowcast")

# NumPy would start threads in each of the many processes of the tests, none of which multiplies large matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

HERE = Path(__file__).parent
EXAMPLE_CODEC = HERE.parents[1] / "examples" / "codec"
INCLUDE = HERE.parents[1] / "include"
# Import path of the rank processes, the same as `pythonpath` in pyproject.toml.
SHARED = [str(folder) for folder in (HERE, HERE / "support", HERE / "nccl")]
CLI_SECONDS = 60

# Shells start commands in the background with SIGINT ignored, which the processes of tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `narrowcast` with arguments in a temporary folder."""

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
    """As `cli`, in this process, which is faster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            status = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def rank_jobs(monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of functions for rank processes, which can import it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*SHARED, os.environ.get("PYTHONPATH", "")]))
    return "rank_jobs"


@pytest.fixture(params=VALUE_TYPES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest):
    """Every value type."""
    return request.param


@pytest.fixture(scope="session")
def slices() -> Path:
    """The packaged safetensors file of real tensors."""
    return samples.SLICES


def build(compiler: str, source: str, result: Path, *options: str) -> None:
    """Builds a fake; skips the test without a compiler."""
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"{compiler} was not found")
    standard = "-std=gnu11" if compiler == "cc" else "-std=c++20"
    command = [found, standard, "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(result)]
    subprocess.run([*command, str(HERE / "fakes" / source), *options], check=True)


@pytest.fixture(scope="session")
def compiled_codec(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the example of a user's codec with replacements of its text. Returns the library."""
    folder, numbers = tmp_path_factory.mktemp("codecs"), itertools.count()

    def compile_one(*replacements: tuple[str, str]) -> Path:
        text = (EXAMPLE_CODEC / "uniform.c").read_text()
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        source = folder / f"codec{next(numbers)}.c"
        source.write_text(text)
        library = source.with_suffix(".so")
        build("cc", str(source), library, f"-I{INCLUDE}", "-lm")
        return library

    return compile_one


@pytest.fixture(scope="session")
def codec_with_header(compiled_codec: Callable[..., Path]) -> Callable[..., Path]:
    """The same with the CUDA header beside the library, in which a text is replaced."""

    def compile_one(old: str = "", new: str = "") -> Path:
        library = compiled_codec()
        header = (EXAMPLE_CODEC / "uniform.cuh").read_text()
        assert old in header
        library.with_suffix(".cuh").write_text(header.replace(old, new))
        return library

    return compile_one


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with fakes of the CUDA driver, NVML, NCCL, and NCCL before 2.28."""
    folder = tmp_path_factory.mktemp("fakes")
    driver = folder / "libcuda.so.1"
    build("c++", "cuda.cc", driver, "-Wl,-soname,libcuda.so.1")
    build("cc", "nvml.c", folder / "libnvidia-ml.so.1")
    build("c++", "nccl.cc", folder / "libnccl.so.2", str(driver), "-Wl,-soname,libnccl.so.2")
    build("c++", "nccl.cc", folder / "libnccl_old.so.2", str(driver), "-DFAKE_NCCL_OLD")
    build("c++", "malloc.cc", folder / "libmalloc.so")
    return folder


@pytest.fixture(scope="session")
def net_plugin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Compiles the network plugin of the tests with the table of a version."""
    folder = tmp_path_factory.mktemp("net_plugins")
    source = HERE.parent / "support" / "net_plugin" / "net_plugin.cc"

    def compile_one(version: int) -> Path:
        library = folder / f"libnccl-net-test_v{version}.so"
        if not library.exists():
            build("c++", str(source), library, f"-DVERSION={version}")
        return library

    return compile_one


@pytest.fixture(scope="session")
def carrier(net_plugin: Callable[[int], Path]) -> Callable[[str], dict[str, str]]:
    """The environment for ranks between whose hosts tcp, a plugin or ucx carries the bytes."""

    def environment_of(name: str) -> dict[str, str]:
        if name == "plugin":
            return {"NARROWCAST_NET": name, "NCCL_NET_PLUGIN": str(net_plugin(12))}
        return {"NARROWCAST_NET": name, **({"NARROWCAST_UCX": _ucx()} if name == "ucx" else {})}

    return environment_of


def _ucx() -> str:
    """The library that NARROWCAST_UCX names, that of the package, or that of the system."""
    package = importlib.util.find_spec("libucx")
    files = (
        [Path(folder, "lib/libucp.so.0") for folder in (package.submodule_search_locations or [])] if package else []
    )
    packaged = next((str(file) for file in files if file.exists()), None)
    found = os.environ.get("NARROWCAST_UCX") or packaged or ctypes.util.find_library("ucp")
    if found is None:
        pytest.skip("there is no libucp.so.0: no package libucx, and none of the system")
    return found


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and a fake of the drop-in."""
    folder = tmp_path_factory.mktemp("drop_in")
    (folder / "libnarrowcast.so").symlink_to(library_path().absolute())
    build("cc", "drop_in.c", folder / preload.NAME, "-Wl,-soname,libnccl.so.2")
    return folder


@pytest.fixture
def nccl_file(tmp_path: Path) -> Path:
    """A file in place of NCCL, for code that only searches for it."""
    path = tmp_path / "real" / "libnccl.so.2"
    path.parent.mkdir()
    path.write_bytes(b"any content")
    return path


@pytest.fixture
def with_stand_in(stand_in: Path, nccl_file: Path) -> dict[str, str]:
    """The environment of `narrowcast run` with the fake drop-in, which reports COMMUNICATORS."""
    return {
        "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
        "NARROWCAST_NCCL_LIBRARY": str(nccl_file),
        "NARROWCAST_TEST_COMMUNICATORS": json.dumps(COMMUNICATORS),
    }


@pytest.fixture
def run(cli: Cli, with_stand_in: dict[str, str]) -> Cli:
    """`narrowcast run` with the fake drop-in."""

    def start(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return cli("run", *arguments, **{**with_stand_in, **environment})

    return start


@pytest.fixture
def started_run(tmp_path: Path, with_stand_in: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `narrowcast run` in the background, and waits until the command is ready."""
    processes = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "narrowcast", "run", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **with_stand_in},
            start_new_session=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def drop_in() -> Path:
    """The drop-in: NARROWCAST_TEST_DROP_IN, or in the folder of the library."""
    named = os.environ.get("NARROWCAST_TEST_DROP_IN")
    path = Path(named) if named else library_path().with_name(preload.NAME)
    if not path.is_file():
        pytest.skip(f"no drop-in for NCCL at {path}")
    return path.absolute()


@pytest.fixture(scope="session")
def host_drop_in() -> Path:
    """The drop-in on the host backend, from a build tree: NARROWCAST_TEST_HOST_DROP_IN, or in build/."""
    named = os.environ.get("NARROWCAST_TEST_HOST_DROP_IN")
    path = Path(named) if named else HERE.parents[1] / "build" / "libnarrowcast_nccl_test.so"
    if not path.is_file():
        pytest.skip(f"no drop-in for the host backend at {path}: build narrowcast_nccl_test")
    return path.absolute()


@pytest.fixture
def with_host_drop_in(host_drop_in: Path, fakes: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of commands that use the drop-in on the host backend, beside the library as in the package."""
    library = tmp_path / "lib" / "libnarrowcast.so"
    library.parent.mkdir()
    library.symlink_to(library_path().absolute())
    library.with_name(preload.NAME).symlink_to(host_drop_in)
    return {
        "NARROWCAST_LIBRARY": str(library),
        "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
        "LD_LIBRARY_PATH": str(fakes),
    }


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interposer between the drop-in and the library."""
    folder = tmp_path_factory.mktemp("engine")
    real = folder / "libnarrowcast.so.0"
    real.symlink_to(library_path().absolute())
    options = (f"-I{HERE.parents[1] / 'include'}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", str(real), "-ldl")
    build("c++", "engine.cc", folder / "libengine.so", *options)
    return folder / "libengine.so"


@pytest.fixture
def before_the_engine(preloaded: Path, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the drop-in load the interposer instead of the library."""
    monkeypatch.setenv("NARROWCAST_LIBRARY", str(engine))


@pytest.fixture(scope="session")
def nvtx_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake profiler."""
    library = tmp_path_factory.mktemp("nvtx") / "libtool.so"
    build("cc", "nvtx_tool.c", library)
    return library


@pytest.fixture(scope="session")
def selector_in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with a function that chooses plans, linked with the library of the tests."""
    library, real = tmp_path_factory.mktemp("selector") / "libselector.so", library_path().absolute()
    build("cc", "selector.c", library, f"-I{HERE.parents[1] / 'include'}", str(real), f"-Wl,-rpath,{real.parent}")
    return library


@pytest.fixture
def preloaded(host_drop_in: Path, fakes: Path, rank_jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ranks preload the drop-in, with fakes of other libraries. Returns the folder that they write to."""
    for name, value in {
        "LD_PRELOAD": str(host_drop_in),
        "NARROWCAST_LIBRARY": str(library_path().absolute()),
        "LD_LIBRARY_PATH": str(fakes),
        "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
        "NARROWCAST_TAKE": "always",
        "NARROWCAST_STATS": str(tmp_path / "%p.json"),
        "NCCL_NVLS_ENABLE": "0",
        "TEST_FOLDER": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def may_be_elsewhere(
    preloaded: Path, host_drop_in: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks may pretend to run on another host, which TEST_PLACE names."""
    library = tmp_path_factory.mktemp("place") / "libplace.so"
    build("cc", "place.c", library, "-ldl")
    monkeypatch.setenv("LD_PRELOAD", f"{host_drop_in}:{library}")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of NCCL in a fake pip wheel, where no file exists yet."""
    library = tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)

    def of_nvidia() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] == "nvidia"]

    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        for name in of_nvidia():
            patch.delitem(sys.modules, name)
        yield library
        for name in of_nvidia():
            del sys.modules[name]
