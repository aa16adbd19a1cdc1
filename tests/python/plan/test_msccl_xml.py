"""MSCCL XML: what its documents mean, and what is written for a plan."""

from __future__ import annotations

import contextlib
import random

import plan_oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msccl_documents import NOP, algo, all_gather_ring, all_reduce_pairs, gpu, reduce_scatter_pairs, step, tb
from narrowcast._plan.formats import msccl_xml
from narrowcast._plan.model import Channel, Group, Operand, Plan, Rank, Step
from narrowcast.errors import InvalidArgumentError, UnsupportedError

DOCUMENTS = {
    "all-gather, in place": all_gather_ring(4),
    "all-gather, out of place": all_gather_ring(4, in_place=False),
    "all-gather that copies its input first": all_gather_ring(4, in_place=False, copies=True),
    "all-gather of several chunks": all_gather_ring(3, chunks=2),
    "all-reduce by pairs": all_reduce_pairs(4),
    "all-reduce by pairs, LL": all_reduce_pairs(4, proto="LL"),
    "reduce-scatter": reduce_scatter_pairs(3),
    "reduce-scatter of RCCL": reduce_scatter_pairs(3, coll="reducescatter"),
}


def plain(plan: Plan) -> dict:
    """The plan without the lines that steps come from."""
    for rank in plan.ranks:
        for group in rank.groups:
            for part in group.walk():
                part.origin = 0
    return plan.to_dict()


def two_ranks(*blocks: str, chunks: int = 2, scratch: int = 0, **attributes: object) -> Plan:
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


GOOD = all_reduce_pairs(2)
BOMB = '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>' + GOOD.replace("pairs", "&b;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not well-formed"),
        ("<algo", "line 1: not well-formed"),
        ("<algo/>", "line 1: ngpus is missing|line 1: the attribute ngpus is missing"),
        (BOMB, "line 1: a document type declaration is not allowed"),
        ('<!DOCTYPE algo SYSTEM "file:///etc/passwd">' + GOOD, "document type declaration"),
        ("<a>" * 100_000, "line 1: the element <a> is not allowed as the root"),
        ("<algo " + 'x="1" ' * 2 + "/>", "line 1: not well-formed XML: duplicate attribute"),
        (GOOD.replace("<gpu", "<gpu><gpu", 1), "line 2: .*"),
        (GOOD.replace("<step", "<stop", 1), "line 4: the element <stop> is not allowed inside <tb>"),
        (GOOD.replace('type="s"', 'type="x"', 1), "line 4: type is 'x', not one of s, r, rcs"),
        (GOOD.replace('srcbuf="i"', 'srcbuf="q"', 1), "line 4: srcbuf is 'q'"),
        (GOOD.replace('srcbuf="i"', "", 1), "line 4: srcbuf is missing"),
        (GOOD.replace('cnt="1"', "", 1), "line 4: the attribute cnt is missing"),
        (GOOD.replace('cnt="1"', 'cnt="0"', 1), "line 4: cnt=0 is not between 1 and"),
        (GOOD.replace('cnt="1"', 'cnt="1.5"', 1), "line 4: cnt='1.5' is not an integer"),
        (GOOD.replace('cnt="1"', f'cnt="{"9" * 5000}"', 1), "line 4: cnt='9999.* is not between"),
        (GOOD.replace('cnt="1"', f'cnt="{2**40}"', 1), "line 4: cnt=1099511627776 is not between"),
        (GOOD.replace('cnt="1"', f'cnt="{"9" * 4000}"', 1), "line 4: cnt=9{40} is not between"),
        (GOOD.replace('srcoff="1"', 'srcoff="-1"', 1), "line 4: the offset -1 in the input is not between"),
        (GOOD.replace('hasdep="0"', 'hasdep="7"', 1), "line 4: hasdep='7' is not between 0 and 1"),
        (GOOD.replace(' s="0"', ' s="3"', 1), "line 4: this is step 0 of the thread block, but s='3'"),
        (GOOD.replace('send="1"', 'send="-1"', 1), "line 4: the step sends, but the thread block has send=-1"),
        (GOOD.replace('recv="1"', 'recv="-1"', 1), "the step receives, but the thread block has recv=-1"),
        (GOOD.replace('send="1"', 'send="0"', 1), "line 3: gpu 0 cannot send to or receive from gpu 0"),
        (GOOD.replace('send="1"', 'send="9"', 1), "line 3: gpu 0 cannot send to or receive from gpu 9"),
        (GOOD.replace('tb id="0"', 'tb id="5"', 1), "thread block 1 of gpu 0 is not preceded"),
        (GOOD.replace('gpu id="1"', 'gpu id="0"', 1), "gpu 0 is given twice"),
        (GOOD.replace('gpu id="1"', 'gpu id="2"', 1), "gpu 2 is out of range"),
        (GOOD.replace('ngpus="2"', 'ngpus="3"', 1), "line 1: ngpus=3, but there are 2 gpus"),
        (GOOD.replace('ngpus="2"', 'ngpus="99999999"', 1), "line 1: ngpus='99999999' is not between 1 and 1024"),
        (GOOD.replace('nchunksperloop="2"', 'nchunksperloop="0"', 1), "line 1: nchunksperloop='0' is not between"),
        (GOOD.replace('proto="Simple"', 'proto="Fast"', 1), "line 1: proto is 'Fast', not one of Simple, LL, LL128"),
        (GOOD.replace('inplace="1"', 'inplace="0" outofplace="0"', 1), "line 1: inplace=0 and outofplace=0"),
        (GOOD.replace('depid="-1" deps="-1"', 'depid="8" deps="0"', 1), "line 4: there is no step 0 of thread block 8"),
        (GOOD.replace('depid="-1" deps="-1"', 'depid="0" deps="99"', 1), "there is no step 99 of thread block 0"),
        (GOOD.replace("<algo", '<?xml version="1.0" encoding="klingon"?><algo'), "line 1: .*"),
    ],
)
def test_a_faulty_document_is_an_error_that_says_where(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        msccl_xml.read(text.encode())


def test_utf16_is_read() -> None:
    text = f'<?xml version="1.0" encoding="utf-16"?>\n{GOOD}'
    assert msccl_xml.read(text.encode("utf-16")).operation == "all_reduce"


PIECES = [b'"-1"', b'"99999999999"', b"<step/>", b"&x;", b"nop", b'"2"', b"rcs"]


@given(st.data())
def test_mutated_documents_give_plans_or_clean_errors(data: st.DataObject) -> None:
    text = bytearray(data.draw(st.sampled_from([document.encode() for document in DOCUMENTS.values()])))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 12))
        text[start : start + length] = data.draw(
            st.one_of(
                st.binary(max_size=4), st.sampled_from([b'"-1"', b'"99999999999"', b"<step/>", b"&x;", b"nop", b'"2"'])
            )
        )
    with contextlib.suppress(InvalidArgumentError, UnsupportedError):
        plan = msccl_xml.read(bytes(text))
        plan_oracle.verdict(plan)
        msccl_xml.read(msccl_xml.write(plan).encode())


def one_step(*steps: Step, channels: list[Channel] | None = None, **more: object) -> Plan:
    rings = [Channel("ring", 0, 1, depth=2), Channel("ring", 1, 0, depth=2), Channel("ring", 0, 1, depth=2)]
    arguments = {"chunks": 4, "in_place": "no"} | more
    return Plan("all_reduce", [Rank([Group(list(steps))], 4), Rank([Group()])], channels or rings, **arguments)


IN, OUT, TEMPORARY = Operand("input", 0), Operand("output", 0), Operand("scratch", 0)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (one_step(Step("reduce", [IN, IN], [OUT])), "group 0 step 0: MSCCL XML cannot add a chunk to itself"),
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
        (Plan("broadcast", [Rank(), Rank()]), "cannot name the root"),
    ],
)
def test_what_the_format_cannot_express_is_unsupported(plan: Plan, message: str) -> None:
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


def all_pairs(ranks: int, in_place: str = "either", two_shot: bool = False) -> Plan:
    """An all-reduce in which one group of each rank sends to all others, and receives from all."""
    rings = [Channel("ring", a, b, depth=2) for a in range(ranks) for b in range(ranks) if a != b]
    plan = Plan("all_reduce", channels=rings, chunks=ranks if two_shot else 1, in_place=in_place)
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
    plan = Plan("all_reduce", [Rank([Group(steps)], 1) for steps in ends], rings, in_place="no")
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
    plan = Plan("all_reduce", [Rank([forward, second], 2), Rank([third], 2)], rings, in_place="no")
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
    plan = Plan("all_reduce", [rank(send, receive), rank(receive, send)], rings, in_place="no")
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
