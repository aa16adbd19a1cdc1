"""MSCCL++ JSON of the schema before 0.8: what is written for a plan."""

from __future__ import annotations

import json
from typing import Any

import plan_oracle
import pytest
from mscclpp_documents import EARLIER, all_gather_ports, all_reduce_get, all_reduce_switch, read
from narrowcast._plan.formats import mscclpp_json
from narrowcast._plan.model import Channel, Group, Operand, Plan, Rank, Step
from narrowcast._plan.plan import Plan as PublicPlan
from narrowcast.errors import UnsupportedError
from narrowcast.plan import build

I0, O0, O1 = Operand("input", 0), Operand("output", 0), Operand("output", 1)
CHANNELS = [Channel("memory", 0, 1), Channel("port", 0, 1), Channel("switch", ranks=[0, 1])]


def far(buffer: str, chunk: int, channel: int = 0, packets: bool = False) -> Operand:
    return Operand(buffer, chunk, channel=channel, packets=packets)


def two_ranks(*steps: Step, **more: Any) -> Plan:
    arguments = {"chunks": 16, "threads": "independent"} | more
    return Plan("all_reduce", [Rank([Group(list(steps))], 16), Rank([Group()], 16)], CHANNELS, **arguments)


def written(plan: Plan) -> Any:
    return json.loads(mscclpp_json.write_earlier(plan))


def read_again(plan: Plan) -> Plan:
    return mscclpp_json.read(mscclpp_json.write_earlier(plan).encode())


def meaning(plan: Plan) -> list[list[list[Any]]]:
    """The steps of all groups with the ends of channels instead of their numbers, after lowering."""
    lowered = Plan.from_json(PublicPlan(plan)._lowered().write())

    def ends(number: int | None) -> Any:
        channel = None if number is None else lowered.channels[number]
        return None if channel is None else (channel.kind, channel.sender, channel.receiver, tuple(channel.ranks))

    def operand(one: Operand) -> Any:
        return (one.buffer, one.chunk, one.packets, ends(one.channel), ends(one.switch))

    def steps(group: Group) -> list[Any]:
        found: list[Any] = []
        for step in group.walk():
            sources, destinations = map(operand, step.sources), map(operand, step.destinations)
            found.append(
                [step.kind, step.count, [*sources], [*destinations], sorted(map(str, map(ends, step.channels)))]
            )
            if step.channels and len(found) > 1 and found[-2][0] == step.kind:
                # Whether channels are named together says nothing.
                channels = found.pop()[4]
                found[-1][4] = sorted(found[-1][4] + channels)
        return found

    return [[steps(group) for group in rank.groups] for rank in lowered.ranks]


@pytest.mark.parametrize("name", EARLIER)
def test_documents_of_the_schema_are_written_as_they_were(name: str) -> None:
    plan = read(EARLIER[name])
    assert read_again(plan).to_json() == plan.to_json()


@pytest.mark.parametrize(
    "document", [all_reduce_get(), all_gather_ports(), all_reduce_switch()], ids=["get", "ports", "switch"]
)
def test_documents_of_the_current_schema_keep_their_meaning(document: Any) -> None:
    plan = read(document)
    again = read_again(plan)
    for channel in plan.channels:
        assert channel in again.channels
    assert PublicPlan(again).verify().verdict == PublicPlan(plan).verify().verdict
    plain = mscclpp_json.read(mscclpp_json.write(plan).encode())
    assert meaning(again) == meaning(plain)
    # There are only ordinary signals, which do more than relaxed ones.
    assert not any(step.relaxed for rank in again.ranks for group in rank.groups for step in group.walk())


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_pairs", "all_reduce"),
        ("all_pairs", "all_to_all"),
        ("ring", "all_gather"),
        ("ring", "all_reduce"),
        ("halving_doubling", "reduce_scatter"),
        ("tree", "all_reduce"),
        ("two_level", "all_reduce"),
        ("one_shot", "all_gather"),
        ("two_shot", "all_reduce"),
    ],
)
def test_plans_are_the_same_as_in_the_current_schema(name: str, operation: str) -> None:
    plan = build(name, operation, 4, ranks_per_node=2 if name == "two_level" else 1).model
    again = read_again(plan)
    report = PublicPlan(again).verify()
    assert report.proved, str(report)
    plan_oracle.run(again, orders=5)
    if (name, operation) != ("all_pairs", "all_reduce"):  # which reduces from several buffers, and so in several steps
        assert meaning(again) == meaning(mscclpp_json.read(mscclpp_json.write(plan).encode()))


def test_channels_connect_the_buffers_that_operations_access() -> None:
    plan = two_ranks(
        Step("copy", [I0], [far("output", 3)]),
        Step("copy", [Operand("scratch", 1)], [far("output", 4)]),
        Step("signal", channels=[0]),
        Step("copy", [far("input", 5)], [O0]),
    )
    plan.channels = CHANNELS[:1]
    gpus = written(plan)["gpus"]
    pairs = [("i", "o"), ("s", "o"), ("o", "i")]
    assert gpus[0]["channels"] == [
        {"srcbuff": src, "dstbuff": dst, "type": "sm", "connectedTo": [1]} for src, dst in pairs
    ]
    # The other rank has as many, so that their semaphores fit.
    assert sum(len(channel["connectedTo"]) for channel in gpus[1]["channels"]) == 3
    (block,) = gpus[0]["threadblocks"]
    assert block["ops"] == [
        {
            "name": "put",
            "srcs": [{"buff": "i", "off": 0}],
            "ctype": "sm",
            "cnt": 1,
            "o_buff": {"src": "i", "dst": "o"},
            "o_cids": [{"id": 0, "off": 3}],
        },
        {
            "name": "put",
            "srcs": [{"buff": "s", "off": 1}],
            "ctype": "sm",
            "cnt": 1,
            "o_buff": {"src": "s", "dst": "o"},
            "o_cids": [{"id": 0, "off": 4}],
        },
        {
            "name": "signal",
            "ctype": "sm",
            "cnt": 1,
            "o_buff": {"src": "i", "dst": "o"},
            "o_cids": [{"id": 0, "off": 0}],
        },
        {
            "name": "get",
            "dsts": [{"buff": "o", "off": 0}],
            "ctype": "sm",
            "cnt": 1,
            "i_buff": {"src": "o", "dst": "i"},
            "i_cids": [{"id": 0, "off": 5}],
        },
    ]
    assert [(channel["src"], channel["dst"], channel["cids"]) for channel in block["channels"]] == [
        ("i", "o", [0]),
        ("s", "o", [0]),
        ("o", "i", [0]),
    ]


def test_a_signal_of_a_port_is_that_of_its_puts() -> None:
    port = far("output", 0, 1)
    plan = two_ranks(Step("copy", [I0], [port]), Step("signal", channels=[1]), Step("flush", channels=[1]))
    again = read_again(plan)
    put, signal, flush = again.ranks[0].groups[0].steps
    assert [put.destinations[0].channel] == signal.channels == flush.channels
    assert again.channels[signal.channels[0]].kind == "port"


@pytest.mark.parametrize(
    ("step", "names", "counts"),
    [
        (
            Step("reduce", [I0, *(Operand("scratch", i) for i in range(12))], [O1]),
            ["re", "re", "re"],  # 10 and 4 in the current schema
            [9, 2, 4],
        ),
        (
            Step("reduce", [I0, Operand("scratch", 0), Operand("input", 3)], [O1, far("output", 1)]),
            ["re", "rs"],
            [2, 2],
        ),
        (Step("reduce", [I0, far("input", 0), far("scratch", 0)], [O1]), ["rrc", "rrc"], [2, 2]),
        (
            Step("reduce", [I0, far("input", 0)], [O1, far("output", 1), far("scratch", 2)]),
            ["rrcs", "put"],
            [2, 1],
        ),
    ],
)
def test_operands_of_other_buffers_and_more_than_8_are_divided(step: Step, names: list[str], counts: list[int]) -> None:
    plan = two_ranks(step)
    ops = written(plan)["gpus"][0]["threadblocks"][0]["ops"]
    assert [op["name"] for op in ops] == names
    steps = [one for one in read_again(plan).ranks[0].groups[0].steps if one.sources]
    assert [len(one.sources) for one in steps] == counts
    places = {(one.buffer, one.chunk, one.place) for own in steps for one in own.destinations}
    assert places == {(one.buffer, one.chunk, one.place) for one in step.destinations}


def test_long_lists_of_channels_are_divided() -> None:
    plan = two_ranks(Step("signal", channels=list(range(20))))
    plan.channels = [Channel("memory", 0, 1) for _ in range(20)]
    ops = written(plan)["gpus"][0]["threadblocks"][0]["ops"]
    assert [len(op["o_cids"]) for op in ops] == [8, 8, 4]


PACKETS = Operand("scratch", 2, packets=True)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            two_ranks(Step("loop", unit_bytes=64, body=[Step("copy", [I0], [O1])])),
            "rank 0 thread block 0 operation 0: MSCCL.. before 0.8 has no pipeline",
        ),
        (
            Plan("all_reduce", [Rank([Group([Step("copy", [I0], [O0])]), Group([Step("sync", after=[(0, 0)])])])] * 2),
            "rank 0 thread block 0 operation 2: MSCCL.. before 0.8 has no sem_release",
        ),
        (
            two_ranks(Step("copy", [I0], [Operand("output", 0, switch=2)])),
            "operation 0: MSCCL.. before 0.8 has no gstore",
        ),
        (
            two_ranks(Step("reduce", [I0, PACKETS], [O1, Operand("scratch", 3, packets=True)]), scratch_copies=2),
            "MSCCL.. before 0.8 has no recpkt",
        ),
        (two_ranks(Step("copy", [PACKETS], [O0])), "two copies of the scratch memory for packets, and only for them"),
        (two_ranks(scratch_copies=2), "two copies of the scratch memory for packets, and only for them"),
        (
            two_ranks(Step("copy", [I0], [far("output", 0, 1)]), Step("copy", [I0], [far("scratch", 0, 1)])),
            "operation 1: a port channel of MSCCL.. before 0.8 connects only one buffer with one other",
        ),
        (
            two_ranks(Step("reduce", [I0, Operand("scratch", 0), Operand("output", 2)], [O1], 2)),
            "has 8 operands of one buffer at most",
        ),
        (Plan("broadcast", [Rank(), Rank()]), "cannot name the root"),
    ],
)
def test_what_the_schema_cannot_express_is_unsupported(plan: Plan, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        mscclpp_json.write_earlier(plan)
