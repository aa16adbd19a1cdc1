"""MSCCL++ JSON: what its documents mean, and what is written for a plan."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import plan_oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msccl_documents import all_gather_ring, all_reduce_pairs, reduce_scatter_pairs
from mscclpp_documents import (
    DOCUMENTS,
    EARLIER,
    NOP,
    all_gather_groups,
    all_reduce_get,
    all_reduce_packets,
    block,
    document,
    earlier,
    here,
    link,
    local,
    remote,
    switched,
    through,
)
from narrowcast._plan.formats import msccl_xml, mscclpp_json
from narrowcast._plan.model import Channel, Group, Operand, Plan, Rank, Step
from narrowcast._plan.plan import Plan as PublicPlan
from narrowcast.errors import InvalidArgumentError, UnsupportedError

ALL = {**DOCUMENTS, **{f"{name}, before 0.8": found for name, found in EARLIER.items()}}


def read(found: dict[str, Any]) -> Plan:
    return mscclpp_json.read(json.dumps(found).encode())


def without_syncs(plan: Plan) -> dict[str, Any]:
    """The plan without origins and syncs."""
    result = plan.to_dict()
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


def steps_of(op: dict[str, Any], **more: Any) -> tuple[Plan, list[Step]]:
    plan = read(document([[block(0, [op])], [block(0, [])]], chunks=(8, 8, 8), **more))
    return plan, plan.ranks[0].groups[0].steps


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


Change = Callable[[dict[str, Any]], object]


def op_of(found: dict[str, Any], index: int) -> dict[str, Any]:
    return found["gpus"][0]["threadblocks"][0]["ops"][index]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("collective"), "'collective' is missing"),
        (lambda d: d.update(collective=7), "collective: a string is expected, not 7"),
        (lambda d: d.update(protocol="Fast"), 'protocol: "Fast" is not one of Simple, LL'),
        (lambda d: d.update(inplace="yes"), "inplace: true or false"),
        (lambda d: d.update(gpus={}), "gpus: an array is expected, not an object"),
        (lambda d: d.update(gpus=[]), "gpus: from 1 to 1024 gpus"),
        (lambda d: d["gpus"][1].update(id=0), r"gpus\[1\].id: this is gpu 1"),
        (lambda d: d["gpus"][0].update(input_chunks=-1), r"gpus\[0\].input_chunks: a whole number from 0"),
        (lambda d: d["gpus"][0].update(input_chunks=True), r"gpus\[0\].input_chunks: a whole number from 0"),
        (lambda d: d["gpus"][0].update(input_chunks=1.5), r"gpus\[0\].input_chunks: a whole number from 0"),
        (lambda d: d["gpus"][1].update(input_chunks=3), r"gpus\[1\]: 3 input chunks and 2 output chunks do not fit"),
        (lambda d: d["gpus"][0].update(input_chunks=0, output_chunks=0), r"gpus\[0\]: there must be input chunks"),
        (
            lambda d: d["gpus"][0]["threadblocks"][0].update(id=1),
            r"gpus\[0\].threadblocks: the ids must be the numbers",
        ),
        (
            lambda d: d["gpus"][0]["channels"][0].update(connected_to=[0]),
            r"ops\[0\].channel_ids\[0\]: rank 0 has no channel to itself",
        ),
        (
            lambda d: d["gpus"][0]["channels"][0].update(connected_to=[5]),
            r"connected_to\[0\]: a whole number from 0 to 1",
        ),
        (lambda d: d["gpus"][0]["channels"][0].update(channel_type="rope"), 'channel_type: "rope" is not one of'),
        (lambda d: d["gpus"][0]["channels"][2]["rank_groups"][0].update(ranks=[1]), "ranks: different ranks"),
        (lambda d: op_of(d, 0).update(name="melt"), r"ops\[0\].name: 'melt' is not an operation"),
        (lambda d: op_of(d, 0).update(channel_ids=[4]), r"ops\[0\].channel_ids\[0\]: there is no 4"),
        (lambda d: op_of(d, 0).update(channel_ids=[]), r"ops\[0\]: rlxsignal names no channel"),
        (lambda d: op_of(d, 3).update(src_buff=[]), r"ops\[3\]: rres has at least one source"),
        (
            lambda d: op_of(d, 3)["src_buff"].reverse(),
            r"src_buff\[0\]: this source of rres must be local, and is remote",
        ),
        (lambda d: op_of(d, 3)["src_buff"][0].update(size=2), r"ops\[3\]: rres has operands of different sizes: 1, 2"),
        (lambda d: op_of(d, 3)["src_buff"][0].update(type="z"), r"src_buff\[0\].type: \"z\" is not one of i, o, s"),
        (lambda d: op_of(d, 3)["src_buff"][0].update(index=2**40), r"src_buff\[0\].index: a whole number"),
        (lambda d: op_of(d, 3)["src_buff"][1].update(buffer_id=9), r"src_buff\[1\].buffer_id: there is no 9"),
        (lambda d: op_of(d, 3).update(reduce_op="xor"), 'reduce_op: "xor" is not one of sum, min, max'),
        (lambda d: op_of(d, 3).update(tbg_info={"tb_id": 2, "tbg_size": 2}), "tb_id: a whole number from 0 to 1"),
        (lambda d: op_of(d, 3).update(tbg_info={"tb_id": 0, "tbg_size": 0}), "tbg_size: a whole number from 1"),
        (
            lambda d: d["gpus"][0]["threadblocks"][0]["ops"].append(
                {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
            ),
            r"ops\[7\]: the barrier is for 2 thread blocks, but 1 use it",
        ),
        (
            lambda d: op_of(d, 0).update(
                name="pipeline", iter_context={"unit_size": 0, "num_chunks": 1}, ops=[{"name": "nop"}]
            ),
            "unit_size: a whole number from 1",
        ),
        (
            lambda d: op_of(d, 0).update(
                name="pipeline", iter_context={"unit_size": 1, "num_chunks": 1}, ops=[{"name": "pipeline"}]
            ),
            r"ops\[0\].ops\[0\]: pipelines cannot be nested",
        ),
    ],
)
def test_a_faulty_document_is_an_error_that_says_where(change: Change, message: str) -> None:
    found = copy.deepcopy(all_reduce_get())
    change(found)
    with pytest.raises(InvalidArgumentError, match=message):
        read(found)


def test_an_operation_wider_than_its_pipeline_is_an_error() -> None:
    op = {"name": "copy", "src_buff": [local("i", 0, 2)], "dst_buff": [local("s", 0, 2)]}
    loop = {"name": "pipeline", "iter_context": {"unit_size": 65536, "num_chunks": 1}, "ops": [NOP, op]}
    with pytest.raises(InvalidArgumentError, match=r"ops\[0\].ops\[1\]: it moves more than the 1 chunks"):
        steps_of(loop)


def test_a_port_of_another_rank_than_the_buffer_is_an_error() -> None:
    op = {"name": "put", "src_buff": [local("i")] * 2, "dst_buff": [remote(0)] * 2, "channel_ids": [0]}
    with pytest.raises(InvalidArgumentError, match="element 1 must be a channel to rank 1"):
        steps_of(op | {"channel_type": "port"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the document is not JSON"),
        (b"{", "the document is not JSON: Expecting property name.* line 1 column 2"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"gpus":' * 100_000, "nested too deeply"),
        (b"\xff\xff", "the document is not JSON"),
        (b'{"gpus": [], "gpus": []}', "the key 'gpus' twice"),
        (b'{"gpus": ' + b"9" * 100_000 + b"}", "the number 99999999999999999999... is too large"),
        (b'{"gpus": NaN}', "NaN is not a JSON number"),
        (b'{"gpus": 1e999}', "an array is expected"),
        (b"[]", "an object is expected, not an array"),
        (b'{"gpus": [[]]}', "'collective' is missing"),
    ],
)
def test_text_of_any_kind_is_a_clean_error(text: bytes, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        mscclpp_json.read(text)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from([2**31, 2**64, 1.5, "", "i", "s", "memory", "port", "nop", "put", "respkt", [], {}, [0], [[]]]),
)


@given(st.data())
def test_mutated_documents_give_plans_or_clean_errors(data: st.DataObject) -> None:
    found = copy.deepcopy(data.draw(st.sampled_from(list(ALL.values()))))
    for _ in range(data.draw(st.integers(1, 3))):
        places: list[tuple[Any, Any]] = []
        walk = [found]
        while walk:
            at = walk.pop()
            for key in list(at) if isinstance(at, dict) else range(len(at)):
                places.append((at, key))
                if isinstance(at[key], (dict, list)):
                    walk.append(at[key])
        at, key = data.draw(st.sampled_from(places))
        if data.draw(st.booleans()):
            at[key] = data.draw(VALUES)
        else:
            del at[key]
    with contextlib.suppress(InvalidArgumentError, UnsupportedError):
        plan = read(found)
        plan_oracle.verdict(plan)
        mscclpp_json.read(mscclpp_json.write(plan).encode())


# What is written.


def two_ranks(*steps: Step, channels: list[Channel] | None = None, **more: Any) -> Plan:
    known = [
        Channel("memory", 0, 1),
        Channel("port", 0, 1),
        Channel("switch", ranks=[0, 1]),
        Channel("memory", 0, 0, initial=2),
    ]
    arguments = {"chunks": 4, "threads": "independent"} | more
    return Plan("all_reduce", [Rank([Group(list(steps))], 4), Rank([Group()], 4)], channels or known, **arguments)


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
        (Plan("broadcast", [Rank(), Rank()]), "cannot name the root"),
        (two_ranks(Step("copy", [I0], [Operand("scratch", 0, channel=0, codec="window")])), "no codecs"),
        (two_ranks(Step("copy", [I0], [Operand("output", 0, packets=True)])), "packets of MSCCL.. are in scratch only"),
        (two_ranks(Step("copy", [I0], [S2, MORE_PACKETS])), "scratch cannot contain both"),
        (two_ranks(Step("copy", [I0], [PORT_PACKETS])), "cannot copy values of the rank to packets behind a port"),
        (two_ranks(Step("copy", [PORT], [O1])), "group 0 step 0: MSCCL.. cannot copy values behind a port channel"),
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
def test_what_the_format_cannot_express_is_unsupported(plan: Plan, message: str) -> None:
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
    report = PublicPlan(again).verify()
    assert report.proved, str(report)


def test_a_reduction_that_is_only_sent_is_stored_first() -> None:
    rings = [Channel("ring", 0, 1, depth=2), Channel("ring", 1, 0, depth=2)]
    first = [Step("copy", [I0], [Operand(channel=0)]), Step("copy", [Operand(channel=1)], [O0])]
    second = [
        Step("reduce", [I0, Operand(channel=0)], [Operand(channel=1)]),
        Step("copy", [I0], [O0]),
    ]
    plan = Plan("all_reduce", [Rank([Group(first)]), Rank([Group(second)])], rings, in_place="no")
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
        mscclpp_json.write(Plan("all_reduce", ranks, rings))


def test_a_reduction_of_many_sources_is_several() -> None:
    """An all-reduce whose ranks read all values of each other: more operands than an operation of MSCCL++ has."""
    ranks = 12
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    plan = Plan("all_reduce", channels=[Channel("memory", *pair) for pair in pairs], in_place="no")
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
    plan = Plan("all_reduce", [Rank([second, first], 4)], in_place="no")
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
