"""`narrowcast doctor` on complete machines, bare machines, and machines with one problem."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import subprocess
import sys
import time

import pytest
from doctor_report import problem
from narrowcast._doctor import gpus
from narrowcast._doctor.limits import SHARED_MEMORY
from narrowcast._dropin import preload
from segments import segment_of


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
            "expected": "all_reduce of 64 MiB 1.4 times as fast as NCCL",
        }
    ]


def test_the_expected_speed_depends_on_the_link(cli, stand_in, fakes):
    library = str(stand_in / "libnarrowcast.so")
    variables = {"LD_LIBRARY_PATH": str(fakes), "NARROWCAST_LIBRARY": library, "NARROWCAST_TEST_PEER_ACCESS": "0"}
    (link,) = json.loads(cli("doctor", "--json", **variables).stdout)["links"]
    assert link["expected"] == "all_reduce of 64 MiB 1.7 times as fast as NCCL"


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
    for section in ("nccl", "versions", "gpus", "links", "limits", "network", "programs", "settings"):
        for row in report[section]:
            for value in row.values():
                text = re.sub(r"\d+\.\d+", "0.0", str("-" if value is None else value))
                assert set(text.split()) <= words
    for line in done.stdout.splitlines():
        assert len(line) <= 80 or len(line.split()) <= 2, line


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
    report = json.loads(cli("doctor", "--clean", "--json").stdout)
    assert report["removed_segments"] >= 0  # other processes on the machine may remove it first
    assert not left_behind.exists()
    assert in_use.exists()
    assert "stale segments" in cli("doctor", "--clean").stdout


def test_a_fifo_in_shared_memory_stops_nothing(cli, waiting_rank):
    """Any user can create one with the prefix of segments."""
    fifo = SHARED_MEMORY / f"narrowcast.{secrets.token_hex(8)}"
    os.mkfifo(fifo, 0o666)
    try:
        waiting_rank()  # creates an id, and begins to create a communicator
        assert "stale segments" in cli("doctor", "--clean").stdout
        assert fifo.is_fifo()
    finally:
        fifo.unlink()


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
        ({"NARROWCAST_CONFIG": "/dev/zero"}, ["/dev/zero", "cannot be read", "not a regular file"]),
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
        (90, "80-virtual", True),
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
