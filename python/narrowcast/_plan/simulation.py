"""Predicts the time of plans on machines, which are simulated."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._native.codecs import codec_of
from .._native.operations import describe
from ..errors import InvalidArgumentError
from .dsl.sites import Site
from .model import Operand, PlanModel
from .text import heading
from .timeline import Event, Flow, Timeline

MACHINES = Path(__file__).parents[1] / "data" / "machines"
#: Saved bytes are estimated for values of this type.
_TYPE = "bfloat16"


@dataclass(frozen=True)
class Simulation:
    """A prediction. `show` draws it."""

    microseconds: float  #: from the start of a call until the last rank has ended it
    repeated_us: float  #: of each of many calls in a row, as benchmarks measure
    nbytes: int  #: raw bytes of the larger buffer of the call
    machine: str  #: its name
    busbw_gb_per_s: float  #: bus bandwidth of calls in a row, as `narrowcast bench` defines it
    sent_bytes: tuple[float, ...]  #: by rank
    busy: dict[tuple[int, int], float]  #: share of the time that each group (rank, group) of the lowered plan works
    _drawn: Callable[[], tuple[PlanModel, list[list[Any]]]] = field(repr=False)
    _site_of: Callable[[int], Site | None] = field(repr=False)

    def show(self, path: str | os.PathLike[str]) -> None:
        """Draws who sends what when, in microseconds.

        path: as for `Plan.show`, which describes the errors too.
        """
        from .drawing import write_timeline

        lowered, rows = self._drawn()
        title = f"{heading(lowered)}; {self.nbytes:,} bytes on {self.machine}: {self.microseconds:.1f} us"
        write_timeline(lowered, timeline_of(lowered, rows), Path(path), title, self._site_of, microseconds=True)


def machines() -> tuple[str, ...]:
    """The names of the descriptions of machines that come with the library, the smallest machine first."""
    found = {path.stem: _gpus(json.loads(path.read_text())) for path in MACHINES.glob("*.json")}
    return tuple(sorted(found, key=lambda name: (found[name], name)))


def machine_text(machine: str | os.PathLike[str] | None, ranks: int) -> str:
    """The description of a machine, in JSON.

    machine: a name of `machines()`, or a path of a file. None: the smallest machine of `machines()` that has a GPU for
    each rank.

    Raises InvalidArgumentError, and OSError.
    """
    if machine is None:
        texts = [(MACHINES / f"{name}.json").read_text() for name in machines()]
        fitting = [text for text in texts if _gpus(json.loads(text)) >= ranks]
        if not fitting:
            raise InvalidArgumentError(f"no description of a machine that comes with the library has {ranks} GPUs")
        return fitting[0]
    known = MACHINES / f"{machine}.json"
    if isinstance(machine, str) and known.parent == MACHINES and known.is_file():
        return known.read_text()
    if not Path(machine).exists():
        raise InvalidArgumentError(f"{machine} is neither a file nor a known machine ({', '.join(machines())})")
    try:
        return Path(machine).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{machine}: not JSON") from None


def checked_ratio(ratio: float) -> float:
    """The ratio. Raises InvalidArgumentError unless it is a positive number."""
    if isinstance(ratio, (str, bytes)) or not hasattr(ratio, "__float__"):
        raise TypeError(f"ratio is {ratio!r}, not a number")
    if not 0 < ratio < float("inf"):
        raise ValueError(f"ratio is {ratio}: it must be positive")
    return float(ratio)


@contextmanager
def naming_file(machine: str | os.PathLike[str] | None) -> Iterator[None]:
    """Errors in a description that `machine_text` has read begin with the name of its file."""
    try:
        yield
    except InvalidArgumentError as error:
        subject, _, reason = str(error).partition(": ")
        if machine is None or subject != "machine":
            raise
        raise InvalidArgumentError(f"{os.fspath(machine)}: {reason}") from None


def _gpus(machine: dict[str, Any]) -> int:
    return int(machine["hosts"]) * int(machine["gpus_per_host"])


def usual_ratio(model: PlanModel) -> float:
    """Wire bytes / raw bytes that the cost model assumes for bfloat16 values; the largest one of the plan's codecs."""
    used = [codec_of(codec) for codec in {operand.codec for operand in _operands(model)} - {"raw"}]
    types = ({one.dtype: one.prior_ratio for one in codec.types} for codec in used)
    return max((of_codec.get(_TYPE, 1.0) for of_codec in types), default=1.0)


def _operands(model: PlanModel) -> Iterable[Operand]:
    for rank in model.ranks:
        for group in rank.groups:
            for step in group.walk():
                yield from step.sources
                yield from step.destinations


def piece_bytes(model: PlanModel, nbytes: int) -> int:
    """Bytes of a piece in a call whose larger buffer has `nbytes` bytes."""
    return nbytes // len(model.ranks) if describe(model.operation).parted else nbytes


def simulation_of(
    report: dict[str, Any],
    model: PlanModel,
    nbytes: int,
    machine: str,
    drawn: Callable[[], tuple[PlanModel, list[list[Any]]]],
    site_of: Callable[[int], Site | None],
) -> Simulation:
    """The report of ncast_plan_simulate as an object.

    model: the plan.
    machine: its description.
    drawn: the lowered plan and its timeline. Called only to draw them, because it takes longer than the prediction.
    """
    microseconds = float(report["microseconds"])
    repeated_us = float(report["repeated_us"])
    bandwidth = nbytes / repeated_us / 1e3 if repeated_us else 0.0
    return Simulation(
        microseconds,
        repeated_us,
        nbytes,
        str(json.loads(machine)["name"]),
        bandwidth * describe(model.operation).bus_factor(len(model.ranks)),
        tuple(report["sent_bytes"]),
        {(one["rank"], one["group"]): one["busy_us"] / microseconds for one in report["groups"]},
        drawn,
        site_of,
    )


def timeline_of(model: PlanModel, rows: Iterable[Iterable[Any]]) -> Timeline:
    """The timeline of a report: rows of rank, group, step, micro-batch, begin and end."""
    result = Timeline()
    # By batch and channel: messages that have been sent, and signals.
    waiting: dict[tuple[int, int], deque[Event]] = {}
    arriving: list[tuple[tuple[int, int], Event]] = []
    for rank, group, number, batch, begin, end in sorted(rows, key=lambda row: (list(row)[3], list(row)[2])):
        step = model.ranks[rank].groups[group].steps[number]
        event = Event(rank, group, number, step, begin, end)
        result.events.append(event)
        for inner in step.body or [step]:
            sent = [operand.channel for operand in inner.destinations if operand.place == "message"]
            sent += inner.channels if inner.kind == "signal" else []
            received = [operand.channel for operand in inner.sources if operand.place == "message"]
            received += inner.channels if inner.kind == "wait" else []
            for channel in sent:
                waiting.setdefault((batch, channel or 0), deque()).append(event)
            arriving += [((batch, channel or 0), event) for channel in received]
    for key, event in arriving:
        if waiting.get(key):
            result.flows.append(Flow(waiting[key].popleft(), event))
    result.events.sort(key=lambda event: event.start)
    ends: dict[tuple[int, int], list[float]] = {}  # by lane of a group
    for event in result.events:
        lanes = ends.setdefault((event.rank, event.group), [])
        event.lane = next((lane for lane, end in enumerate(lanes) if end <= event.start), len(lanes))
        lanes[event.lane : event.lane + 1] = [event.end]
    return result
