"""The rank processes: run one section after another and emit a result for every case."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from narrowcast._bench.launch import Emit
from narrowcast.errors import NarrowcastError

from . import places
from .arguments import arguments
from .exchanges import all_to_all_v, groups
from .factors import factors
from .graphs import graphs
from .operations import larger, small
from .registration import registration
from .streams import streams
from .traffic import traffic
from .world import Cases, Outcome, World

_CASES: dict[str, Callable[[World], Cases]] = {
    "small": small,
    "larger": larger,
    "factors": factors,
    "all_to_all_v": all_to_all_v,
    "groups": groups,
    "streams": streams,
    "graphs": graphs,
    "registration": registration,
    "arguments": arguments,
    "traffic": traffic,
}
_WITH_TWO_COMMUNICATORS = {"streams", "graphs"}
# Time limits of a call, and of a case with its comparisons.
CALL_SECONDS, CASE_SECONDS = 20, 60
_MOST_SENTENCES = 5
MIB = 1 << 20


@dataclass(frozen=True)
class Section:
    """A section and the ids of its communicators, from the parent."""

    name: str
    unique_ids: list[str]


def communicators_of(section: str) -> int:
    return 2 if section in _WITH_TWO_COMMUNICATORS else 1


class Deadline:
    """Ends the process when a case exceeds its time limit, and reports the case."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cases: dict[int, tuple[str, float]] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, rank: int, case: str, seconds: float = CASE_SECONDS) -> None:
        with self._lock:
            self._cases[rank] = (case, time.monotonic() + seconds)

    def end(self, rank: int) -> None:
        with self._lock:
            self._cases.pop(rank, None)

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                late = [(rank, case) for rank, (case, end) in self._cases.items() if time.monotonic() > end]
            if late:
                faulthandler.dump_traceback(sys.stderr)
                print(f"'{late[0][1]}' did not end in time on rank {late[0][0]}", file=sys.stderr, flush=True)
                os._exit(3)


def run(
    *,
    backend: str,
    device: int,
    rank: int,
    ranks: int,
    sections: list[list[Any]],
    amount: str,
    seed: int,
    emit: Emit,
    hosts: tuple[int, ...] = (),
    two_levels: bool = False,
) -> None:
    """One rank in this process."""
    places.be_on_host(rank, hosts)
    deadline = Deadline()
    deadline.begin(rank, "starting")
    place = places.make(backend, device, _capacity(backend))
    with place.current():
        # The host backend has no streams at two levels.
        streams = [None, None] if two_levels and backend == "host" else [place.stream(), place.stream()]
        # GPUs reduce in the order of ranks, wherever these are, unless there are two levels.
        ordered = hosts if backend == "host" or two_levels else ()
        for name, unique_ids in sections:
            section = Section(name, unique_ids)
            _run_section(section, place, streams, rank, ranks, amount, seed, True, deadline, emit, ordered, two_levels)


def link(
    *,
    backend: str,
    device: int,
    rank: int,
    ranks: int,
    hosts: tuple[int, ...],
    two_levels: bool,
    unique_id: str,
    emit: Emit,
) -> None:
    """The link of a communicator."""
    places.be_on_host(rank, hosts)
    place = places.make(backend, device, MIB)
    with place.current(), place.communicator(unique_id, rank, ranks, timeout_seconds=CALL_SECONDS) as comm:
        emit(comm.explain("all_reduce", 1, dtype="float32").link)


def threads(*, backend: str, devices: list[int], sections: list[list[Any]], seed: int, emit: Emit) -> None:
    """All ranks in this process, one thread for each. Every result has the outcomes of all ranks."""
    deadline = Deadline()
    ranks = len(devices)
    results: list[list[Any]] = [[] for _ in devices]
    failures: list[str] = []

    def work(rank: int) -> None:
        try:
            deadline.begin(rank, "starting")
            place = places.make(backend, devices[rank], 256 * MIB)
            with place.current():
                streams = [place.stream(), place.stream()]
                for name, unique_ids in sections:
                    section = Section(name, unique_ids)
                    # Ranks on one GPU share its default stream, where they would block each other.
                    _run_section(
                        section, place, streams, rank, ranks, "few", seed, False, deadline, results[rank].append
                    )
        except BaseException:
            failures.append(f"rank {rank}: {traceback.format_exc()}")
            raise

    workers = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for row in zip(*results, strict=False):
        emit(list(row))
    if failures:
        sys.exit(failures[0])


def _capacity(backend: str) -> int:
    return (1024 if backend == "cuda" else 256) * MIB


def _run_section(
    section: Section,
    place: Any,
    streams: list[Any],
    rank: int,
    ranks: int,
    amount: str,
    seed: int,
    default_stream: bool,
    deadline: Deadline,
    emit: Emit,
    hosts: tuple[int, ...] = (),
    two_levels: bool = False,
) -> None:
    """Emits a result for every case, so that results of ranks correspond. After an error the rest is skipped."""
    deadline.begin(rank, f"joining the communicators of {section.name}")
    comms = [
        place.communicator(unique_id, rank, ranks, timeout_seconds=CALL_SECONDS) for unique_id in section.unique_ids
    ]
    world = World(place, rank, ranks, comms, streams, amount, seed, default_stream, tuple(hosts), two_levels)
    ended_by = ""
    for case, check in _CASES[section.name](world):
        begin = time.monotonic()
        deadline.begin(rank, case)
        outcome = Outcome()
        if not ended_by:
            try:
                outcome = check()
            except NarrowcastError as error:
                outcome.wrong.append(f"{type(error).__name__}: {error}")
                ended_by = case
            except Exception:
                outcome.wrong.append(traceback.format_exc())
                ended_by = case
                for comm in comms:
                    _quietly(comm.abort)
        else:
            outcome.wrong.append(f"skipped, since '{ended_by}' failed")
        emit(
            {
                "section": section.name,
                "case": case,
                "wrong": outcome.wrong[:_MOST_SENTENCES],
                "nans": outcome.nans[:_MOST_SENTENCES],
                "digest": outcome.digest,
                "seconds": time.monotonic() - begin,
            }
        )
    deadline.begin(rank, f"closing the communicators of {section.name}")
    for comm in comms:
        if ended_by:
            _quietly(comm.close)
        else:
            comm.close()
    deadline.end(rank)


def _quietly(function: Callable[[], None]) -> None:
    with contextlib.suppress(NarrowcastError):
        function()
