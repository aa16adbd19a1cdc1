"""`narrowcast run`: the environment, signals and exit status of the command. The drop-in is a stand-in."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest
from narrowcast._dropin import child as supervisor
from narrowcast._dropin import preload


def printed_environment(done):
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_the_command_gets_the_drop_in_and_the_settings(run, stand_in, nccl_file, tmp_path):
    (tmp_path / "settings.toml").touch()
    options = ["--codec", "raw", "--codec", "all_reduce=window", "--off", "send", "--off", "recv", "--take", "always"]
    options += ["--config", "settings.toml", "--verify", "--debug", "info", "--attach", "init"]
    done = run("-q", *options, "--", "env", LD_PRELOAD="/lib/other.so", NARROWCAST_CODEC="auto", NARROWCAST_P2P="0")
    assert done.returncode == 0
    found = printed_environment(done)
    library = str(stand_in / preload.NAME)
    stats = Path(found["NARROWCAST_STATS"])
    assert {name: value for name, value in found.items() if re.match("NARROWCAST_(?!TEST_)", name)} == {
        "NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"),
        "NARROWCAST_NCCL_LIBRARY": str(nccl_file),
        "NARROWCAST_CODEC": "raw,all_reduce=window",
        "NARROWCAST_OFF": "send,recv",
        "NARROWCAST_TAKE": "always",
        "NARROWCAST_ATTACH": "init",
        "NARROWCAST_CONFIG": str(tmp_path / "settings.toml"),
        "NARROWCAST_VERIFY": "1",
        "NARROWCAST_DEBUG": "info",
        "NARROWCAST_P2P": "0",
        "NARROWCAST_STATS": str(stats),
        "NARROWCAST_STATS_SECONDS": "2",
    }
    assert found["LD_PRELOAD"] == f"{library}:/lib/other.so"
    assert found["VLLM_NCCL_SO_PATH"] == found["SGLANG_NCCL_SO_PATH"] == library
    assert stats.name == "%p.json"
    assert not stats.parent.exists()


def test_everything_can_be_left_to_nccl(run):
    assert printed_environment(run("-q", "--off", "1", "--", "env"))["NARROWCAST_OFF"] == "1"


def test_options_after_the_command_are_its_own(run):
    done = run("-q", "echo", "--codec", "none", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--codec none -q\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--"], 2, ["COMMAND"]),
        (["--off", "all_reduc", "true"], 2, ["all_reduc", "all_reduce"]),
        (["--off", "1", "--off", "send", "true"], 2, ["--off 1", "cannot be combined"]),
        (["--stats", "nowhere/s.json", "echo", "started"], 1, ["nowhere/s.json: No such file or directory"]),
        (["--stats", "folder", "echo", "started"], 1, ["folder", "not a regular file"]),
        (["--codec", "zip", "true"], 2, ["zip", "auto, within, raw, window"]),
        (["--codec", "all_median=raw", "true"], 2, ["all_median"]),
        (["--take", "some", "true"], 2, ["some", "never"]),
        (["--attach", "soon", "true"], 2, ["soon", "init"]),
        (["--debug", "loud", "true"], 2, ["loud", "TRACE"]),
        (["--prometheus", "host:port", "true"], 2, ["'port'"]),
        (["--prometheus", "70000", "true"], 2, ["70000"]),
        (["--config", "nothing.toml", "true"], 1, ["nothing.toml", "No such file"]),
        (["--config", "folder", "true"], 1, ["folder", "Is a directory"]),
        (["--nccl", "nothing.so", "true"], 1, ["narrowcast: --nccl names", "nothing.so: it is not a file"]),
        (["nothing-of-that-name"], 127, ["nothing-of-that-name: No such file"]),
        (["./folder"], 126, ["./folder: Permission denied"]),
    ],
)
def test_commands_that_cannot_be_run_are_reported_in_one_line(
    cli_here, with_stand_in, tmp_path, arguments, status, words
):
    (tmp_path / "folder").mkdir()
    done = cli_here("run", *arguments, **with_stand_in)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1), done
    for word in words:
        assert word in done.stderr


def test_a_child_that_ends_late_does_not_kill_the_parent(tmp_path):
    # Python prints an error for a pending signal that has no handler any more.
    before = {one: signal.getsignal(one) for one in (signal.SIGCHLD, signal.SIGTERM)}
    try:
        with pytest.raises(PermissionError):
            supervisor.run([str(tmp_path)], os.environ)
        assert callable(signal.getsignal(signal.SIGCHLD))
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_replaced_and_unknown_variables_are_reported(run):
    done = run("-q", "true", VLLM_NCCL_SO_PATH="/opt/libnccl.so.2", NARROWCAST_STATS="x", NARROWCAST_CODEX="raw")
    assert "VLLM_NCCL_SO_PATH is overridden; --nccl /opt/libnccl.so.2 forwards" in done.stderr
    assert "NARROWCAST_STATS is ignored" in done.stderr
    assert "NARROWCAST_CODEX is not known to Narrowcast (did you mean NARROWCAST_CODEC?)" in done.stderr


def test_a_build_without_the_drop_in_is_reported(run, tmp_path):
    (tmp_path / "libnarrowcast.so").touch()
    done = run("true", NARROWCAST_LIBRARY=str(tmp_path / "libnarrowcast.so"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{preload.NAME} is missing" in done.stderr


@pytest.mark.parametrize("status", [3, 255])
def test_the_exit_status_of_the_command_is_returned(run, status):
    assert run("-q", "sh", "-c", f"exit {status}").returncode == status


COUNTS_SIGNALS = """
import signal, sys, time
got = []
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(one, lambda number, _: got.append(number))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.2)
print(*got)
sys.exit(40 + len(got))
"""


@pytest.fixture
def sighup_not_ignored():
    """Restores the default action of SIGHUP: commands inherit ignored signals, such as SIGHUP under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("sighup_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_command_once(started_run, number):
    process = started_run("-q", sys.executable, "-c", COUNTS_SIGNALS)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out.strip(), err, process.returncode) == (str(int(number)), "", 41)


def test_a_command_ended_by_a_signal_gives_128_plus_its_number(started_run):
    process = started_run("-q", "--", "sh", "-c", "echo ready; exec sleep 60")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


def test_the_command_inherits_the_original_signal_handling(run):
    code = "import signal; print(signal.getsignal(signal.SIGTERM) == 0, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert run("-q", sys.executable, "-c", code).stdout == "True set()\n"
    # A Python child would ignore SIGPIPE itself, so use another program.
    ignored = run("-q", "grep", "SigIgn", "/proc/self/status").stdout.split()[1]
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_a_command_that_ends_immediately_is_not_missed():
    for _ in range(20):
        assert supervisor.run(["true"], os.environ) == 0


def test_ctrl_c_reaches_the_command_once(stand_in, nccl_file, tmp_path):
    variables = {"NARROWCAST_LIBRARY": str(stand_in / "libnarrowcast.so"), "NARROWCAST_NCCL_LIBRARY": str(nccl_file)}
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        command = [sys.executable, "-m", "narrowcast", "run", "-q", sys.executable, "-c", COUNTS_SIGNALS]
        os.execve(sys.executable, command, {**os.environ, **variables})
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    # Linux reports EIO when the other end of the terminal is closed.
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 4096):
            shown += more
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41, shown
    os.close(terminal)
