"""The steps of a run, and how long they take, from the records of its processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import period
from .record import EXECUTED, CommunicatorRecord, Entries, ProcessRecord

Seconds = npt.NDArray[np.float64]

#: Steps at the beginning that are not measured: programs compile, allocate memory, and connect ranks in them.
WARM_UP_STEPS = 10
#: Fewer steps give no time.
LEAST_STEPS = 4
# A run's time is the median of this number of blocks of steps, so that pauses, as for a checkpoint, do not count.
_BLOCKS = 10
_LEAST_INTERVALS = 8
_LEAST_MOVED = 0.01


@dataclass(frozen=True)
class Steps:
    """The steps of one rank of a run."""

    process: ProcessRecord
    communicator: CommunicatorRecord | None
    """The one whose calls have the period; None: the program has marked its steps."""
    begins: period.Indices
    """Of each step, the index of its first call, or of its mark."""
    ends: period.Indices
    """Of each step, the index of the first call, or the mark, after it."""

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def _warm_up(self) -> int:
        return min(WARM_UP_STEPS, len(self) // 3)

    @property
    def measured(self) -> int:
        """The number of steps that are measured."""
        return len(self) - self._warm_up

    @property
    def _all_times_ns(self) -> npt.NDArray[np.uint64]:
        times: npt.NDArray[np.uint64] = (
            self.process.marks_ns if self.communicator is None else self.communicator.calls["time_ns"]
        )
        return times

    def measured_ns(self) -> tuple[int, int]:
        """When the first measured step began and the last one ended, by the clock of the host."""
        return int(self._all_times_ns[self.begins[self._warm_up]]), int(self._all_times_ns[self.ends[-1]])

    def host_seconds(self) -> float:
        """The time of a step by the clock of the host.

        The host puts calls on streams before the GPU runs them. How far it is ahead varies from step to step, but is
        bounded: a queue is full, or the program reads a result. So the time of one step has no meaning, but the mean of
        many consecutive ones has. Calls between steps count: they are part of what the program does.
        """
        begins = self._all_times_ns[self.begins[self._warm_up :]].astype(np.int64)
        times = np.append(begins, self.measured_ns()[1])
        edges = np.unique(np.linspace(0, self.measured, min(_BLOCKS, self.measured) + 1).round().astype(np.int64))
        return float(np.median(np.diff(times[edges]) / np.diff(edges))) / 1e9

    def gpu_seconds(self) -> float | None:
        """The time of a step by the clock of the GPU; None if too few launches were timed.

        The times between launches at the same place of two steps, which need not follow each other. This is right even
        if the host is far ahead of the GPU at the end.
        """
        if self.communicator is None:
            return None
        first_launches = self.communicator.calls["launch"][self.begins].astype(np.int64)
        samples = self.communicator.launches
        launches, times = samples["launch"].astype(np.int64), samples["time_ns"].astype(np.int64)
        step_of = np.searchsorted(first_launches, launches, side="right") - 1
        places = launches - first_launches[step_of]
        ends = self.communicator.calls["launch"][self.ends]
        is_measured = (step_of >= self._warm_up) & (launches < ends[step_of])
        step_of, places, times = step_of[is_measured], places[is_measured], times[is_measured]
        order = np.lexsort((step_of, places))
        step_of, places, times = step_of[order], places[order], times[order]
        is_interval = (np.diff(places) == 0) & (np.diff(step_of) > 0)
        lengths = np.diff(step_of)[is_interval]
        if len(lengths) < _LEAST_INTERVALS:
            return None
        return _weighted_median(np.diff(times)[is_interval] / lengths, lengths) / 1e9


def _weighted_median(values: Seconds, weights: npt.NDArray[np.int64]) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


def find_pattern(processes: Sequence[ProcessRecord]) -> period.Pattern | None:
    """The pattern of the longest step of a communicator of a run; None if no calls have a period.

    The longest, because the calls of a tensor-parallel communicator also repeat in every layer. Communicators that move
    little, such as those for barriers, do not count.
    """
    best, longest = None, 0.0
    for process in processes:
        moved = [int(communicator.call_bytes.sum()) for communicator in process.communicators]
        for communicator, moved_bytes in zip(process.communicators, moved, strict=True):
            if moved_bytes < _LEAST_MOVED * max(moved):
                continue
            calls = _calls_of(communicator)
            pattern = period.find(calls)
            if pattern is None:
                continue
            begins, ends = period.steps(calls, pattern)
            times = communicator.calls["time_ns"]
            length = float(np.median(times[ends] - times[begins]))
            if length > longest:
                best, longest = pattern, length
    return best


def find_steps(processes: Sequence[ProcessRecord], pattern: period.Pattern | None) -> Steps | None:
    """The steps of the rank that has most of them: those that it has marked, or with this pattern; None if too few."""
    found: list[Steps] = []
    for process in processes:
        marks = np.arange(len(process.marks_ns))
        found.append(Steps(process, None, marks[:-1], marks[1:]))
    if not any(len(one) >= LEAST_STEPS for one in found) and pattern is not None:
        for process in processes:
            for communicator in process.communicators:
                found.append(Steps(process, communicator, *period.steps(_calls_of(communicator), pattern)))
    best = max(found, key=len, default=None)
    return best if best is not None and len(best) >= LEAST_STEPS else None


def _calls_of(communicator: CommunicatorRecord) -> period.Calls:
    calls = communicator.calls
    return period.Calls(
        operations=calls["operation"],
        dtypes=calls["dtype"],
        peers=calls["peer"],
        counts=calls["count"],
        sizes=communicator.call_bytes,
    )


@dataclass(frozen=True)
class Communication:
    """The calls of one rank, in an average step."""

    calls: float
    executed: float
    """Calls that Narrowcast executed; NCCL ran the others."""
    executes: bool
    """Whether Narrowcast executed any call of the rank in the whole run."""
    captured: int
    """Calls that the rank put into CUDA graphs in the whole run. Their replays are not recorded."""
    gpu_seconds: float | None
    """Time of the calls on the GPU, waits for other ranks included; None if none were timed."""
    waiting_seconds: float | None
    """The part of it that other ranks spent before their calls began; None if their calls are not known."""


def communication(
    process: ProcessRecord, begin_ns: int, end_ns: int, steps: int, processes: Sequence[ProcessRecord]
) -> Communication:
    """What a process communicates between two times of the host's clock, in which it makes `steps` steps.

    processes: all of the run.
    """
    calls = executed = captured = 0
    total = waiting = 0.0
    timed, all_known, executes = False, True, False
    for communicator in process.communicators:
        captured += communicator.captured
        executes = executes or bool(np.any(communicator.calls["flags"] & EXECUTED))
        times = communicator.calls["time_ns"]
        own = communicator.calls[(times >= begin_ns) & (times <= end_ns)]
        if not len(own):
            continue
        calls += len(own)
        executed += int(np.count_nonzero(own["flags"] & EXECUTED))
        first, last = int(own["launch"][0]), int(own["launch"][-1])
        samples = _between(communicator.launches, first, last)
        if not len(samples):
            continue
        timed = True
        launches = last - first + 1
        own_total = float(np.mean(samples["count"])) * launches
        total += own_total
        # Some samples are of one rank only, so they say which part of the time is waiting, not how long it is.
        common, fastest = _fastest(samples, communicator, processes)
        if np.sum(common):
            waiting += own_total * float(1 - np.sum(fastest) / np.sum(common))
        else:
            all_known = False
    return Communication(
        calls=calls / steps,
        executed=executed / steps,
        executes=executes,
        captured=captured,
        gpu_seconds=total / steps / 1e9 if timed else None,
        waiting_seconds=waiting / steps / 1e9 if timed and all_known else None,
    )


def _between(launches: Entries, first: int, last: int) -> Entries:
    return launches[(launches["launch"] >= first) & (launches["launch"] <= last)]


def _fastest(
    samples: Entries, communicator: CommunicatorRecord, processes: Sequence[ProcessRecord]
) -> tuple[Seconds, Seconds]:
    """The times of launches that all ranks have timed: of this rank, and of the rank for which they took least.

    The rank that begins last waits for no other.
    """
    ranks = [
        other
        for process in processes
        for other in process.communicators
        if communicator.id and other.id == communicator.id
    ]
    if len(ranks) != communicator.ranks:
        return np.empty(0), np.empty(0)
    common = samples["launch"]
    for other in ranks:
        common = np.intersect1d(common, other.launches["launch"])
    times = [_times_of(other.launches, common) for other in ranks]
    return _times_of(samples, common), np.min(times, axis=0)


def _times_of(launches: Entries, which: npt.NDArray[np.uint32]) -> Seconds:
    times: Seconds = launches["count"][np.searchsorted(launches["launch"], which)].astype(np.float64)
    return times
