"""Runs ranks as processes of this machine.

A rank is a fresh interpreter that runs one function, takes its arguments as JSON on standard input and writes a JSON
line for every result. It is killed when its parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ..errors import NarrowcastError, RemoteError

# Time for the other ranks to end after one has failed.
GRACE_SECONDS = 10.0
# Time to read what a rank that has ended wrote to standard error. Processes that it left behind can keep that open.
_READ_SECONDS = 2.0
# Not -m, which would put the current directory before the standard library.
_BOOT = "import sys; sys.path[0] = sys.argv[1]; from narrowcast._bench.launch import rank_main; rank_main()"
_PR_SET_PDEATHSIG = 1
# Marks the end of the results of a rank.
_END = object()

Emit = Callable[[Any], None]


def run_ranks(
    function: str,
    arguments: list[dict[str, Any]],
    on_results: Callable[[list[Any]], None],
    *,
    timeout_seconds: float,
) -> None:
    """Runs a function in one process for each rank.

    function: "module:name", called with the arguments of the rank and `emit`, which takes a JSON value as a result.
    arguments: of each rank, as JSON values.
    on_results: called with the i-th results of all ranks, as soon as all have arrived.

    Raises RemoteError with the message of the rank that failed first. The others are killed.
    """
    processes: list[subprocess.Popen[str]] = []
    events: queue.Queue[tuple[int, Any]] = queue.Queue()
    results: list[list[Any]] = [[] for _ in arguments]
    errors: list[_Lines] = []
    deadline = time.monotonic() + timeout_seconds
    root = str(Path(__file__).parents[2])
    try:
        for own in arguments:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, root, function],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(process)
            rank = len(errors)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            threading.Thread(target=_read_results, args=(rank, process.stdout, events), daemon=True).start()
            errors.append(_Lines(process.stderr))
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(own))
                process.stdin.close()
        delivered = 0
        running = set(range(len(processes)))
        failed: list[int] = []
        while running:
            try:
                rank, result = events.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise _failure(processes, errors, failed, timeout_seconds) from None
            if result is not _END:
                results[rank].append(result)
                while not failed and all(len(rows) > delivered for rows in results):
                    on_results([rows[delivered] for rows in results])
                    delivered += 1
                continue
            running.remove(rank)
            if processes[rank].wait() != 0:
                failed.append(rank)
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if failed:
            raise _failure(processes, errors, failed, timeout_seconds)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()


def _read_results(rank: int, stream: IO[str], events: queue.Queue[tuple[int, Any]]) -> None:
    for line in stream:
        # A killed rank may leave an incomplete line.
        with contextlib.suppress(ValueError):
            events.put((rank, json.loads(line)))
    events.put((rank, _END))


class _Lines:
    """Reads lines in the background."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        self._lines.extend(line.strip() for line in stream)

    def last(self) -> str:
        """The last line, after the end of the stream; empty if there is none."""
        self._thread.join(_READ_SECONDS)
        return self._lines[-1] if self._lines else ""


def _failure(
    processes: list[subprocess.Popen[str]], errors: list[_Lines], failed: list[int], timeout_seconds: float
) -> RemoteError:
    if not failed:
        waiting = [str(rank) for rank, process in enumerate(processes) if process.poll() is None]
        return RemoteError(f"ranks {', '.join(waiting)} did not end within {timeout_seconds:.0f} seconds")
    # A rank that was killed is the cause. Ranks that detected its death are not.
    first = next((rank for rank in failed if processes[rank].returncode < 0), failed[0])
    code = processes[first].returncode
    if code < 0:
        return RemoteError(f"rank {first} was killed by signal {-code}")
    message = errors[first].last() or f"ended with status {code}"
    return RemoteError(f"rank {first}: {message}")


def rank_main() -> None:
    """The main function of a rank process."""
    # Ctrl-C reaches all processes of the terminal. Only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    module, _, name = sys.argv[2].partition(":")
    arguments = json.load(sys.stdin)
    out = os.dup(1)
    # Other output must not mix with the results.
    os.dup2(2, 1)

    def emit(result: Any) -> None:
        os.write(out, (json.dumps(result) + "\n").encode())

    try:
        getattr(importlib.import_module(module), name)(**arguments, emit=emit)
    except NarrowcastError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
