"""How idle a group of a plan must be, however its steps are divided among groups, if the plan takes no longer.

The bound is for calls of one micro-batch of plans that only use rings, and for the machine of the simulation with one
CTA for each group. It holds for all plans with the same steps and rings in which no rank has more groups than the
largest one of the given plan. Steps of several chunks may be divided. What sends on a ring, or receives from it, is in
one group and keeps its order, and steps of a rank that access the same memory keep their order. So each step has a
window: it cannot begin before the longest path that leads to it, and must end so early that the longest path that
follows fits. Steps that share a ring, a *unit*, run one at a time, within their windows, and a step works at least as
long as it would take alone on idle links.

On each rank, the steps whose windows lie within some interval need at least a certain number of groups, k. At a point
in time at most k groups work, and no more than units have a window there. If the sum of this over time, divided by k,
is less than the time, one of the groups is idle for at least the rest. So it is if all work of the rank is less, even
if every transfer shares its links with as many others as there can be: one for each ring, and no more than k groups of
the rank make; or if k groups transfer whenever a link is used up that could slow them. (More than k groups share links
more, but divide the work by more.) A plan that takes less time has
narrower windows, so this is done for all times from the shortest that is possible to that of the given plan, in small
intervals.

Replicas of a plan have shorter steps, and so wider windows, and more rings, but the same work. With any number of them
only the work of the ranks counts.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

_MOST_POINTS = 48  # between which intervals are tried; any choice gives a valid bound
_MOST_TIMES = 24  # intervals of times; any number gives a valid bound
_LEAST_RATIO = 1.01  # of the ends of such an interval
_ROUNDING_US = 1e-3  # of times in reports
_ANY_NUMBER = 1 << 62


@dataclass(eq=False)
class _Node:
    """A step."""

    rank: int
    step: dict[str, Any]
    work_us: float  # how long it keeps its group busy, at least
    cta_us: float  # of that, before it transfers
    transfers: list[tuple[str, int, float]]  # kind of the links, receiver, and how long it takes on idle links
    fixed_us: float  # from the end of its work to its end
    unit: int = 0  # of its rank
    begin: float = 0.0  # at the earliest
    tail: float = 0.0  # from the end of its work to the end of the call, at least
    after: list[tuple[_Node, float]] = field(default_factory=list)  # nodes that come later, and by how much
    before: int = 0

    def order(self, later: _Node, delay: float = 0.0) -> None:
        self.after.append((later, self.fixed_us + delay))
        later.before += 1


class _Graph:
    """The steps of a plan, in the order that every division into groups must keep."""

    def __init__(self, plan: dict[str, Any], machine: dict[str, Any], piece_bytes: int, most_groups: int) -> None:
        self.plan, self.machine = plan, machine
        self.chunk_bytes = piece_bytes / plan.get("chunks", 1)
        self.link_us: dict[tuple[int, str], float] = defaultdict(float)  # by rank and direction
        self.most_groups = most_groups
        self.most_responses = self.responses()
        # By rank and kind of its links, and by sender: rings. By rank, targets of a step at most.
        self.rings_out: dict[tuple[int, str], int] = defaultdict(int)
        self.rings_in: dict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for channel in plan["channels"]:
            self.rings_out[channel["from"], self.kind(channel)] += 1
            self.rings_in[channel["to"], self.kind(channel)][channel["from"]] += 1
        self.most_targets = [max((len(step.get("to", [])) for group in row.get("groups", [])
                                  for step in group["steps"]), default=0) for row in plan["ranks"]]  # fmt: skip
        self.sends: dict[int, list[_Node]] = defaultdict(list)
        self.receives: dict[int, list[_Node]] = defaultdict(list)
        self.groups = [[[self.node(rank, step) for step in group["steps"]] for group in row.get("groups", [])]
                       for rank, row in enumerate(plan["ranks"])]  # fmt: skip

    def allow_any_rings(self) -> None:
        for out in self.rings_out:
            self.rings_out[out] = _ANY_NUMBER
        for senders in self.rings_in.values():
            for sender in senders:
                senders[sender] = _ANY_NUMBER

    def is_supported(self) -> bool:
        """Whether there are only rings and dependences."""
        for node in self.all_nodes():
            if node.step["step"] not in ("copy", "reduce", "sync"):
                return False
            for operand in node.step.get("from", []) + node.step.get("to", []):
                if operand.get("packets") or "switch" in operand or operand.get("codec", "raw") != "raw":
                    return False
                if "channel" in operand and "buffer" in operand:
                    return False
        return True

    def all_nodes(self) -> list[_Node]:
        return [node for row in self.groups for group in row for node in group]

    def node(self, rank: int, step: dict[str, Any]) -> _Node:
        machine, channels = self.machine, self.plan["channels"]
        nbytes = self.chunk_bytes * step.get("count", 1)
        sources, targets = step.get("from", []), step.get("to", [])
        work = (len(sources) + len(targets)) * nbytes / machine["cta_move_gbps"] / 1e3
        if step["step"] == "reduce":
            work += len(sources) * nbytes / machine["cta_reduce_gbps"] / 1e3
        fixed = machine["step_us"]
        link: dict[str, float] = defaultdict(float)
        transfers = []
        for target in targets:
            if "channel" in target:
                channel = channels[target["channel"]]
                kind = self.kind(channel)
                packets = kind == "link" and channel.get("packets")
                microseconds = nbytes / machine["link_packets_gbps" if packets else kind + "_gbps"] / 1e3
                link[kind] += microseconds
                transfers.append((kind, channel["to"], microseconds))
                self.link_us[rank, kind + " out"] += microseconds
                self.link_us[channel["to"], kind + " in"] += microseconds
        if any("channel" in one and not channels[one["channel"]].get("packets") for one in sources + targets):
            fixed += machine["slot_latency_us"]
        if not sources:
            return _Node(rank, step, 0.0, 0.0, [], fixed)
        return _Node(rank, step, work + max(link.values(), default=0.0), work, transfers, fixed)

    def most_us(self, nodes: list[_Node], groups: int) -> float:
        """How long the steps of a rank keep its groups busy at most, in total, if it has so many groups."""
        rank = nodes[0].rank
        slower = max(1.0, groups / self.machine["ctas"])
        ctas = sum(node.cta_us for node in nodes) * slower
        return float(ctas + min(self._most_of_transfers(nodes, groups), self._most_of_links(rank, groups)))

    def _most_of_transfers(self, nodes: list[_Node], groups: int) -> float:
        """If every transfer shares its links with as many as possible."""

        def sends(rank: int, most_groups: int, rings: int) -> int:  # at the same time, on so many rings
            return min(most_groups * self.most_targets[rank], rings)

        total = 0.0
        for node in nodes:
            longest = 0.0
            for kind, receiver, microseconds in node.transfers:
                out = sends(node.rank, groups, self.rings_out[node.rank, kind])
                into = sum(sends(rank, groups if rank == node.rank else self.most_groups, rings)
                           for rank, rings in self.rings_in[receiver, kind].items())  # fmt: skip
                longest = max(longest, microseconds * max(out, into))
            total += longest
        return total * self.most_responses

    def _most_of_links(self, rank: int, groups: int) -> float:
        """If as many groups as possible transfer whenever a link is used up that could slow them.

        That is the link of their rank, or that of a receiver to which others send, too. It is used up no longer than it
        needs for all that it carries.
        """
        most = 0.0
        for (receiver, kind), senders in self.rings_in.items():
            if senders.get(rank, 0) and len(senders) > 1:
                rings = min(groups * self.most_targets[rank], senders[rank])
                most += rings * self.link_us[receiver, kind + " in"]
        most += groups * sum(self.link_us[rank, kind + " out"] for kind in ("link", "network"))
        return most * self.most_responses

    def responses(self) -> float:
        """By how much responses can slow a link."""
        nbytes: dict[tuple[int, str], float] = defaultdict(float)
        for rank, row in enumerate(self.plan["ranks"]):
            for step in (step for group in row.get("groups", []) for step in group["steps"]):
                peers = [self.plan["channels"][one["channel"]]["to"] for one in step.get("to", []) if "channel" in one]
                for peer in peers:
                    nbytes[rank, "out"] += step.get("count", 1)
                    nbytes[peer, "in"] += step.get("count", 1)
        ratio = 1.0  # of what a link carries in both directions
        for rank in range(len(self.plan["ranks"])):
            sent, received = nbytes[rank, "out"], nbytes[rank, "in"]
            if sent and received:
                ratio = max(ratio, sent / received, received / sent)
        share = max(self.machine.get("link_response_share", 0), self.machine.get("link_packets_response_share", 0))
        return 1.0 + float(share) * ratio

    def kind(self, channel: dict[str, Any]) -> str:
        """Of the links of a ring."""
        return "link" if self.is_local(channel) else "network"

    def is_local(self, channel: dict[str, Any]) -> bool:
        per_host = self.machine["gpus_per_host"]
        return bool(channel["from"] // per_host == channel["to"] // per_host)

    def order_rings(self) -> None:
        for node in self.all_nodes():
            for key, ends in (("to", self.sends), ("from", self.receives)):
                for operand in node.step.get(key, []):
                    if "channel" in operand:
                        ends[operand["channel"]].append(node)
        for index, sends in self.sends.items():
            channel, receives = self.plan["channels"][index], self.receives[index]
            latency = self.machine["link_latency_us" if self.is_local(channel) else "network_latency_us"]
            for send, receive in zip(sends, receives, strict=True):
                send.order(receive, latency)
            for receive, send in zip(receives, sends[channel["depth"] :], strict=False):
                receive.order(send)

    def order_groups(self) -> None:
        """The order of the given plan, which only matters for the order of accesses."""
        for row in self.groups:
            for group in row:
                for node, later in pairwise(group):
                    node.order(later)
                for node in group:
                    for other, index in node.step.get("after", []):
                        row[other][index].order(node)

    def order_units(self, accesses: list[_Node]) -> None:
        """accesses: the nodes in an order of the given plan."""
        parents: dict[_Node, _Node] = {}

        def find(node: _Node) -> _Node:
            while node in parents:
                node = parents[node]
            return node

        for ends in (*self.sends.values(), *self.receives.values()):
            for node, later in pairwise(ends):
                node.order(later)
                if find(node) is not find(later):
                    parents[find(later)] = find(node)
        numbers: dict[_Node, int] = {}
        writers: dict[tuple[int, str, int], _Node] = {}
        readers: dict[tuple[int, str, int], list[_Node]] = defaultdict(list)
        for node in accesses:
            node.unit = numbers.setdefault(find(node), len(numbers))
            cells = {
                key: [(node.rank, operand["buffer"], operand["chunk"] + i)
                      for operand in node.step.get(key, []) if "buffer" in operand
                      for i in range(node.step.get("count", 1))]
                for key in ("from", "to")
            }  # fmt: skip
            earlier = {writers[cell] for key in ("from", "to") for cell in cells[key] if cell in writers}
            earlier.update(reader for cell in cells["to"] for reader in readers[cell])
            for other in earlier - {node}:
                other.order(node)
            for cell in cells["from"]:
                readers[cell].append(node)
            for cell in cells["to"]:
                writers[cell], readers[cell] = node, []


def _divided(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with a step for each chunk of its steps."""
    ranks = []
    for row in plan["ranks"]:
        groups = [group["steps"] for group in row.get("groups", [])]
        lasts = [list(accumulate((step.get("count", 1) for step in steps), initial=-1))[1:] for steps in groups]
        divided: list[dict[str, Any]] = []
        for steps in groups:
            parts: list[dict[str, Any]] = []
            for step in steps:
                after = [[group, lasts[group][index]] for group, index in step.get("after", [])]
                for chunk in range(step.get("count", 1)):
                    operands = {
                        key: [one | ({"chunk": one["chunk"] + chunk} if "buffer" in one else {}) for one in step[key]]
                        for key in ("from", "to") if key in step
                    }  # fmt: skip
                    parts.append(step | operands | {"count": 1, "after": [] if chunk else after})
            divided.append({"steps": parts})
        ranks.append(row | {"groups": divided})
    return plan | {"ranks": ranks}


def _sorted(nodes: list[_Node]) -> list[_Node]:
    """The nodes in an order that all their orders permit, with the earliest times at which they begin."""
    before = {node: node.before for node in nodes}
    ready = deque(node for node in nodes if node.before == 0)
    ordered = []
    while ready:
        node = ready.popleft()
        ordered.append(node)
        for later, delay in node.after:
            later.begin = max(later.begin, node.begin + node.work_us + delay)
            before[later] -= 1
            if before[later] == 0:
                ready.append(later)
    return ordered


def most_groups(plan: dict[str, Any]) -> int:
    """Of a rank."""
    return max(1, *(len(row.get("groups", [])) for row in plan["ranks"]))


def idle_bound(
    plan: dict[str, Any], machine: str, piece_bytes: int, microseconds: float, groups: int | None = None
) -> float | None:
    """The share of the time, 0 to 1, in which the idlest group does not work, at least.

    plan: the lowered plan, in JSON. microseconds: how long the plan may take. groups: of a rank at most; by default, as
    many as the largest one of the plan has.
    None: the plan has steps that the bound does not cover, or is not proved.
    """
    described = json.loads(machine)
    groups = most_groups(plan) if groups is None else groups
    given = _Graph(plan, described, piece_bytes, groups)
    if not given.is_supported():
        return None
    given.order_rings()
    given.order_groups()
    places = {id(node): place for place, node in enumerate(_sorted(given.all_nodes()))}
    if len(places) < len(given.all_nodes()):
        return None  # not all steps can be executed, with rings as long as they are
    free = _Graph(_divided(plan), described, piece_bytes, groups)
    free.order_rings()
    whole = (node for node in given.all_nodes() for _ in range(node.step.get("count", 1)))
    pairs = zip(whole, free.all_nodes(), strict=True)
    accesses = [node for _, node in sorted(((places[id(old)], node) for old, node in pairs), key=lambda pair: pair[0])]
    accesses = [node for node in accesses if node.step["step"] != "sync"]
    free.order_units(accesses)
    ordered = _sorted(accesses)
    for node in reversed(ordered):
        node.tail = max([node.fixed_us, *(delay + later.work_us + later.tail for later, delay in node.after)])
    launch = described["launch_us"]
    shortest = max([0.0, *free.link_us.values(), *(node.begin + node.work_us + node.tail for node in ordered)])
    by_rank: dict[int, list[_Node]] = defaultdict(list)
    for node in ordered:
        if node.work_us > 0:
            by_rank[node.rank].append(node)
    for nodes in by_rank.values():
        held = sum(node.work_us + node.fixed_us for node in nodes) / free.most_groups
        shortest = max(shortest, held)
    return _least_idle(
        shortest + launch,
        microseconds,
        lambda end, time: max(
            (_idle_of_rank(free, rank, end - launch, time) for rank in by_rank.values()), default=0.0
        ),
    )


def idle_bound_of_any_instances(
    plan: dict[str, Any], machine: str, piece_bytes: int, microseconds: float
) -> float | None:
    """As idle_bound, of the plan and its replicas, however many there are.

    They have any number of rings, and paths of any length, but the same work on each rank.
    """
    described = json.loads(machine)
    graph = _Graph(plan, described, piece_bytes, most_groups(plan))
    if not graph.is_supported():
        return None
    graph.allow_any_rings()
    by_rank: dict[int, list[_Node]] = defaultdict(list)
    for node in graph.all_nodes():
        by_rank[node.rank].append(node)
    work = {rank: sum(node.work_us for node in nodes) for rank, nodes in by_rank.items()}
    shortest = max([0.0, *graph.link_us.values(), *(us / graph.most_groups for us in work.values())])

    def idle(end: float, time: float) -> float:
        most = 0.0
        for rank, nodes in by_rank.items():
            groups = max(1, _rounded_up(work[rank] / end))
            most = max(most, 1 - graph.most_us(nodes, groups) / groups / time)
        return most

    return _least_idle(shortest, microseconds, idle)


def _least_idle(shortest: float, longest: float, idle: Callable[[float, float], float]) -> float:
    """The least idle share in calls that take at least `shortest` and at most `longest` microseconds.

    idle: what it is at least, in calls from a time (its second argument) to another one.
    """
    longest = max(longest, shortest) + _ROUNDING_US
    ratio = max(_LEAST_RATIO, (longest / shortest) ** (1 / _MOST_TIMES))
    least = 1.0
    while longest > shortest and least > 0:
        time = max(longest / ratio, shortest)
        least = min(least, idle(longest, time))
        longest = time
    return least


def _rounded_up(groups: float) -> int:
    """Rounding must not add a group."""
    return math.ceil(groups * (1 - 1e-6) - 1e-6)


def _idle_of_rank(graph: _Graph, nodes: list[_Node], end: float, microseconds: float) -> float:
    """How idle a group is in a call that takes `microseconds`, whose windows are not wider than in one until `end`."""
    groups = max(1, _groups_needed(nodes, end))
    windows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for node in nodes:
        windows[node.unit].append((node.begin, end - node.tail))
    changes = sorted(change for rows in windows.values() for change in _union_changes(rows))
    busy, open_windows, last = 0.0, 0, 0.0
    for point, change in changes:
        busy += (point - last) * min(groups, open_windows)
        open_windows += change
        last = point
    busy = min(busy, graph.most_us(nodes, groups))
    return max(0.0, 1 - busy / groups / microseconds)


def _union_changes(rows: list[tuple[float, float]]) -> list[tuple[float, int]]:
    """Where the union of intervals begins (1) and ends (-1)."""
    joined: list[list[float]] = []
    for begin, end in sorted(rows):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return [change for begin, end in joined for change in ((begin, 1), (end, -1))]


def _groups_needed(nodes: list[_Node], end: float) -> int:
    def some(points: list[float]) -> list[float]:
        points = sorted(set(points))
        return points[:: math.ceil(len(points) / _MOST_POINTS)]

    most = 0
    lasts = some([end - node.tail for node in nodes])
    for first in some([node.begin for node in nodes]):
        inside = sorted((end - node.tail, node.work_us) for node in nodes if node.begin >= first)
        total, index = 0.0, 0
        for last in lasts:
            while index < len(inside) and inside[index][0] <= last:
                total += inside[index][1]
                index += 1
            if last > first:
                most = max(most, _rounded_up(total / (last - first)))
    return most
