"""The hash that cost models are stamped with: cmake/kernels_hash.cmake."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_script(root: Path, *definitions: str) -> str:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    script = str(ROOT / "cmake" / "kernels_hash.cmake")
    command = ["cmake", f"-DROOT={root}", *definitions, "-P", script]
    printed: str = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr
    return printed


def hash_of(root: Path, output: Path) -> str:
    run_script(root, f"-DOUTPUT={output}")
    found = re.search(r'return "([0-9a-f]{16})";', output.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def test_the_hash_covers_what_device_code_includes() -> None:
    sources = set(run_script(ROOT, "-DLIST=1").split())
    assert {
        "src/channel/memory/memory_channel.h",
        "src/channel/packet/packet_area.h",
        "src/channel/peer/peers.h",
        "src/codec/window/format.h",
        "src/codec/window/kernel.cuh",
        "src/select/block_shape.h",
        "src/executor/cuda/blocks/roles.cuh",
    } <= sources
    host_code = (
        "src/channel/host/",
        "src/codec/window/vectorized",
        "src/bootstrap/",
        "src/comm/",
        "src/executor/cuda/communicator",
        "src/executor/cuda/launch.cu",
        "src/nccl/",
    )
    assert [name for name in sources if name.startswith(host_code)] == []


def test_the_hash_changes_with_a_header_of_kernels_and_not_with_host_code(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    before = hash_of(tmp_path, tmp_path / "hash.cc")
    names = {"channel/host/ring.h": False, "executor/cuda/launch.cu": False, "codec/window/format.h": True}
    for name, changes in names.items():
        path = tmp_path / "src" / name
        original = path.read_text(encoding="utf-8")
        path.write_text(original + "// changed\n", encoding="utf-8")
        assert (hash_of(tmp_path, tmp_path / "hash.cc") != before) == changes
        path.write_text(original, encoding="utf-8")
    assert hash_of(tmp_path, tmp_path / "hash.cc") == before
