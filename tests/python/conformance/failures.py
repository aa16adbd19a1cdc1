"""Ranks that abort, do not call, make a different call, or die."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
from narrowcast._bench.launch import Emit
from narrowcast.errors import NarrowcastError

from . import places
from .guarded import Guarded
from .job import Deadline
from .values import poison

# Sent as packets, and as blocks through more slots than exist.
_COUNTS = {"small": 100, "large": 3_000_000}
_BF16_BYTES = 2
_ABORT_AFTER_SECONDS = 0.3
_CAPACITY_BYTES = 128 << 20


def run(
    *,
    backend: str,
    device: int,
    rank: int,
    ranks: int,
    hosts: tuple[int, ...],
    two_levels: bool,
    unique_ids: dict[str, str],
    host_id: str,
    emit: Emit,
) -> None:
    """Runs one scenario after another, each with its own communicator."""
    places.be_on_host(rank, hosts)
    deadline = Deadline()
    deadline.begin(rank, "starting")
    place = places.make(backend, device, _CAPACITY_BYTES)
    timeout_seconds = 1.0 if backend == "host" else 3.0
    with place.current(), narrowcast.Communicator(bytes.fromhex(host_id), rank, ranks, timeout_seconds=60) as host:
        stream = None if two_levels and backend == "host" else place.stream()
        for name, unique_id in unique_ids.items():
            deadline.begin(rank, name)
            what, how = name.split()
            # The first communicator of a process on GPUs takes longer to create than a call may wait.
            waits = timeout_seconds if what != "abort" else 30.0
            _meet(host)
            comm = _join(place, unique_id, rank, ranks, waits)
            _meet(host)
            result = {"scenario": name, "rank": rank, "timeout_seconds": waits, "changed": None}
            emit({**result, **_SCENARIOS[what](place, comm, stream, how)})
            _meet(host)
    deadline.end(rank)


def _meet(host: narrowcast.Communicator) -> None:
    host.all_reduce(np.zeros(1, np.int32), codec="raw")


def _join(place: Any, unique_id: str, rank: int, ranks: int, timeout_seconds: float) -> narrowcast.Communicator:
    return place.communicator(unique_id, rank, ranks, timeout_seconds=timeout_seconds)


def _buffers(place: Any, how: str, stream: Any) -> tuple[Any, Guarded]:
    place.reset()
    count = _COUNTS["small" if how in ("small", "recv") else "large"]
    # Memory for a rank that calls with three times as many values.
    source, target = (Guarded(place, 3 * _BF16_BYTES * count) for _ in range(2))
    values = source.lay(np.zeros(3 * _BF16_BYTES * count, np.uint8), 0, stream)
    target.lay(poison(3 * _BF16_BYTES * count), 0, stream)
    return values, target


def _part(place: Any, array: Any, count: int) -> Any:
    return place.part(array, 0, _BF16_BYTES * count)


def _call_and_wait(
    comm: narrowcast.Communicator, place: Any, stream: Any, call: Callable[[], None] | None
) -> dict[str, Any]:
    """Makes a call and waits for its result. Without a call, waits until the communicator has an error."""
    begin = time.monotonic()
    error: NarrowcastError | None = None
    try:
        if call:
            call()
            place.finish(comm, stream)
        while not call and error is None and time.monotonic() < begin + 15:
            time.sleep(0.01)
            error = comm.async_error()
    except NarrowcastError as raised:
        error = raised
    return {**_told(error), "seconds": time.monotonic() - begin}


def _told(error: NarrowcastError | None) -> dict[str, Any]:
    return {"error": type(error).__name__ if error else None, "message": str(error) if error else ""}


def _afterwards(comm: narrowcast.Communicator, place: Any, stream: Any, values: Any) -> dict[str, Any]:
    """The result of a later call, and the time that closing takes."""
    later = None
    try:
        comm.all_reduce(_part(place, values, 10), dtype="bfloat16", stream=stream)
        place.finish(comm, stream)
    except NarrowcastError as error:
        later = type(error).__name__
    begin = time.monotonic()
    comm.close()
    return {"later": later, "close_seconds": time.monotonic() - begin}


def _all_reduce(place: Any, comm: Any, stream: Any, values: Any, target: Guarded, count: int, codec: str) -> None:
    out = target.part(0, _BF16_BYTES * count)
    comm.all_reduce(_part(place, values, count), out, dtype="bfloat16", codec=codec, stream=stream)


def _abort(place: Any, comm: narrowcast.Communicator, stream: Any, how: str) -> dict[str, Any]:
    """The last rank does not call; rank 0 aborts while it waits."""
    values, target = _buffers(place, how, stream)
    timer = threading.Timer(_ABORT_AFTER_SECONDS, comm.abort)
    if comm.rank == 0:
        timer.start()
    missing = comm.rank == comm.ranks - 1
    count = _COUNTS[how]
    call = None if missing else lambda: _all_reduce(place, comm, stream, values, target, count, "raw")
    result = _call_and_wait(comm, place, stream, call)
    if comm.rank == 0:
        timer.join()
    return {**result, **_afterwards(comm, place, stream, values)}


def _late(place: Any, comm: narrowcast.Communicator, stream: Any, how: str) -> dict[str, Any]:
    """The last rank never calls."""
    values, target = _buffers(place, how, stream)
    last = comm.ranks - 1
    if comm.rank == last:
        result = _call_and_wait(comm, place, stream, None)
    elif how == "recv":
        out = target.part(0, 200)
        result = _call_and_wait(comm, place, stream, lambda: comm.recv(out, last, dtype="bfloat16", stream=stream))
    else:
        result = _call_and_wait(
            comm,
            place,
            stream,
            lambda: _all_reduce(place, comm, stream, values, target, _COUNTS[how], "raw"),
        )
    return {**result, **_afterwards(comm, place, stream, values)}


def _mismatch(place: Any, comm: narrowcast.Communicator, stream: Any, how: str) -> dict[str, Any]:
    """The last rank calls with three times as many values as the others."""
    values, target = _buffers(place, how, stream)
    count = _COUNTS["small" if how == "small" else "large"] * (3 if comm.rank == comm.ranks - 1 else 1)
    codec = "window!" if how == "window" else "raw"
    result = _call_and_wait(comm, place, stream, lambda: _all_reduce(place, comm, stream, values, target, count, codec))
    if result["error"] is None:
        # Its part arrived; those of others may not.
        result = {**_call_and_wait(comm, place, stream, None), "seconds": result["seconds"]}
    # In any case, no other memory was written.
    changed = target.read(0, _BF16_BYTES * count, stream)[1]
    return {**result, "changed": changed, **_afterwards(comm, place, stream, values)}


_SCENARIOS = {"abort": _abort, "late": _late, "mismatch": _mismatch}


def killed(
    *,
    backend: str,
    device: int,
    rank: int,
    ranks: int,
    hosts: tuple[int, ...],
    two_levels: bool,
    unique_id: str,
    folder: str,
    emit: Emit,
) -> None:
    """The last rank dies while the others wait for it. Results go to files, because the dead rank emits none."""
    places.be_on_host(rank, hosts)
    deadline = Deadline()
    deadline.begin(rank, "a rank is killed")
    place = places.make(backend, device, _CAPACITY_BYTES)
    with place.current():
        stream = None if two_levels and backend == "host" else place.stream()
        comm = _join(place, unique_id, rank, ranks, 60)
        values, target = _buffers(place, "large", stream)

        def call() -> None:
            _all_reduce(place, comm, stream, values, target, _COUNTS["large"], "raw")

        call()
        place.finish(comm, stream)
        if rank == ranks - 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        result = _call_and_wait(comm, place, stream, call)
        result |= _afterwards(comm, place, stream, values)
        (Path(folder) / str(rank)).write_text(json.dumps(result))
    deadline.end(rank)
