"""Groups of calls, streams of the host backend, and the buffers that both keep alive."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from ctypes import byref, c_void_p
from types import TracebackType

from .._native.interrupts import was_interrupted
from .._native.library import check, library
from ..errors import NarrowcastError
from . import at_exit
from .handles import OfThisProcess


class Stream(OfThisProcess):
    """A stream of the host backend. Its calls run in order on a thread of the stream, asynchronously to the caller.

    The caller must not access the buffers of these calls until `synchronize()`. The stream keeps them alive until then.
    As a context manager it synchronizes and frees the stream at the end.
    """

    def __init__(self) -> None:
        handle = c_void_p()
        check(library().ncast_stream_create(byref(handle)))
        self._handle = handle.value or 0
        self._kept: list[object] = []
        self._kept_mutex = threading.Lock()
        at_exit.register()
        self._finalizer = weakref.finalize(self, library().ncast_stream_destroy, self._handle)

    @property
    def handle(self) -> int:
        """The `ncast_stream`."""
        if not self._finalizer.alive:
            raise ValueError("the stream is closed")
        return self._handle

    def synchronize(self) -> None:
        """Waits for all calls on the stream. Raises the first error since the last synchronize.

        An exception of a signal handler, such as KeyboardInterrupt, aborts the communicators of these calls.
        """
        with self._kept_mutex:
            kept, self._kept = self._kept, []
        try:
            status = library().ncast_stream_synchronize(self.handle)
            if was_interrupted():
                self._keep(kept)  # its calls may still use them
            check(status)
        finally:
            kept.clear()  # only now; buffers that other threads have enqueued since are not in this list

    def close(self) -> None:
        """Waits for the calls on the stream and frees it. Further calls have no effect."""
        if self._finalizer.detach():
            status = library().ncast_stream_destroy(self._handle)
            self._kept.clear()
            check(status)

    def _enqueue(self, call: Callable[[], None], owners: list[object]) -> None:
        # Under one lock, so that synchronize() on another thread does not release buffers of a later call.
        with self._kept_mutex:
            self._kept.extend(owners)
            call()

    def _keep(self, owners: list[object]) -> None:
        with self._kept_mutex:
            self._kept.extend(owners)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.synchronize()
        finally:
            self.close()


class _Group(threading.local):
    """The nesting depth of groups on this thread, and the buffers of their calls until the launch.

    A stream of the host backend, where there is one, keeps the buffers from then on.
    """

    depth = 0

    def __init__(self) -> None:
        self.kept: list[tuple[Stream | None, list[object]]] = []


open_group = _Group()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Runs the calls inside together: sends and receives in any order do not deadlock.

    There is one exception on GPUs, for several messages between the same ranks: see `ncast_group_start` in
    `narrowcast/comm.h`.

    Groups nest. The end of the outermost group launches the calls and raises the errors of calls without a stream.
    When the body raises, the calls before that still run, because other ranks may wait for them, except those of
    `LocalRanks`: the exception is raised at once, and its ranks can make other calls.
    """
    check(library().ncast_group_start())
    open_group.depth += 1
    try:
        yield
    except BaseException:
        with contextlib.suppress(NarrowcastError):
            _end_group(library().ncast_group_abandon)
        raise
    else:
        _end_group(library().ncast_group_end)


def _end_group(end: Callable[[], int]) -> None:
    open_group.depth -= 1
    status = end()
    if open_group.depth == 0:
        for stream, owners in open_group.kept:
            if stream is not None:
                stream._keep(owners)
        open_group.kept.clear()
    check(status)
