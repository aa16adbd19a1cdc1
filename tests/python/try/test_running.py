"""Runs of `narrowcast try` leave no process behind, however they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from narrowcast._try import running

SECONDS = 30


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "GRACE_SECONDS", 1.0)

    def start(program, has_enough=lambda: False, timeout_seconds=SECONDS):
        command = [sys.executable, "-c", program, str(tmp_path)]
        return running.run(command, os.environ, tmp_path / "log", has_enough, timeout_seconds)

    return start


# A process in a session of its own, as torchrun starts its ranks; `ready` is written when all have begun.
LEAVES = """
import os, signal, sys, time
{first}
if os.fork() == 0:
    os.setsid()
    {other}
    open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
    os.rename(sys.argv[1] + "/pid", sys.argv[1] + "/ready")
    time.sleep(600)
while not os.path.exists(sys.argv[1] + "/ready"): time.sleep(0.01)
{last}
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("first", ["", IGNORE])
@pytest.mark.parametrize("other", ["pass", IGNORE])
@pytest.mark.parametrize(("last", "end"), [("time.sleep(600)", "ENOUGH"), ("sys.exit(7)", "BY_ITSELF")])
def test_no_process_is_left(run, tmp_path, first, other, last, end):
    ready = tmp_path / "ready"
    ended = run(LEAVES.format(first=first, other=other, last=last), ready.exists)
    assert ended.end is running.End[end]
    assert not is_running(int(ready.read_text()))
    assert (ended.status == 7) == (end == "BY_ITSELF")


def test_a_run_that_hangs_is_killed_and_its_output_kept(run, tmp_path):
    begin = time.monotonic()
    ended = run(
        LEAVES.format(first="print('working', flush=True)", other=IGNORE, last=IGNORE + "; time.sleep(600)"),
        timeout_seconds=2,
    )
    assert ended.end is running.End.TIMEOUT
    assert ended.last_lines == ["working"]
    assert time.monotonic() - begin < SECONDS
    assert not is_running(int((tmp_path / "ready").read_text()))


def test_children_of_others_are_left_alone(run):
    other = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        assert run("print('done')").status == 0
        assert is_running(other)
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_the_end_of_the_output_is_kept(run):
    ended = run("import sys\nfor i in range(5000): print(f'line {i}')\nprint('last', file=sys.stderr)")
    assert ended.last_lines[-2:] == ["line 4999", "last"] or ended.last_lines[-2:] == ["line 4998", "line 4999"]
    assert len(ended.last_lines) == 15


def test_a_command_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        running.run(["nothing-of-that-name"], os.environ, tmp_path / "log", lambda: False, None)
    assert raised.value.filename == "nothing-of-that-name"


def test_an_interrupt_ends_the_run(run, tmp_path):
    ready = tmp_path / "ready"

    def interrupted():
        if ready.exists():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run(LEAVES.format(first="", other="pass", last="time.sleep(600)"), interrupted)
    assert not is_running(int(ready.read_text()))


def test_an_interrupt_while_the_command_starts_leaves_no_process(tmp_path, monkeypatch):
    real, started = subprocess.Popen, []

    def interrupted(*arguments, **options):
        started.append(real(*arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt):
        running.run(command, os.environ, tmp_path / "log", lambda: False, None)
    assert not Path("/proc", str(started[0].pid)).exists()
