"""The properties of operations, from the library's table (include/narrowcast/operations.def)."""

from __future__ import annotations

import functools
from ctypes import byref, sizeof
from dataclasses import dataclass

from ..types import OPERATIONS
from .library import check, library
from .structures import OperationInfoC

# ncast_operation_buffer: which buffers have a part for every rank.
_PARTED = {3, 4, 5}


@dataclass(frozen=True)
class Operation:
    """The properties of an operation."""

    name: str
    number: int
    nccl_functions: tuple[str, ...]  #: NCCL's functions that make this call
    reduces: bool  #: values are combined, not only moved
    has_root: bool
    has_peer: bool
    in_place: bool  #: may work in place
    send_parted: bool  #: the input has a part for every rank
    recv_parted: bool  #: the output has a part for every rank

    @property
    def parted(self) -> bool:
        return self.send_parted or self.recv_parted

    def bus_factor(self, ranks: int) -> float:
        """Bus bandwidth / algorithm bandwidth, as nccl-tests defines it."""
        return float(library().ncast_operation_bus_factor(self.number, ranks))


@functools.cache
def describe(name: str) -> Operation:
    """The operation of this name. Raises ValueError if there is none."""
    if name not in OPERATIONS:
        raise ValueError(f"{name!r} is not an operation (known: {', '.join(OPERATIONS)})")
    info = OperationInfoC(struct_bytes=sizeof(OperationInfoC))
    check(library().ncast_operation_describe(OPERATIONS[name], byref(info)))
    return Operation(
        name=info.name.decode(),
        number=info.operation,
        nccl_functions=tuple(info.nccl_functions.decode().split()),
        reduces=bool(info.reduces),
        has_root=bool(info.has_root),
        has_peer=bool(info.has_peer),
        in_place=bool(info.in_place),
        send_parted=info.send in _PARTED,
        recv_parted=info.recv in _PARTED,
    )
