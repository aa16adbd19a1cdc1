"""The work that calls of a process group return."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from ..errors import PeerTimeoutError

# The latest works that Python dropped. C++ may still hold them, and a work without its Python object never ends: DDP's
# `join` and c10d's registry of works hold some, wait for them and read results of few bytes.
_dropped: deque[Work] = deque(maxlen=1024)
_KEPT_BYTES: Final = 4096


class Work(dist._Work):  # type: ignore[misc]
    """A call of a process group. `wait` is interruptible, unlike that of torch's futures.

    Whoever runs the call ends it with `finish`, and then calls `settle` where callbacks of the user may run: not on a
    thread that other calls need.
    """

    def __init__(
        self, result: Any, filled: list[torch.Tensor], abort: Callable[[], None], limit: float = math.inf
    ) -> None:
        """result: value of the future. filled: the tensors that the call fills.

        abort: ends the calls of the group; called when waiting is interrupted, or takes longer than `limit` seconds.
        """
        super().__init__()
        self._value, self._abort, self._limit = result, abort, limit
        self._filled: Any = filled
        self._running = threading.Lock()  # released when the call has ended
        self._running.acquire()
        self._completed = False
        self._mutex = threading.Lock()
        self._error: BaseException | None = None
        self._source: int | None = None
        self.assist: Callable[[float], None] | None = None  # may run the call on a thread that waits, for some seconds
        self._start: Any = None  # its completion completes the future
        self._future: Any = None
        self.is_shared = True  # whether C++ may have got it from Python

    def finish(self, error: BaseException | None = None, source: int | None = None) -> bool:
        """The call has ended. Returns whether there is a future to `settle`.

        source: the rank that a message came from.
        """
        with self._mutex:
            self._error, self._source = error, source
            self._completed = True
            self._running.release()
            return self._start is not None

    def settle(self) -> None:
        """Completes the future, and so runs its callbacks."""
        self._start.set_result(None)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the call has run; for CUDA tensors it is already on the current stream.

        timeout: limits only this wait, and the call goes on; zero or less: no limit.

        Raises the error of the call, and PeerTimeoutError at the limit.
        """
        if not self._completed:
            self._await(timeout.total_seconds())
        if self._error is not None:
            raise self._error
        return True

    def _await(self, seconds: float) -> None:
        asked = seconds if seconds > 0 else math.inf
        limit = min(asked, self._limit)
        end = time.monotonic() + limit
        try:
            if self.assist is not None:
                self.assist(limit)
            left = max(0.0, end - time.monotonic())
            ended = self._running.acquire(timeout=-1 if math.isinf(limit) else left)
        except BaseException:  # of a signal handler
            self._abort()
            raise
        if ended:
            self._running.release()
        elif asked < self._limit:
            raise PeerTimeoutError(f"the call has not completed after {seconds:g} s; it continues")
        else:
            self._abort()
            raise PeerTimeoutError(f"the call did not complete within its timeout of {limit:g} s")

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._completed

    def is_success(self) -> bool:
        return self._completed and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        filled: list[torch.Tensor] = self._filled
        return filled

    def source_rank(self) -> int:
        """The rank that a received message came from."""
        self.wait()
        if self._source is None:
            raise RuntimeError("source_rank is a property of received messages")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future of the result. Its failure is an exception in C++, too."""
        with self._mutex:
            if self._future is None:
                devices = {one.device for one in self._filled if one.device.type == "cuda"}
                started: Any = torch.futures.Future(devices=sorted(devices, key=str) or None)
                if self._completed and self._error is None:
                    started.set_result(self._value)
                    self._future = started
                    return started
                # Future.set_exception would store the exception as a value, which C++ takes for tensors. That of a
                # callback is one in C++ too.
                self._future = started.then(self._outcome)
                if self._completed:
                    started.set_result(None)
                else:
                    self._start = started
            return self._future

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def __del__(self) -> None:
        if self.is_shared:
            if any(one.is_sparse or one.untyped_storage().nbytes() > _KEPT_BYTES for one in self._filled):
                self._value = self._filled = ()
                self._future = None
            self._abort = lambda: None  # of a group that may be destroyed before
            self.assist = None
            _dropped.append(self)
