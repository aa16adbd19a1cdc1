"""The threads of a process group: one call at a time on a communicator, and callbacks on threads of their own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable

from .work import Work


class Threads:
    """Runs functions at once, on idle threads or new ones.

    They are daemons: the interpreter does not wait for calls that are in flight when the program ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._functions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._unsettled: deque[Work] = deque()
        self._is_settling = False  # a thread is about to take the next of them

    def run(self, function: Callable[[], None]) -> None:
        with self._mutex:
            self._functions.put(function)
            if self._idle:
                self._idle -= 1
                return
            thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._threads.append(thread)
        thread.start()

    def _loop(self) -> None:
        while (function := self._functions.get()) is not None:
            function()
            del function  # and what it refers to
            with self._mutex:
                self._idle += 1

    def settle(self, work: Work) -> None:
        """Runs the callbacks of a work. Those of works that are settled meanwhile do not wait for them to return."""
        with self._mutex:
            self._unsettled.append(work)
            is_running, self._is_settling = self._is_settling, True
        if not is_running:
            self.run(self._settle)

    def _settle(self) -> None:
        with self._mutex:
            work = self._unsettled.popleft()
            self._is_settling = bool(self._unsettled)
            goes_on = self._is_settling
        if goes_on:
            self.run(self._settle)
        work.settle()

    def close(self, seconds: float | None = None) -> None:
        """Waits for the functions that run, for at most `seconds`. A function may call it."""
        with self._mutex:
            threads, self._threads = self._threads, []
            for _ in threads:
                self._functions.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(seconds)


class Line:
    """Makes the calls on a communicator one after the other, in the order in which they are submitted."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._mutex = threading.Lock()
        self._waiting: deque[tuple[Callable[[], None], Work]] = deque()
        self._busy = False
        self._drained = threading.Condition(self._mutex)

    def submit(self, body: Callable[[], None], work: Work, *, here: bool) -> None:
        """Calls body() and then ends `work`. here: on this thread, if no other call is in flight."""
        with self._mutex:
            if self._busy:
                self._waiting.append((body, work))
                return
            self._busy = True
        if here:
            self._make(body, work)
            self._pass_on()
        else:
            self._threads.run(lambda: self._drain(body, work))

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until all calls have ended. Returns whether they have."""
        with self._mutex:
            return self._drained.wait_for(lambda: not self._busy, seconds)

    def _drain(self, body: Callable[[], None], work: Work) -> None:
        """Makes a call and those that wait for it.

        Callbacks may take long, or make calls and wait for them: they run when no call waits, or on other threads.
        """
        while True:
            has_callbacks = self._make(body, work)
            following = self._next()
            if has_callbacks and following is None:
                work.settle()
            elif has_callbacks:
                self._threads.settle(work)
            if following is None:
                return
            body, work = following

    @staticmethod
    def _make(body: Callable[[], None], work: Work) -> bool:
        """Returns whether the work has callbacks."""
        try:
            body()
        except BaseException as error:
            return work.finish(error)
        return work.finish()

    def _pass_on(self) -> None:
        following = self._next()
        if following is not None:
            self._threads.run(lambda: self._drain(*following))

    def _next(self) -> tuple[Callable[[], None], Work] | None:
        with self._mutex:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            self._drained.notify_all()
            return None
