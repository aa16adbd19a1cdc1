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
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from plan_steps import Graph, Node, divided_by_chunk, in_order
from shared_links import SharedLinks

_MOST_POINTS = 48  # between which intervals are tried; any choice gives a valid bound
_MOST_TIMES = 24  # intervals of times; any number gives a valid bound
_LEAST_RATIO = 1.01  # of the ends of such an interval
_ROUNDING_US = 1e-3  # of times in reports


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
    given = Graph(plan, described, piece_bytes)
    if not given.is_supported():
        return None
    given.order_rings()
    given.order_groups()
    places = {id(node): place for place, node in enumerate(in_order(given.all_nodes()))}
    if len(places) < len(given.all_nodes()):
        return None  # not all steps can be executed, with rings as long as they are
    free = Graph(divided_by_chunk(plan), described, piece_bytes)
    free.order_rings()
    whole = (node for node in given.all_nodes() for _ in range(node.step.get("count", 1)))
    pairs = zip(whole, free.all_nodes(), strict=True)
    accesses = [node for _, node in sorted(((places[id(old)], node) for old, node in pairs), key=lambda pair: pair[0])]
    accesses = [node for node in accesses if node.step["step"] != "sync"]
    free.order_units(accesses)
    links = SharedLinks(free, groups)
    ordered = in_order(accesses)
    for node in reversed(ordered):
        node.tail = max([node.fixed_us, *(delay + later.work_us + later.tail for later, delay in node.after)])
    launch = described["launch_us"]
    shortest = max([0.0, *links.link_us.values(), *(node.begin + node.work_us + node.tail for node in ordered)])
    by_rank: dict[int, list[Node]] = defaultdict(list)
    for node in ordered:
        if node.work_us > 0:
            by_rank[node.rank].append(node)
    for nodes in by_rank.values():
        held = sum(node.work_us + node.fixed_us for node in nodes) / groups
        shortest = max(shortest, held)
    return _least_idle(
        shortest + launch,
        microseconds,
        lambda end, time: max(
            (_idle_of_rank(links, rank, end - launch, time) for rank in by_rank.values()), default=0.0
        ),
    )


def idle_bound_of_any_instances(
    plan: dict[str, Any], machine: str, piece_bytes: int, microseconds: float
) -> float | None:
    """As idle_bound, of the plan and its replicas, however many there are.

    They have any number of rings, and paths of any length, but the same work on each rank.
    """
    described = json.loads(machine)
    graph = Graph(plan, described, piece_bytes)
    if not graph.is_supported():
        return None
    links = SharedLinks(graph, most_groups(plan))
    links.allow_any_rings()
    by_rank: dict[int, list[Node]] = defaultdict(list)
    for node in graph.all_nodes():
        by_rank[node.rank].append(node)
    work = {rank: sum(node.work_us for node in nodes) for rank, nodes in by_rank.items()}
    shortest = max([0.0, *links.link_us.values(), *(us / links.most_groups for us in work.values())])

    def idle(end: float, time: float) -> float:
        most = 0.0
        for rank, nodes in by_rank.items():
            groups = max(1, _rounded_up(work[rank] / end))
            most = max(most, 1 - links.most_us(nodes, groups) / groups / time)
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


def _idle_of_rank(links: SharedLinks, nodes: list[Node], end: float, microseconds: float) -> float:
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
    busy = min(busy, links.most_us(nodes, groups))
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


def _groups_needed(nodes: list[Node], end: float) -> int:
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
