"""Messages of a process group: send, recv, batches of them, and the barrier that names the missing ranks."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from .._comm.groups import group
from . import checks
from .group import Group
from .matching import Receive
from .tensors import Filled, dense, memory_of, moved, stream_of, writable
from .threads import Threads
from .work import Work

_FIRST_OWN_TAG: Final = 1 << 32  # torch's tags have 32 bits
_NOTHING: Final = memoryview(b"")


class _Message(NamedTuple):
    is_send: bool
    tensor: torch.Tensor
    peer: int | None  # None: any
    tag: int


class _Transfer:
    """Messages that end together. The tensors are kept until then."""

    def __init__(self, work: Work, threads: Threads, count: int) -> None:
        self._work, self._threads, self._left = work, threads, count
        self._mutex = threading.Lock()
        self._error: BaseException | None = None

    def ended(self, filled: Filled | None, kept: torch.Tensor, error: BaseException | None, peer: int | None) -> None:
        """filled: copies what was received to where it belongs. kept: its memory, or that of what was sent."""
        if error is None and filled is not None:
            try:
                with writable(kept):
                    filled.__exit__(None)
            except Exception as failed:
                error = failed
        with self._mutex:
            self._error = self._error or error
            self._left -= 1
            if self._left:
                return
        if self._work.finish(self._error, peer):
            self._threads.settle(self._work)


class PointToPoint(Group):
    """A group with messages."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._batch: list[_Message] | None = None
        self._monitored_barriers = 0

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> Work:
        """`torch.distributed.send`: to a receive with the same tag."""
        checks.rank("send", dst, self._size, "destination")
        return self._messages("send", [_Message(True, one, dst, tag) for one in tensors])

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> Work:
        """`torch.distributed.recv`: of a message with the same tag and size."""
        checks.rank("recv", src, self._size, "source")
        return self._messages("recv", [_Message(False, one, src, tag) for one in tensors])

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        """`torch.distributed.recv` without a source, of tensors in host memory."""
        return self._messages("recv", [_Message(False, one, None, tag) for one in tensors])

    supports_coalescing = True

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work | None:
        messages, self._batch = self._batch, None
        return self._messages("batch", messages) if messages else None

    def _messages(self, call: str, messages: list[_Message]) -> Work:
        tensors = [one.tensor for one in messages]
        checks.require(bool(tensors), call, "requires non-empty tensor list")
        checks.strided(call, tensors)
        work = Work(tensors, tensors, self.abort)
        if self._batch is not None:
            self._batch += messages
            work.finish()  # nobody waits for a message of a batch
        elif tensors[0].device.type == "cuda":
            self._on_stream(messages)
            work.finish()
        else:
            last = self._over_sockets(messages, _Transfer(work, self._threads, len(messages)))
            work.assist = None if last is None else partial(self._mailbox.assist, last)
        return work

    def _over_sockets(self, messages: list[_Message], transfer: _Transfer) -> Receive | None:
        """Starts messages. Returns the last receive."""
        last = None
        for one in messages:
            if one.is_send:
                flat = dense(one.tensor)
                done = partial(transfer.ended, None, flat)
                self._mailbox.send(memory_of(flat), one.peer or 0, one.tag, done)
            else:
                filled = Filled(one.tensor)
                with writable(one.tensor):
                    flat = filled.__enter__()
                done = partial(transfer.ended, filled, flat)
                last = self._mailbox.receive(memory_of(flat), one.peer, one.tag, done)
        return last

    def _on_stream(self, messages: list[_Message]) -> None:
        comm = self._on_gpus(messages[0].tensor.device)
        with contextlib.ExitStack() as filled, group():
            for is_send, tensor, peer, _ in messages:
                if peer is None:
                    raise NotImplementedError("narrowcast: CUDA tensors need the source of a message: name the rank")
                if is_send:
                    comm.send(moved(dense(tensor)), peer, stream=stream_of(tensor))
                else:
                    comm.recv(moved(filled.enter_context(Filled(tensor))), peer, stream=stream_of(tensor))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """As gloo's: a barrier whose error on rank 0 names a rank that did not arrive, or all of them."""
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        end = time.monotonic() + seconds
        arrived = _FIRST_OWN_TAG + 2 * self._monitored_barriers
        released = arrived + 1
        self._monitored_barriers += 1  # so that a rank that is late for this one does not arrive at the next
        if self._rank:
            try:
                self._signal(0, arrived)
                self._await(0, released, end)
            except Exception as error:
                raise RuntimeError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
                    f"rank 0: {error}. Please check rank 0 logs for faulty rank."
                ) from error
            return
        missing = []
        for rank in range(1, self._size):
            try:
                self._await(rank, arrived, end)
            except Exception:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            named = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
            raise RuntimeError(f"[Rank 0]: {named} failed to pass monitoredBarrier in {round(seconds * 1000)} ms")
        for rank in range(1, self._size):
            self._signal(rank, released)

    def _signal(self, peer: int, tag: int) -> None:
        """Sends an empty message."""
        self._wait_for(partial(self._mailbox.send, _NOTHING, peer, tag))

    def _await(self, peer: int, tag: int, end: float) -> None:
        """Waits for an empty message."""
        seconds = max(0.0, end - time.monotonic())
        self._wait_for(partial(self._mailbox.receive, _NOTHING, peer, tag, seconds=seconds))

    def _wait_for(self, start: Any) -> None:
        work = Work(None, [], self.abort)
        work.is_shared = False
        start(work.finish)
        work.wait()
