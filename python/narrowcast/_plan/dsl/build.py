"""Turns the statements of a program into a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._native.operations import Buffer as Content
from ..._native.operations import Operation
from ..model import PlanModel
from . import emit
from .hazards import Alias, Cycle, keep_places, order_accesses
from .messages import Message, connect, order_rings
from .nodes import Node, nodes_of, with_fetches_inlined
from .order import order
from .record import ChannelKey
from .recorder import Recorder
from .sites import Origins, PlanError


@dataclass(frozen=True)
class Header:
    """The arguments of a program."""

    operation: str
    ranks: int
    chunks: int
    name: str
    root: int
    instances: int
    in_place: str | None
    scratch_copies: int
    min_bytes: int
    max_bytes: int
    depth: int

    def buffer_chunks(self, operation: Operation, kind: str, rank: int) -> int:
        """The chunks of the input or the output of a rank."""
        content = operation.send if kind == "input" else operation.recv
        if content is Content.NONE or (content.at_root and rank != self.root):
            return 0
        return self.chunks * (self.ranks if content.parted else 1)

    def alias(self, operation: Operation) -> Alias:
        """Which chunk of a rank's output is a chunk of its input, in a call in place."""

        def output_chunk(rank: int, chunk: int) -> int | None:
            sent, received = (self.buffer_chunks(operation, kind, rank) for kind in ("input", "output"))
            own = rank * self.chunks
            if sent == received:
                return chunk
            if sent < received:
                return own + chunk
            return chunk - own if 0 <= chunk - own < received else None

        return output_chunk


@dataclass(frozen=True)
class Built:
    """The plan of a program."""

    model: PlanModel
    origins: Origins


def build(header: Header, operation: Operation, recorder: Recorder) -> Built:
    """Orders the statements and writes the plan. Raises PlanError."""
    in_place = header.in_place or "either"
    alias = None if in_place == "no" else header.alias(operation)
    try:
        nodes = _ordered(header, recorder, alias, in_place == "yes")
    except Cycle as cycle:
        if alias is None:
            raise _deadlock(cycle) from None
        try:
            nodes = _ordered(header, recorder, None, in_place == "yes")
        except Cycle as other:
            raise _deadlock(other) from None
        if header.in_place is not None:
            raise PlanError(
                f"in place, the input would be overwritten before it is read: {_listed(cycle.nodes)}; "
                "pass in_place='no'",
                cycle.nodes[0].task.site,
            ) from None
        in_place = "no"
    model = PlanModel(
        header.operation,
        name=header.name,
        root=header.root,
        chunks=header.chunks,
        instances=header.instances,
        scratch_copies=header.scratch_copies,
        in_place=in_place,
        min_bytes=header.min_bytes,
        max_bytes=header.max_bytes,
    )
    origins = Origins()
    emit.write(model, nodes, recorder, origins)
    return Built(model, origins)


def _ordered(header: Header, recorder: Recorder, alias: Alias | None, output_is_defined: bool) -> Sequence[Node]:
    def prepared() -> tuple[list[Node], dict[ChannelKey, list[Message]]]:
        nodes = with_fetches_inlined(nodes_of(recorder.tasks))
        order_accesses(nodes, alias, output_is_defined)
        keep_places(nodes)
        return nodes, connect(nodes)

    # First without the order of messages, to find out when each one can be received.
    nodes, _ = prepared()
    order(nodes, alias)
    levels = {node.index: node.level for node in nodes}
    nodes, rings = prepared()
    order_rings(rings, header.depth, levels)
    try:
        order(nodes, alias)
    except Cycle:
        # As written, each message is received before the next one is sent.
        nodes, rings = prepared()
        order_rings(rings, header.depth, None)
        order(nodes, alias)
    return nodes


def _deadlock(cycle: Cycle) -> PlanError:
    return PlanError(f"these statements wait for each other: {_listed(cycle.nodes)}", cycle.nodes[0].task.site)


def _listed(nodes: Sequence[Node]) -> str:
    shown = [f"{node.task.site} (rank {node.place.rank})" for node in nodes if node.places]
    most = 8
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
