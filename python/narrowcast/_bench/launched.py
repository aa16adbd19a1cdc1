"""Measurements between ranks that torchrun, or another launcher with its variables, has started on one host or several:
this process is one of them.

Rank 0 is the command that the user sees. The others connect to it, at the port after MASTER_PORT, which the launcher
itself may use. Each is told what to run, and sends its results, all as lines of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any, TextIO

from .. import comm
from ..errors import RemoteError
from . import launch

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Launchers start ranks within this time of each other.
_CONNECT_SECONDS = 120.0
_RETRY_SECONDS = 0.1
# A rank says which one it is as soon as it has connected.
_HELLO_SECONDS, _LONGEST_HELLO = 5.0, 8


def rank_count() -> int | None:
    """The number of ranks that the launcher has started; None if there is no launcher, or one rank."""
    if not all(name in os.environ for name in _VARIABLES):
        return None
    count = int(os.environ["WORLD_SIZE"])
    return count if count > 1 else None


def device_of(rank: int) -> int:
    """The GPU of a rank."""
    return int(os.environ["LOCAL_RANK"]) if rank_count() else rank


def unique_id() -> bytes:
    """The id of a communicator of all ranks. The process that creates it must live as long as the ranks."""
    return comm.unique_id(local=rank_count() is None)


def ran_for_rank_0() -> bool:
    """Runs what rank 0 says, on every other rank. False on rank 0, and in a process that no launcher has started."""
    if rank_count() is None or os.environ["RANK"] == "0":
        return False
    with _connection() as connection, connection.makefile("rw") as lines:
        _send(0, lines, int(os.environ["RANK"]))
        function, arguments = _receive(0, lines)
        _call(function, arguments, lambda result: _send(0, lines, result))
    return True


def run_ranks(
    function: str,
    arguments: list[dict[str, Any]],
    on_results: Callable[[list[Any]], None],
    *,
    timeout_seconds: float,
) -> None:
    """As launch.run_ranks(); with the ranks that a launcher has started, if there is one."""
    if rank_count() is None:
        launch.run_ranks(function, arguments, on_results, timeout_seconds=timeout_seconds)
        return
    with contextlib.ExitStack() as stack:
        others = _accepted(stack, len(arguments) - 1, timeout_seconds)
        for rank, lines in others.items():
            _send(rank, lines, [function, arguments[rank]])

        def emit(result: Any) -> None:
            on_results([result, *(_receive(rank, others[rank]) for rank in range(1, len(arguments)))])

        _call(function, arguments[0], emit)


def _accepted(stack: contextlib.ExitStack, count: int, timeout_seconds: float) -> dict[int, TextIO]:
    """The connections of ranks 1 to count. Others that connect to the port are turned away."""
    accepted: dict[int, TextIO] = {}
    try:
        listener = socket.create_server(("", _port()))
    except OSError as error:
        raise RemoteError(f"ranks cannot connect to port {_port()}, the one after MASTER_PORT: {error}") from None
    with listener:
        listener.settimeout(_CONNECT_SECONDS)
        while len(accepted) < count:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise RemoteError(f"{count - len(accepted)} of {count + 1} ranks did not connect") from None
            stack.enter_context(connection)
            connection.settimeout(_HELLO_SECONDS)
            lines = stack.enter_context(connection.makefile("rw"))
            try:
                rank = int(lines.readline(_LONGEST_HELLO))
            except (OSError, ValueError):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                continue
            if rank in accepted or not 1 <= rank <= count:
                raise RemoteError(f"a process connected as rank {rank}, which is not expected: ranks are 1 to {count}")
            connection.settimeout(timeout_seconds)
            accepted[rank] = lines
    return accepted


def _receive(rank: int, lines: TextIO) -> Any:
    try:
        line = lines.readline()
    except OSError as error:
        raise RemoteError(f"rank {rank}: {error}") from None
    if not line:
        raise RemoteError(f"rank {rank} has ended")
    return json.loads(line)


def _send(rank: int, lines: TextIO, value: Any) -> None:
    try:
        lines.write(json.dumps(value) + "\n")
        lines.flush()
    except OSError as error:
        raise RemoteError(f"rank {rank}: {error}") from None


def _call(function: str, arguments: dict[str, Any], emit: launch.Emit) -> None:
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(**arguments, emit=emit)


def _port() -> int:
    return int(os.environ["MASTER_PORT"]) + 1


def _connection() -> socket.socket:
    """To rank 0, which may start later."""
    address = (os.environ["MASTER_ADDR"], _port())
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RemoteError(f"rank 0 cannot be reached at {address[0]}, port {address[1]}: {error}") from None
            time.sleep(_RETRY_SECONDS)
