"""Ranks that get a signal while they wait. Results are JSON values: what was raised, and after how many seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import narrowcast
import numpy as np

DELAY_SECONDS = 0.3


@contextlib.contextmanager
def _signal_soon(number: int) -> Iterator[None]:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
    timer = threading.Timer(DELAY_SECONDS, os.kill, (os.getpid(), number))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def _outcome(call: Callable[[], Any]) -> list[Any]:
    begin = time.monotonic()
    name = "nothing"
    try:
        call()
    except (KeyboardInterrupt, LookupError, narrowcast.NarrowcastError) as error:
        name = type(error).__name__
    return [name, time.monotonic() - begin]


def creating(*, unique_id, rank, ranks, emit):
    """The last rank never joins, and rank 0 is interrupted."""
    if rank == ranks - 1:
        emit(["absent", 0.0])
        return
    with _signal_soon(signal.SIGINT) if rank == 0 else contextlib.nullcontext():
        emit(_outcome(lambda: narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=0)))


def waiting(*, unique_id, rank, ranks, how, emit):
    """The last rank makes no call, and rank 0 is interrupted while it waits for one."""
    comm = narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=0)
    values = np.ones(1000, np.float32)
    # The others must have joined before rank 0 is interrupted.
    comm.all_reduce(values)
    stream = narrowcast.Stream()

    def call() -> None:
        if rank == ranks - 1:
            while (error := comm.async_error()) is None:
                time.sleep(0.01)
            raise error
        if how == "call":
            comm.all_reduce(values)
        elif how == "group":
            with narrowcast.group():
                comm.all_reduce(values)
                comm.recv(values, ranks - 1)
        elif how == "second call":
            comm.all_reduce(values, stream=stream)
            comm.all_reduce(values)
        else:
            comm.all_reduce(values, stream=stream)
            (stream.synchronize if how == "synchronize" else comm.close if how == "close" else stream.close)()

    with _signal_soon(signal.SIGINT) if rank == 0 else contextlib.nullcontext():
        outcome = _outcome(call)
    begin = time.monotonic()
    with contextlib.suppress(narrowcast.NarrowcastError):
        stream.close()
        comm.close()
    emit([*outcome, time.monotonic() - begin])


def handled(*, unique_id, rank, ranks, what, emit):
    """Rank 0 waits for rank 1 and gets a signal whose handler returns, raises or aborts."""
    comm = narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=20)
    values = np.ones(1000, np.float32)
    comm.all_reduce(values)
    handled = []

    def handler(number: int, frame: Any) -> None:
        handled.append(number)
        if what == "raises":
            raise LookupError("the handler")
        if what == "aborts":
            comm.abort()
        if what == "calls":
            with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as other:
                other.all_reduce(values.copy())

    if rank == 0:
        signal.signal(signal.SIGUSR1, handler)
        with _signal_soon(signal.SIGUSR1):
            outcome = _outcome(lambda: comm.all_reduce(values))
    else:
        time.sleep(3 * DELAY_SECONDS)
        while what in ("raises", "aborts") and comm.async_error() is None:
            time.sleep(0.01)
        outcome = _outcome(lambda: comm.all_reduce(values))
    emit([outcome[0], values[0].item(), len(handled)])


def in_a_thread(*, unique_id, rank, ranks, emit):
    """Another thread waits; the main thread is interrupted. The error of the other thread is its own."""
    comm = narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=20)
    outcomes: list[list[Any]] = []
    ended = threading.Event()

    def call() -> None:
        outcomes.append(_outcome(lambda: comm.all_reduce(np.ones(10, np.float32))))
        ended.set()

    thread = threading.Thread(target=call)
    if rank == 0:
        thread.start()
        with _signal_soon(signal.SIGINT):
            outcome = _outcome(ended.wait)
        assert not ended.is_set()
        comm.abort()
        ended.wait()
        emit([outcome[0], outcomes[0][0]])
    else:
        while comm.async_error() is None:
            time.sleep(0.01)
        emit(["nothing", "nothing"])
