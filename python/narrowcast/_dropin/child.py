"""Runs a command as a child process: forwards signals to it, and returns its exit status."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence

# Exit statuses of shells.
NOT_EXECUTABLE, NOT_FOUND, KILLED = 126, 127, 128

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
# Python ignores these, and children inherit ignored signals.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command and returns its exit status: 128 plus the signal if a signal killed it.

    Must be called on the main thread. Raises OSError, with the command as filename, if the command cannot be started.
    """
    with _signals() as received:
        child = os.posix_spawnp(command[0], list(command), environment, setsigdef=_RESTORED)
        for number in received:
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else KILLED - code
            elif number not in _FROM_KEYBOARD or not _in_foreground():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
    raise AssertionError


@contextlib.contextmanager
def _signals() -> Iterator[Iterator[int]]:
    """An endless iterator of the signals that arrive.

    The C handler of Python writes them to a pipe, so that no signal is lost, whichever thread receives it.
    """
    # Signals that are ignored, as under nohup, stay ignored, also in the command.
    caught = [one for one in _FORWARDED if signal.getsignal(one) is not signal.SIG_IGN]
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    pipe_before = signal.set_wakeup_fd(write_end)
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGCHLD, *caught)}
    try:
        yield _numbers(read_end)
    finally:
        for one, handler in before.items():
            # A pending signal without a handler makes Python print an error, such as SIGCHLD after a command that
            # could not be started. The default action of SIGCHLD is to ignore it.
            if one != signal.SIGCHLD or callable(handler):
                signal.signal(one, handler)
        signal.set_wakeup_fd(pipe_before)
        os.close(read_end)
        os.close(write_end)


def _numbers(pipe: int) -> Iterator[int]:
    while True:
        select.select([pipe], [], [])
        yield from os.read(pipe, 4096)


def _in_foreground() -> bool:
    """Whether this process group, which includes the command, receives the signals of the terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
