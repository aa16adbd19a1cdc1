"""The end of the interpreter: what the program has not closed does not keep it from exiting.

Finalizers free communicators and streams, and wait for their calls. A call that waits for a rank would hold them up, as
would one in a daemon thread. So these waits have a common time limit, after which they abort the communicators.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
import traceback
import weakref

from .._native import interrupts
from .._native.library import library

_SECONDS = 1.0

# Threads that create communicators. They must have ended: a callback of the library cannot run in a daemon thread once
# the interpreter is being finalized.
_creating: weakref.WeakKeyDictionary[threading.Thread, threading.Event] = weakref.WeakKeyDictionary()


def cancel_at_exit(thread: threading.Thread, cancelled: threading.Event) -> None:
    """Sets `cancelled` when the interpreter exits, and waits for the thread."""
    register()
    _creating[thread] = cancelled


def _silence_threads() -> None:
    """Threads no longer report exceptions of the library. Most are of calls that the exit ends.

    Only daemon threads are left. If the interpreter is finalized while one of them writes its report, it never releases
    the lock of `sys.stderr`, and Python aborts the process when it flushes that.
    """
    report = threading.excepthook

    def report_others(arguments: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(arguments.exc_traceback)
        if not any(frame.f_globals.get("__name__", "").startswith("narrowcast.") for frame, _ in frames):
            report(arguments)

    threading.excepthook = report_others


def _exit() -> None:
    _silence_threads()
    deadline = time.monotonic() + _SECONDS
    creating = list(_creating.items())
    for _, cancelled in creating:
        cancelled.set()
    for thread, _ in creating:
        thread.join(max(0.0, deadline - time.monotonic()))
    interrupts.end_waits_after(library().ncast_set_interrupt_check, deadline)


@functools.cache
def register() -> None:
    """Lets the program exit. Call it before the first communicator or stream is made."""
    # Python runs exit handlers in reverse order, so ours must be registered after that of the finalizers, which the
    # first of them registers.
    weakref.finalize(_exit, int).atexit = False
    atexit.register(_exit)
