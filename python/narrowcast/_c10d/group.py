"""A process group: its communicators, its threads, and what torch asks of every group."""

from __future__ import annotations

import atexit
import contextlib
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist

from ..comm import Communicator
from ..errors import AbortedError, PeerTimeoutError
from .messages import Mailbox
from .tensors import writable
from .threads import Line, Threads
from .work import Work

NAME: Final = "narrowcast"
# How long the calls that are in flight when the program ends may take before they are aborted.
_EXIT_SECONDS: Final = 0.5

_open: weakref.WeakSet[Group] = weakref.WeakSet()


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """Derives from ProcessGroup, because torch up to 2.13 cannot call a Backend that is written in Python.

    Hence it implements what ProcessGroup would ask its backends: names, sequence numbers and all forms of calls.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size = store, rank, size
        self._seconds = timeout.total_seconds()
        self._name = self._description = ""
        self._sequence = 0
        self._closed = False
        self._creating = threading.Lock()
        self._cuda: Communicator | None = None
        self._mailbox = Mailbox(rank, size, self._seconds)
        try:
            self._host = self._communicator("host", connect=True)
        except BaseException:
            self._mailbox.close()
            raise
        self._threads = Threads(f"narrowcast-{rank}")
        self._line = Line(self._threads)
        _open.add(self)

    def _communicator(self, what: str, *, connect: bool = False, **options: Any) -> Communicator:
        """connect: also exchanges the addresses of the mailboxes."""

        def exchange(mine: bytes) -> list[bytes]:
            # A store can outlive the groups that use it. Each rank counts its own, and all count alike.
            prefix = f"{NAME}/{what}/{self._store.add(f'{NAME}/{what}/{self._rank}/groups', 1)}"
            self._store.set(f"{prefix}/{self._rank}", mine + (self._mailbox.address if connect else b""))
            found = [self._store.get(f"{prefix}/{rank}") for rank in range(self._size)]
            if connect:
                self._mailbox.connect([one[len(mine) :] for one in found])
            return [one[: len(mine)] for one in found]

        return Communicator.by_exchange(exchange, self._rank, self._size, timeout_seconds=self._seconds, **options)

    def _on_gpus(self, device: torch.device) -> Communicator:
        with self._creating:
            if self._cuda is None:
                self._cuda = self._communicator("cuda", backend="cuda", device=device.index or 0)
        return self._cuda

    # Names. torch calls those in camel case from C++.

    def getBackendName(self) -> str:
        """The name of the backend: "narrowcast"."""
        return NAME

    name = _get_backend_name = getBackendName

    def getGroupName(self) -> str:
        """The name of the group, which is unique in the process."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Sets the name of the group."""
        self._name = name

    def getGroupDesc(self) -> str:
        """The description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Sets the description of the group."""
        self._description = description

    def getRank(self) -> int:
        """The rank in the group."""
        return self._rank

    rank = getRank

    def getSize(self) -> int:
        """The number of ranks in the group."""
        return self._size

    size = getSize

    def get_group_store(self) -> Any:
        """The store by which the ranks found each other."""
        return self._store

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self._rank} of {self._size})"

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(device) for device in devices()]

    def _get_backend(self, device: torch.device) -> Group:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        """Not supported: raises NotImplementedError."""
        raise NotImplementedError("narrowcast: the timeout of a process group is an argument of its creation")

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """The number of collectives so far is the same on all ranks without being exchanged."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # Calls.

    def _call(
        self,
        opts: Any,
        filled: Sequence[torch.Tensor],
        body: Callable[[Communicator], None],
        *,
        value: Any = None,
        like: torch.Tensor | None = None,
    ) -> Work:
        """Runs body(communicator), which fills tensors.

        value: of the future, if not the filled tensors. like: a tensor of the call, if none are filled here.
        """
        device = (filled[0] if like is None else like).device
        self._sequence += 1
        tensors = [*filled]
        limit = opts.timeout.total_seconds() if opts is not None else 0
        work = Work(tensors if value is None else value, tensors, self.abort, limit if limit > 0 else math.inf)
        if device.type == "cuda":
            body(self._on_gpus(device))
            work.finish()
            return work
        if device.type != "cpu":
            raise RuntimeError(f"narrowcast: no calls with tensors on {device}, only on CPUs and on GPUs with CUDA")
        asynchronous = getattr(opts, "asyncOp", True)
        run = partial(self._run, body, tensors[0] if tensors else torch.empty(0))
        self._line.submit(run, work, here=not asynchronous and limit <= 0)
        if not asynchronous:
            work.is_shared = False  # its caller has no reason to wait again
            work.wait()
        return work

    def _run(self, body: Callable[[Communicator], None], filled: torch.Tensor) -> None:
        try:
            with writable(filled):
                body(self._host)
        except PeerTimeoutError as error:
            raise PeerTimeoutError(f"{error} (the timeout of the process group is {self._seconds:g} s)") from None

    # Ends.

    def _communicators(self) -> list[Communicator]:
        return [self._host] if self._cuda is None else [self._host, self._cuda]

    def abort(self) -> None:
        """Ends all calls in flight, on all ranks."""
        for comm in self._communicators():
            with contextlib.suppress(ValueError):  # it is closed
                comm.abort()
        self._mailbox.close(AbortedError("the process group was aborted"))

    def shutdown(self) -> None:
        """Waits for the calls of this rank and closes the communicators. Pending receives end with an error."""
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        self._line.wait()
        self._mailbox.close()
        for comm in self._communicators():
            comm.close()
        self._threads.close()
        self._store = None  # the server of a TCPStore ends with its last user

    def _end(self, end: float) -> None:
        """At the end of the program: aborts calls that do not complete until then."""
        idle = self._line.wait(max(0.0, end - time.monotonic()))
        idle &= self._mailbox.wait(max(0.0, end - time.monotonic()))
        if not idle:
            self.abort()
        self._threads.close(_EXIT_SECONDS / 4)


def devices() -> list[str]:
    """The types of devices whose tensors groups accept on this machine."""
    return ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


@atexit.register
def _end_groups() -> None:
    end = time.monotonic() + _EXIT_SECONDS
    for group in [*_open]:
        group._end(end)
