"""`narrowcast doctor`: system limits, and settings in the environment and in files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from narrowcast._doctor import limits
from narrowcast._doctor import settings as doctor_settings
from narrowcast._native import settings
from narrowcast._native.library import library


def test_little_shared_memory_is_a_problem(monkeypatch):
    small = os.statvfs_result((4096, 4096, 16384, 16000, 16000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    (found,) = limits.examine().problems
    assert "62.50 MiB of 64.00 MiB free" in found.what
    assert "--shm-size" in found.remedy


def test_environment_settings_precede_files_of_nccl(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler here")
    library = tmp_path / "libnccl.so.2"
    source = 'const char* names[] = {"NCCL_DEBUG", "NCCL_BUFFSIZE", "NCCL_P2P_DISABLE"};'
    options = ["-x", "c", "-", "-shared", "-fPIC", "-o", library]
    subprocess.run([compiler, *options], input=source.encode(), check=True)
    file = tmp_path / "nccl.conf"
    file.write_text("# NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\nNCCL_BUFSIZE=4194304\nNCCL_BLOCKING_WAIT=1\n")
    variables = {"NCCL_CONF_FILE": str(file), "NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/nowhere"}
    section = doctor_settings.examine(variables, library)
    rows = {(row["name"], row["from"]): (row["value"], row["note"]) for row in section.rows}
    assert rows[("CUDA_VISIBLE_DEVICES", "environment")] == ("0,1", "")
    assert rows[("NCCL_DEBUG", "environment")] == ("WARN", "")
    assert rows[("NCCL_DEBUG", str(file))] == ("INFO", "overridden by the environment")
    assert rows[("NCCL_BUFSIZE", str(file))] == ("4194304", "unknown to this NCCL")
    assert rows[("NCCL_BLOCKING_WAIT", str(file))][1].startswith("a variable of torch")
    assert ("HOME", "environment") not in rows
    assert [one.what for one in section.problems] == [
        "this NCCL does not know NCCL_BUFSIZE (did you mean NCCL_BUFFSIZE?)"
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML takes Python 3.11")
def test_the_settings_file_is_shown(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('codec = "window"\noff = ["send"]\nverfy = true\n[[rule]]\ntake = "never"\n')
    section = doctor_settings.examine({"NARROWCAST_CONFIG": str(file), "NARROWCAST_CODEC": "raw"}, None)
    notes = {row["name"]: row["note"] for row in section.rows if row["from"] == str(file)}
    assert notes == {"codec": "overridden by the environment", "off": "", "verfy": "", "rule": ""}
    (found,) = section.problems
    assert found.what.startswith(f"{file}:3: verfy is not a setting (known: attach, ")


def examined(**variables):
    return doctor_settings.examine({f"NARROWCAST_{name}": value for name, value in variables.items()}, None)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("ATTACH", ["first", "init", ""], ["soon", "First"]),
        ("CALIBRATE", ["0", "1"], ["never"]),
        ("CODEC", ["auto", "raw,all_gather=window", "send = raw, "], ["zip", "raw=send", "all_median=raw"]),
        ("DEBUG", ["WARN", "info"], ["loud"]),
        ("LEVELS", ["auto", "1", "2"], ["3", "two"]),
        ("MAX_CTAS", ["auto", "1", "64"], ["0", "65", "-1", "many", "1e1"]),
        ("NET", ["tcp", "plugin", "ucx", "auto"], ["rdma", "TCP"]),
        ("NVTX", ["0", "true"], ["off"]),
        ("OFF", ["0", "send, recv"], ["sends", "yes"]),
        ("P2P", ["1"], ["off", "01"]),
        ("PATH", ["packets", "packets:one_shot", "packets:two_shot", "blocks"], ["packet", "packets:"]),
        ("SCRATCH_BYTES", ["0", "67108864"], ["64M", "-1"]),
        ("SHARED_KIB", ["99", "227"], ["63", "228", "99 KiB"]),
        ("SOCKET_IFNAME", ["eth"], []),
        ("STATS_SECONDS", ["0", "0.5"], ["-1", "soon", "nan"]),
        ("TAKE", ["auto", "always"], ["perhaps"]),
        ("TRACEBACK", ["0", "1"], ["yes"]),
        ("VERIFY", ["1"], ["twice"]),
    ],
)
def test_invalid_values_are_problems(name, right, wrong):
    for value in right:
        assert examined(**{name: value}).problems == [], value
    for value in wrong:
        (found,) = examined(**{name: value}).problems
        assert found.what.startswith(f"NARROWCAST_{name} is {value}, not ")
        assert found.remedy.endswith(".")


def test_a_cost_model_that_cannot_be_loaded_is_a_problem(tmp_path):
    path = tmp_path / "own.costs"
    path.write_text("narrowcast-costs 2 a machine\nsend 2 nvlink blocks:raw 64:1\nsend 2 nvlink blocks:window 64:1\n")
    assert examined(COST_MODEL=str(path)).problems == []
    path.write_text("narrowcast-costs 2 a machine\nsend 2 nvlink blocks:raw 64:1\n")
    (found,) = examined(COST_MODEL=str(path), PATH="blocks").problems
    assert found.what == f"NARROWCAST_COST_MODEL: {path}: there is no line 'send 2 nvlink blocks:window'"
    assert "NARROWCAST_COST_MODEL" not in os.environ


def test_a_cost_model_of_other_kernels_gets_a_remark(tmp_path):
    path = tmp_path / "own.costs"
    lines = "".join(f"send 2 nvlink blocks:{codec} 64:1\n" for codec in ("raw", "window"))
    path.write_text(f"narrowcast-costs 2 a machine\nkernels 0123456789abcdef\n{lines}")
    section = examined(COST_MODEL=str(path))
    assert section.problems == []
    assert "the cost model was measured on other kernels (0123456789abcdef" in str(section.rows)
    path.write_text(f"narrowcast-costs 2 a machine\nkernels {library().ncast_kernels_hash().decode()}\n{lines}")
    assert "kernels" not in str(examined(COST_MODEL=str(path)).rows)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML takes Python 3.11")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("path = 'blocks'", "1: path is not read from a file"),
        ("p2p = 2", "1: p2p is 2, not 0 or 1"),
        ("\ncodec = ['raw', 'all_gather=zip']", "2: 'zip' is not a codec"),
        ("stats = 1979-05-27", "1: stats has a value of an unsupported type"),
        ("[[rule]]\nrank = 8", "2: in a rule, there is no key rank (known: "),
        ("[[plan]]\nuse = 'often'", "2: in a plan, use must be always or faster"),
    ],
)
def test_errors_in_a_settings_file_are_problems(tmp_path, content, words):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    (found,) = examined(CONFIG=str(file)).problems
    assert found.what.startswith(f"{file}:{words}")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML takes Python 3.11")
def test_a_settings_file_with_every_key_is_valid(tmp_path):
    file = tmp_path / "settings.toml"
    rule = "name = 'a'\noperation = ['reduce']\ndtype = 'bfloat16'\nop = ['max']\n"
    rule += "ranks = 8\ncommunicator = 'a'\nmin_bytes = 0\nmax_bytes = 9\n"
    settings = "attach = 'init'\ncodec = ['raw', 'send=window']\nnvtx = false\noff = ['recv']\nscratch_bytes = 4096\n"
    more = "max_ctas = 32\np2p = true\ncost_model = ''\nstats_seconds = 0.5\nplans = 'folder'\n"
    limits = "ranks = 8\ncommunicator = 'a'\nmin_bytes = 0\nmax_bytes = 9\n"
    plan = f"[[plan]]\nfile = 'a.json'\ndtype = ['int8']\nop = 'sum'\nuse = 'faster'\n{limits}"
    file.write_text(f"{settings}{more}{plan}[[rule]]\n{rule}take = 'always'\ncodec = 'auto'\n")
    assert examined(CONFIG=str(file)).problems == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML takes Python 3.11")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("p2p = 0", "p2p=0: Narrowcast uses host memory"),
        ("take = 'never'", "take=never: all calls are forwarded to NCCL"),
        ("cost_model = '/nowhere.costs'", "cost_model: /nowhere.costs cannot be read: "),
    ],
)
def test_harmful_settings_in_a_file_are_problems_unless_overridden(tmp_path, content, words):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    (found,) = examined(CONFIG=str(file)).problems
    assert found.what.startswith(words)
    assert found.remedy.endswith(f"(source: {file}).")
    key = content.partition(" ")[0].upper()
    model = tmp_path / "own.costs"
    model.write_text("narrowcast-costs 2 a machine\nsend 2 nvlink blocks:raw 64:1\nsend 2 nvlink blocks:window 64:1\n")
    others = {"P2P": "1", "TAKE": "auto", "COST_MODEL": str(model)}
    assert examined(CONFIG=str(file), **{key: others[key]}).problems == []
    assert len(examined(CONFIG=str(file), **{key: ""}).problems) == 1


def test_without_toml_a_file_is_a_note(tmp_path, monkeypatch):
    file = tmp_path / "settings.toml"
    file.write_text("codec = 'raw'")
    monkeypatch.setattr(settings, "sys", SimpleNamespace(version_info=(3, 10)))
    section = examined(CONFIG=str(file))
    assert section.problems == []
    assert "Python 3.11" in section.rows[-1]["note"]
