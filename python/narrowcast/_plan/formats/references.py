"""Checks what the exporters rely on: that the references of a plan exist and fit. The verifier proves the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ...errors import InvalidArgumentError
from ..model import BUFFERS, Operand, PlanModel, Step

__all__ = ["check_references"]

_KINDS = {"message": ("ring",), "remote": ("memory", "port"), "everywhere": ("switch",)}

_PLACES = {"message": "a message", "remote": "remote", "everywhere": "everywhere"}


def check_references(plan: PlanModel) -> None:
    """Raises InvalidArgumentError, with the rank, group and step, if a step refers to something that does not exist."""
    if not plan.ranks:
        raise InvalidArgumentError("the plan has no ranks")
    for rank, contents in enumerate(plan.ranks):
        groups = contents.groups
        for index, group in enumerate(groups):
            for number, step in enumerate(group.steps):

                def fail(message: str, where: str = f"rank {rank}, group {index}, step {number}") -> NoReturn:
                    raise InvalidArgumentError(f"{where}: {message}")

                for part in (step, *step.body):
                    _check_step(plan, rank, part, fail)
                for other, needed in step.after:
                    if not 0 <= other < len(groups) or not 0 <= needed < len(groups[other].steps):
                        fail(f"there is no step {needed} of group {other} to come after")
                if step.kind == "barrier":
                    if not 0 <= step.barrier < len(contents.barriers):
                        fail(f"there is no barrier {step.barrier}")
                    if index not in contents.barriers[step.barrier]:
                        fail(f"barrier {step.barrier} does not wait for group {index}")


def _check_step(plan: PlanModel, rank: int, step: Step, fail: Callable[[str], NoReturn]) -> None:
    if step.kind in ("copy", "reduce"):
        least = 1 if step.kind == "copy" else 2
        if len(step.sources) < least or (step.kind == "copy" and len(step.sources) > 1) or not step.destinations:
            fail(f"{step.kind} has {len(step.sources)} sources and {len(step.destinations)} destinations")
        if step.count < 1:
            fail(f"a count of {step.count}")
    elif step.sources or step.destinations:
        fail(f"{step.kind} has no operands")
    for operands, ends in ((step.sources, "receiver"), (step.destinations, "sender")):
        for operand in operands:
            _check_operand(plan, rank, operand, ends, fail)
    for channel in step.channels:
        kind = _channel_kind(plan, channel, fail)
        if kind not in ("memory", "port"):
            fail(f"{step.kind} through channel {channel}, which is a {kind} channel")
        end = plan.channels[channel].receiver if step.kind == "wait" else plan.channels[channel].sender
        if end != rank:
            fail(f"{step.kind} through channel {channel}, which is for rank {end}")


def _check_operand(plan: PlanModel, rank: int, operand: Operand, end: str, fail: Callable[[str], NoReturn]) -> None:
    place = operand.place
    if place != "message" and (operand.buffer not in BUFFERS or operand.chunk < 0):
        fail(f"chunk {operand.chunk} of the buffer {operand.buffer!r}")
    if place == "local":
        return
    index = operand.switch if place == "everywhere" else operand.channel
    assert index is not None
    kind = _channel_kind(plan, index, fail)
    if kind not in _KINDS[place]:
        fail(f"an operand that is {_PLACES[place]} uses channel {index}, which is a {kind} channel")
    channel = plan.channels[index]
    if place == "message":
        owners = [getattr(channel, end)]
    else:
        owners = channel.ranks if place == "everywhere" else [channel.sender, channel.receiver]
    if rank not in owners:
        fail(f"channel {index} is not one of this rank")


def _channel_kind(plan: PlanModel, index: int, fail: Callable[[str], NoReturn]) -> str:
    if not 0 <= index < len(plan.channels):
        fail(f"there is no channel {index}")
    channel = plan.channels[index]
    if not all(0 <= rank < len(plan.ranks) for rank in (channel.sender, channel.receiver, *channel.ranks)):
        fail(f"channel {index} connects ranks that do not exist")
    return channel.kind
