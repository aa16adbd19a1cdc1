"""Logical time: what steps wait for, and what blocks them."""

from __future__ import annotations

import pytest
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast._plan.timeline import timeline


def copy(source: Operand, *destinations: Operand, **options) -> Step:
    return Step("copy", [source], list(destinations), **options)


def ran(plan: PlanModel) -> list[tuple[int, int, int, float]]:
    return sorted((event.rank, event.group, event.number, event.start) for event in timeline(plan).events)


IN, OUT = Operand("input", 0), Operand("output", 0)


def pair(first: list[Step], second: list[Step], **ring) -> PlanModel:
    """Two ranks, rings in both directions, and memory channels in both directions."""
    ring = {"depth": 2, **ring}
    channels = [Channel("ring", 0, 1, **ring), Channel("ring", 1, 0, **ring)]
    channels += [Channel("memory", 0, 1), Channel("memory", 1, 0)]
    return PlanModel("all_gather", [Rank([Group(first)]), Rank([Group(second)])], channels)


def test_a_message_arrives_after_the_step_that_sends_it():
    plan = pair([copy(IN, OUT), copy(IN, Operand(channel=0))], [copy(Operand(channel=0), OUT)])
    assert ran(plan) == [(0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 0, 2)]
    (flow,) = timeline(plan).flows
    assert (flow.source.rank, flow.target.rank, flow.source.end, flow.target.start) == (0, 1, 2, 2)


@pytest.mark.parametrize(("depth", "blocked"), [(1, True), (2, False)])
def test_a_full_ring_blocks_the_sender(depth, blocked):
    send = copy(IN, Operand(channel=0))
    reply = copy(IN, Operand(channel=1))
    plan = pair(
        [send, send, copy(Operand(channel=1), OUT)],
        [reply, reply, copy(Operand(channel=0), OUT), copy(Operand(channel=0), OUT)],
        depth=depth,
    )
    plan.ranks[0].groups[0].steps.append(copy(Operand(channel=1), OUT))
    found = timeline(plan)
    assert [(event.rank, event.number) for event in found.blocked] == ([(0, 1), (1, 1)] if blocked else [])


def test_a_wait_takes_one_signal_each_time():
    plan = pair([Step("signal", channels=[2])], [Step("wait", channels=[2]), Step("wait", channels=[2])])
    assert ran(plan) == [(0, 0, 0, 0), (1, 0, 0, 1)]
    assert [event.number for event in timeline(plan).blocked] == [1]
    plan.channels[2].initial = 1
    assert ran(plan) == [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 1, 1)]


def test_a_wait_that_names_a_channel_twice_takes_two_signals():
    plan = pair([Step("signal", channels=[2])], [Step("wait", channels=[2, 2])])
    assert [event.rank for event in timeline(plan).blocked] == [1]
    plan.ranks[0].groups[0].steps *= 2
    assert ran(plan) == [(0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 0, 2)]


def test_packets_are_waited_for():
    there = Operand("scratch", 1, channel=2, packets=True)
    here = Operand("scratch", 1, packets=True)
    assert ran(pair([copy(IN, OUT), copy(IN, there)], [copy(here, OUT)])) == [(0, 0, 0, 0), (0, 0, 1, 1), (1, 0, 0, 2)]
    assert [event.rank for event in timeline(pair([copy(IN, OUT)], [copy(here, OUT)])).blocked] == [1]


def test_steps_wait_for_steps_of_other_groups():
    steps = [copy(IN, OUT), copy(IN, OUT)]
    plan = PlanModel("all_reduce", [Rank([Group(steps), Group([copy(IN, OUT, after=[(0, 1)])])])])
    assert ran(plan) == [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 2)]


def test_a_loop_is_one_step_for_others():
    loop = Step("loop", unit_bytes=64, body=[copy(IN, OUT), copy(IN, OUT)])
    plan = PlanModel("all_reduce", [Rank([Group([loop]), Group([copy(IN, OUT, after=[(0, 0)])])])])
    assert ran(plan) == [(0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 2)]


def test_groups_meet_at_a_barrier_each_time():
    barrier = Step("barrier")
    plan = PlanModel(
        "all_reduce",
        [Rank([Group([copy(IN, OUT), barrier, barrier, copy(IN, OUT)]), Group([barrier, barrier])], barriers=[[0, 1]])],
    )
    found = timeline(plan)
    assert not found.blocked
    assert [event.start for event in found.events if event.step is barrier] == [1, 1, 2, 2]
    plan.ranks[0].groups[1].steps.pop()
    assert [(event.group, event.number) for event in timeline(plan).blocked] == [(0, 2)]


def test_an_empty_plan_takes_no_time():
    assert timeline(PlanModel("all_reduce", [Rank([Group()]), Rank()])).end == 0
