"""Headers of safetensors and npy files are validated: invalid ones raise an error, never give wrong segments."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowcast._files import containers
from narrowcast._files.containers import MAX_SAFETENSORS_HEADER_BYTES, UnknownValuesError
from narrowcast.errors import CorruptError


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: object, shape: object, begin: object, end: object, **more: object) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


@pytest.fixture
def write(tmp_path):
    def write(data: bytes, name: str = "model.safetensors"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def segments(path, dtype=None):
    with path.open("rb") as file:
        return containers.segments(file, str(path), dtype)


def shape_of(parts):
    return [(part.offset, part.raw_bytes, part.dtype.name, part.tensor) for part in parts]


def test_tensors_gaps_and_unknown_types_cover_the_file(write):
    header = {
        "__metadata__": {"who": "me"},
        "late": tensor("F32", [2], 24, 32),
        "early": tensor("BF16", [2, 2], 4, 12),
        "none": tensor("F16", [0, 9], 12, 12),
        "packed": tensor("F4_OF_TOMORROW", [3], 12, 17),
        "flags": tensor("BOOL", [2], 17, 19),
        "pairs": tensor("F8_E4M3", [1], 32, 33),
    }
    data = safetensors(header, bytes(40))
    head = len(data) - 40
    assert shape_of(segments(write(data))) == [
        (0, head, "uint8", None),
        (head, 4, "uint8", None),
        (head + 4, 8, "bfloat16", "early"),
        (head + 12, 5, "uint8", "packed"),
        (head + 17, 2, "uint8", "flags"),
        (head + 19, 5, "uint8", None),
        (head + 24, 8, "float32", "late"),
        (head + 32, 1, "float8_e4m3", "pairs"),
        (head + 33, 7, "uint8", None),
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "too few for a header"),
        (b"\1\0\0", "too few for a header"),
        (safetensors({}, length=3 << 60), "claims"),
        (safetensors({}, length=MAX_SAFETENSORS_HEADER_BYTES + 1), "claims"),
        (safetensors({}, length=100), "claims"),
        (safetensors(b"[]"), "brace"),
        (safetensors(b"{"), "Expecting"),
        (safetensors(b'{"a": NaN}'), "NaN"),
        (safetensors(b'{"a": \xff}'), "utf-8"),
        (safetensors(b'{"a":{},"a":{}}'), "occurs twice"),
        (safetensors(b'{"a":' + b"[" * 200_000), "recursion"),
        (safetensors(b'{"a":' + b"9" * 100_000 + b"}"), "integer string conversion"),
        (safetensors({"__metadata__": {"a": 1}}), "__metadata__"),
        (safetensors({"a": 5}), "exactly dtype, shape and data_offsets"),
        (safetensors({"a": tensor("F32", [1], 0, 4, extra=1)}, bytes(4)), "exactly"),
        (safetensors({"a": tensor(7, [1], 0, 4)}, bytes(4)), "not a string"),
        (safetensors({"a": tensor("F32", [-1], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [True], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [1.0], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [1], 4, 0)}, bytes(4)), "data_offsets"),
        (safetensors({"a": tensor("F32", [1], 0, 8)}, bytes(4)), "data_offsets"),
        (safetensors({"a": tensor("F32", [1], -4, 0)}, bytes(4)), "data_offsets"),
        (safetensors({"a": tensor("F32", [2], 0, 4)}, bytes(4)), "does not match its shape"),
        (safetensors({"a": tensor("F32", [1 << 62] * 50_000, 0, 4)}, bytes(4)), "does not match its shape"),
        (safetensors({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12)), "overlaps"),
    ],
)
def test_malformed_safetensors_are_rejected_or_plain_bytes(write, data, why):
    path = write(data)
    with pytest.raises(CorruptError, match=why) as caught:
        segments(path)
    assert "\n" not in str(caught.value)
    assert sum(part.raw_bytes for part in segments(path, "uint8")) == len(data)


@given(header=st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.lists(st.integers())), max_size=3),
       cut=st.integers(0, 60), data=st.binary(max_size=60))  # fmt: skip
def test_random_headers_are_an_error_or_cover_the_file(tmp_path_factory, header, cut, data):
    path = tmp_path_factory.mktemp("random") / "a.safetensors"
    content = (safetensors({"t": tensor("BF16", [3], 0, 6), **header}, bytes(6))[: cut or None] + data)[:200]
    path.write_bytes(content)
    try:
        parts = segments(path)
    except CorruptError:
        return
    assert [part.offset for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(content)


def test_safetensors_files_are_recognised_without_the_suffix(write):
    data = safetensors({"a": tensor("BF16", [2], 0, 4)}, bytes(4))
    assert segments(write(data, "blob"))[1].tensor == "a"
    with pytest.raises(UnknownValuesError, match="--dtype"):
        segments(write(data[:-1], "blob"))


@pytest.mark.parametrize(
    ("array", "dtype", "name"),
    [
        (np.zeros((3, 5), np.float32), None, "float32"),
        (np.zeros(8, np.float16).reshape(2, 4).T, None, "float16"),
        (np.zeros(3, np.complex128), None, "float64"),
        (np.zeros(3, bool), None, "uint8"),
        (np.zeros(3, ">f4"), None, "uint8"),
        (np.zeros(3, [("a", "f4")]), None, "uint8"),
        (np.array([{}, []], object), None, "uint8"),
        (np.zeros(6, "V2"), None, "uint8"),
        (np.zeros(6, "V2"), "bfloat16", "bfloat16"),
        (np.zeros(6, np.uint16), "bfloat16", "bfloat16"),
    ],
)
def test_npy_data_has_the_type_of_its_header_or_the_given_one(tmp_path, array, dtype, name):
    path = tmp_path / "a.npy"
    np.save(path, array)
    header, *data = segments(path, dtype)
    assert (header.dtype.name, header.tensor) == ("uint8", None)
    assert [(part.dtype.name, part.tensor) for part in data] == [(name, "a")]
    assert data[-1].end == path.stat().st_size


def test_malformed_npy_files_are_rejected(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(10, np.float32))
    whole = path.read_bytes()
    hostile = [
        whole[:20],
        whole[:-1],
        whole + b"x",
        whole.replace(b"'shape'", b"'shap3'"),
        whole.replace(b"(10,)", b"(-1,)"),
        whole.replace(b"<f4", b"<f9"),
        b"\x93NUMPY\x09\x00" + whole[8:],
        whole[:8] + b"\xff\xff" + whole[10:],
    ]
    for broken in hostile:
        path.write_bytes(broken)
        with pytest.raises(CorruptError, match="not a valid npy file"):
            segments(path)
        assert sum(part.raw_bytes for part in segments(path, "uint8")) == len(broken)


def test_plain_files_need_a_type_and_keep_odd_bytes(write):
    path = write(bytes(7), "values.bin")
    with pytest.raises(UnknownValuesError):
        segments(path)
    assert shape_of(segments(path, "float32")) == [(0, 4, "float32", "values.bin"), (4, 3, "uint8", None)]
    assert segments(write(b"", "empty"), None) == []
