"""Transfers of a KV cache that run beside the model, one after another in each direction."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

_log = logging.getLogger(__name__)
# Makes the stream of a lane current, after the work that the caller had enqueued.
OnStream = Callable[[], contextlib.AbstractContextManager[Any]]
Verify = Callable[[], None]


@dataclass(frozen=True)
class Finished:
    """A transfer that has ended."""

    job: int
    success: bool
    raw_bytes: int
    seconds: float


class Lane(Protocol):
    """Transfers in one direction."""

    def finished(self) -> list[Finished]:
        """Those that have ended since the last call."""

    def wait(self, jobs: set[int]) -> None:
        """Waits for transfers. Those that have ended or are unknown are ignored."""

    def close(self) -> None:
        """Waits for all of them."""


def _failed(job: int) -> None:
    _log.exception("a transfer of KV blocks failed (job %d)", job)


class ThreadLane:
    """Transfers that a thread runs, and on a GPU a stream."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"narrowcast-kv-{name}")
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._jobs: dict[int, Future[Finished]] = {}

    def submit(self, job: int, raw_bytes: int, transfer: Callable[[], None]) -> None:
        ready = None
        if self._stream is not None:
            # The model may still be writing the blocks.
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(self._device))
        self._jobs[job] = self._thread.submit(self._run, job, raw_bytes, transfer, ready)

    def _run(self, job: int, raw_bytes: int, transfer: Callable[[], None], ready: Any) -> Finished:
        begin = time.monotonic()
        try:
            if self._stream is None:
                transfer()
            else:
                with torch.cuda.stream(self._stream):
                    self._stream.wait_event(ready)
                    transfer()
                    self._stream.synchronize()
        except Exception:
            _failed(job)
            return Finished(job, False, 0, time.monotonic() - begin)
        return Finished(job, True, raw_bytes, time.monotonic() - begin)

    def finished(self) -> list[Finished]:
        ended = [job for job, future in list(self._jobs.items()) if future.done()]
        return [self._jobs.pop(job).result() for job in ended]

    def wait(self, jobs: set[int]) -> None:
        wait([self._jobs[job] for job in jobs if job in self._jobs])

    def close(self) -> None:
        self._thread.shutdown()


class StreamLane:
    """Transfers that are enqueued on a stream of a GPU in parts: the first one by the caller, because a thread begins
    late, and the others by a thread, because they may have to wait for room in the queue.

    A transfer is given a function to enter the stream, and returns an iterator that enqueues a part at each step. The
    last step yields a function that is called when the stream is done, and raises if the transfer failed.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"narrowcast-kv-{name}")
        self._stream = torch.cuda.Stream(device)
        self._events: list[_Events] = []  # that no transfer uses: making them takes longer than a copy
        self._jobs: dict[int, _Enqueued] = {}
        self._last: Future[None] | None = None

    def submit(self, job: int, raw_bytes: int, transfer: Callable[[OnStream], Iterator[Verify | None]]) -> None:
        events = self._events.pop() if self._events else _Events.made()
        one = self._jobs[job] = _Enqueued(job, raw_bytes, transfer, self._stream, events)
        if self._last is None or self._last.done():
            one.advance()
        one.follow_caller()
        if not one.is_enqueued:
            one.rest = self._last = self._thread.submit(one.enqueue)

    def finished(self) -> list[Finished]:
        ended = [self._jobs.pop(job) for job, one in list(self._jobs.items()) if one.has_ended()]
        found = [one.result() for one in ended]
        self._events += [one.events for one in ended]
        return found

    def wait(self, jobs: set[int]) -> None:
        for job in jobs:
            if job in self._jobs:
                self._jobs[job].wait()

    def close(self) -> None:
        self._thread.shutdown()
        self._stream.synchronize()


class _Events(NamedTuple):
    """Of a transfer: when it may begin, when it begins, and when it ends."""

    ready: Any
    begin: Any
    end: Any

    @classmethod
    def made(cls) -> _Events:
        return cls(torch.cuda.Event(), *(torch.cuda.Event(enable_timing=True) for _ in range(2)))


class _Enqueued:
    """A transfer of a StreamLane."""

    def __init__(
        self,
        job: int,
        raw_bytes: int,
        transfer: Callable[[OnStream], Iterator[Verify | None]],
        stream: Any,
        events: _Events,
    ) -> None:
        self.is_enqueued = False
        self.events = events
        self.rest: Future[None] | None = None  # the thread's part
        self._job, self._raw_bytes, self._stream = job, raw_bytes, stream
        self._transfer = transfer  # until it has ended, because it may have memory that the GPU uses
        self._steps = transfer(self._on_stream)
        self._verify: Verify | None = None  # None: enqueuing failed
        self._follows_caller = self._has_begun = self._has_ended = False

    def follow_caller(self) -> None:
        """Has the transfer wait for what is on the current stream: the model may still be zeroing the blocks."""
        if not self._follows_caller:
            self._follows_caller = True
            self.events.ready.record(torch.cuda.current_stream(self._stream.device_index))

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[Any]:
        self.follow_caller()  # if this is the caller; the thread begins later
        if not self._has_begun:
            self._has_begun = True
            self._stream.wait_event(self.events.ready)
            self.events.begin.record(self._stream)
        with torch.cuda.stream(self._stream):
            yield self._stream

    def advance(self) -> None:
        """Enqueues a part."""
        try:
            self._verify = next(self._steps)
            self.is_enqueued = self._verify is not None
        except Exception:
            _failed(self._job)
            self.is_enqueued = True
        if self.is_enqueued:
            with self._on_stream():
                self.events.end.record(self._stream)

    def enqueue(self) -> None:
        while not self.is_enqueued:
            self.advance()

    def has_ended(self) -> bool:
        if not self._has_ended and (self.rest is None or self.rest.done()):
            self._has_ended = bool(self.events.end.query())
        return self._has_ended

    def wait(self) -> None:
        if self.rest is not None:
            self.rest.result()
        self.events.end.synchronize()
        self._has_ended = True

    def result(self) -> Finished:
        seconds = self.events.begin.elapsed_time(self.events.end) / 1e3
        try:
            if self._verify is not None:
                self._verify()
                return Finished(self._job, True, self._raw_bytes, seconds)
        except Exception:
            _failed(self._job)
        return Finished(self._job, False, 0, seconds)
