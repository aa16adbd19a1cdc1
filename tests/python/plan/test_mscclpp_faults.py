"""MSCCL++ JSON: faulty documents are errors that say where."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import plan_oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mscclpp_documents import (
    ALL,
    NOP,
    all_reduce_get,
    local,
    read,
    remote,
    steps_of,
)
from narrowcast._plan.formats import mscclpp_json
from narrowcast.errors import InvalidArgumentError, UnsupportedError

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
        (b"", "the document is empty"),
        (b"{", "the document is not JSON: Expecting property name.* line 1 column 2"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"gpus":' * 100_000, "nested too deeply"),
        (b"\xff\xff", "the document is neither XML nor JSON: it is not text in UTF-8"),
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
