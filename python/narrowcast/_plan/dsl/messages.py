"""Matches sends with receives, and limits how far senders run ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .hazards import require_before
from .nodes import Node
from .record import ChannelKey, Place
from .sites import PlanError


class _End(NamedTuple):
    node: Node
    codec: str


class Message(NamedTuple):
    """A message, from where it is sent to where it is received."""

    send: Node
    receive: Node


def connect(nodes: Sequence[Node]) -> dict[ChannelKey, list[Message]]:
    """Pairs sends with receives, message by message, and orders them. Returns the messages of each ring as written.

    Raises PlanError for messages that are not received or not sent, or that differ at both ends.
    """
    sends: dict[ChannelKey, list[_End]] = {}
    receives: dict[ChannelKey, list[_End]] = {}
    for node in nodes:
        for ends, operands in ((sends, node.destinations), (receives, node.sources)):
            for operand in operands:
                if operand.is_message:
                    assert operand.channel is not None
                    ends.setdefault(operand.channel, []).append(_End(node, operand.codec))
    _connect_signals(nodes)
    return {
        channel: _paired(channel, sends.get(channel, []), receives.get(channel, []))
        for channel in {**sends, **receives}
    }


def _paired(channel: ChannelKey, sends: list[_End], receives: list[_End]) -> list[Message]:
    path = f"from rank {channel.sender} to rank {channel.receiver}"
    if len(sends) != len(receives):
        extra, other = (sends, "received") if len(sends) > len(receives) else (receives, "sent")
        raise PlanError(f"the message {path} is never {other}", extra[min(len(sends), len(receives))].node.task.site)
    for ends in (sends, receives):
        _one_group(path, ends)
    for send, receive in zip(sends, receives, strict=True):
        counts = send.node.task.count, receive.node.task.count
        fault = None
        if counts[0] != counts[1]:
            fault = f"has {counts[0]} chunks at {send.node.task.site}, but is received as {counts[1]}"
        elif send.codec != receive.codec:
            fault = f"is sent as {send.codec} at {send.node.task.site}, but received as {receive.codec}"
        elif send.node.loop is not receive.node.loop:
            fault = f"is sent at {send.node.task.site}, but received in another loop"
        if fault is not None:
            raise PlanError(f"a message {path} {fault}", receive.node.task.site)
        require_before(send.node, receive.node)
    return [Message(send.node, receive.node) for send, receive in zip(sends, receives, strict=True)]


def order_rings(rings: Mapping[ChannelKey, Sequence[Message]], depth: int, levels: Mapping[int, int] | None) -> None:
    """Orders the messages of each ring, and makes senders wait for free slots if a ring holds `depth` chunks.

    levels: by the index of a node. Messages are sent in the order in which receivers can use them. Explicit messages
    are sent as they were written, and if `levels` is None, all messages are.
    """
    for channel, written in rings.items():
        messages = list(written)
        if levels is not None and channel.groups:
            messages.sort(key=lambda message: (levels[message.receive.index], message.receive.index))
        end = 0  # of the chunks sent so far
        ends: list[int] = []
        free = 0  # the message that frees the next slot
        for number, message in enumerate(messages):
            if number:
                require_before(messages[number - 1].send, message.send)
                require_before(messages[number - 1].receive, message.receive)
            end += message.send.task.count
            # Also if the executor sends each chunk as a message of its own.
            while free < number and ends[free] <= end - depth - 1:
                free += 1
            if end > depth and free < number:
                require_before(messages[free].receive, message.send)
            ends.append(end)


def _one_group(path: str, ends: list[_End]) -> None:
    first = ends[0].node
    for end in ends:
        if end.node.place != first.place:
            raise PlanError(
                f"messages {path} belong to group {first.place.group!r} at {first.task.site} and to group "
                f"{end.node.place.group!r} here: use another channel, by `with channel(...)`",
                end.node.task.site,
            )


def _connect_signals(nodes: Sequence[Node]) -> None:
    """Orders each wait after its signal, where one group makes all signals of a channel."""
    signals: dict[ChannelKey, list[Node]] = {}
    waits: dict[ChannelKey, list[Node]] = {}
    for node in nodes:
        into = {"signal": signals, "wait": waits}.get(node.task.kind)
        if into is not None:
            for channel in node.task.channels:
                into.setdefault(channel, []).append(node)
    for channel, waiting in waits.items():
        signalling = signals.get(channel, [])
        places: set[Place] = {node.place for node in signalling}
        loops = {node.loop for node in (*signalling, *waiting)}
        if len(places) == 1 and len(loops) == 1:
            for signal, wait in zip(signalling, waiting[channel.initial :], strict=False):
                require_before(signal, wait)
