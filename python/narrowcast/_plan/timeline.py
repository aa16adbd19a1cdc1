"""When each step of a plan runs, in logical time: every step takes one unit and starts as soon as it can.

Communication costs nothing here: a timeline shows the order of the steps and what they wait for, not how long a call
takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .model import Channel, Operand, PlanModel, Step

__all__ = ["Event", "Flow", "Timeline", "timeline"]


@dataclass(slots=True, eq=False)
class Event:
    """An executed step. Loops have one iteration."""

    rank: int
    group: int
    number: int  #: of the step in its group; for steps of a loop, the number of the loop
    step: Step
    start: float
    end: float
    lane: int = 0  #: differs between steps of a group that run at the same time


@dataclass(slots=True)
class Flow:
    """A message, signal or packet from one event to another."""

    source: Event
    target: Event


@dataclass(slots=True)
class Timeline:
    """The events of a plan by start time, and the blocked steps."""

    events: list[Event] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    blocked: list[Event] = field(default_factory=list)  #: the first blocked step of each group

    @property
    def end(self) -> float:
        """The end of the last event."""
        return max((event.end for event in self.events), default=0.0)


def timeline(plan: PlanModel) -> Timeline:
    """Runs the steps of a plan in logical time. The plan must be well formed."""
    return _Run(plan).run()


class _Group:
    """The steps of a group, with loops replaced by their bodies."""

    def __init__(self, rank: int, number: int, steps: list[Step]) -> None:
        self.rank = rank
        self.number = number
        self.steps = [
            (index, inner, step.after if position == 0 else ())
            for index, step in enumerate(steps)
            for position, inner in enumerate(step.body or [step])
        ]
        self.next = 0
        self.done = -1  # the last step of the group that has completed
        self.passed: dict[int, int] = {}  # how often it has passed each barrier


class _Run:
    def __init__(self, plan: PlanModel) -> None:
        self.plan = plan
        self.groups = [
            _Group(rank, number, group.steps)
            for rank, one in enumerate(plan.ranks)
            for number, group in enumerate(one.groups)
        ]
        self.of_rank: dict[tuple[int, int], _Group] = {(one.rank, one.number): one for one in self.groups}
        self.messages: list[deque[Event]] = [deque() for _ in plan.channels]
        self.free = [channel.depth for channel in plan.channels]
        self.signals: list[deque[Event | None]] = [deque([None] * channel.initial) for channel in plan.channels]
        self.packets: dict[tuple[int, str, int], Event] = {}
        self.arrivals: dict[tuple[int, int, int], int] = {}  # of a group at a barrier of its rank
        self.result = Timeline()

    def run(self) -> Timeline:
        time = 0.0
        waiting = [group for group in self.groups if group.steps]
        while waiting:
            for group in waiting:
                self._arrive(group)
            # All groups see the state before this unit of time; the effects of their steps are visible after it.
            started = [event for group in waiting for event in self._start(group, time)]
            if not started:
                break
            time += 1
            for event in started:
                self._finish(event)
            waiting = [group for group in waiting if group.next < len(group.steps)]
        for group in waiting:
            number, step, _ = group.steps[group.next]
            self.result.blocked.append(Event(group.rank, group.number, number, step, time, time + 1))
        return self.result

    def _start(self, group: _Group, time: float) -> Iterator[Event]:
        number, step, after = group.steps[group.next]
        if not self._can_run(group, step) or any(self.of_rank[group.rank, other].done < last for other, last in after):
            return
        event = Event(group.rank, group.number, number, step, time, time + 1)
        sources = [self.messages[channel].popleft() for channel in _messages(step.sources)]
        sources += [
            self.packets[self._cell(group.rank, operand, chunk)]
            for operand in step.sources
            if operand.packets
            for chunk in range(step.count)
        ]
        if step.kind == "wait":
            sources += [one for channel in step.channels if (one := self.signals[channel].popleft()) is not None]
        for channel in _messages(step.destinations):
            self.free[channel] -= 1
        self.result.events.append(event)
        self.result.flows += [Flow(source, event) for source in dict.fromkeys(sources)]
        yield event

    def _can_run(self, group: _Group, step: Step) -> bool:
        if step.kind == "barrier":
            mine = self.arrivals[group.rank, step.barrier, group.number]
            return all(
                self.arrivals.get((group.rank, step.barrier, other), 0) >= mine
                for other in self.plan.ranks[group.rank].barriers[step.barrier]
            )
        if step.kind == "wait":
            return all(len(self.signals[channel]) >= step.channels.count(channel) for channel in step.channels)
        received, sent = _messages(step.sources), _messages(step.destinations)
        return (
            all(len(self.messages[channel]) >= received.count(channel) for channel in received)
            and all(self.free[channel] >= sent.count(channel) for channel in sent)
            and all(
                self._cell(group.rank, operand, chunk) in self.packets
                for operand in step.sources
                if operand.packets
                for chunk in range(step.count)
            )
        )

    def _arrive(self, group: _Group) -> None:
        _, step, _ = group.steps[group.next]
        if step.kind == "barrier":
            self.arrivals[group.rank, step.barrier, group.number] = group.passed.get(step.barrier, 0) + 1

    def _finish(self, event: Event) -> None:
        group, step = self.of_rank[event.rank, event.group], event.step
        for channel in _messages(step.sources):
            self.free[channel] += 1
        for channel in _messages(step.destinations):
            self.messages[channel].append(event)
        for operand in step.destinations:
            for chunk in range(step.count if operand.packets else 0):
                for rank in self._ranks(event.rank, operand):
                    self.packets[rank, operand.buffer or "", operand.chunk + chunk] = event
        if step.kind == "signal":
            for channel in step.channels:
                self.signals[channel].append(event)
        elif step.kind == "barrier":
            group.passed[step.barrier] = group.passed.get(step.barrier, 0) + 1
        group.next += 1
        if group.next == len(group.steps) or group.steps[group.next][0] != event.number:
            group.done = event.number

    def _ranks(self, rank: int, operand: Operand) -> list[int]:
        """The ranks whose buffers an operand names."""
        if operand.switch is not None:
            return self.plan.channels[operand.switch].ranks
        return [rank if operand.channel is None else _other(self.plan.channels[operand.channel], rank)]

    def _cell(self, rank: int, operand: Operand, chunk: int) -> tuple[int, str, int]:
        return self._ranks(rank, operand)[0], operand.buffer or "", operand.chunk + chunk


def _other(channel: Channel, rank: int) -> int:
    return channel.receiver if channel.sender == rank else channel.sender


def _messages(operands: list[Operand]) -> list[int]:
    """The rings of the messages among operands."""
    return [operand.channel for operand in operands if operand.channel is not None and operand.buffer is None]
