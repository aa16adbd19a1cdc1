"""The exports and dependencies of the built library, and its headers as C99."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = Path(os.environ.get("NARROWCAST_LIBRARY") or ROOT / "build" / "libnarrowcast.so")
RUNTIME = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libpthread|libdl|librt|ld-linux[-\w]*)\.so\.\d+")

needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")


def tool(name: str, *arguments: str | Path) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([name, *arguments], capture_output=True, text=True, check=True).stdout


@needs_library
def test_the_library_exports_exactly_the_declared_functions() -> None:
    headers = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "include" / "narrowcast").glob("*.h"))
    declared = set(re.findall(r"^NCAST_API [^(]*?\b(ncast_\w+)\(", headers, re.MULTILINE))
    exported = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", LIBRARY).splitlines()}
    assert exported == declared


@needs_library
def test_the_library_needs_only_the_cxx_runtime() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW", LIBRARY))
    assert needed
    assert [name for name in needed if not RUNTIME.fullmatch(name)] == []


@needs_library
def test_the_version_is_that_of_cmakelists() -> None:
    library = ctypes.CDLL(str(LIBRARY))
    library.ncast_version.restype = ctypes.c_char_p
    project = re.search(r"project\(narrowcast VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert project is not None
    assert library.ncast_version().decode() == project[1]


@pytest.mark.parametrize("header", sorted((ROOT / "include" / "narrowcast").glob("*.h")), ids=lambda path: path.name)
def test_each_header_is_c99_and_self_contained(header: Path) -> None:
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I", str(ROOT / "include")]
    tool("gcc", *flags, "-x", "c", header)
