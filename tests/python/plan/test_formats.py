"""The format of a document is recognized by its content."""

from __future__ import annotations

import json

import pytest
from msccl_documents import all_reduce_pairs
from mscclpp_documents import all_reduce_get
from narrowcast._plan import formats
from narrowcast._plan.model import Plan, Rank
from narrowcast.errors import InvalidArgumentError, UnsupportedError

XML = all_reduce_pairs(2).encode()
JSON = json.dumps(all_reduce_get()).encode()
OWN = Plan("all_reduce", [Rank()]).to_json().encode()


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


@pytest.mark.parametrize("form", formats.FORMATS)
def test_what_was_written_is_read(form: str) -> None:
    plan = formats.read(JSON if form == "mscclpp_json" else XML)
    assert formats.read(formats.write(plan, form).encode()).operation == plan.operation


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="'yaml' is not a format of plans"):
        formats.write(Plan("all_reduce"), "yaml")
