"""`narrowcast run` with the real drop-in, on the fakes of the driver and NCCL."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

ASKS = """
import ctypes, os, sys
for name in ("libnccl.so.2", os.environ["VLLM_NCCL_SO_PATH"], os.environ["SGLANG_NCCL_SO_PATH"]):
    version = ctypes.c_int()
    assert ctypes.CDLL(name).ncclGetVersion(ctypes.byref(version)) == 0
    print(version.value)
print(sum("libnccl.so.2" in line and "r-xp" in line for line in open("/proc/self/maps")))
"""


@pytest.fixture
def run_real(cli, with_host_drop_in):
    """`narrowcast run` with the drop-in."""

    def start(*arguments, **environment):
        return cli("run", *arguments, **{**with_host_drop_in, **environment})

    return start


def test_loading_nccl_by_name_or_path_gives_the_drop_in(run_real, fakes):
    done = run_real("-q", "--", sys.executable, "-c", ASKS)
    assert done.returncode == 0, done.stderr
    assert f"loaded NCCL 2.28.9 from {fakes / 'libnccl.so.2'}" in done.stderr
    # Only one NCCL is loaded, although LD_LIBRARY_PATH contains the folder of another one.
    assert done.stdout.split() == ["22809", "22809", "22809", "1"]


def test_a_linked_program_gets_the_drop_in(run_real, fakes, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler was found")
    source = b"""
        #include <stdio.h>
        int ncclGetVersion(int*);
        int main(void) { int version = 0; ncclGetVersion(&version); return printf("%d\\n", version) < 0; }
    """
    # Linked like torch, with DT_RPATH, which precedes LD_LIBRARY_PATH.
    rpath = [f"-Wl,-rpath,{fakes}", "-Wl,--disable-new-dtags"]
    command = [compiler, "-x", "c", "-", "-o", tmp_path / "program", "-x", "none", str(fakes / "libnccl.so.2"), *rpath]
    subprocess.run(command, input=source, check=True)
    done = run_real("-q", "./program", NARROWCAST_DEBUG="version")
    assert (done.returncode, done.stdout) == (0, "22809\n")
    assert "loaded NCCL" in done.stderr


def test_programs_without_nccl_run_unchanged(run_real):
    done = run_real("--", "sh", "-c", "echo out; echo error >&2; exit 5")
    assert (done.returncode, done.stdout) == (5, "out\n")
    assert done.stderr.splitlines()[0] == "error"
    assert "no calls of NCCL were intercepted" in done.stderr


def test_a_settings_file_with_an_error_is_rejected_before_the_command_starts(run_real, tmp_path):
    (tmp_path / "own.toml").write_text("[[rule]]\ntakes = 'always'\n")
    done = run_real("--config", "own.toml", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--config own.toml: own.toml:2: in a rule, there is no key takes" in done.stderr


RANKS = """
from narrowcast._bench.launch import run_ranks
arguments = [{"rank": rank, "ranks": 2, "count": 5000} for rank in range(2)]
run_ranks("nccl_jobs:every_operation", arguments, lambda results: None, timeout_seconds=60)
"""


@pytest.mark.usefixtures("rank_jobs")
def test_ranks_report_executed_and_forwarded_calls_with_reasons(run_real, tmp_path):
    options = ["--take", "always", "--codec", "window!", "--off", "broadcast", "--stats", "out.json"]
    test_only = {"NCCL_NVLS_ENABLE": "0", "TEST_FOLDER": str(tmp_path)}
    done = run_real(*options, "--", sys.executable, "-c", RANKS, **test_only)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["faults"] == []
    assert {len(process["communicators"]) for process in report["processes"]} == {1}
    (communicator,) = report["communicators"]
    assert communicator["reported_ranks"] == [0, 1]
    operations = {one["operation"]: one for one in communicator["operations"]}
    gathered, broadcast = operations["all_gather"], operations["broadcast"]
    assert (gathered["taken"], gathered["forwarded"], gathered["raw_bytes"]) == (2, 0, 20_000)
    assert 0 < gathered["wire_bytes"] < gathered["raw_bytes"]
    assert communicator["wire_bytes"] == sum(one["wire_bytes"] for one in operations.values())
    assert (broadcast["taken"], broadcast["raw_bytes"]) == (0, 0)
    assert sum(broadcast["reasons"].values()) == broadcast["forwarded"] == 4
    row = next(line for line in done.stderr.splitlines() if "broadcast" in line)
    assert next(iter(broadcast["reasons"])) in row
    assert communicator["id"][:12] in done.stderr
