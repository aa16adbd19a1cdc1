"""Orders the tasks of each group, and combines those that can be one step."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from .hazards import Alias, Cycle, overlap_partly
from .nodes import Node
from .record import Operand


def order(nodes: Sequence[Node], alias: Alias | None) -> None:
    """Sets the level and the host of each node. Raises Cycle if no order is possible."""
    _order_scope([node for node in nodes if node.loop is None], alias)
    for node in nodes:
        if node.task.kind == "loop":
            _order_scope(node.body, alias)


def _order_scope(nodes: Sequence[Node], alias: Alias | None) -> None:
    later: dict[Node, list[Node]] = {}
    missing = {node: len(node.before) for node in nodes}
    for node in nodes:
        for earlier in node.before:
            later.setdefault(earlier, []).append(node)
    ready = [(node.index, node) for node in nodes if not node.before]
    heapq.heapify(ready)
    copies: dict[object, Node] = {}
    done = 0
    while ready:
        _, node = heapq.heappop(ready)
        done += 1
        node.level = max((_level_after(earlier.final, node) for earlier in node.before), default=0)
        if not _combine_with_producer(node, alias):
            _combine_copies(node, copies, alias)
        for following in later.get(node, ()):
            missing[following] -= 1
            if missing[following] == 0:
                heapq.heappush(ready, (following.index, following))
    if done < len(nodes):
        raise Cycle(_cycle([node for node in nodes if missing[node]]))


def _level_after(earlier: Node, node: Node) -> int:
    """The least level of a node that comes after another one: the same if their keys then order them in a group."""
    in_order = earlier.index < node.index and not set(earlier.places).isdisjoint(node.places)
    return earlier.level if in_order else earlier.level + 1


def _combine_with_producer(node: Node, alias: Alias | None) -> bool:
    """Lets the step that produced the values of a copy store or send them too, if nothing else must come before."""
    if node.producer is None:
        return False
    producer = node.producer.final
    source = node.sources[0]
    if (
        producer.task.kind not in ("copy", "reduce")
        or producer.loop is not node.loop
        or producer.place != node.place
        or producer.task.count != node.task.count
        or source.where is None
        or source.where.buffer.packets
        or not _can_join(producer, node, alias)
    ):
        return False
    _join(producer, node)
    return True


def _combine_copies(node: Node, copies: dict[object, Node], alias: Alias | None) -> None:
    """Makes copies of the same values that can run at the same time one step, so that they are encoded once."""
    source = node.sources[0] if node.task.kind == "copy" else None
    if source is None or source.local is None or source.local.buffer.packets:
        return
    version = None if node.producer is None else node.producer.final
    key = (node.place, node.level, version, _identity(source))
    first = copies.get(key)
    if first is not None and _can_join(first, node, alias):
        _join(first, node)
    else:
        copies[key] = node


def _can_join(host: Node, node: Node, alias: Alias | None) -> bool:
    """Whether a node can run when an earlier one of its group does: whatever comes before it comes before that one."""
    return (
        node.level == host.level
        and all(earlier.final is host or earlier.final.key < host.key for earlier in node.before)
        and not overlap_partly(host, node, alias)
        and not any(
            _overlap(one, other) and not _is_same(one, other)
            for one in host.destinations
            for other in node.destinations
        )
    )


def _overlap(one: Operand, other: Operand) -> bool:
    """Whether both write a chunk."""
    first, second = one.where, other.where
    if first is None or second is None or first.buffer is not second.buffer:
        return False
    return first.start < second.start + second.count and second.start < first.start + first.count


def _is_same(one: Operand, other: Operand) -> bool:
    return one.where == other.where and one.channel == other.channel


def _identity(source: Operand) -> object:
    where = source.local
    return where and (id(where.buffer), where.start, where.count)


def _join(host: Node, node: Node) -> None:
    node.host = host
    # The same values are stored in a location only once.
    host.destinations += [
        operand
        for operand in node.destinations
        if operand.is_message or not any(_is_same(operand, one) for one in host.destinations)
    ]
    if node.pinned and not host.pinned:
        # Errors are more likely in a put than in the copy that it joins.
        host.site = node.site
    host.needs |= {need for need in node.needs if need.final is not host}


def _cycle(left: Sequence[Node]) -> list[Node]:
    """A cycle among nodes each of which waits for another one of them."""
    waiting = set(left)
    path: dict[Node, int] = {}
    node = left[0]
    while node not in path:
        path[node] = len(path)
        node = min((earlier for earlier in node.before if earlier in waiting), key=lambda one: one.index)
    return list(path)[path[node] :][::-1]
