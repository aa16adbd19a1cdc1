"""NCCL through ctypes, for comparison in benchmarks: communicators, symmetric windows, all operations.

Value types and reductions have the same numbers in NCCL and here. Signatures and layouts are those of nccl.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from ctypes import CDLL, POINTER, Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

from .._dropin import nccl_search
from .._native.cuda_driver import DeviceBuffer, Stream
from .._native.operations import describe, operations
from ..errors import RemoteError, UnsupportedError
from ..types import reduction_number
from .operations import Call

VARIANTS = ("nccl", "nccl-symmetric", "nccl-ce")
# Operations for which NCCL uses copy engines. Others run as with symmetric windows.
COPY_ENGINE = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
UNIQUE_ID_BYTES = 128

_MAGIC = 0xCAFEBEEF
_UNDEFINED = -(1 << 31)
_WINDOWS_SINCE, _COPY_ENGINE_SINCE = 22703, 22803
# NCCL reads as many bytes of a configuration as its size says, and only fields of its version.
_CONFIG_VERSION = 22700
_POLICY_ZERO_CTAS = 2
_COLLECTIVE_SYMMETRIC = 1


class UniqueId(Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = [("internal", c_char * UNIQUE_ID_BYTES)]


class Config(Structure):
    """ncclConfig_t as of NCCL 2.27."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
        ("cgaClusterSize", c_int),
        ("minCTAs", c_int),
        ("maxCTAs", c_int),
        ("netName", c_char_p),
        ("splitShare", c_int),
        ("trafficClass", c_int),
        ("commName", c_char_p),
        ("collnetEnable", c_int),
        ("CTAPolicy", c_int),
        ("shrinkShare", c_int),
        ("nvlsCTAs", c_int),
    ]


_COMM = _BUFFER = _STREAM = _WINDOW = c_void_p
_MOVE = [_BUFFER, _BUFFER, c_size_t, c_int]  # send recv count datatype

_SIGNATURES = {
    "ncclGetVersion": [POINTER(c_int)],
    "ncclGetUniqueId": [POINTER(UniqueId)],
    "ncclCommInitRankConfig": [POINTER(_COMM), c_int, UniqueId, c_int, POINTER(Config)],
    "ncclCommDestroy": [_COMM],
    "ncclMemAlloc": [POINTER(_BUFFER), c_size_t],
    "ncclMemFree": [_BUFFER],
    "ncclCommWindowRegister": [_COMM, _BUFFER, c_size_t, POINTER(_WINDOW), c_int],
    "ncclCommWindowDeregister": [_COMM, _WINDOW],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclSend": [_BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM],
    "ncclRecv": [_BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM],
}


@functools.cache
def _collectives() -> dict[str, list[Any]]:
    """The arguments of NCCL's functions for the operations between all ranks. NCCL before 2.28 lacks some of them."""
    return {
        one.nccl_functions[0]: [*_MOVE, *[c_int] * (one.reduces + one.has_root), _COMM, _STREAM]
        for one in operations().values()
        if one.nccl_functions and not one.has_peer
    }


def find(path: str | None = None) -> str:
    """The library to load: the path, or the NCCL that the drop-in finds, or the name for the loader."""
    if path is not None:
        if not Path(path).is_file():
            raise FileNotFoundError(2, os.strerror(2), path)
        return path
    found = nccl_search.chosen(nccl_search.candidates())
    return str(found.path) if found else nccl_search.SONAME


class Nccl:
    """The loaded library. Raises UnsupportedError if it is missing or not NCCL."""

    def __init__(self, path: str | None = None) -> None:
        self.path = find(path)
        try:
            self._library = CDLL(self.path)
            self._library.ncclGetErrorString.restype = c_char_p
            for name, arguments in (_SIGNATURES | _collectives()).items():
                if self.has(name):
                    getattr(self._library, name).argtypes = arguments
            version = c_int()
            self.call("ncclGetVersion", byref(version))
        except (OSError, AttributeError) as error:
            raise UnsupportedError(f"NCCL cannot be loaded: {error} (--nccl PATH sets its path)") from None
        self.version = version.value

    @property
    def version_text(self) -> str:
        return nccl_search.version_text(self.version)

    def has(self, function: str) -> bool:
        return hasattr(self._library, function)

    def lacks(self, variant: str, operation: str) -> str | None:
        """Why a variant is not available, or not distinct, for an operation; None if it can be measured."""
        if variant == "nccl":
            return None
        if self.version < _WINDOWS_SINCE or not self.has("ncclCommWindowRegister"):
            return f"NCCL {self.version_text} does not support symmetric windows"
        # NCCL would use peer access for them nevertheless: programs on machines without it have no such calls.
        if os.environ.get("NCCL_P2P_DISABLE", "0") != "0":
            return "symmetric windows need peer access, which NCCL_P2P_DISABLE forbids"
        if variant == "nccl-ce":
            if self.version < _COPY_ENGINE_SINCE:
                return f"NCCL {self.version_text} does not support copy engines"
            if operation not in COPY_ENGINE:
                return f"NCCL does not use copy engines for {operation}"
        return None

    def call(self, function: str, *arguments: object, comm: c_void_p | None = None) -> None:
        """Calls a function. Raises RemoteError with the message of NCCL."""
        status = getattr(self._library, function)(*arguments)
        if status:
            words = [(self._library.ncclGetErrorString(status) or b"").decode("utf-8", "replace")]
            if self.has("ncclGetLastError"):
                self._library.ncclGetLastError.restype = c_char_p
                self._library.ncclGetLastError.argtypes = [c_void_p]
                words.append((self._library.ncclGetLastError(comm) or b"").decode("utf-8", "replace"))
            raise RemoteError(f"{function}: {'; '.join(word.strip() for word in words if word.strip())} ({status})")

    def unique_id(self) -> bytes:
        """The id of a new communicator. A thread of this process serves the ranks that join."""
        made = UniqueId()
        self.call("ncclGetUniqueId", byref(made))
        return ctypes.string_at(byref(made), UNIQUE_ID_BYTES)

    def allocate(self, count_bytes: int) -> DeviceBuffer:
        """Allocates memory for windows, to be released with free()."""
        pointer = c_void_p()
        self.call("ncclMemAlloc", byref(pointer), count_bytes)
        return DeviceBuffer.at(pointer.value or 0, count_bytes, self)

    def free(self, buffer: DeviceBuffer) -> None:
        self.call("ncclMemFree", buffer.pointer)


def config(variant: str) -> Config:
    """The configuration of a variant: NCCL's defaults, with the policy of zero CTAs for copy engines."""
    made = Config(size=ctypes.sizeof(Config), magic=_MAGIC, version=_CONFIG_VERSION)
    for field in Config._fields_:
        if field[1] is c_int:
            setattr(made, field[0], _UNDEFINED)
    if variant == "nccl-ce":
        made.CTAPolicy = _POLICY_ZERO_CTAS
    return made


class NcclCommunicator:
    """A communicator on the current device."""

    def __init__(self, nccl: Nccl, unique_id: bytes, rank: int, ranks: int, variant: str) -> None:
        self._nccl = nccl
        self._comm = c_void_p()
        self._windows: list[c_void_p] = []
        self._config = config(variant)
        nccl.call(
            "ncclCommInitRankConfig",
            byref(self._comm),
            ranks,
            UniqueId.from_buffer_copy(unique_id),
            rank,
            byref(self._config),
        )

    def register(self, buffer: DeviceBuffer) -> bool:
        """Registers a buffer of allocate() as a symmetric window. Collective. False if NCCL created no window."""
        window = c_void_p()
        self._call(
            "ncclCommWindowRegister",
            self._comm,
            buffer.pointer,
            buffer.count_bytes,
            byref(window),
            _COLLECTIVE_SYMMETRIC,
        )
        # NCCL reports success without a window if it does not use windows.
        if window:
            self._windows.append(window)
        return bool(window)

    def run(self, call: Call, values: DeviceBuffer, out: DeviceBuffer, stream: Stream) -> None:
        """Launches a call on the stream."""
        send, recv, count, kind = values.pointer, out.pointer, call.count, call.kind.number
        end = (self._comm, stream.handle)
        if call.operation == "sendrecv":
            with self.group():
                if call.send_to is not None:
                    self._call("ncclSend", send, count, kind, call.send_to, *end)
                if call.receive_from is not None:
                    self._call("ncclRecv", recv, count, kind, call.receive_from, *end)
            return
        operation = describe(call.operation)
        function = operation.nccl_functions[0]
        if self._nccl.has(function):
            op = [reduction_number(call.op)] if operation.reduces else []
            root = [call.root] if operation.has_root else []
            self._call(function, send, recv, count, kind, *op, *root, *end)
            return
        # As NCCL does internally: a group of sends and receives.
        with self.group():
            for name, buffer, address in (("ncclSend", operation.send, send), ("ncclRecv", operation.recv, recv)):
                if buffer.at_root and call.rank != call.root:
                    continue
                for peer in range(call.ranks) if buffer.parted else [call.root]:
                    offset = peer * count * call.kind.bytes if buffer.parted else 0
                    self._call(name, address + offset, count, kind, peer, *end)

    def close(self) -> None:
        """Frees windows and communicator. No graph with a captured call may be left."""
        for window in self._windows:
            self._call("ncclCommWindowDeregister", self._comm, window)
        self._windows.clear()
        self._call("ncclCommDestroy", self._comm)

    def _call(self, function: str, *arguments: object) -> None:
        self._nccl.call(function, *arguments, comm=self._comm)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Groups the calls of the body."""
        self._call("ncclGroupStart")
        try:
            yield
        finally:
            self._call("ncclGroupEnd")
