"""The operations of a communicator, as the library describes them (include/narrowcast/operations.def)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from ctypes import byref, sizeof
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from .library import check, library
from .structures import OperationInfoC


class Buffer(IntEnum):
    """What a buffer of a call contains: `ncast_operation_buffer`."""

    NONE = 0  #: the operation has no such buffer
    PIECE = 1  #: `count` values
    ROOT_PIECE = 2  #: `count` values, at the root only
    PIECES = 3  #: a piece for every rank
    ROOT_PIECES = 4  #: a piece for every rank, at the root only
    LISTED = 5  #: pieces of any size, which the call lists

    @property
    def parted(self) -> bool:
        """Whether it has a part for every rank."""
        return self in (Buffer.PIECES, Buffer.ROOT_PIECES, Buffer.LISTED)

    def pieces(self, ranks: int, is_root: bool) -> int:
        """The pieces of `count` values that a rank has; 0 if it has no such buffer, or lists its ranges."""
        if self in (Buffer.NONE, Buffer.LISTED) or (self.at_root and not is_root):
            return 0
        return ranks if self.parted else 1

    @property
    def at_root(self) -> bool:
        """Whether only the root has it."""
        return self in (Buffer.ROOT_PIECE, Buffer.ROOT_PIECES)


@dataclass(frozen=True)
class Operation:
    """An operation of the library."""

    name: str  #: also of the method of `Communicator`
    number: int  #: in the C API
    nccl_functions: tuple[str, ...]  #: NCCL's functions for the same call
    reduces: bool  #: values are combined, not only moved
    has_root: bool  #: a call names a root
    has_peer: bool  #: a call names one peer
    in_place: bool  #: may work in place
    send: Buffer  #: the input
    recv: Buffer  #: the output

    @property
    def parted(self) -> bool:
        """Whether the input or the output has a part for every rank."""
        return self.send.parted or self.recv.parted

    def bus_factor(self, ranks: int) -> float:
        """Bus bandwidth / algorithm bandwidth, as nccl-tests defines it."""
        return float(library().ncast_operation_bus_factor(self.number, ranks))


@functools.cache
def operations() -> Mapping[str, Operation]:
    """The operations of the library by name, in the order of their numbers."""
    found = {}
    for number in range(library().ncast_operation_count()):
        info = OperationInfoC(struct_bytes=sizeof(OperationInfoC))
        check(library().ncast_operation_describe(number, byref(info)))
        found[info.name.decode()] = Operation(
            name=info.name.decode(),
            number=info.operation,
            nccl_functions=tuple(info.nccl_functions.decode().split()),
            reduces=bool(info.reduces),
            has_root=bool(info.has_root),
            has_peer=bool(info.has_peer),
            in_place=bool(info.in_place),
            send=Buffer(info.send),
            recv=Buffer(info.recv),
        )
    return MappingProxyType(found)


def describe(name: str) -> Operation:
    """The operation with this name. Raises ValueError for an unknown name."""
    found = operations().get(name)
    if found is None:
        raise ValueError(f"{name!r} is not an operation (known: {', '.join(operations())})")
    return found
