"""`narrowcast doctor`: whether programs and frameworks reach the drop-in."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from doctor_report import problem
from narrowcast._doctor import bypasses, programs
from narrowcast._native import elf_file


@pytest.fixture
def program(tmp_path, fakes):
    """Builds a program that calls NCCL, or only contains a string."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler here")

    def build(name, source, *options):
        path = tmp_path / name
        subprocess.run(
            [compiler, "-x", "c", "-", "-o", path, "-x", "none", *options], input=source.encode(), check=True
        )
        return path

    return build


LINKED = "int ncclGetVersion(int*); int main(void) { int version; return ncclGetVersion(&version); }"
PLAIN = "int main(void) { return 0; }"
HAS_NCCL = 'const char* name = "NCCL_TOPO_DUMP_FILE"; int main(void) { return name[0] == 0; }'


def test_a_linked_program_is_intercepted(doctor, program, fakes):
    path = program("linked", LINKED, str(fakes / "libnccl.so.2"), f"-Wl,-rpath,{fakes}", "-Wl,--disable-new-dtags")
    elf = elf_file.read(path)
    assert "libnccl.so.2" in elf.needed
    assert (elf.rpath, elf.runpath, elf.soname) == (str(fakes), None, None)
    assert elf.interpreter.startswith("/lib")
    report = doctor(path)
    assert report["problems"] == []
    row = report["programs"][0]
    assert (row["program"], row["intercepted"]) == (str(path), "yes")
    assert str(fakes / "libnccl.so.2") in row["reaches NCCL"]


def test_a_function_that_the_drop_in_lacks_is_a_problem(doctor, program, fakes):
    source = "int ncclGroupStart(void); " + LINKED.replace("ncclGetVersion(&version)", "ncclGroupStart() + version")
    options = [str(fakes / "libnccl.so.2"), f"-Wl,-rpath,{fakes}"]
    path = program("newer", source.replace("int version;", "int version = 0;"), *options)
    assert "needs ncclGroupStart of NCCL" in problem(doctor(path), str(path))["what"]


def test_programs_that_cannot_be_intercepted_are_problems(doctor, program):
    static = program("static", PLAIN, "-static")
    problem(doctor(static), str(static), "linked statically")
    inside = program("inside", HAS_NCCL)
    problem(doctor(inside), str(inside), "has NCCL linked into it")
    privileged = program("privileged", PLAIN)
    privileged.chmod(0o4755)
    problem(doctor(privileged), str(privileged), "ignores LD_PRELOAD")
    problem(doctor("no-such-program"), "no-such-program")


def test_scripts_are_examined_by_their_interpreter(doctor, tmp_path):
    script = tmp_path / "train"
    script.write_text(f"#!/usr/bin/env -S {sys.executable} -u\n")
    script.chmod(0o755)
    report = doctor(script)
    assert report["problems"] == []
    assert sys.executable in report["programs"][0]["program"]
    assert report["programs"][0]["intercepted"] == "yes, if by name"


def test_files_other_than_elf_give_none(tmp_path):
    for content in (b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200):
        (tmp_path / "file").write_bytes(content)
        assert elf_file.read(tmp_path / "file") is None


# Fake frameworks.


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a fake framework."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, version, *requires):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('doctor imports no framework')")
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        return tmp_path / name

    return install


def rows_of(section):
    return {row["program"]: row for row in section.rows}


def test_torch_is_intercepted_when_it_is_linked(installed, program, fakes):
    (installed("torch", "2.11.0") / "lib").mkdir()
    options = ["-shared", "-fPIC", str(fakes / "libnccl.so.2"), "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"]
    program("torch/lib/libtorch_cuda.so", LINKED, *options)
    section = programs.examine({}, [], 22809, None)
    row = rows_of(section)["torch"]
    assert row["version"] == "2.11.0"
    assert "DT_RPATH" in row["reaches NCCL"]
    assert row["intercepted"].startswith("yes")
    assert section.problems == []


def test_torch_with_nccl_inside_is_a_problem(installed, program):
    (installed("torch", "2.11.0") / "lib").mkdir()
    program("torch/lib/libtorch_cuda.so", HAS_NCCL, "-shared", "-fPIC")
    section = programs.examine({}, [], 22809, None)
    assert rows_of(section)["torch"]["intercepted"] == "no"
    assert "cannot be replaced" in section.problems[0].what


def test_an_nccl_older_than_required_by_torch_is_a_problem(installed):
    installed("torch", "2.11.0", 'nvidia-nccl-cu13==2.28.9; platform_system == "Linux"')
    assert programs.examine({}, [], 22809, None).problems == []
    assert programs.examine({}, [], 23203, None).problems == []
    (found,) = programs.examine({}, [], 22704, None).problems
    assert "NCCL 2.28.9" in found.what
    assert "2.27.4" in found.what


@pytest.fixture
def jax(installed, tmp_path):
    """Installs a fake JAX with a CUDA plugin. Returns the folder of the plugin."""
    installed("jax", "0.9.0")
    folder = tmp_path / "jax_plugins" / "xla_cuda13"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('doctor imports no framework')")
    yield folder
    sys.modules.pop("jax_plugins", None)


def test_jax_is_intercepted_if_it_loads_nccl_by_name(jax, program):
    program("jax_plugins/xla_cuda13/xla_cuda_plugin.so", PLAIN, "-shared", "-fPIC")
    section = programs.examine({}, [], 22809, None)
    row = rows_of(section)["jax"]
    assert row["version"] == "0.9.0"
    assert "asks for libnccl.so.2 by name" in row["reaches NCCL"]
    assert row["intercepted"].startswith("yes")
    assert section.problems == []


def test_jax_with_nccl_inside_is_a_problem_and_without_a_plugin_none(jax, program):
    section = programs.examine({}, [], 22809, None)
    assert rows_of(section)["jax"]["reaches NCCL"].startswith("not at all")
    assert section.problems == []
    program("jax_plugins/xla_cuda13/xla_cuda_plugin.so", HAS_NCCL, "-shared", "-fPIC")
    section = programs.examine({}, [], 22809, None)
    assert rows_of(section)["jax"]["intercepted"] == "no"
    assert "jax was built with NCCL in" in section.problems[0].what


def test_servers_load_nccl_by_path_and_have_bypasses(installed):
    installed("vllm", "0.33.0")
    installed("sglang", "0.5.23")
    rows = rows_of(programs.examine({"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"}, [], None, None))
    assert "VLLM_NCCL_SO_PATH=/opt/libnccl.so.2" in rows["vllm"]["reaches NCCL"]
    assert rows["sglang"]["intercepted"].startswith("yes")
    command = ["vllm", "serve", "--disable-custom-all-reduce", "--compilation-config"]
    command.append('{"pass_config": {"fuse_allreduce_rms": false}}')
    section = bypasses.examine({"VLLM_ALLREDUCE_USE_SYMM_MEM": "0"}, command)
    now = {(row["program"], row["what"]): row["now"] for row in section.rows}
    assert now[("vllm 0.33.0", "torch's symmetric memory")] == "off"
    assert now[("vllm 0.33.0", "custom all-reduce")] == "off"
    assert now[("vllm 0.33.0", "FlashInfer, fused with RMSNorm")] == "off"
    assert now[("vllm 0.33.0", "FlashInfer")] == "decided by the program"
