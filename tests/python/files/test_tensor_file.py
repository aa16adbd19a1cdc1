"""Tensors of encoded files are read by name, and only their frames are decoded."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path

import narrowcast
import numpy as np
import pytest
from narrowcast import files
from narrowcast._files import tensor_arrays
from narrowcast._files.frames import FrameReader
from narrowcast.errors import CorruptError
from narrowcast.files import decode_file, encode_file, frames_of, load_file, save_file
from sample_values import normal

RNG = np.random.default_rng(1)
TENSORS = {
    "rows": RNG.standard_normal((300, 50)).astype(np.float32),
    "cube": RNG.standard_normal((4, 5, 6)),
    "scalar": np.array(3.5, np.float32),
    "none": np.zeros((0, 7), np.float16),
    "flags": RNG.integers(0, 2, 1000).astype(bool),
    "short": RNG.integers(-100, 100, (9, 9)).astype(np.int16),
    "pairs": (RNG.standard_normal(10) + 1j).astype(np.complex64),
    "large": RNG.integers(0, 1 << 60, 20_000).astype(np.uint64),
}
METADATA = {"format": "pt", "größe": "x"}


@pytest.fixture
def small_frames(monkeypatch):
    """Frames of 8 KiB, so that tensors have several."""
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 8 << 10)


@pytest.fixture
def path(tmp_path, small_frames):
    """An encoded file of TENSORS."""
    save_file(TENSORS, tmp_path / "model.ncast", metadata=METADATA)
    return tmp_path / "model.ncast"


@pytest.fixture
def decoded(monkeypatch):
    """The numbers of the frames that are decoded."""
    numbers = []
    original = FrameReader.decode

    def decode(self, frame, *arguments):
        numbers.append(frame.number)
        return original(self, frame, *arguments)

    monkeypatch.setattr(FrameReader, "decode", decode)
    return numbers


def assert_same(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def test_saved_tensors_are_loaded(path):
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    for name, expected in TENSORS.items():
        assert_same(found[name], expected)
    assert list(load_file(path, names=["flags", "cube", "flags"])) == ["flags", "cube"]


def test_a_saved_file_decodes_to_a_safetensors_file(path, tmp_path):
    decode_file(path, tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__") == METADATA
    for name, expected in TENSORS.items():
        begin, end = header[name]["data_offsets"]
        assert header[name]["shape"] == list(expected.shape)
        assert begin % expected.itemsize == 0
        assert content[8 + length + begin : 8 + length + end] == expected.tobytes()
    # It is the file that encode_file makes of it.
    encode_file(tmp_path / "model.safetensors", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    for name, found in load_file(tmp_path / "model.safetensors").items():
        assert_same(found, TENSORS[name])


def test_files_of_the_safetensors_library_are_read_and_written_for_it(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    library.save_file(TENSORS, tmp_path / "model.safetensors", metadata=METADATA)
    encode_file(tmp_path / "model.safetensors", tmp_path / "encoded")
    for name, found in load_file(tmp_path / "encoded").items():
        assert_same(found, TENSORS[name])
    save_file(TENSORS, tmp_path / "saved", metadata=METADATA)
    decode_file(tmp_path / "saved", tmp_path / "saved.safetensors")
    for name, found in library.load_file(tmp_path / "saved.safetensors").items():
        assert_same(found, TENSORS[name])


def test_shape_and_type_are_known_without_decoding_values(path, decoded):
    with files.open(path) as model:
        header_frames = set(decoded)
        decoded.clear()
        assert {name: (model[name].shape, model[name].dtype) for name in model} == {
            name: (array.shape, array.dtype.name) for name, array in TENSORS.items()
        }
        assert (model.metadata, len(model), "rows" in model, "row" in model) == (METADATA, 8, True, False)
        assert model["rows"].raw_bytes == 60_000
        assert repr(model["rows"]) == "<Tensor 'rows': float32 [300, 50]>"
        assert decoded == []
    assert header_frames == {0}


def test_only_the_frames_of_a_tensor_are_decoded(path, decoded):
    own = [frame.number for frame in frames_of(path) if "rows" in frame.tensors]
    assert len(own) >= 8
    with files.open(path) as model:
        decoded.clear()
        assert_same(model["rows"].read(), TENSORS["rows"])
        assert sorted(decoded) == own
        decoded.clear()
        assert_same(model["rows"][100:110], TENSORS["rows"][100:110])
        assert 1 <= len(set(decoded)) <= 2


def test_small_tensors_that_share_a_frame_decode_it_once(tmp_path, decoded):
    tensors = {f"t{i}": np.full(3, i, np.float32) for i in range(500)}
    save_file(tensors, tmp_path / "model")
    with files.open(tmp_path / "model") as model:
        decoded.clear()
        for name, expected in tensors.items():
            assert_same(model[name].read(), expected)
    assert len(decoded) <= 1


@pytest.mark.parametrize(
    "index",
    [
        *(0, -1, 299, np.int64(5), slice(10, 20), slice(None), slice(-3, None), slice(250, 10, -7), slice(5, 5), ...),
        *((3, 4), (slice(2, 9, 3), slice(1, None, 2)), (slice(None), 0), (..., 1), (None, 2), ([1, 5, 7],), ()),
        *(True, False, np.True_, (True, 3), (slice(2), True), (7, False)),
    ],
    ids=str,
)
def test_indices_are_those_of_numpy(path, index):
    with files.open(path) as model:
        found, expected = model["rows"][index], TENSORS["rows"][index]
        assert np.shape(found) == np.shape(expected)
        assert np.array_equal(found, expected)


def test_indices_that_are_out_of_range_are_errors(path):
    with files.open(path) as model:
        for index in (300, -301):
            with pytest.raises(IndexError, match=f"row {index} of tensor 'rows', which has 300 rows"):
                model["rows"][index]
        with pytest.raises(KeyError, match="no tensor 'row'"):
            model["row"]
        assert model["scalar"][()] == 3.5
        assert model["none"][0:0].shape == (0, 7)
        assert len(model["rows"]) == 300
        assert np.asarray(model["rows"]).shape == (300, 50)


def test_bfloat16_keeps_its_type(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = normal("float32", 10_000)
    tensors = {name: values.astype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    totals = save_file(tensors, tmp_path / "model")
    assert totals.wire_bytes < 0.85 * totals.raw_bytes
    for name, found in load_file(tmp_path / "model").items():
        assert_same(found, tensors[name])


def test_bfloat16_is_bits_without_ml_dtypes(slices, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    tensor_arrays._numpy_type.cache_clear()
    try:
        assert load_file(slices)["weights_bf16"].dtype == np.uint16
    finally:
        tensor_arrays._numpy_type.cache_clear()


def test_arrays_that_are_not_contiguous_are_copied(tmp_path):
    array = np.arange(24.0).reshape(4, 6)
    save_file({"t": array.T, "s": array[::2]}, tmp_path / "model")
    found = load_file(tmp_path / "model")
    assert np.array_equal(found["t"], array.T)
    assert np.array_equal(found["s"], array[::2])


def test_arrays_in_the_other_byte_order_are_converted(tmp_path):
    values = np.arange(6, dtype=">f4").reshape(2, 3)
    save_file({"a": values}, tmp_path / "model")
    assert_same(load_file(tmp_path / "model")["a"], values.astype("=f4"))


def test_files_are_saved_to_memory_and_loaded_from_it(tmp_path):
    content = files.save(TENSORS, METADATA)
    save_file(TENSORS, tmp_path / "model", METADATA)
    assert content == (tmp_path / "model").read_bytes()
    decode_file(tmp_path / "model", tmp_path / "decoded")
    for data in (content, memoryview(content), (tmp_path / "decoded").read_bytes()):
        for name, found in files.load(data).items():
            assert_same(found, TENSORS[name])
    assert list(files.load(content, names=["rows"])) == ["rows"]


def test_a_decoded_file_has_the_bytes_of_the_safetensors_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    ordered = {f"{kind}{i}": np.zeros(3, kind) for kind in ("u8", "f8", "i8", "c8", "u2", "f2", "?") for i in (1, 0)}
    save_file({**ordered, **TENSORS}, tmp_path / "saved")
    decode_file(tmp_path / "saved", tmp_path / "decoded")
    assert (tmp_path / "decoded").read_bytes() == library.save({**ordered, **TENSORS})


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"a": np.array(["x"])}, "'a' has type str32, which safetensors does not have"),
        ({"a": np.zeros(3, np.complex128)}, "'a' has type complex128"),
        ({5: np.zeros(3)}, "5 is not the name of a tensor"),
        ({"__metadata__": np.zeros(3)}, "not the name"),
    ],
)
def test_what_safetensors_does_not_have_is_rejected(tmp_path, tensors, why):
    with pytest.raises(TypeError, match=why):
        save_file(tensors, tmp_path / "model")
    with pytest.raises(TypeError, match="metadata"):
        save_file({}, tmp_path / "model", metadata={"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_files_of_earlier_versions_and_file_objects_work(slices, tmp_path):
    """Frames of one tensor each, as earlier versions wrote."""
    content = slices.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    ends = sorted(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    cuts = [0, length, *(length + end for end in ends)]
    stream = b"".join(
        narrowcast.encode(content[begin:end], dtype="uint8", more=end != len(content), checksum=True).tobytes()
        for begin, end in itertools.pairwise(cuts)
    )
    expected = load_file(slices)
    for source in (io.BytesIO(stream), io.BytesIO(content)):
        for name, found in load_file(source).items():
            assert_same(found, expected[name])


def test_other_files_are_errors(slices, tmp_path):
    path = tmp_path / "values"
    path.write_bytes(bytes(1000))
    with pytest.raises(CorruptError, match="neither a safetensors file nor an encoded one"):
        files.open(path)
    encode_file(path, tmp_path / "encoded", dtype="float32")
    with pytest.raises(CorruptError, match="encoded, but not from a safetensors file"):
        files.open(tmp_path / "encoded")
    encode_file(slices, tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(whole[:-1])
    with pytest.raises(CorruptError, match="truncated"):
        files.open(tmp_path / "model")
    (tmp_path / "model").write_bytes(whole[:-20] + b"\xff" + whole[-19:])
    with files.open(tmp_path / "model") as model:
        *first, last = model
        for name in first:
            model[name].read()
        with pytest.raises(CorruptError, match=r"frame \d+ at byte \d+: checksum"):
            model[last].read()


def test_inspect_shows_the_tensors_of_every_frame(path):
    with files.open(path) as model:
        names = list(model)
    for source in (path, Pipe(path.read_bytes())):
        found = [name for frame in frames_of(source) for name in frame.tensors]
        assert list(dict.fromkeys(found)) == [name for name in names if name != "none"]


def test_inspect_shows_no_tensors_of_other_files(tmp_path):
    (tmp_path / "values").write_bytes(normal("bfloat16", 50_000).tobytes())
    encode_file(tmp_path / "values", tmp_path / "encoded", dtype="bfloat16")
    assert [frame.tensors for frame in frames_of(tmp_path / "encoded")] == [()]


class Pipe(io.BytesIO):
    """Bytes without positions."""

    def seekable(self) -> bool:
        return False


GOLDEN = Path(__file__).parents[2] / "golden" / "files"


@pytest.mark.parametrize("encoder", ["separate", "packed"])
def test_golden_files_of_earlier_encoders_decode(tmp_path, encoder):
    """separate: every range of the file in frames of its own; packed: small tensors joined by type."""
    plain, encoded = GOLDEN / "model.safetensors", GOLDEN / f"{encoder}.ncast"
    decode_file(encoded, tmp_path / "decoded")
    assert (tmp_path / "decoded").read_bytes() == plain.read_bytes()
    expected = load_file(plain)
    for name, found in load_file(encoded).items():
        assert_same(found, expected[name])
    with files.open(encoded) as model:
        assert model.keys() == expected.keys()
        assert_same(model["layers.0.weight"][3:7], expected["layers.0.weight"][3:7])
