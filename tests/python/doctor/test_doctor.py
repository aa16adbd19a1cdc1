"""`narrowcast doctor` on complete machines, bare machines, and machines with one problem."""

from __future__ import annotations

import json
import platform
import re
import shutil
import struct
import subprocess
import sys
import time

import pytest
from narrowcast._doctor import bypasses, gpus, programs
from narrowcast._doctor.limits import SHARED_MEMORY
from narrowcast._dropin import preload
from narrowcast._native import elf_file


@pytest.fixture
def doctor(cli, stand_in, fakes):
    """The report on a machine with two fake GPUs and no problems, except for the changes of a test."""

    def examine(*command, without=(), **changes):
        variables = {
            "LD_LIBRARY_PATH": str(fakes),
            "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
            "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
            **changes,
        }
        for name in without:
            variables[name] = ""
        done = cli("doctor", "--json", "--", *command, **variables)
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0) == (not report["problems"])
        assert done.returncode in (0, 1)
        return report

    return examine


def problem(report, *words):
    """The only problem that contains these words."""
    (found,) = [one for one in report["problems"] if all(word in one["what"] for word in words)]
    assert found["remedy"].endswith(".")
    return found


def test_a_complete_machine_has_no_problems(doctor, fakes, stand_in):
    report = doctor()
    assert report["problems"] == []
    assert report["nccl"] == [
        {"source": "setting", "path": str(fakes / "libnccl.so.2"), "version": "2.28.9", "outcome": "used"}
    ]
    versions = {row["what"]: row["version"] for row in report["versions"]}
    paths = {row["what"]: row["path"] for row in report["versions"]}
    assert (versions["drop-in"], paths["drop-in"]) == (versions["Narrowcast"], str(stand_in / preload.NAME))
    assert (versions["Python"], paths["Python"]) == (platform.python_version(), sys.executable)
    assert all(re.fullmatch(r"\d+(\.\d+)+\S*", version) for version in versions.values()), versions
    assert (versions["NCCL"], versions["driver"], versions["CUDA version of the driver"]) == (
        "2.28.9",
        "580.0",
        "13.0",
    )
    assert report["gpus"][1] == {
        "gpu": 1,
        "name": "Fake GPU",
        "bus": "0000:11:00.0",
        "compute capability": "9.0",
        "memory": "140 GiB",
        "NVLinks": 6,
    }
    assert report["links"] == [
        {
            "between": "0 and 1",
            "peer access": "yes",
            "NVLink": "yes",
            "common ancestor": "the system, across NUMA nodes",
        }
    ]


def test_tables_show_the_values_of_the_json(cli, stand_in, fakes):
    library = str(stand_in / "libnarrowcast.so")
    done = cli("doctor", LD_LIBRARY_PATH=str(fakes), NARROWCAST_LIBRARY=library, NCCL_P2P_DISABLE="1")
    assert done.returncode == 1
    assert "NCCL, in search order" in done.stdout
    assert "Fake GPU" in done.stdout
    assert "1. NCCL_P2P_DISABLE=1: NCCL does not use peer access between GPUs.\n   Unset it" in done.stdout


def test_no_value_is_cut_or_broken_on_a_terminal_of_80_columns(cli, stand_in, fakes):
    variables = {
        "LD_LIBRARY_PATH": str(fakes),
        "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
        "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
        "COLUMNS": "80",
    }
    done = cli("doctor", "--", "sh", **variables)
    report = json.loads(cli("doctor", "--json", "--", "sh", **variables).stdout)
    # Free memory changes from one command to the next, so other tests may run meanwhile.
    printed = re.sub(r"\d+\.\d+", "0.0", done.stdout).split()
    words = {*printed, *(word.removesuffix(":") for word in printed)}
    for section in ("nccl", "versions", "gpus", "links", "limits", "programs", "settings"):
        for row in report[section]:
            for value in row.values():
                text = re.sub(r"\d+\.\d+", "0.0", str("-" if value is None else value))
                assert set(text.split()) <= words
    for line in done.stdout.splitlines():
        assert len(line) <= 80 or len(line.split()) <= 2, line


def segment_of(unique_id: bytes):
    """The shared memory segment of a communicator: its name has two numbers of the id. None if there is none."""
    for path in SHARED_MEMORY.glob("narrowcast.*"):
        number = path.name.removeprefix("narrowcast.")
        if len(number) == 32 and struct.pack("<QQ", int(number[:16], 16), int(number[16:], 16)) in unique_id:
            return path
    return None


@pytest.fixture
def waiting_rank():
    """Starts a process that waits while creating a communicator. Returns the process and the segment."""
    code = (
        "import narrowcast; unique_id = narrowcast.unique_id(); print(unique_id.hex(), flush=True);"
        "narrowcast.Communicator(unique_id, 0, 2)"
    )
    processes = []

    def start():
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        unique_id = bytes.fromhex(process.stdout.readline())
        deadline = time.monotonic() + 20
        while (segment := segment_of(unique_id)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process, segment

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_clean_removes_the_shared_memory_of_killed_processes_only(cli, waiting_rank):
    (killed, left_behind), (_, in_use) = waiting_rank(), waiting_rank()
    killed.kill()
    killed.wait()
    assert left_behind.exists()
    report = json.loads(cli("doctor", "--clean", "--json").stdout)
    assert report["removed_segments"] >= 0  # other processes on the machine may remove it first
    assert not left_behind.exists()
    assert in_use.exists()
    assert "stale segments" in cli("doctor", "--clean").stdout


def test_a_bare_machine_is_examined(cli):
    done = cli("doctor", "--json", LD_LIBRARY_PATH="", NARROWCAST_LIBRARY="/nowhere/libnarrowcast.so")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert len([one for one in report["problems"] if "/nowhere/libnarrowcast.so" in one["what"]]) == 2
    if not report["gpus"]:
        assert "container" in next(one["remedy"] for one in report["problems"] if one["section"] == "gpus")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"NARROWCAST_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}, ["NARROWCAST_NCCL_LIBRARY names /nowhere"]),
        ({"NARROWCAST_TEST_CUINIT": "802"}, ["cuInit returned 802"]),
        ({"NARROWCAST_TEST_CUDA_VERSION": "12080"}, ["CUDA 12.8", "CUDA 13"]),
        ({"NARROWCAST_TEST_CAPABILITY": "7", "NARROWCAST_TEST_GPUS": "1"}, ["GPU 0 has compute capability 7.0"]),
        ({"NARROWCAST_TEST_PEER_ACCESS": "0"}, ["GPUs 0 and 1 have NVLink, but no peer access"]),
        ({"NARROWCAST_CODEX": "raw"}, ["NARROWCAST_CODEX", "did you mean NARROWCAST_CODEC?"]),
        ({"NARROWCAST_OFF": "all"}, ["NARROWCAST_OFF=all", "all calls are forwarded to NCCL"]),
        ({"NARROWCAST_CONFIG": "/nowhere.toml"}, ["/nowhere.toml", "cannot be read"]),
        ({"NARROWCAST_COST_MODEL": "/nowhere.costs"}, ["NARROWCAST_COST_MODEL: /nowhere.costs cannot be read: "]),
        ({"NARROWCAST_TAKE": "sometimes"}, ["NARROWCAST_TAKE is sometimes, not auto, always or never"]),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, ["CUDA_LAUNCH_BLOCKING=1"]),
    ],
)
def test_every_problem_has_a_remedy(doctor, changes, words):
    report = doctor(**changes)
    problem(report, *words)
    assert len(report["problems"]) == 1


def test_an_old_driver_comes_with_the_minimum_and_the_forward_compatibility_package(doctor):
    report = doctor(NARROWCAST_TEST_CUDA_VERSION="12080")
    (remedy,) = [one["remedy"] for one in report["problems"] if "CUDA 12.8" in one["what"]]
    assert "driver 580 or newer" in remedy
    assert "cuda-compat-13-0" in remedy


def test_a_library_other_than_nccl_is_a_problem(doctor, fakes):
    report = doctor(NARROWCAST_NCCL_LIBRARY=str(fakes / "libnvidia-ml.so.1"))
    problem(report, "cannot be loaded as NCCL", "ncclGetVersion")
    assert "does not work" in report["nccl"][0]["outcome"]


# Programs.


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


def test_sections_have_rows_of_one_shape(doctor):
    report = doctor()
    for name, rows in report.items():
        if isinstance(rows, list):
            assert len({tuple(row) for row in rows}) <= 1, name


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        (90, "90", True),
        (90, "80-real,86-real", False),
        (86, "80-real", True),
        (89, "90", False),
        (100, "90", True),
        (100, "90-real", False),
        (100, "80-real,120", False),
        (120, "80-real,100-real,120", True),
        (90, "90a-real", True),
        (90, "", True),
    ],
)
def test_a_gpu_runs_code_of_its_generation_and_newer_ones_if_it_is_not_only_for_one(capability, architectures, runs):
    assert gpus.is_built_for(capability, architectures) == runs


def test_a_gpu_that_the_library_has_no_code_for_is_a_problem(fakes, monkeypatch):
    monkeypatch.setattr(gpus.library, "architectures", lambda: "80-real")
    section = gpus.Section("gpus", "GPUs")
    monkeypatch.setattr(gpus.cuda_driver, "call", lambda name, *values: setattr(values[0]._obj, "value", 1))
    for name, found in {"device_attribute": 9, "device_name": "a GPU"}.items():
        monkeypatch.setattr(gpus.cuda_driver, name, lambda *_, found=found: found)
    for name in ("_bus", "_total_bytes"):
        monkeypatch.setattr(gpus, name, lambda ordinal: 0)
    monkeypatch.setattr(gpus, "load_nvml", lambda: None)
    gpus._examine_gpus(section, gpus.Section("links", "Links"))
    assert "GPU 0 has architecture 99, but the library has code for 80-real only" in [
        one.what for one in section.problems
    ]
