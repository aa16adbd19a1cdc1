"""The exchange function of a caller, by which ranks create a communicator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_int, c_size_t, c_void_p
from typing import Any

from .._native.library import check, last_error
from ..errors import RemoteError, Status, error_of

Exchange = Callable[[bytes], Sequence[Any]]

# ncast_exchange: context, mine, bytes, all.
_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)


class ExchangeCall:
    """A Python function as the library can call it, while this object is alive.

    Exceptions of the function are stored and raised by check(). ctypes would print and ignore them.
    """

    def __init__(self, exchange: Exchange, rank: int, ranks: int) -> None:
        self._exchange, self._rank, self._ranks = exchange, rank, ranks
        self._error: BaseException | None = None
        self._function = _FUNCTION(self._run)
        self.pointer = ctypes.cast(self._function, c_void_p)

    def _run(self, _: int | None, mine: int, count_bytes: int, gathered: int) -> int:
        try:
            whole = self._gathered(ctypes.string_at(mine, count_bytes))
            ctypes.memmove(gathered, whole, len(whole))
        except BaseException as error:
            self._error = error
            return 1
        return 0

    def _gathered(self, mine: bytes) -> bytes:
        parts = [bytes(memoryview(part)) for part in self._exchange(mine)]
        if len(parts) != self._ranks:
            raise ValueError(f"the exchange returned {len(parts)} parts for {self._ranks} ranks")
        for rank, part in enumerate(parts):
            if len(part) != len(mine):
                raise ValueError(f"the exchange returned {len(part)} bytes for rank {rank}, not {len(mine)}")
        if 0 <= self._rank < self._ranks and parts[self._rank] != mine:
            raise ValueError(
                f"part {self._rank} of the exchange is not the bytes of this rank: parts must be in rank order"
            )
        return b"".join(parts)

    def check(self, status: int, refusal: Exception | None) -> None:
        """Raises the error of the creation, if any. refusal: an error found before it began."""
        # KeyboardInterrupt and SystemExit pass through.
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error
        if refusal is not None:
            raise refusal from self._error
        if self._error is None:
            check(status)
        elif status in (Status.OK, Status.REMOTE_ERROR):
            raise RemoteError(f"the exchange failed: {type(self._error).__name__}: {self._error}") from self._error
        else:
            raise error_of(status, last_error()) from self._error
