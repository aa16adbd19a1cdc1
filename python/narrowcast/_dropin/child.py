"""A command as our child: it gets the signals that we get, and we end as it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence

# As shells have it.
NOT_EXECUTABLE, NOT_FOUND, KILLED = 126, 127, 128

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
# Python ignores these, and what is ignored stays so in a child.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the command and returns its exit status, 128 more than its signal when one killed it.

    Call it on the main thread. OSError, with the command as its file, when that cannot be started.
    """
    with _signals() as received:
        child = os.posix_spawnp(command[0], list(command), environment, setsigdef=_RESTORED)
        for number in received:
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else KILLED - code
            elif number not in _OF_THE_KEYBOARD or not _in_foreground():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
    raise AssertionError


@contextlib.contextmanager
def _signals() -> Iterator[Iterator[int]]:
    """The numbers of the signals that come, without end.

    They come through a pipe that the handler in C writes: whichever thread the kernel chose, none is missed.
    """
    # What is ignored, as under nohup, stays ignored, in the command as well.
    caught = [one for one in _PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN]
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    pipe_before = signal.set_wakeup_fd(theirs)
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGCHLD, *caught)}
    try:
        yield _numbers(ours)
    finally:
        for one, handler in before.items():
            # Python complains of one that is on its way when there is no handler any more, as SIGCHLD is where a
            # command cannot be started. Doing nothing is what is done with it by default.
            if one != signal.SIGCHLD or callable(handler):
                signal.signal(one, handler)
        signal.set_wakeup_fd(pipe_before)
        os.close(ours)
        os.close(theirs)


def _numbers(pipe: int) -> Iterator[int]:
    while True:
        select.select([pipe], [], [])
        yield from os.read(pipe, 4096)


def _in_foreground() -> bool:
    """Whether what is typed at a terminal reaches us, and with us the command, which is of our process group."""
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
