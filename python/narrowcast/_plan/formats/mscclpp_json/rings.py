"""Replaces the rings of a plan, which MSCCL++ does not have, by memory channels and scratch.

Each message has chunks of its own in the receiver's scratch. The sender puts it there and signals, and the receiver
waits and reads it from there. So that a sender that is one call ahead overwrites nothing, a receiver signals when it
begins a call, and the sender waits for that before its first message.
"""

from __future__ import annotations

from dataclasses import replace

from ....errors import InvalidArgumentError
from ...model import Channel, Group, Operand, PlanModel, Rank, Step

__all__ = ["without_rings"]


def without_rings(plan: PlanModel) -> PlanModel:
    """The plan itself if it has no rings, or an equivalent one that has none."""
    if all(channel.kind != "ring" for channel in plan.channels):
        return plan
    return _Converter(plan).result


class _Converter:
    def __init__(self, plan: PlanModel) -> None:
        self.plan = plan
        channels: list[Channel] = []
        self.data: list[int] = []  # of each channel: the new one; of a ring: that of its messages
        self.begun: dict[int, int] = {}  # ring: the channel by which the receiver says that it has begun
        for index, channel in enumerate(plan.channels):
            self.data.append(len(channels))
            if channel.kind == "ring":
                channels.append(Channel("memory", channel.sender, channel.receiver))
                self.begun[index] = len(channels)
                channels.append(Channel("memory", channel.receiver, channel.sender))
            else:
                channels.append(channel)
        self.scratch = [rank.scratch_chunks for rank in plan.ranks]
        self.places = self.place_messages()
        self.sent = dict.fromkeys(self.begun, 0)
        self.received = dict.fromkeys(self.begun, 0)
        ranks = [self.rank(index, contents) for index, contents in enumerate(plan.ranks)]
        for rank, chunks in zip(ranks, self.scratch, strict=True):
            rank.scratch_chunks = chunks
        self.result = replace(plan, channels=channels, ranks=ranks)

    def place_messages(self) -> dict[int, list[int]]:
        """Where each message of a ring is in the receiver's scratch. Both ends must agree on their sizes."""
        sizes: dict[int, tuple[list[int], list[int]]] = {ring: ([], []) for ring in self.begun}
        for rank in self.plan.ranks:
            for group in rank.groups:
                for step in group.walk():
                    for end, operands in enumerate((step.destinations, step.sources)):
                        for operand in operands:
                            if operand.place == "message" and operand.channel is not None:
                                sizes[operand.channel][end].append(step.count)
        places: dict[int, list[int]] = {}
        for ring, (sent, received) in sizes.items():
            if sent != received:
                raise InvalidArgumentError(f"the messages that are sent on ring {ring} are not those that are received")
            receiver = self.plan.channels[ring].receiver
            places[ring] = []
            for size in sent:
                places[ring].append(self.scratch[receiver])
                self.scratch[receiver] += size
        return places

    def rank(self, rank: int, contents: Rank) -> Rank:
        groups = []
        moved = []  # of each group: old step -> new step
        for group in contents.groups:
            steps: list[Step] = []
            positions = []
            rings = {side: _rings(group, side) for side in ("sources", "destinations")}
            if rings["sources"]:
                begun = [self.begun[ring] for ring in rings["sources"]]
                steps.append(Step("signal", channels=begun, relaxed=True))
            unseen = set(rings["destinations"])
            for step in group.steps:
                first = [ring for ring in _rings(Group([step]), "destinations") if ring in unseen]
                if first:
                    unseen.difference_update(first)
                    begun = [self.begun[ring] for ring in first]
                    steps += [Step("wait", channels=begun, relaxed=True, origin=step.origin), *self.sync()]
                if step.kind == "loop":
                    body = [new for inner in step.body for new in self.step(rank, inner)]
                    steps.append(replace(step, body=body))
                else:
                    steps += self.step(rank, step)
                positions.append(len(steps) - 1)
            groups.append(Group(steps))
            moved.append(positions)
        for new in groups:
            for step in new.steps:
                step.after = [(other, moved[other][index]) for other, index in step.after]
        return Rank(groups, 0, contents.barriers)

    def step(self, rank: int, step: Step) -> list[Step]:
        """The steps that replace one."""
        waits: list[int] = []
        signals: list[int] = []
        sources = []
        for operand in step.sources:
            if operand.place == "message":
                assert operand.channel is not None
                waits.append(self.data[operand.channel])
                place = self.places[operand.channel][self.received[operand.channel]]
                self.received[operand.channel] += 1
                operand = Operand("scratch", place)
            elif operand.channel is not None or operand.switch is not None:
                operand = self.renumbered(operand)
            sources.append(operand)
        destinations = []
        for operand in step.destinations:
            if operand.place == "message":
                assert operand.channel is not None
                signals.append(self.data[operand.channel])
                place = self.places[operand.channel][self.sent[operand.channel]]
                self.sent[operand.channel] += 1
                operand = Operand("scratch", place, channel=self.data[operand.channel])
            elif operand.channel is not None or operand.switch is not None:
                operand = self.renumbered(operand)
            destinations.append(operand)
        if step.kind == "reduce" and all(operand.place != "local" for operand in destinations):
            destinations.insert(0, Operand("scratch", self.scratch[rank]))  # MSCCL++ stores results in the rank
            self.scratch[rank] += step.count
        channels = [self.data[channel] for channel in step.channels]
        main = replace(step, sources=sources, destinations=destinations, channels=channels, after=list(step.after))
        steps = [main]
        if waits:
            # As before, the messages are received after what the step depends on.
            steps = [Step("wait", channels=waits, origin=step.origin), *self.sync(), *steps]
            steps[0].after, main.after = main.after, []
        if signals:
            steps += [*self.sync(), Step("signal", channels=signals, origin=step.origin)]
        return steps

    def sync(self) -> list[Step]:
        """What threads need between a wait and other steps, and between those and a signal."""
        return [] if self.plan.threads == "synchronized" else [Step("sync")]

    def renumbered(self, operand: Operand) -> Operand:
        channel = None if operand.channel is None else self.data[operand.channel]
        switch = None if operand.switch is None else self.data[operand.switch]
        return replace(operand, channel=channel, switch=switch)


def _rings(group: Group, side: str) -> list[int]:
    """The rings on which a group receives (sources) or sends (destinations), in order."""
    operands = (operand for step in group.walk() for operand in getattr(step, side))
    return list(dict.fromkeys(o.channel for o in operands if o.place == "message" and o.channel is not None))
