"""Runs a command until it ends, or until enough of it has run, and leaves no process of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..errors import SystemFailure

#: For processes that end after SIGTERM.
GRACE_SECONDS = 15.0
# Time for killed processes to disappear; those that wait for a device need some.
_KILL_SECONDS = 30.0
_LOOK_SECONDS = 0.5
# A look at the records takes at most this part of the time, because it takes CPU time from the command.
_LOOKING_PART = 0.1
_PR_SET_CHILD_SUBREAPER = 36
_LAST_BYTES = 8192
_LAST_LINES = 15


class End(Enum):
    """How a run has ended."""

    BY_ITSELF = "by itself"
    ENOUGH = "enough"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    end: End
    status: int
    """The exit status of the command; negative: the signal that killed it."""
    last_lines: list[str]
    """Of its output."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    has_enough: Callable[[], bool],
    timeout_seconds: float | None,
) -> Run:
    """Runs the command with its output in `log`, until it ends or `has_enough`, which is called now and then, says so.

    All of its processes are then told to terminate, and killed if they have not after GRACE_SECONDS.
    Raises OSError, with the command as filename, if the command cannot be started, and SystemFailure if a process
    cannot be killed.
    """
    # Processes whose parents end become children of this process, so that they can be found.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    others = set(_children().get(os.getpid(), []))
    process = None
    try:
        # A signal may interrupt this after the process has started.
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = _wait(process, has_enough, timeout_seconds)
        _terminate(process, others)
    finally:
        _kill_all(process, others)
    return Run(end, process.returncode, _last_lines(log))


def _wait(process: subprocess.Popen[bytes], has_enough: Callable[[], bool], timeout_seconds: float | None) -> End:
    begin = time.monotonic()
    deadline = None if timeout_seconds is None else begin + timeout_seconds
    next_look = begin + _LOOK_SECONDS
    while True:
        until = next_look if deadline is None else min(next_look, deadline)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.01, until - time.monotonic()))
            return End.BY_ITSELF
        if deadline is not None and time.monotonic() >= deadline:
            return End.TIMEOUT
        begin_look = time.monotonic()
        if has_enough():
            return End.ENOUGH
        next_look = time.monotonic() + max(_LOOK_SECONDS, (time.monotonic() - begin_look) / _LOOKING_PART)


def _terminate(process: subprocess.Popen[bytes], others: set[int]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    told = {process.pid}
    while time.monotonic() < deadline:
        process.poll()
        left = list(_processes_of(process, others))
        if not left:
            return
        # Those that the command leaves behind, such as ranks in sessions of their own. Its children are left to it.
        if process.returncode is not None:
            for pid in set(left) - told:
                _signal(pid, signal.SIGTERM)
            told |= set(left)
        time.sleep(0.05)


def _kill_all(process: subprocess.Popen[bytes] | None, others: set[int]) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        left = list(_processes_of(process, others))
        if not left:
            return
        if time.monotonic() > deadline:
            # They would take GPUs and CPUs from later runs.
            raise SystemFailure(f"processes of the command cannot be killed: {', '.join(map(str, left))}")
        for pid in left:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.02)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _processes_of(process: subprocess.Popen[bytes] | None, others: set[int]) -> Iterator[int]:
    """The processes of the command that run. Reaps those that have ended and whose parents have, too."""
    children = _children()
    own = children.get(os.getpid(), [])
    open_ = [pid for pid in own if pid not in others]
    while open_:
        pid = open_.pop()
        open_ += children.get(pid, [])
        if process is not None and pid == process.pid:
            has_ended = process.poll() is not None
        else:
            has_ended = pid in own and _reaps(pid)
        if not has_ended:
            yield pid


def _reaps(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _children() -> dict[int, list[int]]:
    """The children of every process."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            # The name of the program, which may have any character, is in brackets.
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _last_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()][-_LAST_LINES:]
