"""Communicators whose ranks are all driven by one thread.

with narrowcast.LocalRanks(2, backend="cuda") as comms:  # rank r on GPU r
    with narrowcast.group():
        for comm, values in zip(comms, all_values):
            comm.all_reduce(values)
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, overload

from ._comm.config import CommunicatorOptions, comm_config
from ._comm.handles import OfThisProcess
from ._native.library import check, library
from ._native.numbers import as_int
from .comm import Communicator
from .errors import NarrowcastError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["LocalRanks"]


def __dir__() -> list[str]:
    return sorted(__all__)


def _destroy(handles: Sequence[int]) -> int:
    return int(library().ncast_comm_destroy_all((c_void_p * len(handles))(*handles), len(handles)))


class LocalRanks(OfThisProcess, Sequence[Communicator]):
    """The communicators of all ranks, in rank order. They are created and closed together.

    ranks: how many.
    devices: the GPU of each rank, with backend "cuda"; None: GPU r for rank r.
    backend, options: as for `Communicator`, which also describes the errors.

    A call that waits for other ranks needs the calls of this thread for those ranks. On the host backend, make them in
    one `group()` or on streams; otherwise they raise InvalidArgumentError. On GPUs every call is asynchronous on a
    stream of its rank's GPU. `split`, `load_plan`, `decline_plan` and `register` need a thread for each rank.
    """

    def __init__(
        self,
        ranks: int,
        *,
        backend: str = "host",
        devices: Sequence[int] | None = None,
        **options: Unpack[CommunicatorOptions],
    ) -> None:
        ranks = as_int(ranks, "ranks")
        if devices is not None and len(devices) != ranks:
            raise ValueError(f"devices has {len(devices)} numbers for {ranks} ranks")
        config = comm_config(backend, **options)
        made = (c_void_p * max(0, ranks))()
        listed = None if devices is None else (c_int * ranks)(*(as_int(device, "devices") for device in devices))
        check(library().ncast_comm_create_all(made, ranks, listed, byref(config)))
        handles = [handle or 0 for handle in made]
        self._comms = [
            Communicator.__new__(Communicator)._adopt(
                handle,
                rank,
                ranks,
                backend,
                rank if devices is None else devices[rank],
                options,
                owned=False,
            )
            for rank, handle in enumerate(handles)
        ]
        self._finalizer = weakref.finalize(self, _destroy, handles)

    @overload
    def __getitem__(self, rank: int) -> Communicator: ...
    @overload
    def __getitem__(self, rank: slice) -> Sequence[Communicator]: ...
    def __getitem__(self, rank: int | slice) -> Communicator | Sequence[Communicator]:
        return self._comms[rank]

    def __len__(self) -> int:
        return len(self._comms)

    def __iter__(self) -> Iterator[Communicator]:
        return iter(self._comms)

    def close(self) -> None:
        """Waits for the calls of all ranks and frees the communicators. Further calls have no effect."""
        found = self._finalizer.detach()
        if found is None:
            return
        for comm in self._comms:
            comm._leave()
        check(_destroy(found[2][0]))

    def __enter__(self) -> LocalRanks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._finalizer.alive:
            # Calls may wait for ranks whose calls were not made. The exception of the body is the one to raise.
            with contextlib.suppress(NarrowcastError):
                self._comms[0].abort()
            with contextlib.suppress(NarrowcastError):
                self.close()
            return
        self.close()
