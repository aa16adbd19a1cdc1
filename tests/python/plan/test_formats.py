"""The format of a document is recognized by its content."""

from __future__ import annotations

import json

import pytest
from msccl_documents import all_reduce_pairs
from mscclpp_documents import all_reduce_get
from narrowcast._plan import formats, loading
from narrowcast._plan.model import Channel, Group, Operand, PlanModel, Rank, Step
from narrowcast.errors import InvalidArgumentError, UnsupportedError

XML = all_reduce_pairs(2).encode()
JSON = json.dumps(all_reduce_get()).encode()
OWN = PlanModel("all_reduce", [Rank()]).to_json().encode()


@pytest.mark.parametrize("data", [XML, JSON, OWN])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \n\t"])
def test_documents_are_recognized_by_their_content(data: bytes, before: bytes) -> None:
    assert formats.read(before.lstrip() + data if data == XML else before + data).operation == "all_reduce"


def test_the_depth_is_that_of_connections_of_msccl() -> None:
    assert {channel.depth for channel in formats.read(XML, depth=3).channels} == {3}


@pytest.mark.parametrize("data", [b"", b"\n", b"hello", b"[1]", b"{}", b"7", b"\x00" * 100])
def test_other_documents_are_errors_that_name_the_document(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^a\.txt: "):
        formats.read(data, "a.txt")


def test_unsupported_documents_name_the_document() -> None:
    with pytest.raises(UnsupportedError, match=r"^a\.xml: the collective 'custom'"):
        formats.read(XML.replace(b"allreduce", b"custom"), "a.xml")


def test_reports_name_the_lines_of_an_xml_document() -> None:
    wrong = XML.replace(b'type="s" srcbuf="i" srcoff="1"', b'type="s" srcbuf="s" srcoff="0"', 1)
    fault = loading.read(wrong, "wrong.xml").verify().fault
    assert fault is not None
    assert str(fault).startswith("undefined: rank 0, group 0, step 0 (wrong.xml:4)")


@pytest.mark.parametrize(("data", "form"), [(XML, "msccl_xml"), (JSON, "mscclpp_json"), (OWN, "json")])
def test_formats_are_recognized(data: bytes, form: str) -> None:
    assert formats.recognize(data) == form


@pytest.mark.parametrize("data", [b"", b"<html/>", b"{}", b'{"gpus": 8}'])
def test_other_documents_are_not_recognized(data: bytes) -> None:
    assert formats.recognize(data) is None


@pytest.mark.parametrize("form", formats.FORMATS)
def test_what_was_written_is_read(form: str) -> None:
    plan = formats.read(JSON if form.startswith("mscclpp") else XML)
    assert formats.read(formats.write(plan, form).encode()).operation == plan.operation


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="'yaml' is not a format of plans"):
        formats.write(PlanModel("all_reduce"), "yaml")


IN, OUT = Operand("input", 0), Operand("output", 0)


@pytest.mark.parametrize("form", formats.FORMATS[1:])
@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("copy", [IN], [Operand(channel=9)]), "there is no channel 9"),
        (
            Step("copy", [IN], [Operand(channel=1)]),
            "an operand that is a message uses channel 1, which is a memory channel",
        ),
        (Step("copy", [Operand(channel=0)], [OUT]), "channel 0 is not one of this rank"),
        (Step("copy", [IN], [Operand("output", 0, switch=0)]), "an operand that is everywhere uses channel 0"),
        (Step("copy", [IN], [Operand("output", 0, channel=2)]), "channel 2 is not one of this rank"),
        (Step("copy", [IN], [Operand("output", 0, channel=3)]), "channel 3 connects ranks that do not exist"),
        (Step("copy", [IN], [Operand("heap", 0)]), "chunk 0 of the buffer 'heap'"),
        (Step("copy", [IN], [Operand("output", -1)]), "chunk -1 of the buffer 'output'"),
        (Step("copy", [IN, OUT], [OUT]), "copy has 2 sources and 1 destinations"),
        (Step("reduce", [IN], [OUT]), "reduce has 1 sources"),
        (Step("copy", [IN], [OUT], 0), "a count of 0"),
        (Step("copy", [IN], [OUT], after=[(5, 0)]), "there is no step 0 of group 5"),
        (Step("copy", [IN], [OUT], after=[(0, 7)]), "there is no step 7 of group 0"),
        (Step("barrier", barrier=1), "there is no barrier 1"),
        (Step("barrier"), "barrier 0 does not wait for group 0"),
        (Step("signal", channels=[0]), "signal through channel 0, which is a ring channel"),
        (Step("signal", channels=[2]), "signal through channel 2, which is for rank 1"),
        (Step("sync", [IN]), "sync has no operands"),
    ],
)
def test_a_plan_that_is_wrong_is_not_exported(form: str, step: Step, message: str) -> None:
    channels = [
        Channel("ring", 0, 1, depth=2),
        Channel("memory", 0, 1),
        Channel("memory", 1, 2),
        Channel("memory", 0, 9),
    ]
    rank = Rank([Group([step])], 0, [[1]])
    with pytest.raises(InvalidArgumentError, match=f"rank 0, group 0, step 0: {message}"):
        formats.write(PlanModel("all_reduce", [rank, Rank(), Rank()], channels), form)


@pytest.mark.parametrize("form", formats.FORMATS[1:])
def test_a_plan_without_ranks_is_not_exported(form: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no ranks"):
        formats.write(PlanModel("all_reduce"), form)
