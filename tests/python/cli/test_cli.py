"""All commands: arguments, exit status, and files that they encode and decode."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cli_output import assert_one_line
from narrowcast.cli._main import COMMANDS
from narrowcast.cli.plan import COMMANDS as PLAN_COMMANDS
from sample_values import normal


def test_encode_decode_inspect(cli_here, slices, tmp_path):
    done = cli_here("encode", slices, "-o", "model.ncast")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ratio 0.68" in done.stdout
    assert cli_here("decode", "model.ncast", "-o", "model.safetensors").returncode == 0
    assert (tmp_path / "model.safetensors").read_bytes() == slices.read_bytes()
    table = cli_here("inspect", "model.ncast")
    assert (table.returncode, table.stderr) == (0, "")
    assert "bfloat16" in table.stdout
    frames = json.loads(cli_here("inspect", "model.ncast", "--json").stdout)
    assert [frame["dtype"] for frame in frames][:2] == ["uint8", "bfloat16"]
    assert sum(frame["wire_bytes"] for frame in frames) == (tmp_path / "model.ncast").stat().st_size
    assert frames[1]["checksum"] is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.ncast", "model.safetensors"]


def test_outputs_have_the_names_of_their_inputs(cli_here, slices, tmp_path):
    model, values = tmp_path / "model.safetensors", tmp_path / "values.npy"
    model.write_bytes(slices.read_bytes())
    np.save(values, np.arange(1000))
    expected = {path.name: path.read_bytes() for path in (model, values)}
    done = cli_here("encode", "model.safetensors", "values.npy")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [f"{name} -> {name}.ncast" for name in expected]
    model.unlink()
    values.unlink()
    done = cli_here("decode", "-q", "model.safetensors.ncast", "values.npy.ncast")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name: path.read_bytes() for path in (model, values)} == expected
    both = subprocess.run(
        [sys.executable, "-m", "narrowcast", "decode", "-qc", "model.safetensors.ncast", "values.npy.ncast"],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    assert (both.stdout, both.stderr) == (b"".join(expected.values()), b"")


@pytest.mark.parametrize(("command", "source", "target"), [("encode", "a", "a.ncast"), ("decode", "b.ncast", "b")])
def test_an_existing_output_is_replaced_only_with_f(cli_here, slices, tmp_path, command, source, target):
    (tmp_path / "a").write_bytes(slices.read_bytes())
    assert cli_here("encode", "a", "-o", "b.ncast").returncode == 0
    (tmp_path / target).write_bytes(b"mine")
    for arguments in ([source], [source, "-o", target]):
        assert_one_line(cli_here(command, *arguments), 1, f"{target}: exists already (-f replaces it)")
        assert (tmp_path / target).read_bytes() == b"mine"
    done = cli_here(command, "-f", source)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / target).read_bytes() != b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"a", "b.ncast", target})


def test_a_failure_does_not_keep_other_files_from_being_coded(cli_here, slices, tmp_path):
    (tmp_path / "a").write_bytes(slices.read_bytes())
    (tmp_path / "plain").write_bytes(b"plain")
    done = cli_here("encode", "missing", "plain", "a")
    assert done.returncode == 1
    errors = done.stderr.splitlines()
    assert errors[0].startswith("narrowcast: missing: ")
    assert "plain is neither safetensors nor npy" in errors[1]
    assert done.stdout.startswith("a -> a.ncast: ")
    done = cli_here("decode", "a", "a.ncast", "-f")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stdout.startswith("a.ncast -> a: ")


def test_a_dash_is_standard_input_and_output(slices, tmp_path):
    def narrowcast(*arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "narrowcast", *arguments], capture_output=True, cwd=tmp_path, timeout=60, **options
        )

    model = slices.read_bytes()
    encoded = narrowcast("encode", "-", input=model, check=True)
    assert b"- -> -: " in encoded.stderr
    with slices.open("rb") as redirected:
        assert narrowcast("encode", "-", stdin=redirected, check=True).stdout == encoded.stdout
    assert narrowcast("decode", "-", "-o", "-", input=encoded.stdout, check=True).stdout == model
    frames = json.loads(narrowcast("inspect", "-", "--json", input=encoded.stdout, check=True).stdout)
    assert len(frames) == 8
    rows = json.loads(narrowcast("ratio", "-", "--codec", "raw", "--codec", "window", "--json", input=model).stdout)
    assert [row["file"] for row in rows] == ["<stdin>"] * 14
    assert rows[7]["ratio"] < 0.8
    cut = narrowcast("decode", "-", "-o", "out", input=encoded.stdout[:-1])
    assert cut.returncode == 1
    assert b"<stdin>: frame 7 at byte " in cut.stderr
    assert not (tmp_path / "out").exists()
    plain = narrowcast("encode", "-", input=b"plain")
    assert plain.returncode == 2
    assert b"<stdin> is neither safetensors nor npy" in plain.stderr


def test_encoded_data_is_not_written_to_a_terminal(slices):
    leader, terminal = pty.openpty()
    try:
        command = [sys.executable, "-m", "narrowcast", "encode", str(slices), "-c"]
        done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        done.stdout = ""
    finally:
        os.close(terminal)
        os.close(leader)
    assert_one_line(done, 2, "terminal")


def test_options_of_encode(cli_here, tmp_path):
    (tmp_path / "values").write_bytes(normal("bfloat16", 40_001).tobytes() + b"x")
    assert (
        cli_here("encode", "values", "-o", "out", "--dtype", "bf16", "--codec", "raw", "--no-checksum").returncode == 0
    )
    frames = json.loads(cli_here("inspect", "out", "--json").stdout)
    assert [(f["dtype"], f["codec"], f["elems"], f["checksum"]) for f in frames] == [
        ("bfloat16", "raw", 40_001, None),
        ("uint8", "raw", 1, None),
    ]


def test_version_and_help(cli, cli_here):
    version = cli("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("narrowcast 0.")
    commands = ([], *([name] for name in COMMANDS), ["bench", "all_reduce"], ["bench", "codec"])
    commands += (["codec", "list"], ["codec", "check"])
    commands += tuple(["plan", name] for name in PLAN_COMMANDS)
    for command in commands:
        shown = cli_here(*command, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert f"Usage: {' '.join(['narrowcast', *command])} [OPTIONS]" in shown.stdout
        # No type of Python, such as <str> or <int range>.
        assert not re.search(r"<\w|INTEGER|TEXT", shown.stdout), shown.stdout
        assert cli_here(*command, "-h").stdout == shown.stdout


@pytest.mark.parametrize("command", [[], ["bench"], ["plan"]])
def test_a_group_without_a_command_prints_its_help(cli_here, command):
    bare = cli_here(*command)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == cli_here(*command, "--help").stdout


def test_a_command_imports_only_what_it_needs(tmp_path):
    program = (
        "import sys; from narrowcast.cli import main; main(['encode', 'missing']); "
        "print(sorted(set(sys.modules) & {'rich', 'narrowcast._doctor', 'narrowcast.cli.bench'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["compress"], "compress"),
        (["encode"], "FILE"),
        (["encode", "plain", "-o", "out", "--dtype", "uint8", "--threads", "0"], "--threads"),
        (["encode", "plain", "-o", "out", "-c", "--dtype", "uint8"], "-o and -c exclude each other"),
        (["encode", "plain", "link", "-o", "out", "--dtype", "uint8"], "accept one FILE"),
        (["encode", "plain", "link", "-c", "--dtype", "uint8"], "accept one FILE"),
        (["decode", "plain", "link", "-o", "out"], "accepts one FILE"),
        (["decode", "plain"], "does not end in .ncast: name the output with -o"),
        (["encode", "plain", "-o", "out", "--level", "9"], "--level"),
        (["encode", "plain", "-o", "out"], "--dtype"),
        (["encode", "plain", "-o", "out", "--dtype", "float31"], "float31"),
        (["encode", "plain", "-o", "out", "--dtype", "uint8", "--codec", "zip"], "zip"),
        (["encode", "plain", "-f", "-o", "plain", "--dtype", "uint8"], "is the input"),
        (["encode", "plain", "-f", "-o", "./link", "--dtype", "uint8"], "is the input"),
        (["ratio", "plain"], "--dtype"),
        (["ratio", "plain", "--dtype", "uint8", "--plot", "out.txt"], ".png"),
        (["bench", "all_reduce", "-b", "many"], "many"),
        (["bench", "all_reduce", "-b", "2K", "-e", "1K"], "sizes"),
        (["bench", "all_reduce", "-f", "1"], "-f"),
        (["bench", "all_reduce", "-f", "nan"], "-f is nan"),
        (["bench", "all_reduce", "-f", "inf"], "-f is inf"),
        (["bench", "all_reduce", "--codec", "zip"], "(known: auto, within, raw, window, dense,"),
        (["bench", "codec", "plain", "--dtype", "uint8", "--codec", "auto"], "only the calls of a communicator"),
        (["bench", "all_reduce", "-c", "2"], "--check"),
        (["bench", "all_reduce", "--op", "median"], "median"),
        (["bench", "all_reduce", "--backend", "telepathy"], "telepathy"),
        (["bench", "all_reduce", "--data", "nowhere"], "nowhere"),
        (["bench", "broadcast", "-r", "4"], "root"),
        (["bench", "codec", "plain", "--dtype", "uint8", "--device", "abacus"], "abacus"),
        (["explain"], "OPERATION"),
        (["explain", "all_reduce"], "--bytes"),
        (["explain", "all_median", "--bytes", "1K"], "all_median"),
        (["explain", "all_reduce", "--bytes", "some"], "some"),
        (["explain", "all_reduce", "--bytes", "9999999999G"], "9999999999G is too large"),
        (["explain", "all_reduce", "--bytes", "1K", "--dtype", "float31"], "float31"),
        (["explain", "all_reduce", "--bytes", "1K", "--codec", "zip"], "(known: auto, within, raw, window, dense,"),
        (["explain", "all_reduce", "--bytes", "1K", "--ranks", "9"], "--ranks"),
    ],
)
def test_invalid_arguments_are_one_line_and_exit_status_2(cli_here, tmp_path, arguments, word):
    (tmp_path / "plain").write_bytes(b"plain")
    (tmp_path / "link").symlink_to("plain")
    assert_one_line(cli_here(*arguments), 2, word)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "plain"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["encode", "nothing", "-o", "out", "--dtype", "uint8"], ["nothing", "No such file"]),
        (["encode", "folder", "-o", "out", "--dtype", "uint8"], ["folder", "Is a directory"]),
        (["encode", "plain", "-o", "folder", "--dtype", "uint8"], ["folder", "not a regular file"]),
        (["encode", "plain", "-o", "nowhere/out", "--dtype", "uint8"], ["nowhere", "No such file"]),
        (["encode", "/dev/zero", "-o", "out", "--dtype", "uint8"], ["/dev/zero", "not a regular file"]),
        (["encode", "broken.safetensors"], ["broken.safetensors", "not a valid safetensors file"]),
        (["decode", "plain", "-o", "out"], ["plain: frame 0 at byte 0"]),
        (["inspect", "plain"], ["plain: frame 0 at byte 0"]),
        (["ratio", "nothing"], ["nothing"]),
        (["bench", "codec", "nothing"], ["nothing"]),
        (["bench", "codec", "plain", "--dtype", "uint8", "-J", "nowhere/a.json"], ["nowhere/a.json: No such file"]),
        (["bench", "all_reduce", "--backend", "host", "-J", "nowhere/a.json"], ["nowhere/a.json: No such file"]),
        (["bench", "all_reduce", "--backend", "host", "-J", "folder"], ["folder", "not a regular file"]),
    ],
)
def test_failures_are_one_line_and_exit_status_1(cli_here, tmp_path, arguments, words):
    (tmp_path / "plain").write_bytes(b"plain")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    (tmp_path / "folder").mkdir()
    assert_one_line(cli_here(*arguments), 1, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.safetensors", "folder", "plain"]


def test_inspect_shows_which_frame_is_corrupt(cli_here, slices, tmp_path):
    assert cli_here("encode", slices, "-o", "model.ncast").returncode == 0
    right = json.loads(cli_here("inspect", "model.ncast", "--json").stdout)
    assert [frame["fault"] for frame in right] == [None] * len(right)
    broken = bytearray((tmp_path / "model.ncast").read_bytes())
    broken[right[3]["offset"] + 1000] ^= 1
    (tmp_path / "model.ncast").write_bytes(broken)
    done = cli_here("inspect", "model.ncast")
    assert done.returncode == 1
    assert done.stderr.startswith(f"narrowcast: model.ncast: frame 3 at byte {right[3]['offset']}: checksum ")
    assert done.stderr.count("\n") == 1
    assert done.stdout.count("WRONG") == 1
    assert next(line for line in done.stdout.splitlines() if "WRONG" in line).split("│")[1].strip() == "3"
    found = json.loads(cli_here("inspect", "model.ncast", "--json").stdout)
    assert found[3]["fault"] in done.stderr
    assert found[:3] + found[4:] == right[:3] + right[4:]


def test_inspect_shows_the_frames_of_a_truncated_file(cli_here, slices, tmp_path):
    assert cli_here("encode", slices, "-o", "model.ncast").returncode == 0
    (tmp_path / "model.ncast").write_bytes((tmp_path / "model.ncast").read_bytes()[:-1])
    done = cli_here("inspect", "model.ncast")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the file is truncated" in done.stderr
    assert "bfloat16" in done.stdout
    assert "WRONG" not in done.stdout


def test_errors_in_truncated_files_have_an_offset(cli_here, slices, tmp_path):
    assert cli_here("encode", slices, "-o", "whole").returncode == 0
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    frames = json.loads(cli_here("inspect", "whole", "--json").stdout)
    broken = max(frame["offset"] for frame in frames if frame["offset"] <= len(whole) // 2)
    assert_one_line(cli_here("decode", "cut", "-o", "out"), 1, f"at byte {broken}: the file is truncated")
    assert not (tmp_path / "out").exists()


def is_writing(process, folder):
    """Whether the process has an open file in the folder that has no name."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            if str(entry.readlink()).startswith(f"{folder}/#"):
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_leave_no_partial_files(tmp_path, number):
    with (tmp_path / "long").open("wb") as file:
        file.truncate(8 << 30)  # a hole: nothing on the disk
    process = subprocess.Popen(
        [sys.executable, "-m", "narrowcast", "encode", "long", "-o", "out", "--dtype", "bfloat16"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not is_writing(process, tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_writing(process, tmp_path)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["long"]


def test_a_full_disk_is_reported_and_leaves_no_partial_file(slices, tmp_path):
    # A file size limit of 512 KiB simulates a full disk.
    command = f"ulimit -f 1024; exec {sys.executable} -m narrowcast encode {slices} -o out"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert_one_line(done, 1, "narrowcast: out: File too large")
    assert list(tmp_path.iterdir()) == []


def test_demo_is_exact(cli_here):
    done = cli_here("demo", "-n", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Exact" in done.stdout
    assert " NO" not in done.stdout
    for word in (
        "sendrecv",
        "broadcast",
        "reduce (sum)",
        " gather ",
        " scatter ",
        "all_gather",
        "all_to_all ",
        "all_to_all_v",
        "reduce_scatter",
        "all_reduce",
        "float32",
        "window",
    ):
        assert word in done.stdout


def test_a_dtype_that_contradicts_a_header_is_rejected(cli_here, slices, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, np.float32))
    for command in (["encode", slices, "-o", "out"], ["ratio", slices], ["bench", "codec", slices]):
        assert_one_line(cli_here(*command, "--dtype", "bfloat16"), 2, "header states the types", "omit --dtype")
    assert_one_line(cli_here("encode", "a.npy", "-o", "out", "--dtype", "bf16"), 2, "contains float32", "not bfloat16")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_malformed_headers_are_faults_of_the_file(cli_here, slices, tmp_path):
    (tmp_path / "cut").write_bytes(slices.read_bytes()[:-1])
    np.save(tmp_path / "a.npy", np.zeros(4, np.float32))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole.replace(b"'<f4'", b"exit("))
    assert_one_line(cli_here("encode", "cut", "-o", "out"), 1, "cut is a truncated safetensors file: tensor ")
    assert_one_line(
        cli_here("encode", "a.npy", "-o", "out"), 1, "a.npy is not a valid npy file: its header cannot be parsed"
    )


@pytest.mark.parametrize("value", [None, "", "0", "1"])
def test_only_1_asks_for_tracebacks(cli_here, monkeypatch, value):
    def demo() -> None:
        raise KeyError("lost")

    monkeypatch.setattr("narrowcast.cli.demo.demo", demo)
    if value is not None:
        monkeypatch.setenv("NARROWCAST_TRACEBACK", value)
    if value == "1":
        with pytest.raises(KeyError):
            cli_here("demo")
    else:
        assert_one_line(cli_here("demo"), 1, "narrowcast: internal error, KeyError: 'lost' (NARROWCAST_TRACEBACK=1 ")
