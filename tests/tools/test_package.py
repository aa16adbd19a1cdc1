"""Programs build against an installed tree and start: with find_package, pkg-config, and against the wheel."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = Path(os.environ.get("NARROWCAST_LIBRARY") or ROOT / "build" / "libnarrowcast.so")
BUILD = LIBRARY.parent
PROJECT = re.search(r"project\(narrowcast VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
assert PROJECT is not None
VERSION = PROJECT[1]

pytestmark = pytest.mark.skipif(
    not (BUILD / "cmake_install.cmake").is_file() or not LIBRARY.is_file(), reason=f"{BUILD} holds no build"
)

PROGRAM = """
#include <narrowcast/narrowcast.h>
#include <stdio.h>
int main(void) { return puts(ncast_version()) < 0 || ncast_dtype_bytes(NCAST_FLOAT32) != 4; }
"""

CONSUMER = """
cmake_minimum_required(VERSION 3.24)
project(consumer LANGUAGES C)
find_package(Narrowcast {version} REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE Narrowcast::narrowcast)
"""


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def run(*command: str | Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**clean, **environment})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def install(component: str, prefix: Path) -> Path:
    run(tool("cmake"), "--install", BUILD, "--component", component, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install("native", tmp_path_factory.mktemp("native") / "prefix")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "program.c").write_text(PROGRAM, encoding="utf-8")
    return tmp_path / "program.c"


def configure(folder: Path, prefix: Path, version: str) -> subprocess.CompletedProcess[str]:
    (folder / "CMakeLists.txt").write_text(CONSUMER.format(version=version), encoding="utf-8")
    command = [tool("cmake"), "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_cmake_project_finds_the_package(prefix: Path, source: Path) -> None:
    configured = configure(source.parent, prefix, VERSION)
    assert configured.returncode == 0, configured.stderr
    run(tool("cmake"), "--build", source.parent / "build")
    assert run(source.parent / "build" / "program") == VERSION


def test_a_cmake_project_that_requires_another_version_fails(prefix: Path, source: Path) -> None:
    configured = configure(source.parent, prefix, "99.0")
    assert configured.returncode != 0
    assert f"version: {VERSION}" in configured.stderr


def pkg_config(prefix: Path, *arguments: str) -> str:
    (folder,) = prefix.glob("lib*/**/pkgconfig")
    return run(tool("pkg-config"), *arguments, "narrowcast", PKG_CONFIG_PATH=str(folder))


def test_pkg_config_gives_the_flags(prefix: Path, source: Path) -> None:
    assert pkg_config(prefix, "--modversion") == VERSION
    flags = pkg_config(prefix, "--cflags", "--libs").split()
    run(tool("cc"), source, *flags, "-o", source.with_suffix(""))
    folder = pkg_config(prefix, "--variable=libdir")
    assert run(source.with_suffix(""), LD_LIBRARY_PATH=folder) == VERSION


def test_an_installed_tree_can_be_moved(prefix: Path, source: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    include = next(flag for flag in pkg_config(moved, "--cflags").split() if flag.startswith("-I"))
    assert Path(include[2:]).resolve() == moved / "include"
    configured = configure(source.parent, moved, VERSION)
    assert configured.returncode == 0, configured.stderr
    run(tool("cmake"), "--build", source.parent / "build")
    needed = run(tool("readelf"), "-d", source.parent / "build" / "program")
    assert str(moved) in needed


def test_without_cuda_the_error_says_what_to_do(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDACXX", "CUDA_HOME")}
    command = [ROOT / "tools" / "bare.sh", tool("cmake"), "-S", ROOT, "-B", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if "no mount namespace" in done.stderr:
        pytest.skip("mount namespaces are not available")
    assert done.returncode != 0
    assert "No nvcc was found" in done.stderr
    assert "set CUDACXX" in done.stderr


def test_extras_that_messages_name_exist() -> None:
    sources = [*(ROOT / "python").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        extra
        for path in sources
        for extra in re.findall(r"pip install '(?:narrowcast|\.)\[(\w+)\]'", path.read_text(encoding="utf-8"))
    }
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert named == set(re.findall(r"^(\w+) =", extras, re.MULTILINE))


def wheel_from_build(folder: Path) -> Path:
    return install("python", folder) / "narrowcast"


def installed_wheel(_: Path) -> Path:
    try:
        distribution = importlib.metadata.distribution("narrowcast")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the wheel is not installed")
    return Path(str(distribution.locate_file("narrowcast")))


@pytest.mark.parametrize("wheel", [wheel_from_build, installed_wheel])
@pytest.mark.parametrize("by_path", [False, True], ids=["-lnarrowcast", "path"])
def test_a_program_linked_with_the_wheel_starts(wheel, by_path: bool, source: Path, tmp_path: Path) -> None:
    package = wheel(tmp_path / "wheel")
    library = package / "lib"
    linked = [library / "libnarrowcast.so"] if by_path else ["-L", library, "-lnarrowcast"]
    program = source.with_suffix("")
    run(tool("cc"), source, "-I", package / "include", *linked, f"-Wl,-rpath,{library}", "-o", program)
    assert run(program) == VERSION


@pytest.mark.parametrize("wheel", [wheel_from_build, installed_wheel])
def test_the_c_program_of_the_readme_builds_with_the_commands_of_the_readme(wheel, tmp_path: Path) -> None:
    package = wheel(tmp_path / "wheel")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```c\n(// encode\.c\n.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```sh\n(.*?gcc encode\.c.*?)^```", readme, re.MULTILINE | re.DOTALL)
    tool("gcc")
    (tmp_path / "encode.c").write_text(program, encoding="utf-8")
    for source in (ROOT / "python" / "narrowcast").rglob("*.py"):  # `cmake --install` installs no modules
        target = package / source.relative_to(ROOT / "python" / "narrowcast")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = f"set -e; cd {tmp_path}; {commands}"
    assert run(tool("bash"), "-c", command, PATH=path, PYTHONPATH=str(package.parent)) == "96 bytes"


def test_the_wheel_contains_one_library_and_no_links(tmp_path: Path) -> None:
    library = wheel_from_build(tmp_path / "wheel") / "lib"
    assert not [path for path in library.iterdir() if path.is_symlink()]
    assert [path.name for path in library.glob("libnarrowcast.so*") if path.stat().st_size > 4096] == [
        "libnarrowcast.so.0"
    ]
