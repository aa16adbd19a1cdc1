"""Signals during calls of the library, such as SIGINT by Ctrl-C.

Python runs signal handlers on the main thread, and only between bytecodes. A function of the library that waits on that
thread therefore asks now and then whether it should stop (`ncast_set_interrupt_check`), which runs the handlers.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Generator
from typing import Any

from .structures import INTERRUPT_CHECK

# Exceptions of signal handlers on the main thread, which check() raises. Only that thread accesses the list.
_raised: list[BaseException] = []


def _answers() -> Generator[int, int | None, None]:
    """Yields 1 if a signal handler has raised since the last answer, else 0.

    A generator, because Python runs the handlers when it resumes. That is inside the `try`, whereas a function would
    have been entered, but not yet its `try`.
    """
    stop = 0
    while True:
        try:
            while True:
                yield stop
                stop = 0
        except GeneratorExit:
            return
        except BaseException as error:
            _raised.append(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
            stop = 1


_generator = _answers()
next(_generator)
_send = _generator.send  # accepts the context, a null pointer: None
_check = INTERRUPT_CHECK(_send)
# Never freed: the library may call it until the process ends.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_check))


def watch(set_interrupt_check: Any) -> bool:
    """Makes waits of this thread run signal handlers, if it is the main thread. Returns whether it is."""
    if threading.current_thread() is not threading.main_thread():
        return False
    set_interrupt_check(_check, None)
    return True


def end_waits_after(set_interrupt_check: Any, deadline: float) -> None:
    """Ends the waits of this thread at `deadline`, in seconds of `time.monotonic()`, and later ones at once."""
    check = INTERRUPT_CHECK(lambda context: _send(context) or int(time.monotonic() >= deadline))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(check))
    set_interrupt_check(check, None)


def was_interrupted() -> bool:
    """Whether a signal handler made a call of this thread fail, and raise_interruption() has not raised yet."""
    return bool(_raised) and threading.current_thread() is threading.main_thread()


def raise_interruption() -> None:
    """Raises the exception of the signal handler that made a call of this thread fail, if any."""
    if was_interrupted():
        raise _raised.pop(0)
