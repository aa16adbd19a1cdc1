"""The exceptions of the library.

Every failure is a `NarrowcastError`. Subclasses distinguish the kinds, and the message says what was wrong and where.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "AbortedError",
    "CorruptError",
    "CudaError",
    "InternalError",
    "InvalidArgumentError",
    "LibraryNotFoundError",
    "MismatchError",
    "NarrowcastError",
    "PeerTimeoutError",
    "RemoteError",
    "Status",
    "SystemFailure",
    "TooSmallError",
    "UnsupportedError",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class Status(IntEnum):
    """The result of a call: the numbers of `ncast_status`."""

    OK = 0
    INVALID_ARGUMENT = 1
    CORRUPT = 2
    TOO_SMALL = 3
    UNSUPPORTED = 4
    CUDA_ERROR = 5
    SYSTEM_ERROR = 6
    REMOTE_ERROR = 7
    ABORTED = 8
    TIMEOUT = 9
    MISMATCH = 10
    INTERNAL = 11


class NarrowcastError(Exception):
    """A call of the library failed. `status` is the `Status` that the call returned."""

    status: Status = Status.INTERNAL

    def __init__(self, message: str, status: Status | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status


class InvalidArgumentError(NarrowcastError, ValueError):
    """An argument is invalid. The call had no effect."""

    status = Status.INVALID_ARGUMENT


class CorruptError(NarrowcastError, ValueError):
    """Encoded data does not follow the format, or its checksum does not match."""

    status = Status.CORRUPT


class TooSmallError(NarrowcastError, ValueError):
    """A buffer of the caller is too small for the result."""

    status = Status.TOO_SMALL


class UnsupportedError(NarrowcastError):
    """The request is valid, but this build or this machine does not support it."""

    status = Status.UNSUPPORTED


class CudaError(NarrowcastError, RuntimeError):
    """The CUDA runtime or driver failed."""

    status = Status.CUDA_ERROR


class SystemFailure(NarrowcastError, OSError):
    """A call of the operating system failed: shared memory, files, threads."""

    status = Status.SYSTEM_ERROR

    def __str__(self) -> str:
        # OSError would format its arguments as an errno.
        return str(self.args[0]) if self.args else ""


class RemoteError(NarrowcastError, RuntimeError):
    """A peer died or reported an error."""

    status = Status.REMOTE_ERROR


class AbortedError(NarrowcastError, RuntimeError):
    """The communicator was aborted."""

    status = Status.ABORTED


class PeerTimeoutError(NarrowcastError, TimeoutError):
    """A peer did not join or make a call before the deadline of this rank or of another one."""

    status = Status.TIMEOUT

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MismatchError(NarrowcastError, ValueError):
    """Ranks made calls with different arguments."""

    status = Status.MISMATCH


class InternalError(NarrowcastError, RuntimeError):
    """A defect in Narrowcast."""

    status = Status.INTERNAL


class LibraryNotFoundError(NarrowcastError, ImportError):
    """libnarrowcast.so is neither in the package nor at the path in NARROWCAST_LIBRARY."""

    status = Status.UNSUPPORTED


_BY_STATUS: dict[int, type[NarrowcastError]] = {
    error.status: error
    for error in (
        InvalidArgumentError,
        CorruptError,
        TooSmallError,
        UnsupportedError,
        CudaError,
        SystemFailure,
        RemoteError,
        AbortedError,
        PeerTimeoutError,
        MismatchError,
        InternalError,
    )
}


def error_of(status: int, message: str) -> NarrowcastError:
    """The exception for a status other than OK."""
    return _BY_STATUS.get(status, InternalError)(message)
