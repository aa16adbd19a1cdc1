"""Plans that plans.py runs on GPUs, each written for any number of ranks and either codec."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

Step = dict[str, Any]


def copy(source: Step, *to: Step) -> Step:
    return {"step": "copy", "from": [source], "to": list(to)}


def reduce(sources: list[Step], *to: Step) -> Step:
    return {"step": "reduce", "from": sources, "to": list(to)}


def place(buffer: str, chunk: int, **more: Any) -> Step:
    return {"buffer": buffer, "chunk": chunk, **more}


class Pairs:
    """Plans in which every rank has a channel to every other one."""

    def __init__(self, ranks: int, codec: str = "raw", kind: str = "ring") -> None:
        self.ranks, self.codec = ranks, codec
        pairs = list(itertools.product(range(ranks), range(ranks)))
        depth = {"depth": 2} if kind == "ring" else {}
        self.channels = [{"kind": kind, "from": a, "to": b, **depth} for a, b in pairs if a != b]
        self.number = {(one["from"], one["to"]): i for i, one in enumerate(self.channels)}

    def message(self, source: int, target: int) -> Step:
        return {"channel": self.number[source, target], "codec": self.codec}

    def after(self, rank: int) -> list[int]:
        return [(rank + step) % self.ranks for step in range(1, self.ranks)]

    def before(self, rank: int) -> list[int]:
        return [(rank - step) % self.ranks for step in range(1, self.ranks)]

    def plan(self, operation: str, groups_of: Callable[[int], list[list[Step]]], **more: Any) -> str:
        extra = more.pop("rank", {})
        ranks = [{"groups": [{"steps": steps} for steps in groups_of(rank)], **extra} for rank in range(self.ranks)]
        plan = {"narrowcast_plan": 1, "operation": operation, "channels": self.channels, "ranks": ranks, **more}
        return json.dumps(plan)


def all_gather(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sends = [copy(place("input", 0), p.message(r, peer)) for peer in p.after(r)]
        receives = [copy(p.message(peer, r), place("output", peer)) for peer in p.before(r)]
        return [[*sends, copy(place("input", 0), place("output", r))], receives]

    return p.plan("all_gather", groups)


def two_shot(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sources = [place("input", r) if peer == r else p.message(peer, r) for peer in range(ranks)]
        results = [copy(p.message(peer, r), place("output", peer)) for peer in p.before(r)]
        sends = [copy(place("input", peer), p.message(r, peer)) for peer in p.after(r)]
        return [[*sends, reduce(sources, place("output", r), *(p.message(r, peer) for peer in p.after(r))), *results]]

    return p.plan("all_reduce", groups, chunks=ranks)


def one_shot(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sources = [place("input", 0) if peer == r else p.message(peer, r) for peer in range(ranks)]
        sent = copy(place("input", 0), *(p.message(r, peer) for peer in p.after(r)))
        return [[sent, reduce(sources, place("output", 0))]]

    return p.plan("all_reduce", groups)


def ring(ranks: int, codec: str) -> str:
    """Rounds in every step, so only its sums of integers have the bits of the operation."""
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        to, source = p.message(r, (r + 1) % ranks), p.message((r - 1) % ranks, r)
        back = [(r - step) % ranks for step in range(2 * ranks)]
        steps = [copy(place("input", r), to)]
        steps += [reduce([source, place("input", back[step])], to) for step in range(1, ranks - 1)]
        steps += [reduce([source, place("input", back[ranks - 1])], place("output", back[ranks - 1]), to)]
        steps += [copy(source, place("output", back[step]), to) for step in range(ranks, 2 * ranks - 2)]
        return [[*steps, copy(source, place("output", back[2 * ranks - 2]))]]

    return p.plan("all_reduce", groups, chunks=ranks)


def two_groups(ranks: int, codec: str, *, barrier: bool) -> str:
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        first, second = json.loads(one_shot(ranks, codec))["ranks"][r]["groups"][0]["steps"]
        second["to"] = [place("scratch", 0)]
        store = copy(place("scratch", 0), place("output", 0))
        wait = {"step": "barrier", "barrier": 0}
        if barrier:
            return [[first, second, wait], [wait, store]]
        return [[first, second], [{**store, "after": [[0, 1]]}]]

    rank = {"scratch_chunks": 1, **({"barriers": [[0, 1]]} if barrier else {})}
    return p.plan("all_reduce", groups, rank=rank)


def packets_in_scratch(ranks: int, codec: str) -> str:
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        packets = {"packets": True, "codec": codec}
        puts = [place("scratch", r, channel=p.number[r, peer], **packets) for peer in p.after(r)]
        sources = [place("input", 0) if q == r else place("scratch", q, **packets) for q in range(ranks)]
        return [[copy(place("input", 0), *puts), reduce(sources, place("output", 0))]]

    return p.plan("all_reduce", groups, rank={"scratch_chunks": ranks}, scratch_copies=2)


def puts_in_scratch(ranks: int, codec: str) -> str:
    """Signals before the puts say that the scratch of the previous call has been read."""
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        to = {"channels": [p.number[r, peer] for peer in p.after(r)]}
        by = {"channels": [p.number[peer, r] for peer in p.after(r)]}
        puts = [copy(place("input", 0), place("scratch", r, channel=channel)) for channel in to["channels"]]
        sources = [place("input", 0) if q == r else place("scratch", q) for q in range(ranks)]
        return [
            [
                {"step": "signal", **to},
                {"step": "wait", **by},
                *puts,
                {"step": "signal", **to},
                {"step": "wait", **by},
                reduce(sources, place("output", 0)),
            ]
        ]

    return p.plan("all_reduce", groups, rank={"scratch_chunks": ranks})


def put_all_gather(ranks: int, codec: str) -> str:
    """Into the peers' output, which must be registered."""
    p = Pairs(ranks, codec, "memory")

    def groups(r: int) -> list[list[Step]]:
        to = {"channels": [p.number[r, peer] for peer in p.after(r)]}
        by = {"channels": [p.number[peer, r] for peer in p.after(r)]}
        puts = [copy(place("input", 0), place("output", r, channel=channel)) for channel in to["channels"]]
        return [
            [
                {"step": "signal", **to},
                {"step": "wait", **by},
                copy(place("input", 0), place("output", r)),
                *puts,
                {"step": "signal", **to},
                {"step": "wait", **by},
            ]
        ]

    return p.plan("all_gather", groups)


def parents_of(ranks: int) -> dict[int, int]:
    """Of a binary tree whose root is rank 0."""
    parents: dict[int, int] = {}

    def add(parent: int, first: int, last: int) -> None:
        if first <= last:
            middle = (first + last) // 2
            parents[middle] = parent
            add(middle, first, middle - 1)
            add(middle, middle + 1, last)

    add(0, 1, ranks - 1)
    return parents


def tree(ranks: int, codec: str) -> str:
    """Two trees that mirror each other, each for a chunk, with a group for each end of a connection.

    As a ring, it rounds in every step.
    """
    parents = parents_of(ranks)
    p = Pairs(ranks, codec)
    p.channels, ups, downs = [], {}, {}  # numbers of channels by chunk, child and parent
    for chunk, (child, parent) in itertools.product(range(2), parents.items()):
        edge = (chunk, *((ranks - 1 - one if chunk else one) for one in (child, parent)))
        ups[edge], downs[edge] = len(p.channels), len(p.channels) + 1
        for a, b in (edge[1:], edge[:0:-1]):
            p.channels.append({"kind": "ring", "from": a, "to": b, "depth": 2})

    def message(channel: int) -> Step:
        return {"channel": channel, "codec": codec}

    def groups(r: int) -> list[list[Step]]:
        result: list[list[Step]] = []

        def add(step: Step, last: int) -> int:  # after the step of that group; the number of the new group
            result.append([{**step, "after": [[last, 0]] if last >= 0 else []}])
            return len(result) - 1

        for chunk in range(2):
            source, total = place("input", chunk), place("output", chunk)
            last = -1
            children = [edge for edge in ups if edge[0] == chunk and edge[2] == r]
            for edge in children:
                last, source = add(reduce([source, message(ups[edge])], total), last), total
            for edge in (edge for edge in ups if edge[:2] == (chunk, r)):  # unless it is the root
                last = add(copy(source, message(ups[edge])), last)
                last = add(copy(message(downs[edge]), total), last)
            for edge in children:
                add(copy(total, message(downs[edge])), last)
        return result

    return p.plan("all_reduce", groups, chunks=2)


def pairs(ranks: int, codec: str) -> str:
    """Two shots with a group for each end of a connection, and one that reduces."""
    p = Pairs(ranks, codec)

    def groups(r: int) -> list[list[Step]]:
        sources = [place("input" if peer == r else "scratch", peer) for peer in range(ranks)]
        receives = [
            [copy(p.message(peer, r), place("scratch", peer)), copy(p.message(peer, r), place("output", peer))]
            for peer in p.before(r)
        ]
        received = [[group, 0] for group in range(len(receives))]
        sum_up = {**reduce(sources, place("output", r)), "after": received}
        sends = [
            [
                copy(place("input", peer), p.message(r, peer)),
                {**copy(place("output", r), p.message(r, peer)), "after": [[len(receives), 0]]},
            ]
            for peer in p.after(r)
        ]
        return [*receives, [sum_up], *sends]

    return p.plan("all_reduce", groups, chunks=ranks, rank={"scratch_chunks": ranks})


PLANS: dict[str, tuple[str, Callable[[int, str], str]]] = {
    "all_gather": ("all_gather", all_gather),
    "two_shot": ("all_reduce", two_shot),
    "one_shot": ("all_reduce", one_shot),
    "ring": ("all_reduce", ring),
    "tree": ("all_reduce", tree),
    "pairs": ("all_reduce", pairs),
    "after": ("all_reduce", lambda ranks, codec: two_groups(ranks, codec, barrier=False)),
    "barrier": ("all_reduce", lambda ranks, codec: two_groups(ranks, codec, barrier=True)),
    "packets_in_scratch": ("all_reduce", packets_in_scratch),
    "puts_in_scratch": ("all_reduce", puts_in_scratch),
    "put_all_gather": ("all_gather", put_all_gather),
}
