"""Ranks that are forked from this process, and what they report: cheaper to start than interpreters of their own."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narrowcast
import numpy as np
from narrowcast.errors import NarrowcastError

Report = Callable[[dict[str, Any]], None]


@dataclass
class ForkedRank:
    pid: int
    pipe: int
    reports: list[dict[str, Any]] = field(default_factory=list)
    status: int | None = None  # of wait(), when the rank has ended
    _text: str = ""

    def _read(self) -> bool:
        data = os.read(self.pipe, 1 << 16)
        *lines, self._text = (self._text + data.decode()).split("\n")
        self.reports += map(json.loads, lines)
        return bool(data)

    def of(self, key: str) -> Any:
        """What the rank reported under `key`, or None."""
        return next((report[key] for report in self.reports if key in report), None)


def fork_rank(body: Callable[[Report], None]) -> ForkedRank:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return ForkedRank(pid, reading)
    status = 1
    try:
        os.close(reading)
        body(lambda report: os.write(writing, (json.dumps(report) + "\n").encode()) and None)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait_for_reports(ranks: list[ForkedRank], done: Callable[[], bool], seconds: float) -> bool:
    """Reads reports until `done`, or until all ranks have ended; False if none comes for `seconds`."""
    while not done():
        running = {rank.pipe: rank for rank in ranks if rank.status is None}
        if not running:
            return True
        ready, _, _ = select.select(list(running), [], [], seconds)
        if not ready:
            return False
        for pipe in ready:
            if not running[pipe]._read():
                os.close(pipe)
                running[pipe].status = os.waitpid(running[pipe].pid, 0)[1]
    return True


def end(ranks: list[ForkedRank]) -> None:
    """Kills those that still run."""
    for rank in ranks:
        if rank.status is None:
            os.kill(rank.pid, signal.SIGKILL)
    wait_for_reports(ranks, lambda: False, 10)


# --- what ranks do ----------------------------------------------------------------------------------------------------


def _values(rank: int, call: int, count: int) -> np.ndarray:
    return (np.arange(count, dtype=np.int64) * 7 + rank * 1000 + call * 31).astype(np.float32)


def random_call(comm: narrowcast.Communicator, chance: random.Random, call: int) -> str:
    """Makes the same random call on every rank. Returns what is wrong with its result, or an empty text."""
    name = chance.choice(["all_reduce", "all_gather", "broadcast", "all_to_all", "shift"])
    count = chance.choice([1, 1000, 30_000, 400_000]) // comm.ranks * comm.ranks or comm.ranks
    codec = chance.choice(["raw", "window!"])
    root = chance.randrange(comm.ranks)
    mine = _values(comm.rank, call, count)
    everyones = [_values(rank, call, count) for rank in range(comm.ranks)]
    if name == "all_reduce":
        result, expected = comm.all_reduce(mine.copy(), codec=codec), np.sum(everyones, axis=0, dtype=np.float32)
    elif name == "all_gather":
        result, expected = comm.all_gather(mine, codec=codec), np.concatenate(everyones)
    elif name == "broadcast":
        result, expected = comm.broadcast(mine.copy(), root=root, codec=codec), everyones[root]
    elif name == "all_to_all":
        part = count // comm.ranks
        own = slice(comm.rank * part, (comm.rank + 1) * part)
        result, expected = comm.all_to_all(mine, codec=codec), np.concatenate([one[own] for one in everyones])
    else:
        after, before = (comm.rank + 1) % comm.ranks, (comm.rank - 1) % comm.ranks
        result, expected = np.zeros_like(mine), everyones[before]
        with narrowcast.group():
            comm.send(mine, after, codec=codec)
            comm.recv(result, before, codec=codec)
    same = np.asarray(result).tobytes() == np.asarray(expected, np.float32).tobytes()
    return "" if same else f"call {call}, {name} of {count} with {codec}: wrong values"


def leftovers() -> dict[str, int]:
    """What a communicator has while it lives, and must not leave behind."""
    sockets = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            sockets += str(link.readlink()).startswith(("socket:", "anon_inode:[eventfd"))
        except FileNotFoundError:  # that of iterdir()
            continue
    mapped = Path("/proc/self/maps").read_text().count("/dev/shm/narrowcast")
    return {"threads": len(list(Path("/proc/self/task").iterdir())), "sockets": sockets, "mappings": mapped}


def take_part(
    report: Report, unique_id: bytes, rank: int, ranks: int, timeout_seconds: float, seed: int, calls: int | None
) -> None:
    """Makes random calls until one fails, or `calls` have been made. None: makes one, then waits for another rank."""
    before = leftovers()
    ended: dict[str, Any] = {"error": None, "message": ""}
    try:
        with narrowcast.Communicator(unique_id, rank, ranks, timeout_seconds=timeout_seconds) as comm:
            report({"joined": time.monotonic()})
            chance = random.Random(seed)
            for call in range(calls or 1):
                if wrong := random_call(comm, chance, call):
                    report({"wrong": wrong})
                report({"called": call})
            if calls is None:
                comm.recv(np.zeros(1, np.float32), (rank + 1) % ranks, codec="raw")
    except NarrowcastError as error:
        ended = {"error": type(error).__name__, "message": str(error)}
    # Threads may be visible for a moment after they have been joined.
    for _ in range(50):
        after = leftovers()
        if after == before:
            break
        time.sleep(0.02)
    report({**ended, "left": {name: after[name] - before[name] for name in after if after[name] != before[name]}})
