"""MSCCL++ JSON: what is written for a plan."""

from __future__ import annotations

import json
from typing import Any

import plan_oracle
import pytest
from msccl_documents import all_gather_ring, all_reduce_pairs, reduce_scatter_pairs
from mscclpp_documents import (
    all_reduce_packets,
    read,
)
from narrowcast._plan.formats import msccl_xml, mscclpp_json
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast._plan.plan import Plan
from narrowcast.errors import InvalidArgumentError, UnsupportedError

I0, O1, S2 = Operand("input", 0), Operand("output", 1), Operand("scratch", 2)


def two_ranks(*steps: Step, channels: list[Channel] | None = None, **more: Any) -> PlanModel:
    known = [
        Channel("memory", 0, 1),
        Channel("port", 0, 1),
        Channel("switch", ranks=[0, 1]),
        Channel("memory", 0, 0, initial=2),
    ]
    arguments = {"chunks": 4, "threads": "independent"} | more
    return PlanModel("all_reduce", [Rank([Group(list(steps))], 4), Rank([Group()], 4)], channels or known, **arguments)


def remote_at(buffer: str, chunk: int, channel: int = 0, packets: bool = False) -> Operand:
    return Operand(buffer, chunk, channel=channel, packets=packets)


FAR, PORT, SWITCH = remote_at("output", 0), remote_at("output", 0, 1), Operand("output", 0, switch=2)
FAR_PACKETS, PORT_PACKETS = remote_at("scratch", 0, 0, True), remote_at("scratch", 1, 1, True)
PACKETS, MORE_PACKETS = Operand("scratch", 2, packets=True), Operand("scratch", 3, packets=True)
SWITCH_PACKETS = Operand("scratch", 0, switch=2, packets=True)
O0 = Operand("output", 0)


@pytest.mark.parametrize(
    ("kind", "sources", "destinations", "names"),
    [
        ("copy", [I0], [O1], ["copy"]),
        ("copy", [I0], [O1, FAR, PORT, SWITCH], ["copy", "put", "put", "gstore"]),
        ("copy", [I0], [PACKETS, FAR_PACKETS], ["cpkt", "ppkt"]),
        ("copy", [PACKETS], [O1, FAR_PACKETS, PORT_PACKETS, SWITCH_PACKETS], ["upkt", "rppkt", "rppkt", "gstorepkt"]),
        ("copy", [FAR], [O1], ["get"]),
        ("copy", [FAR], [O1, Operand("output", 2)], ["get", "copy"]),
        ("copy", [SWITCH], [SWITCH], ["glres"]),
        ("copy", [SWITCH], [O1], ["glre"]),
        ("copy", [SWITCH], [O1, FAR], ["glre", "put"]),
        ("reduce", [I0, S2], [O1], ["re"]),
        ("reduce", [I0, S2], [O1, FAR], ["res"]),
        ("reduce", [I0, S2], [FAR, O1, PORT, Operand("output", 3)], ["res", "put", "copy"]),
        ("reduce", [I0, FAR], [O1], ["rre"]),
        ("reduce", [I0, FAR], [O1, FAR], ["rres"]),
        ("reduce", [I0, PACKETS], [O1], ["repkt"]),
        ("reduce", [I0, PACKETS], [O1, FAR_PACKETS], ["respkt"]),
        ("reduce", [PACKETS, I0], [O1, MORE_PACKETS], ["recpkt"]),
        ("reduce", [PACKETS, I0], [O1, MORE_PACKETS, FAR_PACKETS], ["recspkt"]),
        ("reduce", [I0, PACKETS], [O1, FAR_PACKETS, FAR], ["respkt", "put"]),
        ("reduce", [I0, FAR, O1, Operand("input", 3)], [O1], ["re", "rre"]),
        ("reduce", [I0, O0], [FAR, O1], ["res"]),  # FAR is output 0 too, but of the other rank
        ("reduce", [FAR, remote_at("output", 2)], [O1, FAR], ["get", "rres"]),
        ("reduce", [PACKETS, MORE_PACKETS], [O1], ["upkt", "repkt"]),
        ("reduce", [Operand("input", i) for i in range(12)], [O1, FAR], ["re", "res"]),
        ("reduce", [I0, *(Operand("scratch", i, packets=True) for i in range(19))], [O1], ["repkt", "repkt", "repkt"]),
    ],
)
def test_operations_of_a_step(kind: str, sources: list, destinations: list, names: list[str]) -> None:
    plan = two_ranks(Step(kind, sources, destinations, 2))
    written = json.loads(mscclpp_json.write(plan, "max"))
    ops = written["gpus"][0]["threadblocks"][0]["ops"]
    assert [op["name"] for op in ops] == names
    reduces = [op for op in ops if op["name"].startswith(("re", "rre", "rres", "glre"))]
    assert all(op["reduce_op"] == "max" for op in reduces)
    again = mscclpp_json.read(json.dumps(written).encode())
    steps = again.ranks[0].groups[0].steps
    written_to = {(o.buffer, o.chunk, o.channel is None, o.packets) for step in steps for o in step.destinations}
    assert written_to == {(o.buffer, o.chunk, o.channel is None, o.packets) for o in destinations}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            two_ranks(
                Step("copy", [I0], [Operand(channel=0, codec="window")]), channels=[Channel("ring", 0, 1, depth=2)]
            ),
            "no codecs",
        ),
        (two_ranks(channels=[Channel("memory", 0, 1, initial=1)]), "channel 0 has an initial value"),
        (two_ranks(instances=2), "no instances"),
        (PlanModel("broadcast", [Rank(), Rank()]), "cannot name the root"),
        (two_ranks(Step("copy", [I0], [Operand("scratch", 0, channel=0, codec="window")])), "no codecs"),
        (two_ranks(Step("copy", [I0], [Operand("output", 0, packets=True)])), "packets of MSCCL.. are in scratch only"),
        (two_ranks(Step("copy", [I0], [S2, MORE_PACKETS])), "scratch cannot contain both"),
        (two_ranks(Step("copy", [I0], [PORT_PACKETS])), "cannot copy values of the rank to packets behind a port"),
        (two_ranks(Step("copy", [PORT], [O1])), "group 0, step 0: MSCCL.. cannot copy values behind a port channel"),
        (two_ranks(Step("reduce", [I0, O1], [FAR])), "stores the result of a reduction in the rank"),
        (two_ranks(Step("reduce", [I0, SWITCH], [O1])), "cannot reduce values behind a switch"),
        (
            two_ranks(Step("reduce", [*(Operand("input", i) for i in range(11)), Operand("output", 2)], [O1], 2)),
            "an operation of MSCCL.. has 10 operands at most",
        ),
        (
            two_ranks(Step("loop", unit_bytes=64, body=[Step("copy", [I0], [O1]), Step("copy", [I0], [O1], 2)])),
            "the steps of a pipeline of MSCCL.. must have the same count",
        ),
    ],
)
def test_what_the_format_cannot_express_is_unsupported(plan: PlanModel, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        mscclpp_json.write(plan)


def test_an_unknown_reduction_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="'avg' is not a reduction of MSCCL"):
        mscclpp_json.write(two_ranks(), "avg")


@pytest.mark.parametrize("text", [all_reduce_pairs(3), all_gather_ring(4), reduce_scatter_pairs(3)])
@pytest.mark.parametrize("threads", ["synchronized", "independent"])
def test_rings_become_memory_channels_and_scratch(text: str, threads: str) -> None:
    plan = msccl_xml.read(text.encode())
    plan.threads = threads
    before = plan.to_json()
    written = mscclpp_json.write(plan)
    assert plan.to_json() == before
    again = mscclpp_json.read(written.encode())
    assert {channel.kind for channel in again.channels} == {"memory"}
    plan_oracle.run(again, orders=30)
    report = Plan(again).verify()
    assert report.proved, str(report)


def test_a_reduction_that_is_only_sent_is_stored_first() -> None:
    rings = [Channel("ring", 0, 1, depth=2), Channel("ring", 1, 0, depth=2)]
    first = [Step("copy", [I0], [Operand(channel=0)]), Step("copy", [Operand(channel=1)], [O0])]
    second = [
        Step("reduce", [I0, Operand(channel=0)], [Operand(channel=1)]),
        Step("copy", [I0], [O0]),
    ]
    plan = PlanModel("all_reduce", [Rank([Group(first)]), Rank([Group(second)])], rings, in_place="no")
    again = mscclpp_json.read(mscclpp_json.write(plan).encode())
    assert [rank.scratch_chunks for rank in again.ranks] == [1, 2]
    run = plan_oracle.Run(again, False, False, None, None)
    with pytest.raises(plan_oracle.Fault, match="result: rank 1"):
        run.run()  # rank 1 keeps its own values
    assert run.memory[0]["output"][0] == [0b11]


def test_rings_with_other_messages_than_are_received_are_an_error() -> None:
    rings = [Channel("ring", 0, 1, depth=2)]
    ranks = [Rank([Group([Step("copy", [I0], [Operand(channel=0)])])]), Rank([Group([])])]
    with pytest.raises(InvalidArgumentError, match="sent on ring 0 are not those that are received"):
        mscclpp_json.write(PlanModel("all_reduce", ranks, rings))


def test_a_reduction_of_many_sources_is_several() -> None:
    """An all-reduce whose ranks read all values of each other: more operands than an operation of MSCCL++ has."""
    ranks = 12
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    plan = PlanModel("all_reduce", channels=[Channel("memory", *pair) for pair in pairs], in_place="no")
    for rank in range(ranks):
        remote_inputs = [Operand("input", 0, channel=pairs.index((rank, b))) for b in range(ranks) if b != rank]
        plan.ranks.append(Rank([Group([Step("reduce", [I0, *remote_inputs], [O0])])]))
    plan_oracle.run(plan)
    again = mscclpp_json.read(mscclpp_json.write(plan).encode())
    plan_oracle.run(again, orders=5)
    assert [len(step.sources) for step in again.ranks[0].groups[0].steps if step.sources] == [10, 3]


def test_dependences_become_semaphores() -> None:
    first = Group([Step("copy", [I0], [S2])])
    second = Group([Step("copy", [S2], [O0], after=[(0, 0)])])
    plan = PlanModel("all_reduce", [Rank([second, first], 4)], in_place="no")
    plan.ranks[0].groups[0].steps[0].after = [(1, 0)]
    plan_oracle.run(plan)
    again = mscclpp_json.read(mscclpp_json.write(plan).encode())
    assert [[step.kind for step in group.steps] for group in again.ranks[0].groups] == [
        ["wait", "sync", "copy"],
        ["copy", "sync", "signal"],
    ]
    plan_oracle.run(again, orders=5)


def test_steps_of_a_synchronized_plan_are_separated_by_nops() -> None:
    plan = two_ranks(Step("copy", [I0], [S2]), Step("copy", [S2], [O0]), Step("sync"), threads="synchronized")
    again = mscclpp_json.read(mscclpp_json.write(plan).encode())
    assert [step.kind for step in again.ranks[0].groups[0].steps] == ["copy", "sync", "copy", "sync"]


def test_a_plan_for_both_ways_is_exported_for_calls_out_of_place() -> None:
    written = json.loads(mscclpp_json.write(two_ranks(in_place="either", min_bytes=16, max_bytes=1024)))
    assert (written["inplace"], written["min_message_size"], written["max_message_size"]) == (False, 16, 1024)


def test_long_lists_of_channels_are_divided() -> None:
    channels = [Channel("memory", 0, 1) for _ in range(20)]
    plan = two_ranks(Step("signal", channels=list(range(20))), channels=channels)
    ops = json.loads(mscclpp_json.write(plan))["gpus"][0]["threadblocks"][0]["ops"]
    assert [len(op["channel_ids"]) for op in ops] == [8, 8, 4]


def test_packets_of_a_double_buffer_are_exported() -> None:
    written = json.loads(mscclpp_json.write(read(all_reduce_packets())))
    assert (written["protocol"], written["use_double_scratch_buffer"]) == ("LL", True)
