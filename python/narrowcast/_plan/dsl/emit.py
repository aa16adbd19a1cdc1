"""Writes ordered tasks as the steps of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from .. import model
from .nodes import Node, ranges
from .record import Buffer, ChannelKey, Operand, Place
from .recorder import Recorder
from .sites import Origins, PlanError


def write(plan: model.PlanModel, nodes: Sequence[Node], recorder: Recorder, origins: Origins) -> None:
    """Adds channels, ranks, groups and steps to a plan. Raises PlanError for results that nothing uses."""
    _Writer(plan, nodes, recorder, origins).write()


class _Writer:
    def __init__(self, plan: model.PlanModel, nodes: Sequence[Node], recorder: Recorder, origins: Origins) -> None:
        self._plan = plan
        # Rings have room for explicit messages, even if each chunk is sent as a message.
        self._depths: dict[ChannelKey, int] = {}
        for node in nodes:
            for operand in node.destinations:
                if operand.is_message and operand.channel is not None:
                    most = max(self._depths.get(operand.channel, recorder.depth), node.task.count)
                    self._depths[operand.channel] = most
        self._origins = origins
        self._nodes = [node for node in nodes if node.host is None]
        self._channels: dict[ChannelKey, int] = {}
        self._offsets: dict[int, int] = {}  # of scratch and of values in memory, by the identity of the buffer
        plan.ranks = [model.Rank() for _ in range(recorder.ranks)]
        for rank, buffers in enumerate(recorder.scratch):
            for buffer in buffers:
                self._place(rank, buffer)
        # The values that steps read from memory.
        self._stored = {
            id(where.buffer) for node in self._nodes for where in ranges(node.sources) if where.buffer.kind == "value"
        }
        self._groups: list[dict[int | str, int]] = [{} for _ in plan.ranks]
        for node in sorted(nodes, key=lambda one: one.index):
            for rank, group in node.places:
                self._groups[rank].setdefault(group, len(self._groups[rank]))
        for rank, groups in enumerate(self._groups):
            plan.ranks[rank].groups = [model.Group() for _ in groups]

    def write(self) -> None:
        numbers: dict[tuple[Node, Place], tuple[int, int]] = {}  # the group and step of each node
        clocks: dict[tuple[Node, Place], dict[int, int]] = {}  # the last step of each group that has then completed
        latest: dict[Place, dict[int, int]] = {}
        for node in sorted((one for one in self._nodes if one.loop is None), key=lambda one: one.key):
            for place in node.places:
                group = self._groups[place.rank][place.group]
                steps = self._plan.ranks[place.rank].groups[group].steps
                clock = dict(latest.get(place, ()))
                step = self._step(node, place)
                needed = {
                    (*numbers[need.final, other], need.final, other)
                    for need in node.needs
                    for other in need.final.places
                    if other.rank == place.rank and other.group != place.group
                }
                for other_group, number, need, other in sorted(needed, key=lambda one: (one[2].key, one[0]))[::-1]:
                    if clock.get(other_group, -1) < number:
                        step.after.append((other_group, number))
                        for known, last in clocks[need, other].items():
                            clock[known] = max(clock.get(known, -1), last)
                step.after.sort()
                clock[group] = len(steps)
                numbers[node, place] = (group, len(steps))
                clocks[node, place] = latest[place] = clock
                steps.append(step)

    def _step(self, node: Node, place: Place) -> model.Step:
        task = node.task
        step = model.Step(task.kind, count=task.count, relaxed=task.relaxed, origin=self._origins.number(node.site))
        step.channels = [self._channel(channel) for channel in task.channels]
        if task.kind in ("copy", "reduce"):
            step.sources = [self._operand(place.rank, operand) for operand in node.sources]
            step.destinations = [
                self._operand(place.rank, operand) for operand in node.destinations if self._is_used(operand)
            ]
            if not step.destinations:
                raise PlanError("the result of this is never used", task.site)
        elif task.kind == "barrier":
            groups = sorted(self._groups[place.rank][one.group] for one in node.places)
            barriers = self._plan.ranks[place.rank].barriers
            if groups not in barriers:
                barriers.append(groups)
            step.barrier = barriers.index(groups)
        elif task.kind == "loop":
            assert task.body
            step.unit_bytes = task.body[0].loop.unit_bytes if task.body[0].loop is not None else 0
            inner = [one for one in node.body if one.host is None and one.place == place]
            step.body = [self._step(one, place) for one in sorted(inner, key=lambda one: one.key)]
        return step

    def _is_used(self, operand: Operand) -> bool:
        where = operand.local
        return where is None or where.buffer.kind != "value" or id(where.buffer) in self._stored

    def _operand(self, rank: int, operand: Operand) -> model.Operand:
        where = operand.where
        if where is None:
            assert operand.channel is not None
            return model.Operand(channel=self._channel(operand.channel), codec=operand.codec)
        buffer = where.buffer
        chunk = where.start
        if buffer.kind in ("scratch", "value"):
            if id(buffer) not in self._offsets:
                self._place(rank, buffer)
            chunk += self._offsets[id(buffer)]
        name = "scratch" if buffer.kind == "value" else buffer.kind
        written = model.Operand(name, chunk, packets=buffer.packets, codec=operand.codec)
        if operand.channel is not None and operand.channel.kind == "switch":
            written.switch = self._channel(operand.channel)
        elif operand.channel is not None:
            written.channel = self._channel(operand.channel)
        return written

    def _place(self, rank: int, buffer: Buffer) -> None:
        """Gives a buffer the next chunks of the rank's scratch."""
        self._offsets[id(buffer)] = self._plan.ranks[rank].scratch_chunks
        self._plan.ranks[rank].scratch_chunks += buffer.size

    def _channel(self, key: ChannelKey) -> int:
        number = self._channels.get(key)
        if number is None:
            number = self._channels[key] = len(self._plan.channels)
            channel = model.Channel(key.kind, key.sender, key.receiver, packets=key.packets, initial=key.initial)
            if key.kind == "ring":
                channel.depth = self._depths[key]
            elif key.kind == "switch":
                channel = model.Channel("switch", ranks=list(key.ranks))
            self._plan.channels.append(channel)
        return number
