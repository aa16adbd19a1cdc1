"""MSCCL XML: faulty documents are errors that say where."""

from __future__ import annotations

import contextlib

import plan_oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msccl_documents import DOCUMENTS, all_reduce_pairs
from narrowcast._plan.formats import msccl_xml
from narrowcast.errors import InvalidArgumentError, UnsupportedError

GOOD = all_reduce_pairs(2)
BOMB = '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>' + GOOD.replace("pairs", "&b;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not well-formed"),
        ("<algo", "line 1: not well-formed"),
        ("<algo/>", "line 1: ngpus is missing|line 1: the attribute ngpus is missing"),
        (BOMB, "line 1: a document type declaration is not allowed"),
        ('<!DOCTYPE algo SYSTEM "file:///etc/passwd">' + GOOD, "a document type declaration"),
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
        (GOOD.replace('cnt="1"', 'cnt="0_1"', 1), "line 4: cnt='0_1' is not an integer"),
        (GOOD.replace('cnt="1"', 'cnt="+1"', 1), r"line 4: cnt='\+1' is not an integer"),
        (GOOD.replace('cnt="1"', 'cnt="\u0661"', 1), "line 4: cnt='\u0661' is not an integer"),
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
        (
            GOOD.replace("<algo", '<?xml version="1.0" encoding="klingon"?><algo'),
            "line 1: the document cannot be decoded",
        ),
    ],
)
def test_a_faulty_document_is_an_error_that_says_where(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^(?:line \d+: )?(?:{message})"):
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
