"""Runs a command with several profiles in turns, and measures its steps."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from ..errors import NarrowcastError
from . import running, verdict
from .period import SMALL_BYTES, Pattern
from .profiles import NCCL_ALONE, Profile
from .record import NAME, ProcessRecord, read_folder
from .steps import LEAST_STEPS, Communication, Steps, communication, find_pattern, find_steps

# Without --steps, a run also lasts this long: steps of milliseconds say little in a second.
_LEAST_SECONDS = 5.0
DEFAULT_STEPS = 100


class TrialError(NarrowcastError):
    """The command cannot be measured. `lines`: the end of its output."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)


@dataclass(frozen=True)
class Options:
    """How to run the command."""

    command: Sequence[str]
    environment: Mapping[str, str]
    """Of all runs, with the drop-in; the record and the settings of the profile are added."""
    steps: int | None
    """Steps to measure in a run; 0: run to the end; None: DEFAULT_STEPS, for _LEAST_SECONDS."""
    is_whole: bool
    """Compare the times from the first call to the last one, not those of steps."""
    rounds: int
    """At most."""
    timeout_seconds: float | None
    """Of a run."""


@dataclass(frozen=True)
class Measured:
    """A run."""

    host_seconds: float
    gpu_seconds: float | None
    steps: int
    communication: Communication
    stopped: bool

    @property
    def seconds(self) -> float:
        """The time of a step, by the clock of the GPU if it is known."""
        return self.host_seconds if self.gpu_seconds is None else self.gpu_seconds

    def as_json(self) -> dict[str, object]:
        return {
            "host_seconds": self.host_seconds,
            "gpu_seconds": self.gpu_seconds,
            "steps": self.steps,
            "stopped": self.stopped,
            **vars(self.communication),
        }


@dataclass
class Trial:
    """The runs of all profiles."""

    profiles: dict[str, Profile]
    """Those to compare with NCCL alone."""
    rounds: list[dict[str, Measured]] = field(default_factory=list)
    """By name of the profile, with NCCL alone first."""
    failed: dict[str, TrialError] = field(default_factory=dict)
    """Profiles with which the command failed."""
    idle: set[str] = field(default_factory=set)
    """Profiles with which Narrowcast executes no calls: they are the same as NCCL alone."""
    step: str = ""
    """What a step is."""

    @property
    def is_on_gpu(self) -> bool:
        """Whether times are those of the GPU: every run has them."""
        return all(run.gpu_seconds is not None for one in self.rounds for run in one.values())

    def seconds(self) -> list[dict[str, float]]:
        """The time of a step in each round, by profile."""
        on_gpu = self.is_on_gpu
        return [{name: run.seconds if on_gpu else run.host_seconds for name, run in one.items()} for one in self.rounds]

    def run_seconds(self, name: str) -> list[float]:
        """The time of a step in each run with a profile."""
        return [one[name] for one in self.seconds() if name in one]

    def median_seconds(self, name: str) -> float | None:
        """The median of them; None if there are no runs."""
        own = self.run_seconds(name)
        return median(own) if own else None

    def runs(self, name: str) -> list[Measured]:
        return [one[name] for one in self.rounds if name in one]

    @property
    def compared(self) -> list[str]:
        """The profiles that the verdict is about."""
        return [name for name in self.profiles if name not in self.failed and name not in self.idle]

    def verdict(self) -> verdict.Verdict:
        return verdict.judge(self.seconds(), NCCL_ALONE.name, self.compared)


def run(options: Options, profiles: Sequence[Profile], report: Callable[[str, Measured], None]) -> Trial:
    """Runs all profiles, and NCCL alone, in turns until the verdict will not change.

    report: called after each run. Raises TrialError if the command fails with NCCL alone or with all profiles, or has
    no steps, and OSError if it cannot be started.
    """
    trial = Trial({one.name: one for one in profiles})
    pattern: Pattern | None = None
    names = list(trial.profiles)
    while names and len(trial.rounds) < options.rounds:
        trial.rounds.append({})
        # Every second round in the other order, so that no profile always follows the same one.
        order = [NCCL_ALONE, *(trial.profiles[name] for name in names)]
        for profile in order if len(trial.rounds) % 2 else order[::-1]:
            try:
                measured, pattern, trial.step = _run_once(options, profile, pattern)
            except TrialError as error:
                if profile is NCCL_ALONE:
                    raise
                trial.failed[profile.name] = error
                continue
            trial.rounds[-1][profile.name] = measured
            report(profile.name, measured)
        trial.rounds[-1] = {one.name: trial.rounds[-1][one.name] for one in order if one.name in trial.rounds[-1]}
        for name in trial.failed:
            for one in trial.rounds:
                one.pop(name, None)
        if len(trial.failed) == len(trial.profiles):
            raise next(iter(trial.failed.values()))
        trial.idle |= {name for name in names if not any(run.communication.executes for run in trial.runs(name))}
        names = verdict.needs_runs(trial.seconds(), NCCL_ALONE.name, trial.compared)
    return trial


def _run_once(options: Options, profile: Profile, pattern: Pattern | None) -> tuple[Measured, Pattern | None, str]:
    """The run, the pattern of its steps, and what they are."""
    folder = Path(tempfile.mkdtemp(prefix="narrowcast-try-"))
    try:
        records = folder / "records"
        records.mkdir()
        environment = {**options.environment, **profile.environment(), "NARROWCAST_RECORD": str(records / NAME)}
        ended = running.run(
            options.command,
            environment,
            folder / "output",
            lambda: _has_enough(options, records, pattern),
            options.timeout_seconds,
        )
        _check(ended, profile, options)
        processes = read_folder(records)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _measured(options, profile, processes, pattern, ended)


def _check(ended: running.Run, profile: Profile, options: Options) -> None:
    place = f"with {_title(profile)}"
    if ended.end is running.End.TIMEOUT:
        raise TrialError(
            f"the command did not end within {options.timeout_seconds:g} seconds {place}", ended.last_lines
        )
    if ended.end is running.End.BY_ITSELF and ended.status:
        how = f"was killed by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        raise TrialError(f"the command {how} {place}", ended.last_lines)


def _title(profile: Profile) -> str:
    return "NCCL alone" if profile is NCCL_ALONE else f"the profile {profile.name}"


def _has_enough(options: Options, records: Path, pattern: Pattern | None) -> bool:
    if options.steps == 0 or options.is_whole:
        return False
    processes = read_folder(records)
    steps = find_steps(processes, pattern or find_pattern(processes))
    if steps is None:
        return False
    if options.steps is not None:
        return steps.measured >= options.steps
    begin, end = steps.measured_ns()
    return steps.measured >= DEFAULT_STEPS and end - begin >= _LEAST_SECONDS * 1e9


def _measured(
    options: Options,
    profile: Profile,
    processes: Sequence[ProcessRecord],
    pattern: Pattern | None,
    ended: running.Run,
) -> tuple[Measured, Pattern | None, str]:
    if not any(one.communicators for one in processes):
        raise TrialError(
            f"the command made no calls of NCCL that could be recorded with {_title(profile)}: "
            "narrowcast doctor -- COMMAND finds out why",
            ended.last_lines,
        )
    if options.is_whole:
        return _measured_as_whole(processes, ended), None, "the whole command, from its first call to the last one"
    pattern = pattern or find_pattern(processes)
    steps = find_steps(processes, pattern)
    if steps is None:
        raise TrialError(_why_no_steps(processes, profile, pattern))
    measured = Measured(
        host_seconds=steps.host_seconds(),
        gpu_seconds=steps.gpu_seconds(),
        steps=steps.measured,
        communication=communication(steps.process, *steps.measured_ns(), steps.measured, processes),
        stopped=ended.end is running.End.ENOUGH,
    )
    return measured, pattern, _about(steps, pattern)


def _measured_as_whole(processes: Sequence[ProcessRecord], ended: running.Run) -> Measured:
    """The rank with the most calls, whose single step are all of them."""
    most = max(processes, key=lambda one: sum(len(comm.calls) for comm in one.communicators))
    times = np.concatenate([comm.calls["time_ns"] for comm in most.communicators])
    if len(times) < LEAST_STEPS:
        raise TrialError(f"a rank made {len(times)} calls, which is too few for a comparison", ended.last_lines)
    begin, end = int(times.min()), int(times.max())
    return Measured(
        host_seconds=(end - begin) / 1e9,
        gpu_seconds=None,
        steps=1,
        communication=communication(most, begin, end, 1, processes),
        stopped=ended.end is running.End.ENOUGH,
    )


def _why_no_steps(processes: Sequence[ProcessRecord], profile: Profile, pattern: Pattern | None) -> str:
    calls = max(sum(len(comm.calls) for comm in one.communicators) for one in processes)
    captured = max(sum(comm.captured for comm in one.communicators) for one in processes)
    if pattern is not None:
        what = f"the step that runs before had is not in the {calls:,} calls of a rank with {_title(profile)}"
    else:
        what = f"no period was found in the {calls:,} calls of a rank with {_title(profile)}"
    if captured:
        what += f", {captured:,} of which went into CUDA graphs, whose replays make no calls"
    return (
        f"{what}: call narrowcast.mark_step() at the begin of each of at least {LEAST_STEPS + 1} steps, "
        "or compare whole runs with --whole"
    )


def _about(steps: Steps, pattern: Pattern | None) -> str:
    if steps.communicator is None or pattern is None:
        return "between two calls of mark_step()"
    varying = "" if pattern.has_counts else ", whose sizes vary"
    calls = "1 call" if pattern.calls == 1 else f"{pattern.calls:,} calls"
    large = "" if pattern.has_small else f" of more than {SMALL_BYTES >> 10} KiB"
    return f"{calls}{large} on a communicator of {steps.communicator.ranks} ranks{varying}"
