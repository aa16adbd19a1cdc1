"""Headers of safetensors and npy files are validated: invalid ones raise an error, never give wrong segments."""

from __future__ import annotations

import io
import json
import struct

import narrowcast
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowcast import files
from narrowcast._files import containers
from narrowcast._files.safetensors_header import MAX_HEADER_BYTES
from narrowcast._files.segment import StatedTypeError, UnknownValuesError
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
        (b"", "it is empty"),
        (b"\1\0\0", "too few for a header"),
        (safetensors({}, length=3 << 60), "does not begin with the length of a header"),
        (safetensors({}, length=MAX_HEADER_BYTES + 1), "does not begin with the length of a header"),
        (
            safetensors({}, length=100),
            "truncated safetensors file: its header ends at byte 108, but the file has 10 bytes",
        ),
        (b"version https://git-lfs.github.com/spec/v1", "it is a Git LFS pointer"),
        (b"PK\3\4" + bytes(100), "it is a zip archive"),
        (safetensors(b"[]"), "brace"),
        (safetensors(b"{"), "Expecting"),
        (safetensors(b'{"a": NaN}'), "NaN"),
        (safetensors(b'{"a": \xff}'), "utf-8"),
        (safetensors(b'{"a":{},"a":{}}'), "occurs twice"),
        (safetensors(b'{"a":' + b"[" * 200_000), "recursion"),
        (safetensors(b'{"a":' + b"9" * 100_000 + b"}"), "integer string conversion"),
        (safetensors({"__metadata__": {"a": 1}}), "__metadata__"),
        (safetensors({"__metadata__": []}), "__metadata__"),
        (safetensors({"a": 5}), "does not have dtype, shape and data_offsets"),
        (safetensors({"a": {"dtype": "F32", "shape": [1], "extra": 1}}), "does not have dtype"),
        (safetensors({"a": tensor(7, [1], 0, 4)}, bytes(4)), "not a string"),
        (safetensors({"a": tensor("F32", [-1], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [True], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [1.0], 0, 4)}, bytes(4)), "list of non-negative integers"),
        (safetensors({"a": tensor("F32", [1], 4, 0)}, bytes(4)), "data_offsets"),
        (safetensors({"a": tensor("F32", [1], 0, 8)}, bytes(8)), "does not match its shape"),
        (
            safetensors({"a": tensor("F32", [2], 0, 8)}, bytes(7)),
            "truncated safetensors file: tensor 'a' ends at byte 77, but the file has 76",
        ),
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


def test_further_keys_and_null_metadata_are_ignored(write):
    header = {"__metadata__": None, "a": tensor("F32", [1], 0, 4, note=[1])}
    data = safetensors(header, bytes(4))
    assert [part.tensor for part in segments(write(data))] == [None, "a"]
    with files.open(io.BytesIO(data)) as opened:
        assert (opened.metadata, opened["a"].shape) == ({}, (1,))


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
    with pytest.raises(CorruptError, match="blob is a truncated safetensors file: tensor 'a' ends at byte"):
        segments(write(data[:-1], "blob"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"plain text", "neither safetensors nor npy"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"PK\3\4" + bytes(100), "a zip archive, such as torch.save"),
        (b"GGUF" + bytes(100), "a GGUF file"),
        (narrowcast.encode(np.zeros(3, np.float32)).tobytes(), "already encoded"),
    ],
)
def test_files_of_unknown_values_are_described(write, data, what):
    with pytest.raises(UnknownValuesError, match=rf"values is {what}.*--dtype"):
        segments(write(data, "values"))


def test_a_type_that_contradicts_the_header_is_an_error(write, tmp_path):
    model = safetensors({"a": tensor("F32", [2], 0, 8)}, bytes(8))
    for name in ("model.safetensors", "blob"):
        for dtype in ("bfloat16", "float32", "uint8"):
            with pytest.raises(StatedTypeError, match=f"{name} is a safetensors file"):
                segments(write(model, name), dtype)
    path = tmp_path / "a.npy"
    for array, dtype in (
        (np.zeros(4, np.float32), "bfloat16"),
        (np.zeros(4, np.float32), "uint8"),
        (np.zeros(4, np.uint32), "bfloat16"),
        (np.zeros(4, np.complex64), "float64"),
        (np.zeros(4, ">f4"), "float32"),
        (np.zeros(4, [("a", "f4")]), "float32"),
    ):
        np.save(path, array)
        with pytest.raises(StatedTypeError, match=f"a.npy contains {array.dtype.name}|>f4 values .* not {dtype}"):
            segments(path, dtype)


def test_segments_have_the_type_that_the_file_states(write, tmp_path):
    kinds = {"I16": ("int16", 2), "BOOL": ("bool", 1), "C64": ("complex64", 8), "F8_E8M0": ("float8_e8m0", 1)}
    header, at = {}, 0
    for kind, (_, size) in {**kinds, "F4_OF_TOMORROW": ("F4_OF_TOMORROW", 5)}.items():
        header[kind] = tensor(kind, [1], at, at + size)
        at += size
    found = {part.tensor: part.type_name for part in segments(write(safetensors(header, bytes(at)))) if part.tensor}
    assert found == {**{kind: name for kind, (name, _) in kinds.items()}, "F4_OF_TOMORROW": "F4_OF_TOMORROW"}
    for array, dtype, name in (
        (np.zeros(3, bool), None, "bool"),
        (np.zeros(3, np.int16), None, "int16"),
        (np.zeros(3, ">f4"), None, ">f4"),
        (np.zeros(3, np.uint16), "bfloat16", "bfloat16"),
    ):
        np.save(tmp_path / "a.npy", array)
        assert segments(tmp_path / "a.npy", dtype)[1].type_name == name


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
        whole.replace(b"'<f4', 'fortran_order': False, 'shape': (10,), }", b"exit(,".ljust(48)),
        whole.replace(b"'shape': (10,), }", b"'shape': (((((((("),
        whole.replace(b"(10,)", b"1" * 5),
    ]
    for broken in hostile:
        path.write_bytes(broken)
        with pytest.raises(CorruptError, match="not a valid npy file"):
            segments(path)
        assert sum(part.raw_bytes for part in segments(path, "uint8")) == len(broken)


@given(at=st.integers(0, 127), changed=st.binary(min_size=1, max_size=12))
def test_changed_npy_headers_are_an_error_or_cover_the_file(tmp_path_factory, at, changed):
    path = tmp_path_factory.mktemp("changed") / "a.npy"
    np.save(path, np.zeros(10, np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + changed + whole[at + len(changed) :])
    try:
        parts = segments(path)
    except (CorruptError, UnknownValuesError):
        return
    assert [part.offset for part in parts] == [0, *(part.end for part in parts[:-1])]


def test_plain_files_need_a_type_and_keep_odd_bytes(write):
    path = write(bytes(7), "values.bin")
    with pytest.raises(UnknownValuesError):
        segments(path)
    assert shape_of(segments(path, "float32")) == [(0, 4, "float32", "values.bin"), (4, 3, "uint8", None)]
    assert segments(write(b"", "empty"), None) == []
