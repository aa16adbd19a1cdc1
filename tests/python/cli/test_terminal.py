"""Names do not control the terminal, and closed standard streams are not a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from narrowcast._files.display import printable
from sample_values import normal

HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J"
ESCAPED = r"\x1b[31mred\x1b]0;title\x07\u202e\x9b2J"


def safetensors(path, names) -> None:
    data = normal("bfloat16", 4096).tobytes()
    header = {
        name: {"dtype": "BF16", "shape": [4096], "data_offsets": [i * len(data), (i + 1) * len(data)]}
        for i, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + len(names) * data)


def test_text_without_control_characters_is_unchanged():
    for text in ("layers.0.weight", "größe 大小", "a[bold]b", ""):
        assert printable(text) == text
    assert printable("a\nb\tc\udc80") == r"a\nb\tc\udc80"


@pytest.mark.parametrize(
    "command",
    [
        ["ratio", "model"],
        ["ratio", "model", HOSTILE],
        ["encode", "model", "-o", HOSTILE + "out"],
        ["encode", HOSTILE, "-o", "out", "--dtype", HOSTILE],
        ["encode", HOSTILE + "missing", HOSTILE],
        ["encode", "cut"],
        ["decode", HOSTILE, "-o", "out"],
        ["inspect", HOSTILE],
        ["bench", "codec", "model", "--tile", "8K", "-n", "1"],
        ["bench", "all_reduce", "--backend", "host", "--data", HOSTILE + "missing"],
        ["doctor", HOSTILE],
        ["run", HOSTILE],
        [HOSTILE],
    ],
    ids=lambda command: " ".join(command).replace(HOSTILE, "HOSTILE"),
)
def test_no_control_character_is_printed(cli_here, tmp_path, command):
    safetensors(tmp_path / "model", [HOSTILE])
    safetensors(tmp_path / HOSTILE, ["plain name"])
    (tmp_path / "cut").write_bytes((tmp_path / "model").read_bytes()[:-1])
    done = cli_here(*command)
    printed = (done.stdout + done.stderr).replace("\n", "")
    assert printed.isprintable(), repr(printed)
    if command[0] != "inspect" and command[-1] != "run":
        assert "red" not in printed or r"\x1b[31mred" in printed


def test_ratio_shows_control_characters_escaped(cli_here, tmp_path):
    safetensors(tmp_path / "model", [HOSTILE])
    done = cli_here("ratio", "model")
    assert done.returncode == 0
    assert ESCAPED in done.stdout
    (row,) = json.loads(cli_here("ratio", "model", "--json").stdout)
    assert row["tensor"] == HOSTILE


@pytest.mark.parametrize("command", ["ratio model", "inspect encoded"])
def test_a_name_with_ends_of_lines_is_one_row(cli_here, tmp_path, command):
    safetensors(tmp_path / "model", ["weights\n| total |\r\n"])
    assert cli_here("encode", "model", "-o", "encoded").returncode == 0
    lines = cli_here(*command.split()).stdout.splitlines()
    assert sum(r"weights\n| total |\r\n" in line for line in lines) == 1
    assert not any("total" in line and "weights" not in line for line in lines)


def test_names_that_are_not_utf_8_can_be_printed(tmp_path):
    name = os.fsdecode(b"\xff\xfe.npy")
    np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
    (tmp_path / "a.npy").rename(tmp_path / name)
    command = [sys.executable, "-m", "narrowcast", "encode", name, "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(r"\udcff\udcfe.npy -> out: ")


def shell(command: str, folder) -> subprocess.CompletedProcess[bytes]:
    python = f"{sys.executable} -m narrowcast"
    return subprocess.run(
        ["sh", "-c", command.replace("narrowcast", python)], cwd=folder, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize("command", ["ratio --json model", "ratio model", "inspect encoded", "encode model -c"])
def test_closed_standard_output_is_an_error_in_one_line(tmp_path, command):
    safetensors(tmp_path / "model", ["weights"])
    assert shell("narrowcast encode model -fo encoded", tmp_path).returncode == 0
    done = shell(f"narrowcast {command} >&-", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"narrowcast: standard output: it is closed\n"


def test_summaries_are_omitted_if_standard_output_is_closed(tmp_path):
    safetensors(tmp_path / "model", ["weights"])
    done = shell("narrowcast encode model -o encoded >&- && narrowcast decode encoded -o copy", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "model").read_bytes()


def test_closed_standard_error_does_not_mix_with_the_output(tmp_path):
    safetensors(tmp_path / "model", ["weights"])
    done = shell("narrowcast encode model -c 2>&- | narrowcast decode - -o copy", tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "model").read_bytes()


def test_closed_standard_input_is_empty(tmp_path):
    done = shell("narrowcast decode - -o out <&-", tmp_path)
    assert done.returncode == 1
    assert b"frame 0 at byte 0: the file ends" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_standard_output_is_an_error_in_one_line(tmp_path):
    safetensors(tmp_path / "model", ["weights"])
    done = shell("narrowcast ratio --json model >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr in (
        b"narrowcast: No space left on device\n",
        b"narrowcast: standard output: No space left on device\n",
    )
