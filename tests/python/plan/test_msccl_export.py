"""MSCCL XML: what is written for a plan."""

from __future__ import annotations

import random

import plan_oracle
import pytest
from narrowcast._plan.formats import msccl_xml
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast.errors import InvalidArgumentError, UnsupportedError


def one_step(*steps: Step, channels: list[Channel] | None = None, **more: object) -> PlanModel:
    rings = [Channel("ring", 0, 1, depth=2), Channel("ring", 1, 0, depth=2), Channel("ring", 0, 1, depth=2)]
    arguments = {"chunks": 4, "in_place": "no"} | more
    return PlanModel("all_reduce", [Rank([Group(list(steps))], 4), Rank([Group()])], channels or rings, **arguments)


IN, OUT, TEMPORARY = Operand("input", 0), Operand("output", 0), Operand("scratch", 0)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (one_step(Step("reduce", [IN, IN], [OUT])), "group 0, step 0: MSCCL XML cannot add a chunk to itself"),
        (one_step(Step("reduce", [IN, OUT], [TEMPORARY]), in_place="yes"), "cannot add a chunk to itself"),
        (
            one_step(Step("reduce", [IN, Operand("output", 1)], [OUT], 2)),
            "cannot reduce chunks into ones that overlap them",
        ),
        (one_step(Step("copy", [IN], [Operand(channel=0, codec="window")])), "no codecs"),
        (one_step(Step("copy", [IN], [Operand("scratch", 0, packets=True)])), "no packets"),
        (one_step(Step("loop", unit_bytes=64, body=[Step("copy", [IN], [OUT])])), "MSCCL XML has no loop"),
        (one_step(channels=[Channel("memory", 0, 1)]), "channel 0 is a memory channel: MSCCL XML has only rings"),
        (one_step(channels=[Channel("switch", ranks=[0, 1])]), "channel 0 is a switch channel"),
        (one_step(channels=[Channel("ring", 0, 1, depth=9)]), "room for 9 messages, and a connection of MSCCL for 8"),
        (
            one_step(channels=[Channel("ring", 0, 1, 2, packets=True), Channel("ring", 1, 0, 2)]),
            "one protocol for all",
        ),
        (one_step(instances=2), "no instances"),
        (PlanModel("broadcast", [Rank(), Rank()]), "cannot name the root"),
    ],
)
def test_what_the_format_cannot_express_is_unsupported(plan: PlanModel, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        msccl_xml.write(plan)


def test_two_rings_between_the_same_ranks_get_different_channels() -> None:
    plan = one_step(Step("copy", [IN], [Operand(channel=0)]))
    plan.ranks[0].groups.append(Group([Step("copy", [IN], [Operand(channel=2)])]))
    plan.ranks[1].groups = [
        Group([Step("copy", [Operand(channel=0)], [OUT])]),
        Group([Step("copy", [Operand(channel=2)], [TEMPORARY])]),
    ]
    plan.ranks[1].scratch_chunks = 1
    text = msccl_xml.write(plan)
    assert 'nchannels="2"' in text
    again = msccl_xml.read(text.encode())
    assert [(ring.sender, ring.receiver) for ring in again.channels] == [(0, 1), (0, 1)]


def send_to(receiver: int, ranks: int, rank: int) -> int:
    """The ring of a plan that has one from each rank to each other."""
    return rank * (ranks - 1) + receiver - (receiver > rank)


def all_pairs(ranks: int, in_place: str = "either", two_shot: bool = False) -> PlanModel:
    """An all-reduce in which one group of each rank sends to all others, and receives from all."""
    rings = [Channel("ring", a, b, depth=2) for a in range(ranks) for b in range(ranks) if a != b]
    plan = PlanModel("all_reduce", channels=rings, chunks=ranks if two_shot else 1, in_place=in_place)
    for rank in range(ranks):
        others = [other for other in range(ranks) if other != rank]
        out = [Operand(channel=send_to(other, ranks, rank)) for other in others]
        into = [Operand(channel=send_to(rank, ranks, other)) for other in others]
        if two_shot:
            steps = [
                *(Step("copy", [Operand("input", other)], [ring]) for other, ring in zip(others, out, strict=True)),
                Step("reduce", [Operand("input", rank), *into], [Operand("output", rank), *out]),
                *(Step("copy", [ring], [Operand("output", other)]) for other, ring in zip(others, into, strict=True)),
            ]
        else:
            steps = [Step("copy", [IN], out), Step("reduce", [IN, *into], [OUT])]
        plan.ranks.append(Rank([Group(steps)]))
    return plan


@pytest.mark.parametrize("in_place", ["no", "yes", "either"])
@pytest.mark.parametrize("two_shot", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_group_that_uses_several_rings_becomes_several_blocks(ranks: int, two_shot: bool, in_place: str) -> None:
    plan = all_pairs(ranks, in_place, two_shot)
    plan_oracle.run(plan, orders=5)
    text = msccl_xml.write(plan)
    assert text.count("<tb ") >= ranks * (ranks - 1)
    again = msccl_xml.read(text.encode())
    plan_oracle.run(again, orders=50)


def test_rows_of_different_blocks_wait_where_they_access_the_same_chunks() -> None:
    """Two values pass through one scratch chunk, which must not be overwritten before it has been sent."""
    rings = [Channel("ring", a, b, depth=2) for a in range(3) for b in range(3) if a != b]
    ring = {(a, b): Operand(channel=send_to(b, 3, a)) for a in range(3) for b in range(3) if a != b}
    relay = [
        Step("copy", [ring[0, 1]], [TEMPORARY]),
        Step("copy", [TEMPORARY], [ring[1, 2]]),
        Step("copy", [ring[2, 1]], [TEMPORARY]),
        Step("copy", [TEMPORARY], [ring[1, 0]]),
        Step("reduce", [IN, TEMPORARY], [OUT]),
    ]
    ends = [[Step("copy", [IN], [ring[0, 1]]), Step("copy", [ring[1, 0]], [OUT])]]
    ends += [relay, [Step("copy", [IN], [ring[2, 1]]), Step("copy", [ring[1, 2]], [OUT])]]
    plan = PlanModel("all_reduce", [Rank([Group(steps)], 1) for steps in ends], rings, in_place="no")
    again = msccl_xml.read(msccl_xml.write(plan).encode())
    assert sum(len(part.after) for group in again.ranks[1].groups for part in group.steps) >= 4
    for seed in range(50):
        run = plan_oracle.Run(again, False, False, None, random.Random(seed))
        with pytest.raises(plan_oracle.Fault, match="result"):
            run.run()  # it is not an all-reduce
        results = [run.memory[rank]["output"][0][0] for rank in range(3)]
        assert results == [0b100, 0b110, 0b001]


def test_steps_of_other_groups_wait_for_all_blocks() -> None:
    plan = all_pairs(3, "no")
    for rank in plan.ranks:
        rank.scratch_chunks = 1
        rank.groups.append(Group([Step("copy", [OUT], [TEMPORARY], after=[(0, 1)])]))
    again = msccl_xml.read(msccl_xml.write(plan).encode())
    (last,) = again.ranks[0].groups[-1].steps
    assert sorted(group for group, _ in last.after) == list(range(len(again.ranks[0].groups) - 1))
    plan_oracle.run(again, orders=50)


def test_rings_that_cannot_share_a_channel_get_blocks_of_their_own() -> None:
    """A group forwards from ring 1 to 0 and another one from 1 to 2, so 0 and 2 would have the channel of 1."""
    forward = Group([Step("copy", [Operand(channel=1)], [Operand("scratch", 0), Operand(channel=0)])])
    second = Group([Step("copy", [Operand(channel=3)], [Operand("scratch", 1), Operand(channel=2)])])
    third = Group(
        [Step("copy", [Operand(channel=0)], [Operand("scratch", 0), Operand(channel=3)])],
    )
    rings = [Channel("ring", *ends, depth=2) for ends in ((0, 1), (1, 0), (0, 1), (1, 0))]
    plan = PlanModel("all_reduce", [Rank([forward, second], 2), Rank([third], 2)], rings, in_place="no")
    text = msccl_xml.write(plan)
    again = msccl_xml.read(text.encode())
    assert len(again.ranks[0].groups) == 4
    assert 'nchannels="2"' in text


def test_a_protocol_can_be_named() -> None:
    deep = one_step(channels=[Channel("ring", 0, 1, depth=9)])
    assert 'proto="LL128"' in msccl_xml.write(deep, "LL128")
    with pytest.raises(InvalidArgumentError, match="'fast' is not a protocol"):
        msccl_xml.write(deep, "fast")


def test_steps_with_several_effects_become_several_rows() -> None:
    """An all-reduce of two ranks, from steps that no row of the format has."""
    receive, send = Operand(channel=1), Operand(channel=0)
    steps = [
        Step("copy", [IN], [TEMPORARY, Operand("scratch", 1), send]),
        Step("reduce", [TEMPORARY, receive], [OUT, Operand("scratch", 2)]),
        Step("barrier"),
        Step("sync"),
    ]
    other = [Step("barrier"), Step("copy", [Operand("scratch", 2)], [Operand("scratch", 3)], after=[(0, 0), (0, 3)])]

    def rank(first: Operand, second: Operand) -> Rank:
        swap = {id(send): first, id(receive): second}
        mine = [
            Step(
                part.kind,
                [swap.get(id(operand), operand) for operand in part.sources],
                [swap.get(id(operand), operand) for operand in part.destinations],
            )
            for part in steps
        ]
        return Rank([Group(mine), Group(other)], 4, [[0, 1]])

    rings = [Channel("ring", 0, 1, depth=2), Channel("ring", 1, 0, depth=2)]
    plan = PlanModel("all_reduce", [rank(send, receive), rank(receive, send)], rings, in_place="no")
    plan_oracle.run(plan, orders=5)
    again = msccl_xml.read(msccl_xml.write(plan).encode())
    plan_oracle.run(again, orders=20)
    assert again.ranks[0].groups[1].steps[0].after == [(0, 4)]


@pytest.mark.parametrize(
    ("sources", "destinations", "kinds"),
    [
        ([IN, OUT], [OUT], ["re"]),
        ([OUT, IN], [OUT], ["re"]),
        ([IN, TEMPORARY], [OUT], ["cpy", "re"]),
        ([IN, TEMPORARY, OUT], [OUT], ["re", "re"]),
        ([IN, TEMPORARY], [OUT, Operand(channel=0)], ["cpy", "re", "s"]),
        ([IN, OUT, Operand(channel=1)], [OUT], ["re", "rrc"]),
        ([IN, OUT, Operand(channel=1)], [OUT, Operand(channel=0)], ["re", "rrcs"]),
        ([IN, Operand(channel=1)], [Operand(channel=0)], ["rrs"]),
        ([IN, Operand(channel=1)], [OUT, TEMPORARY], ["rrc", "cpy"]),
        ([IN, TEMPORARY], [Operand(channel=0)], ["cpy", "re", "s"]),
        ([Operand(channel=1)], [Operand(channel=0)], ["rcs"]),
    ],
)
def test_rows_of_a_step(sources: list[Operand], destinations: list[Operand], kinds: list[str]) -> None:
    kind = "reduce" if len(sources) > 1 else "copy"
    text = msccl_xml.write(one_step(Step(kind, sources, destinations)))
    assert [line.split('type="')[1].split('"')[0] for line in text.splitlines() if "<step" in line] == kinds
