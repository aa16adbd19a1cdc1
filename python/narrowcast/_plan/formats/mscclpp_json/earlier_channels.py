"""The channels of plans of MSCCL++ before 0.8: each connects one buffer of a rank with one of another rank.

The k-th channel of a rank to a peer and the k-th of the peer to it share semaphores, so both ranks have as many. What
is accessed through a memory channel does not depend on its semaphores: the buffers that a rank accesses are assigned to
its channels one after another, and more channels are added if there are too few. A port channel signals what was put
through it, so its buffers are those of its puts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Key", "Link", "RankChannels", "connect"]


class Key(NamedTuple):
    """The buffers of a channel: of this rank, and of the other."""

    src: str
    dst: str


class Link(NamedTuple):
    """A channel of a rank to a peer. `number` counts those of the kind between the two."""

    kind: str
    peer: int
    number: int


class RankChannels:
    """The channels of a rank, while its operations are read."""

    def __init__(self, rank: int, links: Mapping[str, list[tuple[int, int]]], default: Key) -> None:
        """links: peer and number of all channels with semaphores, by kind. default: for kinds without accesses."""
        self.rank = rank
        self.default = default
        self.slots: dict[tuple[str, int], list[Key | None]] = {}  # by kind and peer
        for kind, own in links.items():
            for peer, _ in own:
                self.slots.setdefault((kind, peer), []).append(None)
        self.places: dict[Link, tuple[Key, int]] = {}

    def access(self, kind: str, peer: int, key: Key) -> Link:
        """The memory channel by which buffers of the peer are accessed."""
        slots = self.slots.setdefault((kind, peer), [])
        if key not in slots:
            free = next((number for number, found in enumerate(slots) if found is None), len(slots))
            slots[free:] = [key, *slots[free + 1 :]]
        return Link(kind, peer, slots.index(key))

    def fix(self, peer: int, number: int, key: Key) -> bool:
        """Gives a port channel its buffers. False if it has others already."""
        slots = self.slots["port", peer]
        if slots[number] is None:
            slots[number] = key
        return slots[number] == key

    def place(self) -> None:
        """Numbers the channels of each pair of buffers, in the order of the document."""
        counts: dict[tuple[str, Key], int] = {}
        for kind, key, peer, number in self._ordered():
            found = counts.setdefault((kind, key), 0)
            self.places[Link(kind, peer, number)] = (key, found)
            counts[kind, key] += 1

    def _ordered(self) -> Iterator[tuple[str, Key, int, int]]:
        """Kind, buffers, peer and number of all channels: those with the same number together, by their buffers."""
        for kind in ("memory", "port"):
            own = {peer: slots for (other, peer), slots in sorted(self.slots.items()) if other == kind}
            used = [key for slots in own.values() for key in slots if key is not None]
            default = used[0] if used else self.default
            for number in range(max(map(len, own.values()), default=0)):
                keys = {peer: slots[number] or default for peer, slots in own.items() if number < len(slots)}
                for key in dict.fromkeys(keys.values()):
                    for peer, found in keys.items():
                        if found == key:
                            yield kind, key, peer, number

    def document(self, types: Mapping[str, str]) -> list[dict[str, Any]]:
        """The channels of the gpu. types: the names of kinds."""
        entries: list[dict[str, Any]] = []
        last: tuple[str, Key, int] | None = None
        for kind, key, peer, number in self._ordered():
            if last != (kind, key, number):
                entries.append({"srcbuff": key.src, "dstbuff": key.dst, "type": types[kind], "connectedTo": []})
            entries[-1]["connectedTo"].append(peer)
            last = (kind, key, number)
        return entries


def connect(ranks: list[RankChannels]) -> list[Callable[[Link], tuple[Key, int]]]:
    """Gives both ends of connections as many channels. Returns the buffers and position of channels, by rank."""
    for rank in ranks:
        for (kind, peer), slots in list(rank.slots.items()):
            others = ranks[peer].slots.setdefault((kind, rank.rank), [])
            for own, wanted in ((slots, len(others)), (others, len(slots))):
                own += [None] * (wanted - len(own))
    for rank in ranks:
        rank.place()
    return [rank.places.__getitem__ for rank in ranks]
