"""Signals during long calls of the library."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets signals end the process at once. For calls that compute for long and leave nothing behind.

    Python runs its own handlers only after a function of the library has returned.
    """
    own = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            own[number] = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)
