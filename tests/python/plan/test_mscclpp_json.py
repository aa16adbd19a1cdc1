"""MSCCL++ JSON: what its documents mean."""

from __future__ import annotations

import json
from typing import Any

import plan_oracle
import pytest
from mscclpp_documents import (
    ALL,
    EARLIER,
    NOP,
    all_gather_groups,
    block,
    document,
    earlier,
    here,
    link,
    local,
    read,
    remote,
    steps_of,
    switched,
    through,
)
from narrowcast._plan.formats import mscclpp_json
from narrowcast._plan.model import Channel, Operand, PlanModel
from narrowcast.errors import UnsupportedError


def without_syncs(plan: PlanModel) -> dict[str, Any]:
    """The plan without origins and syncs."""
    result = json.loads(plan.to_json())
    for rank in result["ranks"]:
        for group in rank["groups"]:
            group["steps"] = [strip(step) for step in group["steps"] if step["step"] != "sync"]
    return result


def strip(step: dict[str, Any]) -> dict[str, Any]:
    step.pop("origin", None)
    if "steps" in step:
        step["steps"] = [strip(inner) for inner in step["steps"] if inner["step"] != "sync"]
    return step


@pytest.mark.parametrize("found", ALL.values(), ids=ALL)
def test_a_document_computes_its_collective(found: dict[str, Any]) -> None:
    plan = read(found)
    assert plan.threads == "independent"
    plan_oracle.run(plan, orders=30)


@pytest.mark.parametrize("found", ALL.values(), ids=ALL)
def test_reading_what_was_written_gives_the_same_plan(found: dict[str, Any]) -> None:
    plan = read(found)
    again = mscclpp_json.read(mscclpp_json.write(plan).encode())
    assert without_syncs(again) == without_syncs(plan)
    plan_oracle.run(again, orders=10)


I0, O1, S2 = Operand("input", 0), Operand("output", 1), Operand("scratch", 2)


def packets(operand: Operand) -> Operand:
    return Operand(operand.buffer, operand.chunk, operand.channel, operand.switch, packets=True)


def over(buffer: str, chunk: int) -> Operand:
    return Operand(buffer, chunk, channel=0)


def many(buffer: str, chunk: int) -> Operand:
    return Operand(buffer, chunk, switch=0)


@pytest.mark.parametrize(
    ("name", "sources", "targets", "expected"),
    [
        ("copy", [local("i")], [local("o", 1)], ([I0], [O1])),
        ("cpkt", [local("i")], [local("s", 2)], ([I0], [packets(S2)])),
        ("upkt", [local("s", 2)], [local("o", 1)], ([packets(S2)], [O1])),
        ("put", [local("i")], [remote(1, 5)], ([I0], [over("output", 5)])),
        ("get", [remote(0, 5)], [local("o", 1)], ([over("input", 5)], [O1])),
        ("ppkt", [local("i")], [remote(2, 5)], ([I0], [packets(over("scratch", 5))])),
        ("rppkt", [local("s", 2)], [remote(2, 5)], ([packets(S2)], [packets(over("scratch", 5))])),
        ("re", [local("i"), local("s", 2)], [local("o", 1)], ([I0, S2], [O1])),
        ("res", [local("i"), local("s", 2)], [local("o", 1), remote(1, 4)], ([I0, S2], [O1, over("output", 4)])),
        ("rre", [local("i"), remote(0, 4)], [local("o", 1)], ([I0, over("input", 4)], [O1])),
        ("repkt", [local("i"), local("s", 2)], [local("o", 1)], ([I0, packets(S2)], [O1])),
        ("recpkt", [local("i"), local("s", 2)], [local("o", 1), local("s", 2)], ([I0, packets(S2)], [O1, packets(S2)])),
        ("glres", [switched(3)], [switched(4)], ([many("input", 3)], [many("input", 4)])),
        ("gstore", [local("o", 1)], [switched(4)], ([O1], [many("input", 4)])),
        ("gstorepkt", [local("s", 2)], [switched(4)], ([packets(S2)], [packets(many("input", 4))])),
    ],
)
def test_every_operation_that_moves_values(name: str, sources: list, targets: list, expected: tuple) -> None:
    kind = "switch" if name.startswith("g") and name != "get" else "memory"
    op = {"name": name, "src_buff": sources, "dst_buff": targets, "channel_type": kind, "channel_ids": [0]}
    _, (step,) = steps_of(op)
    assert (step.sources, step.destinations) == expected
    assert step.kind == ("reduce" if len(sources) > 1 else "copy")
    assert (step.count, step.origin) == (1, 1)


def test_glre_stores_the_reduction_of_all_ranks() -> None:
    op = {
        "name": "glre",
        "buffer_type": "i",
        "buffer_offset": 3,
        "size": 2,
        "dst_chunk": {"rank": 0, "type": "o", "index": 1, "size": 2},
        "channel_ids": [0],
        "channel_type": "switch",
        "reduce_op": "sum",
    }
    _, (step,) = steps_of(op)
    assert (step.sources, step.destinations, step.count) == ([many("input", 3)], [O1], 2)


def test_operands_of_a_fused_operation_have_their_own_buffers() -> None:
    op = {
        "name": "put",
        "src_buff": [local("i"), local("s", 2)],
        "dst_buff": [remote(1, 5), remote(2, 6)],
        "channel_type": "memory",
    }
    _, steps = steps_of(op)
    assert [(step.sources, step.destinations) for step in steps] == [
        ([I0], [over("output", 5)]),
        ([S2], [over("scratch", 6)]),
    ]


def test_destinations_of_one_source_are_one_step() -> None:
    op = {
        "name": "ppkt",
        "src_buff": [local("i"), local("i")],
        "dst_buff": [remote(2, 5), remote(2, 6)],
        "channel_type": "memory",
    }
    _, (step,) = steps_of(op)
    assert step.destinations == [packets(over("scratch", 5)), packets(over("scratch", 6))]


def test_put_with_signal_signals_after_the_put() -> None:
    op = {
        "name": "pwsf",
        "src_buff": [local("i")],
        "dst_buff": [remote(1, 5)],
        "channel_type": "port",
        "channel_ids": [0],
    }
    plan, steps = steps_of(op)
    assert [step.kind for step in steps] == ["copy", "sync", "signal", "flush"]
    assert [step.channels for step in steps[2:]] == [[0], [0]]
    assert plan.channels[0] == Channel("port", 0, 1)


@pytest.mark.parametrize(
    ("op", "kind", "relaxed", "channel"),
    [
        (link("signal"), "signal", False, Channel("memory", 0, 1)),
        (link("rlxsignal"), "signal", True, Channel("memory", 0, 1)),
        (link("wait"), "wait", False, Channel("memory", 1, 0)),
        (link("rlxwait"), "wait", True, Channel("memory", 1, 0)),
        (link("flush", kind="port"), "flush", False, Channel("port", 0, 1)),
        ({"name": "sem_release", "semaphore_ids": [1]}, "signal", False, Channel("memory", 0, 0, initial=3)),
        ({"name": "sem_acquire", "semaphore_ids": [0]}, "wait", False, Channel("memory", 0, 0)),
    ],
)
def test_every_operation_on_semaphores(op: dict, kind: str, relaxed: bool, channel: Channel) -> None:
    plan, (step,) = steps_of(op)
    assert (step.kind, step.relaxed, step.channels) == (kind, relaxed, [0])
    assert plan.channels == [channel]


def test_relaxed_signals_after_stores_are_ordinary_ones() -> None:
    store = {"name": "gstore", "src_buff": [local("i")], "dst_buff": [switched()], "channel_type": "switch"}
    ops = [link("rlxsignal"), link("rlxwait"), store, NOP, link("rlxsignal")]
    plan = read(document([[block(0, ops), block(1, [link("rlxwait")])]] * 2))
    kinds = [[(step.kind, step.relaxed) for step in group.steps if step.channels] for group in plan.ranks[0].groups]
    # The waits are for the same channel, so the first one is an ordinary one too.
    assert kinds == [[("signal", True), ("wait", False), ("signal", False)], [("wait", False)]]


def test_relaxed_signals_in_a_loop_follow_the_stores_of_earlier_iterations() -> None:
    op = {"name": "copy", "src_buff": [local("i")], "dst_buff": [local("s")]}
    loop = {"name": "pipeline", "iter_context": {"unit_size": 64, "num_chunks": 1}, "ops": [link("rlxsignal"), op]}
    _, (step,) = steps_of(loop)
    assert not step.body[0].relaxed


def test_ports_are_flushed_before_the_call_ends() -> None:
    put = {"src_buff": [local("i")], "dst_buff": [remote(1)], "channel_type": "port", "channel_ids": [0]}
    for name, expected in (("pws", ["copy", "sync", "signal", "flush"]), ("put", ["copy", "flush"])):
        _, steps = steps_of(put | {"name": name})
        assert [step.kind for step in steps] == expected
    _, steps = steps_of({"name": "put", **put, "dst_buff": [remote(1)]} | {"channel_type": "memory"})
    assert [step.kind for step in steps] == ["copy"]


def test_the_kth_channels_of_two_ranks_are_a_pair() -> None:
    ops = [link("signal", [0]), link("signal", [1]), link("wait", [1]), link("wait", [0])]
    blocks = [[block(0, ops, [1, 0])], [block(0, ops, [0, 1])]]
    plan = read(document(blocks, connections=2))
    (first, second) = (rank.groups[0].steps for rank in plan.ranks)
    assert first[0].channels == second[2].channels  # rank 0's channel 1
    assert first[1].channels == second[3].channels
    assert first[2].channels == second[1].channels or first[2].channels == second[0].channels
    assert len(plan.channels) == 4


def test_a_nop_synchronizes_the_threads_of_the_block() -> None:
    assert [step.kind for step in steps_of(NOP)[1]] == ["sync"]


def test_a_barrier_waits_for_the_blocks_that_use_it() -> None:
    plan = read(all_gather_groups())
    assert plan.ranks[0].barriers == [[0, 1, 2]]
    assert [group.steps[0].kind for group in plan.ranks[0].groups] == ["copy", "copy", "barrier"]


def test_a_barrier_of_one_block_is_a_sync() -> None:
    plan, (step,) = steps_of({"name": "barrier", "barrier_id": 9, "num_threadblocks": 1})
    assert (step.kind, plan.ranks[0].barriers) == ("sync", [])


@pytest.mark.parametrize(("block_of", "size", "expected"), [(0, 4, (12, 3)), (3, 4, (21, 3)), (1, 2, (18, 6))])
def test_groups_of_thread_blocks_divide_chunks(block_of: int, size: int, expected: tuple[int, int]) -> None:
    op = {"name": "copy", "src_buff": [local("i", 1, 1)], "dst_buff": [local("s", 1, 1)]}
    first = op | {"tbg_info": {"tb_id": block_of, "tbg_size": size}}
    third = op | {"tbg_info": {"tb_id": 0, "tbg_size": 3}}
    quarter = op | {"tbg_info": {"tb_id": 0, "tbg_size": 4}}
    plan = read(document([[block(0, [first, third, quarter, op], alone=True)]], "broadcast"))
    steps = plan.ranks[0].groups[0].steps
    assert (plan.chunks, plan.ranks[0].scratch_chunks) == (24, 24)
    assert (steps[0].sources[0].chunk, steps[0].count) == expected
    assert (steps[3].sources[0].chunk, steps[3].count) == (12, 12)


def test_a_pipeline_is_a_loop() -> None:
    op = {"name": "copy", "src_buff": [local("i", 0, 2)], "dst_buff": [local("s", 0, 2)]}
    loop = {"name": "pipeline", "iter_context": {"unit_size": 65536, "num_chunks": 2}, "ops": [op, NOP]}
    _, (step,) = steps_of(loop)
    assert (step.kind, step.unit_bytes, [part.kind for part in step.body]) == ("loop", 65536, ["copy", "sync"])


@pytest.mark.parametrize(
    ("protocol", "double", "expected"), [("Simple", None, 1), ("LL", None, 1), ("LL", True, 2), ("Simple", True, 2)]
)
def test_scratch_is_double_if_the_plan_says_so(protocol: str, double: bool | None, expected: int) -> None:
    more = {} if double is None else {"use_double_scratch_buffer": double}
    plan = read(document([[]], "allreduce", protocol=protocol, **more))
    assert plan.scratch_copies == expected
    assert mscclpp_json.read(mscclpp_json.write(plan).encode()).scratch_copies == expected


def test_packets_of_the_earlier_schema_have_double_scratch() -> None:
    assert [read(found).scratch_copies for found in EARLIER.values()] == [1, 2]


@pytest.mark.parametrize(
    ("op", "kind", "sources", "destinations"),
    [
        ({"name": "copy", **here(("i", 0), ("o", 1))}, "copy", [I0], [O1]),
        ({"name": "tpkt", **here(("i", 0), ("s", 2))}, "copy", [I0], [packets(S2)]),
        ({"name": "cpkt", **here(("s", 2), ("o", 1))}, "copy", [packets(S2)], [O1]),
        (
            {"name": "put", **through("o", "s", 3), "srcs": [{"buff": "i", "off": 0}]},
            "copy",
            [I0],
            [over("scratch", 3)],
        ),
        (
            {"name": "get", **through("i", "s", 3), "dsts": [{"buff": "o", "off": 1}]},
            "copy",
            [over("scratch", 3)],
            [O1],
        ),
        (
            {"name": "rppkt", **through("o", "s", 3), "srcs": [{"buff": "s", "off": 2}]},
            "copy",
            [packets(S2)],
            [packets(over("scratch", 3))],
        ),
        ({"name": "re", **here(("i", 0), ("o", 1)), "srcs": [{"buff": "s", "off": 2}]}, "reduce", [I0, S2], [O1]),
        (
            {"name": "rs", **here(("i", 0), ("o", 1)), "srcs": [{"buff": "s", "off": 2}], **through("o", "s", 3)},
            "reduce",
            [I0, S2],
            [O1, over("scratch", 3)],
        ),
        ({"name": "rrc", **here(("i", 0), ("o", 1)), **through("i", "i", 3)}, "reduce", [I0, over("input", 3)], [O1]),
        (
            {"name": "rpkt", **here(("i", 0), ("o", 1)), "srcs": [{"buff": "s", "off": 2}]},
            "reduce",
            [I0, packets(S2)],
            [O1],
        ),
    ],
)
def test_operations_of_the_earlier_schema(op: dict, kind: str, sources: list, destinations: list) -> None:
    plan = read(earlier([[[op | {"ctype": "sm", "cnt": 2}]], []]))
    (step,) = plan.ranks[0].groups[0].steps
    assert (step.kind, step.count, step.sources, step.destinations) == (kind, 2, sources, destinations)


def test_the_switch_of_the_earlier_schema() -> None:
    op = {"name": "glres", "i_cids": [{"id": 0}], "o_cids": [{"id": 0}], **here(("i", 0), ("i", 1))}
    plan = read(earlier([[[op | {"ctype": "nvls", "cnt": 1}]], []]))
    (step,) = plan.ranks[0].groups[0].steps
    assert (step.sources, step.destinations) == ([many("input", 0)], [many("input", 1)])


def test_ports_of_the_earlier_schema_signal_and_flush() -> None:
    op = {"name": "pwsf", **through("o", "s", 3), "srcs": [{"buff": "i", "off": 0}], "ctype": "proxy", "cnt": 1}
    plan = read(earlier([[[op]], []]))
    assert [step.kind for step in plan.ranks[0].groups[0].steps] == ["copy", "sync", "signal", "flush"]
    assert plan.channels == [Channel("port", 0, 1)]


@pytest.mark.parametrize("collective", ["test", "sendrecv", "custom"])
def test_collectives_without_a_defined_result_are_unsupported(collective: str) -> None:
    with pytest.raises(UnsupportedError, match="has no defined result"):
        read(document([[]], collective))


def test_two_reductions_in_one_plan_are_unsupported() -> None:
    ops = [
        {"name": "re", "src_buff": [local("i"), local("s")], "dst_buff": [local("o")], "reduce_op": reduction}
        for reduction in ("max", "min")
    ]
    with pytest.raises(UnsupportedError, match=r"gpus\[0\].threadblocks\[0\].ops\[1\]: the plan reduces by max and by"):
        read(document([[block(0, ops, alone=True)]]))
