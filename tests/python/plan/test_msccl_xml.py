"""MSCCL XML: what its documents mean."""

from __future__ import annotations

import json

import plan_oracle
import pytest
from msccl_documents import DOCUMENTS, NOP, algo, all_reduce_pairs, gpu, step, tb
from narrowcast._plan.formats import msccl_xml
from narrowcast._plan.model import Operand, PlanModel
from narrowcast.errors import UnsupportedError


def plain(plan: PlanModel) -> dict:
    """The plan without the lines that steps come from."""
    for rank in plan.ranks:
        for group in rank.groups:
            for part in group.walk():
                part.origin = 0
    return json.loads(plan.to_json())


def two_ranks(*blocks: str, chunks: int = 2, scratch: int = 0, **attributes: object) -> PlanModel:
    """A plan whose rank 0 has these thread blocks, and rank 1 the mirrored ones."""
    text = "".join(blocks)
    other = text.replace('send="1"', 'send="0"').replace('recv="1"', 'recv="0"')
    gpus = gpu(0, text, chunks, chunks, scratch) + gpu(1, other, chunks, chunks, scratch)
    return msccl_xml.read(algo(2, gpus, nchunksperloop=chunks, **attributes).encode())


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_computes_its_collective(text: str) -> None:
    plan_oracle.run(msccl_xml.read(text.encode()), orders=10)
    plan_oracle.run(msccl_xml.read(text.encode()), split=True, depth=4)


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_reading_what_was_written_gives_the_same_plan(text: str) -> None:
    plan = msccl_xml.read(text.encode())
    again = msccl_xml.read(msccl_xml.write(plan).encode())
    assert plain(again) == plain(plan)


@pytest.mark.parametrize(
    ("row", "kind", "sources", "destinations"),
    [
        (step(0, "s", "i", 0, "o", 1), "copy", [("input", 0)], ["send"]),
        (step(0, "r", "i", 0, "o", 1), "copy", ["receive"], [("output", 1)]),
        (step(0, "rcs", "i", 0, "o", 1), "copy", ["receive"], [("output", 1), "send"]),
        (step(0, "rrs", "i", 0, "o", 1), "reduce", [("input", 0), "receive"], ["send"]),
        (step(0, "rrc", "i", 0, "o", 1), "reduce", [("input", 0), "receive"], [("output", 1)]),
        (step(0, "rrcs", "i", 0, "o", 1), "reduce", [("input", 0), "receive"], [("output", 1), "send"]),
        (step(0, "cpy", "i", 0, "o", 1), "copy", [("input", 0)], [("output", 1)]),
        (step(0, "re", "s", 0, "o", 1), "reduce", [("output", 1), ("scratch", 0)], [("output", 1)]),
    ],
)
def test_every_type_of_step(row: str, kind: str, sources: list, destinations: list) -> None:
    plan = two_ranks(tb(0, row, send=1, recv=1), scratch=1)
    found = plan.ranks[0].groups[0].steps[0]

    def shown(operand: Operand) -> object:
        if operand.channel is None:
            return (operand.buffer, operand.chunk)
        ring = plan.channels[operand.channel]
        return "send" if (ring.sender, ring.receiver) == (0, 1) else "receive"

    assert found.kind == kind
    assert [shown(operand) for operand in found.sources] == sources
    assert [shown(operand) for operand in found.destinations] == destinations
    assert found.origin == 4  # the line


@pytest.mark.parametrize(("proto", "depth", "packets"), [("Simple", 2, False), ("LL", 8, True), ("LL128", 8, False)])
def test_the_protocol_decides_how_many_messages_are_in_flight(proto: str, depth: int, packets: bool) -> None:
    text = all_reduce_pairs(2, proto=proto)
    assert {(ring.depth, ring.packets) for ring in msccl_xml.read(text.encode()).channels} == {(depth, packets)}
    assert {ring.depth for ring in msccl_xml.read(text.encode(), depth=5).channels} == {5}
    assert f'proto="{proto}"' in msccl_xml.write(msccl_xml.read(text.encode()))


@pytest.mark.parametrize(
    ("inplace", "outofplace", "expected"),
    [(0, None, "no"), (1, None, "yes"), (0, 1, "no"), (1, 0, "yes"), (1, 1, "either")],
)
def test_in_place_attributes(inplace: int, outofplace: int | None, expected: str) -> None:
    plan = two_ranks(tb(0, ""), inplace=inplace, outofplace=outofplace)
    assert plan.in_place == expected
    assert msccl_xml.read(msccl_xml.write(plan).encode()).in_place == expected


def test_sizes_and_name_are_kept() -> None:
    plan = two_ranks(tb(0, ""), name="a &lt;b&gt; &amp; &quot;c&quot;", minBytes=16, maxBytes=1 << 40)
    assert (plan.name, plan.min_bytes, plan.max_bytes) == ('a <b> & "c"', 16, 1 << 40)
    again = msccl_xml.read(msccl_xml.write(plan).encode())
    assert (again.name, again.min_bytes, again.max_bytes) == (plan.name, plan.min_bytes, plan.max_bytes)


def test_waiting_for_a_step_waits_for_the_next_one_that_publishes() -> None:
    rows = step(0, "cpy", "i", 0, "o", 0) + step(1, "cpy", "i", 1, "o", 1, hasdep=1)
    waits = step(0, "cpy", "i", 0, "s", 0, depid=0, deps=0)
    plan = two_ranks(tb(0, rows), tb(1, waits), scratch=1)
    assert plan.ranks[0].groups[1].steps[0].after == [(0, 1)]


@pytest.mark.parametrize("deps", [1, 2])
def test_waiting_for_a_step_that_is_never_published_hangs(deps: int) -> None:
    rows = step(0, "cpy", "i", 0, "o", 0, hasdep=1) + step(1, "cpy", "i", 1, "o", 1) + step(2, "cpy", "i", 1, "s", 0)
    waits = step(0, "cpy", "i", 0, "s", 1, depid=0, deps=0) + step(1, "cpy", "i", 0, "s", 2, depid=0, deps=deps)
    plan = two_ranks(tb(0, rows), tb(1, waits), scratch=3)
    kinds = [part.kind for part in plan.ranks[0].groups[1].steps]
    assert kinds == ["copy", "wait", "copy"]
    assert plan_oracle.verdict(plan) == "deadlock"


def test_many_dependences_and_endless_waits_take_linear_time() -> None:
    count = 8_000
    done = "".join(step(i, "cpy", "i", 0, "s", i, hasdep=1) for i in range(count))
    nops = "".join(step(i, "nop", *NOP, depid=0, deps=i) for i in range(count))
    nops += step(count, "cpy", "i", 0, "o", 0, depid=0, deps=0)
    hangs = "".join(step(i, "cpy", "i", 0, "s", i, depid=1, deps=count) for i in range(count))
    plan = two_ranks(tb(0, done), tb(1, nops), tb(2, hangs), scratch=count)
    groups = plan.ranks[0].groups
    assert [len(group.steps) for group in groups] == [count, 1, 2 * count]
    assert len(groups[1].steps[0].after) == count


def test_steps_after_an_endless_wait_keep_their_dependences() -> None:
    hangs = step(0, "cpy", "i", 0, "o", 0, depid=1, deps=0, hasdep=1) + step(1, "cpy", "i", 1, "o", 1, hasdep=1)
    waits = step(0, "cpy", "i", 0, "s", 0, depid=0, deps=1)
    plan = two_ranks(tb(0, hangs), tb(1, waits), scratch=1)
    assert [part.kind for part in plan.ranks[0].groups[0].steps] == ["wait", "copy", "copy"]
    assert plan.ranks[0].groups[1].steps[0].after == [(0, 2)]


def test_nops_add_their_dependences_to_the_next_step() -> None:
    done = step(0, "cpy", "i", 0, "o", 0, hasdep=1)
    rows = step(0, "nop", *NOP, depid=0, deps=0) + step(1, "cpy", "i", 1, "s", 0, depid=1, deps=0)
    plan = two_ranks(tb(0, done), tb(1, done.replace('"o"', '"s"').replace('dstoff="0"', 'dstoff="1"')), tb(2, rows))
    (only,) = plan.ranks[0].groups[2].steps
    assert only.after == [(0, 0), (1, 0)]
    assert msccl_xml.write(plan).count('type="nop"') == 2  # one at each rank


def test_a_nop_at_the_end_waits() -> None:
    rows = step(0, "nop", *NOP, depid=0, deps=0)
    plan = two_ranks(tb(0, step(0, "cpy", "i", 0, "o", 0, hasdep=1)), tb(1, rows))
    (only,) = plan.ranks[0].groups[1].steps
    assert (only.kind, only.after) == ("sync", [(0, 0)])


def test_a_dependence_on_an_earlier_step_of_the_same_block_is_met() -> None:
    rows = step(0, "cpy", "i", 0, "o", 0, hasdep=1) + step(1, "cpy", "i", 1, "o", 1, depid=0, deps=0)
    steps = two_ranks(tb(0, rows)).ranks[0].groups[0].steps
    assert [(part.kind, part.after) for part in steps] == [("copy", []), ("copy", [])]


@pytest.mark.parametrize(
    ("rows", "sources"),
    [
        ([("s", 0, {}), ("s", 1, {}), ("s", 2, {})], [4]),
        ([("s", 0, {}), ("i", 1, {}), ("s", 2, {})], [2, 2, 2]),  # another buffer
        ([("s", 0, {}), ("s", 1, {"depid": 1, "deps": 0})], [2, 2]),
        ([("s", 0, {"hasdep": 1}), ("s", 1, {})], [2, 2]),
        ([("s", 0, {"cnt": 2}), ("s", 1, {})], [2, 2]),
        ([("s", index, {}) for index in range(20)], [17, 5]),
    ],
)
def test_reductions_in_a_row_are_one(rows: list, sources: list[int]) -> None:
    text = "".join(step(i, "re", buffer, chunk, "o", 0, **more) for i, (buffer, chunk, more) in enumerate(rows))
    plan = two_ranks(tb(0, text), tb(1, step(0, "cpy", "i", 0, "s", 30, hasdep=1)), scratch=40)
    assert [len(part.sources) for part in plan.ranks[0].groups[0].steps] == sources
    assert plain(msccl_xml.read(msccl_xml.write(plan).encode())) == plain(plan)


def test_a_dependence_on_a_fused_reduction_is_one_on_the_whole() -> None:
    rows = step(0, "re", "s", 0, "o", 0) + step(1, "re", "s", 1, "o", 0, hasdep=1)
    for deps in (0, 1):
        waits = step(0, "cpy", "o", 0, "o", 1, depid=0, deps=deps)
        plan = two_ranks(tb(0, rows), tb(1, waits), scratch=2)
        assert plan.ranks[0].groups[1].steps[0].after == [(0, 0)]


def test_chunks_that_do_not_fit_the_pieces_are_divided() -> None:
    plan = msccl_xml.read(
        algo(2, gpu(0, tb(0, step(0, "cpy", "i", 1, "o", 2, cnt=1))) + gpu(1), 3, "allgather").encode()
    )
    (copy,) = plan.ranks[0].groups[0].steps
    assert plan.chunks == 3  # 6 in the whole buffer, for the document's 3
    assert (copy.sources[0].chunk, copy.destinations[0].chunk, copy.count) == (2, 4, 2)


@pytest.mark.parametrize("coll", ["custom", "peer2peer", "alltoallv", "send", ""])
def test_collectives_without_a_defined_result_are_unsupported(coll: str) -> None:
    with pytest.raises(UnsupportedError, match="has no defined result"):
        msccl_xml.read(algo(1, gpu(0), 1, coll).encode())


@pytest.mark.parametrize("coll", ["broadcast", "reduce"])
def test_collectives_with_a_root_have_rank_0(coll: str) -> None:
    plan = msccl_xml.read(algo(2, gpu(0) + gpu(1), 1, coll).encode())
    assert (plan.operation, plan.root) == (coll, 0)
    with pytest.raises(UnsupportedError, match="cannot name the root"):
        msccl_xml.write(plan)
