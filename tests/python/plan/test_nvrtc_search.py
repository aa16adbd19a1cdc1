"""Where the library finds NVRTC, which compiles kernels of plans. On fakes, which say where they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from narrowcast._native.library import library_path
from narrowcast.plan import build as build_plan

TOOLKIT = Path("/usr/local/cuda/lib64")
INCLUDES = f"-I{Path(__file__).parents[3] / 'include'}"
FAKES = Path(__file__).parents[1] / "fakes"


def compiled(source: str, result: Path, *options: str) -> Path:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    result.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-std=gnu11", "-O1", "-o", str(result), str(FAKES / source), *options], check=True)
    return result


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a fake NVRTC."""
    folder = tmp_path_factory.mktemp("nvrtc")

    def make(name: str, *options: str) -> Path:
        path = folder / name
        return path if path.exists() else compiled("nvrtc.c", path, "-shared", "-fPIC", *options)

    return make


class Machine:
    """A folder with packages, virtual environments, toolkits and a program that compiles a plan."""

    def __init__(self, root: Path, nvrtc: Path) -> None:
        self.root, self.nvrtc = root, nvrtc
        self.library = root / "own" / "site-packages" / "narrowcast" / "lib" / "libnarrowcast.so"
        self.library.parent.mkdir(parents=True)
        self.library.symlink_to(library_path().absolute())
        self.torch = self.put("loaded/site-packages/torch/lib/libtorch.so")
        self.program = compiled("compile_plan.c", root / "python" / "bin" / "python3.11", INCLUDES, "-ldl")
        build_plan("ring", "all_gather", 2).save(root / "plan.json")
        self.runs = 0

    def put(self, name: str, content: Path | None = None) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(content or self.nvrtc, path)
        return path

    def run(self, **environment: Path | str) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        self.cache = self.root / f"cache{self.runs}"
        command = [self.program, self.library, self.root / "plan.json", self.cache, self.torch]
        names = {name: str(value) for name, value in environment.items()}
        return subprocess.run(list(map(str, command)), env=names, capture_output=True, text=True, check=False)

    def used(self, **environment: Path | str) -> str:
        """The NVRTC that compiled the plan, relative to the folder."""
        done = self.run(**environment)
        assert (done.returncode, done.stderr) == (0, "")
        made = (re.search(rb"made by (.*)\n", path.read_bytes()) for path in self.cache.iterdir())
        (path,) = {found[1].decode() for found in made if found is not None}
        return path.removeprefix(f"{self.root}/")


@pytest.fixture
def machine(tmp_path: Path, fake: Callable[..., Path]) -> Machine:
    return Machine(tmp_path, fake("libnvrtc.so"))


def test_the_first_that_exists_is_used(machine: Machine) -> None:
    root = machine.root
    environment = {
        "NARROWCAST_NVRTC": root / "named" / "nvrtc.so",
        "VIRTUAL_ENV": root / "venv",
        "CUDA_HOME": root / "home",
        "CUDA_PATH": root / "path",
        "LD_LIBRARY_PATH": root / "linker",
    }
    places = [
        "named/nvrtc.so",
        "own/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        "own/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        # Beside a package of which a library is loaded, as torch's are, but no NVRTC.
        "loaded/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        "loaded/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        "python/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "home/lib64/libnvrtc.so.13",
        "home/lib/libnvrtc.so.12",
        "path/lib64/libnvrtc.so.12",
        "linker/libnvrtc.so.13",
        "linker/libnvrtc.so.12",
    ]
    for place in places:
        machine.put(place)
    for place in places:
        if place.startswith("linker/") and any(TOOLKIT.glob("libnvrtc.so.1[23]")):
            break  # the machine's toolkit comes first
        assert machine.used(**environment) == place
        (root / place).unlink()
        environment.pop("NARROWCAST_NVRTC", None)


def test_folders_to_which_others_may_write_are_not_searched(machine: Machine) -> None:
    """A checkout, and a program, below a folder such as /tmp, in which another user can create the others."""
    root = machine.root
    checkout = root / "shared" / "checkout" / "build" / "libnarrowcast.so"
    checkout.parent.mkdir(parents=True)
    checkout.symlink_to(machine.library)
    machine.library = checkout
    (root / "shared" / "bin").mkdir()
    machine.program = machine.program.rename(root / "shared" / "bin" / "program")
    for folder in ("shared", "shared/checkout", "shared/checkout/build", "shared/lib/python3.11/site-packages"):
        for package in ("cu13", "cuda_nvrtc"):
            machine.put(f"{folder}/nvidia/{package}/lib/libnvrtc.so.13")
    machine.put("home/lib64/libnvrtc.so.13")  # searched after all packages
    assert machine.used(CUDA_HOME=root / "home") == "home/lib64/libnvrtc.so.13"


def test_a_newer_file_is_preferred_in_a_folder(machine: Machine) -> None:
    machine.put("home/lib64/libnvrtc.so.12")
    machine.put("home/lib64/libnvrtc.so.13")
    assert machine.used(CUDA_HOME=machine.root / "home") == "home/lib64/libnvrtc.so.13"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-DFAKE_NVRTC_MAJOR=12", "-DFAKE_NVRTC_MINOR=3"], "NVRTC 12.3 is too old; 12.4 or newer is needed"),
        (["-DFAKE_NVRTC_INCOMPLETE"], "the NVRTC library lacks a function"),
    ],
)
def test_unsuitable_libraries_are_errors(
    machine: Machine, fake: Callable[..., Path], options: list[str], message: str
) -> None:
    path = machine.put("other/nvrtc.so", fake("".join(options).replace("=", "_"), *options))
    done = machine.run(NARROWCAST_NVRTC=path)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_a_file_that_is_no_library_is_an_error(machine: Machine) -> None:
    wrong = machine.put("wrong.so", machine.root / "plan.json")
    for path in (wrong, machine.root / "none.so"):
        done = machine.run(NARROWCAST_NVRTC=path)
        assert done.returncode == 1
        assert f"NVRTC cannot be loaded: {path}: " in done.stderr
    if not any(TOOLKIT.glob("libnvrtc.so.1[23]")):
        assert "set NARROWCAST_NVRTC to the path of libnvrtc.so" in machine.run(LD_LIBRARY_PATH="/nowhere").stderr
