"""Work on the pieces of a file by several threads, with results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_MAX_THREADS = 16
#: One thread writes the results. More than this encode and decode faster than it writes, and need more of the caches.
WRITER_THREADS = 4
# Pieces larger than a part of this are not worked on at the same time.
_MAX_BYTES = 1 << 30


def default_threads(limit: int = _MAX_THREADS) -> int:
    """The number of CPUs that this process may use, up to a limit."""
    return min(len(os.sched_getaffinity(0)), limit)


class Buffer:
    """Memory that is reused and grows."""

    def __init__(self) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def of(self, count: int) -> npt.NDArray[np.uint8]:
        """`count` bytes. They are valid until the next call."""
        if self._bytes.size < count:
            self._bytes = np.empty(0, np.uint8)  # frees the old ones first
            self._bytes = np.empty(count, np.uint8)
        return self._bytes[:count]


class Buffers:
    """The memory for the work on one piece."""

    def __init__(self) -> None:
        self.raw, self.frame = Buffer(), Buffer()


class Pipeline(Generic[Piece, Result]):
    """Applies a function to pieces on several threads.

    The pieces are taken from their iterator, and the results are returned, by the calling thread and in order. If the
    iterator or the function raises, the results before the error are returned first.
    """

    def __init__(
        self,
        work: Callable[[Piece, Buffers], Result],
        bytes_of: Callable[[Piece], int],
        threads: int | None = None,
        max_threads: int = _MAX_THREADS,
    ) -> None:
        """work: its results may be in the buffers. bytes_of: the memory that a piece needs.

        threads: None: the number of CPUs, up to max_threads.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}, not 1 or more")
        self._work, self._bytes_of = work, bytes_of
        self._threads = threads or default_threads(max_threads)

    def results(self, pieces: Iterable[Piece]) -> Iterator[Result]:
        """The result of every piece, valid until the next one is taken."""
        started: deque[tuple[Future[Result], Buffers, int]] = deque()
        unused: list[Buffers] = []
        in_use = 0
        failures: list[Exception] = []
        pool = ThreadPoolExecutor(self._threads, "narrowcast-files")
        try:
            for piece in _until_failure(pieces, failures):
                needed = self._bytes_of(piece)
                # As many again wait, so that no thread idles while the consumer writes a result.
                while started and (len(started) >= 2 * self._threads or in_use + needed > _MAX_BYTES):
                    future, buffers, own = started.popleft()
                    yield future.result()
                    unused.append(buffers)
                    in_use -= own
                buffers = unused.pop() if unused else Buffers()
                started.append((pool.submit(self._work, piece, buffers), buffers, needed))
                in_use += needed
            while started:
                yield started.popleft()[0].result()
            if failures:
                raise failures[0]
        finally:
            pool.shutdown(cancel_futures=True)


def _until_failure(pieces: Iterable[Piece], failures: list[Exception]) -> Iterator[Piece]:
    """The pieces before an exception, which is added to `failures`."""
    try:
        yield from pieces
    except Exception as error:
        failures.append(error)
