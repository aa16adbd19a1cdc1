"""Communicators that are created in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .._native.library import library
from .._native.structures import INTERRUPT_CHECK
from .at_exit import cancel_at_exit
from .handles import OfThisProcess

Made = TypeVar("Made")


class Pending(OfThisProcess, Generic[Made]):
    """A communicator that a thread of its own creates, so that this one can do other work: load weights, for example.

    If nobody asks for it, the communicator is closed when this object is freed. A program that ends before it exists
    cancels the creation.
    """

    def __init__(self, create: Callable[[], Made]) -> None:
        self._made: Made | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._cancelled = threading.Event()
        thread = threading.Thread(target=self._run, args=(create,), name="narrowcast-create", daemon=True)
        cancel_at_exit(thread, self._cancelled)
        thread.start()

    def _run(self, create: Callable[[], Made]) -> None:
        cancelled = self._cancelled
        check = INTERRUPT_CHECK(lambda _: int(cancelled.is_set()))
        try:
            library().ncast_set_interrupt_check(check, None)
            self._made = create()
        except BaseException as error:
            self._error = error
        finally:
            library().ncast_set_interrupt_check(INTERRUPT_CHECK(), None)  # a null pointer
            self._ended.set()

    def done(self) -> bool:
        """Whether the creation has succeeded or failed."""
        return self._ended.is_set()

    def result(self, timeout_seconds: float | None = None) -> Made:
        """Waits for the creation and returns the communicator, the same one at every call.

        Raises what the constructor raises, and TimeoutError if the creation has not ended after `timeout_seconds`; it
        goes on. AbortedError: it was cancelled on some rank.
        """
        if not self._ended.wait(timeout_seconds):
            raise TimeoutError(f"the communicator does not exist yet, after {timeout_seconds} s")
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made

    def cancel(self) -> None:
        """Ends the creation on all ranks, with AbortedError. No effect once it has ended."""
        self._cancelled.set()
