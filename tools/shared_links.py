"""How long the steps of a plan can take at most, because their transfers share links."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from plan_steps import Graph, Node, link_kind

_ANY_NUMBER = 1 << 62


class SharedLinks:
    """The links that the rings of a plan use, if no rank has more than so many groups."""

    def __init__(self, graph: Graph, most_groups: int) -> None:
        plan, self.machine, self.most_groups = graph.plan, graph.machine, most_groups
        self.link_us: dict[tuple[int, str], float] = defaultdict(float)  # by rank and direction
        for node in graph.all_nodes():
            for kind, receiver, microseconds in node.transfers:
                self.link_us[node.rank, kind + " out"] += microseconds
                self.link_us[receiver, kind + " in"] += microseconds
        # By rank and kind of its links, and by sender: rings. By rank, targets of a step at most.
        self.rings_out: dict[tuple[int, str], int] = defaultdict(int)
        self.rings_in: dict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for channel in plan["channels"]:
            kind = link_kind(channel, self.machine)
            self.rings_out[channel["from"], kind] += 1
            self.rings_in[channel["to"], kind][channel["from"]] += 1
        self.most_targets = [max((len(step.get("to", [])) for group in row.get("groups", [])
                                  for step in group["steps"]), default=0) for row in plan["ranks"]]  # fmt: skip
        self.responses = _most_responses(plan, self.machine)

    def allow_any_rings(self) -> None:
        for out in self.rings_out:
            self.rings_out[out] = _ANY_NUMBER
        for senders in self.rings_in.values():
            for sender in senders:
                senders[sender] = _ANY_NUMBER

    def most_us(self, nodes: list[Node], groups: int) -> float:
        """How long the steps of a rank keep its groups busy at most, in total, if it has so many groups."""
        rank = nodes[0].rank
        slower = max(1.0, groups / self.machine["ctas"])
        ctas = sum(node.cta_us for node in nodes) * slower
        return float(ctas + min(self._most_of_transfers(nodes, groups), self._most_of_links(rank, groups)))

    def _most_of_transfers(self, nodes: list[Node], groups: int) -> float:
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
        return total * self.responses

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
        return most * self.responses


def _most_responses(plan: dict[str, Any], machine: dict[str, Any]) -> float:
    """By how much responses can slow a link."""
    nbytes: dict[tuple[int, str], float] = defaultdict(float)
    for rank, row in enumerate(plan["ranks"]):
        for step in (step for group in row.get("groups", []) for step in group["steps"]):
            peers = [plan["channels"][one["channel"]]["to"] for one in step.get("to", []) if "channel" in one]
            for peer in peers:
                nbytes[rank, "out"] += step.get("count", 1)
                nbytes[peer, "in"] += step.get("count", 1)
    ratio = 1.0  # of what a link carries in both directions
    for rank in range(len(plan["ranks"])):
        sent, received = nbytes[rank, "out"], nbytes[rank, "in"]
        if sent and received:
            ratio = max(ratio, sent / received, received / sent)
    share = max(machine.get("link_response_share", 0), machine.get("link_packets_response_share", 0))
    return 1.0 + float(share) * ratio
