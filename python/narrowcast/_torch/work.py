"""The work that calls of a process group return."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Work(dist._Work):  # type: ignore[misc]
    """A call of a process group. `wait` is interruptible, unlike that of torch's futures."""

    def __init__(self, abort: Callable[[], None], ended: Future[None], result: list[torch.Tensor]) -> None:
        """abort: called when waiting is interrupted. result: the tensors that the call fills."""
        super().__init__()
        self._abort, self._ended, self._result = abort, ended, result
        devices = [one.device for one in result[:1] if one.device.type == "cuda"]
        self._future: Any = torch.futures.Future(devices=devices or None)
        ended.add_done_callback(self._settle)

    def _settle(self, ended: Future[None]) -> None:
        error = ended.exception()
        if error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(error)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the call has run; for CUDA tensors it is already on the current stream."""
        try:
            self._ended.result(timeout.total_seconds() or None)
        except KeyboardInterrupt:
            self._abort()
            raise
        return True

    def is_completed(self) -> bool:
        return self._ended.done()

    def is_success(self) -> bool:
        return self._ended.done() and self._ended.exception() is None

    def get_future(self) -> Any:
        return self._future

    def result(self) -> list[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()
