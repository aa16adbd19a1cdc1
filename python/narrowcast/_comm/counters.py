"""What a communicator has counted."""

from __future__ import annotations

from ctypes import byref, sizeof
from dataclasses import dataclass

from .._native.library import check, library
from .._native.operations import operations
from .._native.structures import CommCountersC, OperationCountersC


@dataclass(frozen=True)
class OperationCounters:
    """Totals of one rank for one operation, or for all of them."""

    calls: int  #: number of calls; a call captured in a CUDA graph counts once
    raw_bytes: int  #: bytes of the values that the rank sent
    wire_bytes: int  #: bytes sent over links for these values, including headers

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes; None before anything was sent."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


@dataclass(frozen=True)
class Counters(OperationCounters):
    """Totals of one rank since the communicator was created."""

    scratch_bytes: int  #: bytes of staging memory that the rank holds, at most the option scratch_bytes
    network_bytes: int  #: of wire_bytes, those that went to ranks of other hosts
    operations: dict[str, OperationCounters]  #: totals by operation, such as "all_gather"; only those with calls


def counters_of(handle: int) -> Counters:
    """The totals of an `ncast_comm`."""
    totals = CommCountersC(struct_bytes=sizeof(CommCountersC))
    check(library().ncast_comm_get_counters(handle, byref(totals)))
    capacity = len(operations())
    by_operation = (OperationCountersC * capacity)()
    check(library().ncast_comm_get_operation_counters(handle, by_operation, capacity))
    counted = {name: by_operation[one.number] for name, one in operations().items()}
    used = {
        name: OperationCounters(one.calls, one.raw_bytes, one.wire_bytes) for name, one in counted.items() if one.calls
    }
    return Counters(totals.calls, totals.raw_bytes, totals.wire_bytes, totals.scratch_bytes, totals.network_bytes, used)
