"""The steps of a plan: how long each works at least, and which must come before which."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any


@dataclass(eq=False)
class Node:
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
    after: list[tuple[Node, float]] = field(default_factory=list)  # nodes that come later, and by how much
    before: int = 0

    def order(self, later: Node, delay: float = 0.0) -> None:
        self.after.append((later, self.fixed_us + delay))
        later.before += 1


def is_local(channel: dict[str, Any], machine: dict[str, Any]) -> bool:
    per_host = machine["gpus_per_host"]
    return bool(channel["from"] // per_host == channel["to"] // per_host)


def link_kind(channel: dict[str, Any], machine: dict[str, Any]) -> str:
    """What the messages of a ring pass."""
    return "link" if is_local(channel, machine) else "network"


class Graph:
    """The steps of a plan, in the order that every division into groups must keep."""

    def __init__(self, plan: dict[str, Any], machine: dict[str, Any], piece_bytes: int) -> None:
        self.plan, self.machine = plan, machine
        self.chunk_bytes = piece_bytes / plan.get("chunks", 1)
        self.sends: dict[int, list[Node]] = defaultdict(list)  # by ring
        self.receives: dict[int, list[Node]] = defaultdict(list)
        self.groups = [[[self.node(rank, step) for step in group["steps"]] for group in row.get("groups", [])]
                       for rank, row in enumerate(plan["ranks"])]  # fmt: skip

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

    def all_nodes(self) -> list[Node]:
        return [node for row in self.groups for group in row for node in group]

    def node(self, rank: int, step: dict[str, Any]) -> Node:
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
                kind = link_kind(channel, machine)
                packets = kind == "link" and channel.get("packets")
                microseconds = nbytes / machine["link_packets_gbps" if packets else kind + "_gbps"] / 1e3
                link[kind] += microseconds
                transfers.append((kind, channel["to"], microseconds))
        if any("channel" in one and not channels[one["channel"]].get("packets") for one in sources + targets):
            fixed += machine["slot_latency_us"]
        if not sources:
            return Node(rank, step, 0.0, 0.0, [], fixed)
        return Node(rank, step, work + max(link.values(), default=0.0), work, transfers, fixed)

    def order_rings(self) -> None:
        for node in self.all_nodes():
            for key, ends in (("to", self.sends), ("from", self.receives)):
                for operand in node.step.get(key, []):
                    if "channel" in operand:
                        ends[operand["channel"]].append(node)
        for index, sends in self.sends.items():
            channel, receives = self.plan["channels"][index], self.receives[index]
            latency = self.machine["link_latency_us" if is_local(channel, self.machine) else "network_latency_us"]
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

    def order_units(self, accesses: list[Node]) -> None:
        """accesses: the nodes in an order of the given plan."""
        parents: dict[Node, Node] = {}

        def find(node: Node) -> Node:
            while node in parents:
                node = parents[node]
            return node

        for ends in (*self.sends.values(), *self.receives.values()):
            for node, later in pairwise(ends):
                node.order(later)
                if find(node) is not find(later):
                    parents[find(later)] = find(node)
        numbers: dict[Node, int] = {}
        writers: dict[tuple[int, str, int], Node] = {}
        readers: dict[tuple[int, str, int], list[Node]] = defaultdict(list)
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


def divided_by_chunk(plan: dict[str, Any]) -> dict[str, Any]:
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


def in_order(nodes: list[Node]) -> list[Node]:
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
