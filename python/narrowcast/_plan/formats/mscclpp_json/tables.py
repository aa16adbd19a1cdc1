"""The tables of MSCCL++ plans that operations refer to: channels, remote buffers and semaphores."""

from __future__ import annotations

from typing import Any

from ...model import Operand, PlanModel

__all__ = ["BlockTables", "RankTables", "connections"]

_LETTERS = {"input": "i", "output": "o", "scratch": "s"}
_LINKS = ("memory", "port")


def connections(plan: PlanModel) -> list[int]:
    """For each channel, how many others of its kind come before it between the same ranks in the same direction."""
    counts: dict[tuple[str, int, int], int] = {}
    numbers = []
    for channel in plan.channels:
        key = (channel.kind, channel.sender, channel.receiver)
        numbers.append(counts.get(key, 0))
        counts[key] = numbers[-1] + 1
    return numbers


class RankTables:
    """The tables of a rank."""

    def __init__(self, plan: PlanModel, rank: int, numbers: list[int]) -> None:
        self.plan = plan
        self.rank = rank
        self.numbers = numbers
        self.semaphores: list[int] = []
        self.buffers: dict[tuple[int, str], int] = {}  # (peer, buffer): index
        self.access: dict[int, dict[str, None]] = {}  # of the remote buffer: kinds of channels, in order
        self.switches: dict[tuple[str, tuple[int, ...]], int] = {}  # (buffer, ranks): index
        self.own: dict[int, int] = {}  # channel of the plan: semaphore
        # A connection is one channel of each of its ranks, and two of the plan: they have the same number.
        most: dict[tuple[str, int], int] = {}
        for channel, number in zip(plan.channels, numbers, strict=True):
            if channel.kind in _LINKS and rank in (channel.sender, channel.receiver):
                peer = channel.receiver if rank == channel.sender else channel.sender
                if peer != rank:
                    most[channel.kind, peer] = max(most.get((channel.kind, peer), 0), number + 1)
        self.links: dict[str, list[tuple[int, int]]] = {kind: [] for kind in _LINKS}  # (peer, number)
        for (kind, peer), count in sorted(most.items()):
            self.links[kind] += [(peer, number) for number in range(count)]
        self.index = {(kind, *link): i for kind, links in self.links.items() for i, link in enumerate(links)}

    def semaphore(self, initial: int) -> int:
        """A new semaphore between thread blocks of the rank."""
        self.semaphores.append(initial)
        return len(self.semaphores) - 1

    def semaphore_of(self, channel: int) -> int:
        """That of a channel between the rank and itself."""
        if channel not in self.own:
            self.own[channel] = self.semaphore(self.plan.channels[channel].initial)
        return self.own[channel]

    def peer(self, channel: int) -> int:
        """The other end of a channel."""
        found = self.plan.channels[channel]
        return found.receiver if found.sender == self.rank else found.sender

    def document(self) -> dict[str, Any]:
        """The members of the gpu."""
        links = [
            {"channel_type": kind, "connected_to": [peer for peer, _ in self.links[kind]]}
            for kind in _LINKS
            if self.links[kind]
        ]
        switches = [
            {
                "channel_type": "switch",
                "buffer_type": _LETTERS[buffer],
                "rank_groups": [{"size": self.size(buffer), "ranks": list(ranks)}],
            }
            for buffer, ranks in self.switches
        ]
        return {
            "channels": links + switches,
            "remote_buffers": [
                {"rank": peer, "type": _LETTERS[buffer], "access_channel_types": list(self.access[index])}
                for (peer, buffer), index in self.buffers.items()
            ],
            "semaphores": [{"init_value": initial} for initial in self.semaphores],
        }

    def size(self, buffer: str) -> int:
        """Chunks of the buffer that a switch gives access to."""
        last = 0
        for group in self.plan.ranks[self.rank].groups:
            for step in group.walk():
                for operand in (*step.sources, *step.destinations):
                    if operand.switch is not None and operand.buffer == buffer:
                        last = max(last, operand.chunk + step.count)
        return last


class BlockTables:
    """The tables of a thread block, by which its operations refer to those of the rank."""

    def __init__(self, tables: RankTables) -> None:
        self.tables = tables
        self.channels: dict[str, dict[int, int]] = {}  # by kind: index in the rank -> number in the block
        self.buffers: dict[str, dict[int, int]] = {}

    def channel(self, index: int | None) -> int:
        """The number of a memory or port channel of the plan in the block."""
        assert index is not None
        kind = self.tables.plan.channels[index].kind
        link = self.tables.index[kind, self.tables.peer(index), self.tables.numbers[index]]
        return _number(self.channels.setdefault(kind, {}), link)

    def letter(self, operand: Operand) -> str:
        """How MSCCL++ names the buffer of an operand."""
        return _LETTERS[str(operand.buffer)]

    def operand(self, operand: Operand, count: int) -> dict[str, Any]:
        """An operand of an operation."""
        where = {"index": operand.chunk, "size": count}
        tables = self.tables
        buffer = str(operand.buffer)
        if operand.switch is not None:
            key = (buffer, tuple(tables.plan.channels[operand.switch].ranks))
            index = tables.switches.setdefault(key, len(tables.switches))
            return {"switch_channel_id": _number(self.channels.setdefault("switch", {}), index), **where}
        if operand.channel is not None:
            kind = tables.plan.channels[operand.channel].kind
            remote = (tables.peer(operand.channel), buffer)
            index = tables.buffers.setdefault(remote, len(tables.buffers))
            tables.access.setdefault(index, {})[kind] = None
            return {"buffer_id": _number(self.buffers.setdefault(kind, {}), index), **where}
        return {"type": _LETTERS[buffer], **where}

    def document(self) -> dict[str, Any]:
        """The members of the thread block."""
        return {
            "channels": [{"channel_type": kind, "channel_ids": list(ids)} for kind, ids in self.channels.items()],
            "remote_buffer_refs": [
                {"access_channel_type": kind, "remote_buffer_ids": list(ids)} for kind, ids in self.buffers.items()
            ],
        }


def _number(known: dict[int, int], value: int) -> int:
    return known.setdefault(value, len(known))
