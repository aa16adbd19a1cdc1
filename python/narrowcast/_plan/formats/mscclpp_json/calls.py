"""Completes the calls of imported plans: a call must not end before its memory can be reused.

MSCCL++ leaves two things to the end of its kernels that a call of this library does not: values stored before a relaxed
signal are visible, and copy engines have read their sources. So signals after stores are ordinary ones, as are their
waits, and a group with puts through ports that it never flushed flushes them at its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model import Group, PlanModel, Step

__all__ = ["complete_calls"]


def complete_calls(plan: PlanModel) -> None:
    """Changes a plan in this way."""
    groups = [group for rank in plan.ranks for group in rank.groups]
    announced: set[int] = set()  # channels with signals after stores
    for group in groups:
        for step in _after_values(group):
            if step.kind == "signal":
                announced.update(step.channels)
            step.relaxed = False
    for group in groups:
        for step in group.walk():
            if step.kind == "wait" and not announced.isdisjoint(step.channels):
                step.relaxed = False
        _flush(plan, group)


def _after_values(group: Group) -> Iterator[Step]:
    """The signals and waits that follow a step that moves values, maybe in an earlier iteration of a loop."""
    moved = False
    for step in group.steps:
        moved = moved or bool(step.sources) or any(inner.sources for inner in step.body)
        if moved:
            yield from (part for part in (step, *step.body) if part.kind in ("signal", "wait"))


def _flush(plan: PlanModel, group: Group) -> None:
    """Flushes the ports that the group has used since it last flushed them."""
    used: dict[int, None] = {}
    origin = 0
    for step in group.walk():
        if step.kind == "flush":
            for channel in step.channels:
                used.pop(channel, None)
        for operand in step.destinations:
            if operand.channel is not None and plan.channels[operand.channel].kind == "port":
                used[operand.channel] = None
                origin = step.origin
    if used:
        group.steps.append(Step("flush", channels=list(used), origin=origin))
