"""How idle a group of a plan must be, however its groups are merged, in the time that the plan takes unmerged.

The bound is for calls of one micro-batch of plans that only use rings, and for the machine of the simulation with one
CTA for each group, as merged or not. A merged group keeps the order of the steps of each of its groups. So each step
has a window: it cannot begin before the longest path that leads to it, and must end so early that the longest path that
follows fits. A group cannot work outside the windows of its steps, and a step works at least as long as it would take
alone on idle links.

On each rank, the steps whose windows lie within some interval need at least a certain number of groups, k. At a point
in time at most k groups work, and no more than have a window there. If the sum of this over time, divided by k, is less
than the time, one of the groups is idle for at least the rest.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

_MOST_POINTS = 48  # between which intervals are tried; any choice gives a valid bound


@dataclass
class _Node:
    """A step."""

    rank: int
    group: int
    work_us: float  # how long it keeps its group busy, at least
    fixed_us: float  # from the end of its work to its end
    begin: float = 0.0  # at the earliest
    tail: float = 0.0  # from the end of its work to the end of the call, at least
    after: list[tuple[_Node, float]] = field(default_factory=list)  # nodes that come later, and by how much
    before: int = 0


class _Builder:
    def __init__(self, plan: dict[str, Any], machine: dict[str, Any], piece_bytes: int) -> None:
        self.plan, self.machine = plan, machine
        self.chunk_bytes = piece_bytes / plan.get("chunks", 1)

    def is_local(self, channel: dict[str, Any]) -> bool:
        per_host = self.machine["gpus_per_host"]
        return bool(channel["from"] // per_host == channel["to"] // per_host)

    def node(self, rank: int, group: int, step: dict[str, Any]) -> _Node:
        machine, channels = self.machine, self.plan["channels"]
        nbytes = self.chunk_bytes * step.get("count", 1)
        sources, targets = step.get("from", []), step.get("to", [])
        work = (len(sources) + len(targets)) * nbytes / machine["cta_move_gbps"] / 1e3
        if step["step"] == "reduce":
            work += len(sources) * nbytes / machine["cta_reduce_gbps"] / 1e3
        fixed = machine["step_us"]
        link: dict[str, float] = defaultdict(float)
        for target in targets:
            if "channel" in target:
                channel = channels[target["channel"]]
                rate = "network_gbps"
                if self.is_local(channel):
                    rate = "link_packets_gbps" if channel.get("packets") else "link_gbps"
                link[rate.removesuffix("_packets_gbps")] += nbytes / machine[rate] / 1e3
        if any("channel" in one and not channels[one["channel"]].get("packets") for one in sources + targets):
            fixed += machine["slot_latency_us"]
        return _Node(rank, group, max([work, *link.values()]) if sources else 0.0, fixed)

    def nodes(self) -> list[_Node] | None:
        """All steps with their order; None if the plan has more than rings and dependences."""
        ring_ends: dict[int, tuple[list[_Node], list[_Node]]] = defaultdict(lambda: ([], []))
        found: list[_Node] = []
        for rank, row in enumerate(self.plan["ranks"]):
            placed: list[list[_Node]] = []
            for number, group in enumerate(row.get("groups", [])):
                placed.append([self.node(rank, number, step) for step in group["steps"]])
                for step, node in zip(group["steps"], placed[-1], strict=True):
                    if step["step"] not in ("copy", "reduce", "sync"):
                        return None
                    for operands, end in ((step.get("to", []), 0), (step.get("from", []), 1)):
                        for operand in operands:
                            if operand.get("packets") or "switch" in operand or operand.get("codec", "raw") != "raw":
                                return None
                            if "channel" in operand:
                                if "buffer" in operand:
                                    return None
                                ring_ends[operand["channel"]][end].append(node)
                for node, later in zip(placed[-1], placed[-1][1:], strict=False):
                    self.order(node, later, 0)
            for number, group in enumerate(row.get("groups", [])):
                for step, node in zip(group["steps"], placed[number], strict=True):
                    for other, index in step.get("after", []):
                        self.order(placed[other][index], node, 0)
            found += [node for group in placed for node in group]
        for index, (sends, receives) in ring_ends.items():
            channel = self.plan["channels"][index]
            latency = self.machine["link_latency_us" if self.is_local(channel) else "network_latency_us"]
            for send, receive in zip(sends, receives, strict=True):
                self.order(send, receive, latency)
            for receive, send in zip(receives, sends[channel["depth"] :], strict=False):
                self.order(receive, send, 0)
        return found

    @staticmethod
    def order(first: _Node, second: _Node, delay: float) -> None:
        first.after.append((second, first.fixed_us + delay))
        second.before += 1


def idle_bound(plan: dict[str, Any], machine: str, piece_bytes: int, microseconds: float) -> float | None:
    """The share of the time, 0 to 1, in which the idlest group does not work, at least.

    plan: the lowered plan, in JSON. microseconds: what the simulation predicts for it, unmerged.
    None: the plan has steps that the bound does not cover.
    """
    described = json.loads(machine)
    nodes = _Builder(plan, described, piece_bytes).nodes()
    if nodes is None:
        return None
    ready = deque(node for node in nodes if node.before == 0)
    ordered = []
    while ready:
        node = ready.popleft()
        ordered.append(node)
        for later, delay in node.after:
            later.begin = max(later.begin, node.begin + node.work_us + delay)
            later.before -= 1
            if later.before == 0:
                ready.append(later)
    for node in reversed(ordered):
        node.tail = max([node.fixed_us, *(delay + later.work_us + later.tail for later, delay in node.after)])
    end = microseconds - described["launch_us"]
    by_rank: dict[int, list[_Node]] = defaultdict(list)
    for node in ordered:
        if node.work_us > 0:
            by_rank[node.rank].append(node)
    return max((_idle_of_rank(rank, end, microseconds) for rank in by_rank.values()), default=0.0)


def _idle_of_rank(nodes: list[_Node], end: float, microseconds: float) -> float:
    groups = max(1, _groups_needed(nodes, end))
    windows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for node in nodes:
        windows[node.group].append((node.begin, end - node.tail))
    changes = sorted(change for rows in windows.values() for change in _union_changes(rows))
    busy, open_windows, last = 0.0, 0, 0.0
    for point, change in changes:
        busy += (point - last) * min(groups, open_windows)
        open_windows += change
        last = point
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
                # Rounding must not add a group.
                most = max(most, math.ceil(total / (last - first) * (1 - 1e-6) - 1e-6))
    return most
