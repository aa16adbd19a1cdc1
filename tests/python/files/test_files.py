"""Files decode to the same bytes. Cut or changed files are errors with frame and byte. No partial output remains."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from codec_names import EXACT
from narrowcast import files
from narrowcast._files.atomic import check_writable
from narrowcast.errors import CorruptError
from narrowcast.files import decode_file, encode_file, frames_of
from narrowcast.ratios import tensor_ratios
from sample_values import normal


@pytest.fixture
def small_frames(monkeypatch):
    """Frames of 1 KiB, so that small files have several."""
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 1024)


def round_trip(source, tmp_path, **options):
    encoded, decoded = tmp_path / "encoded", tmp_path / "decoded"
    totals = encode_file(source, encoded, **options)
    assert decode_file(encoded, decoded) == totals
    assert decoded.read_bytes() == source.read_bytes()
    assert totals.wire_bytes == encoded.stat().st_size
    return list(frames_of(encoded))


@pytest.mark.parametrize("codec", EXACT)
@pytest.mark.parametrize("checksum", [True, False])
def test_a_safetensors_file_round_trips(slices, tmp_path, codec, checksum):
    frames = round_trip(slices, tmp_path, codec=codec, checksum=checksum)
    assert [frame.info.more for frame in frames] == [True] * 7 + [False]
    assert [frame.info.codec for frame in frames] == ["raw"] + [codec] * 7
    assert all((frame.info.checksum is not None) == checksum for frame in frames)
    if codec != "raw":
        assert sum(f.info.wire_bytes for f in frames) < 0.8 * sum(f.info.raw_bytes for f in frames)


def test_auto_keeps_the_shortest_encoding_of_each_tensor(tmp_path):
    random = np.random.default_rng(3)
    # 31 exponents, all as frequent, and more of them than the codes of dense are made for.
    uniform = (random.integers(100, 131, 1 << 16) << 7 | random.integers(0, 128, 1 << 16)).astype(np.uint16)
    path = tmp_path / "values"
    kept = {}
    for name, values in {"window": uniform, "dense": normal("bfloat16", 1 << 16)}.items():
        path.write_bytes(values.tobytes())
        (frame,) = round_trip(path, tmp_path, dtype="bfloat16", codec="auto")
        kept[name] = frame.info.codec
        each = [round_trip(path, tmp_path, dtype="bfloat16", codec=codec)[0].info for codec in ("window", "dense")]
        assert frame.info.wire_bytes == min(info.wire_bytes for info in each)
    assert kept == {"window": "window", "dense": "dense"}


def test_long_tensors_take_several_frames(slices, tmp_path, small_frames):
    frames = round_trip(slices, tmp_path)
    assert len(frames) > 2000
    assert max(frame.info.raw_bytes for frame in frames) == 1024
    assert [frame.number for frame in frames] == list(range(len(frames)))


def test_npy_files_round_trip(tmp_path):
    path = tmp_path / "a.npy"
    for array in (np.zeros((0, 3), np.float32), np.arange(999, dtype=np.float64), np.array(3.5), np.zeros(3, ">f4")):
        np.save(path, array)
        round_trip(path, tmp_path)
    np.save(path, normal("bfloat16", 5000))
    assert {frame.info.dtype for frame in round_trip(path, tmp_path, dtype="bfloat16")} == {"uint8", "bfloat16"}


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1023, 1024, 1025, 5001])
def test_plain_files_of_any_size_round_trip(tmp_path, small_frames, size):
    path = tmp_path / "values"
    path.write_bytes(normal("float32", 2000).tobytes()[:size])
    for dtype in ("float32", "float64", "bfloat16", "uint8"):
        frames = round_trip(path, tmp_path, dtype=dtype)
        assert frames[-1].info.more is False


def test_an_empty_file_is_one_frame_and_an_empty_encoding_is_truncated(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert [frame.info.elems for frame in round_trip(path, tmp_path)] == [0]
    with pytest.raises(CorruptError, match="frame 0 at byte 0: the file ends where a frame should begin"):
        decode_file(path, tmp_path / "out")


@pytest.mark.parametrize("content", [b"h", b"hello world", b"NCS_" + bytes(20), b"hello world" * 10])
def test_a_file_that_encode_has_not_written_is_not_called_truncated(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    for source in (path, Pipe(content)):
        with pytest.raises(CorruptError, match="frame 0 at byte 0: not a frame: "):
            decode_file(source, tmp_path / "out")


def safetensors_of(path, tensors):
    """Writes a safetensors file. tensors: name, type, shape and bytes of each."""
    header, offset = {}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in tensors))


def test_small_tensors_share_frames_and_shrink(tmp_path):
    path = tmp_path / "small.safetensors"
    safetensors_of(path, [(str(i), "BF16", [300], normal("bfloat16", 300, i).tobytes()) for i in range(200)])
    frames = round_trip(path, tmp_path)
    assert [(frame.info.dtype, frame.info.elems) for frame in frames] == [
        ("uint8", path.stat().st_size - 120_000),
        ("bfloat16", 60_000),
    ]
    assert frames[1].info.ratio < 0.72


def test_small_tensors_of_mixed_types_do_not_grow(tmp_path):
    path = tmp_path / "mixed.safetensors"
    tensors = []
    for i in range(100):
        tensors.append((f"{i}.bias", "F32", [64], normal("float32", 64, i).tobytes()))
        tensors.append((f"{i}.count", "I64", [], bytes(8)))
        tensors.append((f"{i}.scale", "BF16", [77], normal("bfloat16", 77, i).tobytes()))
    safetensors_of(path, tensors)
    (frame,) = round_trip(path, tmp_path)
    assert frame.info.wire_bytes < path.stat().st_size + 80


def test_a_small_tensor_joins_a_large_one_of_its_type_only(tmp_path):
    path = tmp_path / "model.safetensors"
    large = [(name, normal(name, 1 << 16).tobytes()) for name in ("bfloat16", "float16", "bfloat16")]
    small = normal("bfloat16", 300).tobytes()
    tensors = [
        (str(i), {"bfloat16": "BF16", "float16": "F16"}[name], [1 << 16], data) for i, (name, data) in enumerate(large)
    ]
    safetensors_of(path, [tensors[0], ("small", "BF16", [300], small), *tensors[1:]])
    frames = round_trip(path, tmp_path)
    assert [(frame.info.dtype, frame.info.elems) for frame in frames[1:]] == [
        ("bfloat16", (1 << 16) + 300),
        ("float16", 1 << 16),
        ("bfloat16", 1 << 16),
    ]


def test_frames_of_packed_tensors_stay_within_the_limit(tmp_path, small_frames):
    path = tmp_path / "small.safetensors"
    safetensors_of(path, [(str(i), "BF16", [150], normal("bfloat16", 150, i).tobytes()) for i in range(50)])
    frames = round_trip(path, tmp_path)
    # Too short for a block, so they are plain bytes.
    assert [frame.info.raw_bytes for frame in frames[-17:]] == [900] * 16 + [600]
    assert {frame.info.dtype for frame in frames} == {"uint8"}


def test_paths_may_be_strings(slices, tmp_path):
    source, encoded, decoded = str(slices), str(tmp_path / "encoded"), str(tmp_path / "decoded")
    encode_file(source, encoded)
    assert len(list(frames_of(encoded))) == 8
    decode_file(encoded, decoded)
    assert Path(decoded).read_bytes() == slices.read_bytes()
    assert len(list(tensor_ratios(source))) == 7


def test_file_objects_replace_paths(slices, tmp_path):
    encoded, decoded = io.BytesIO(), io.BytesIO()
    encode_file(io.BytesIO(slices.read_bytes()), encoded)
    encode_file(slices, tmp_path / "encoded")
    assert encoded.getvalue() == (tmp_path / "encoded").read_bytes()
    encoded.seek(0)
    assert decode_file(encoded, decoded).frames == 8
    assert decoded.getvalue() == slices.read_bytes()


class Pipe(io.RawIOBase):
    """A stream without seek that returns few bytes per read."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        return self._data.readinto(memoryview(buffer)[:777])


def test_pipes_are_read_once(slices, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 100_000)
    encoded, decoded = io.BytesIO(), io.BytesIO()
    encode_file(Pipe(slices.read_bytes()), encoded)
    whole = encoded.getvalue()
    # The buffer of a frame grows with the data that has arrived.
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 1)
    decode_file(Pipe(whole), decoded)
    assert decoded.getvalue() == slices.read_bytes()
    for cut in (100, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptError, match=r"<Pipe>: frame .* the file is truncated"):
            decode_file(Pipe(whole[:cut]), io.BytesIO())
    with pytest.raises(CorruptError, match=rf"<Pipe>: more bytes follow frame .* at byte {len(whole)}"):
        decode_file(Pipe(whole + b"m"), io.BytesIO())


def test_every_truncation_is_detected_and_leaves_no_file(tmp_path, small_frames):
    path, encoded = tmp_path / "values", tmp_path / "encoded"
    path.write_bytes(normal("bfloat16", 1600).tobytes())
    encode_file(path, encoded, dtype="bfloat16")
    frames, whole = list(frames_of(encoded)), encoded.read_bytes()
    starts = [frame.offset for frame in frames]
    assert len(starts) == 4
    cuts = sorted({*range(0, len(whole), 101), *starts, *(start + 63 for start in starts), len(whole) - 1})
    for cut in cuts:
        encoded.write_bytes(whole[:cut])
        number = sum(start <= cut for start in starts) - 1
        if cut in starts and cut:
            message = f"frame {number} at byte {cut}: the file ends where a frame should begin"
        else:
            message = f"frame {number} at byte {starts[number]}: the file"
        with pytest.raises(CorruptError, match=message):
            decode_file(encoded, tmp_path / "out")
    encoded.write_bytes(whole + b"more")
    with pytest.raises(CorruptError, match=f"4 bytes follow frame 3, the last, at byte {len(whole)}"):
        decode_file(encoded, tmp_path / "out")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["encoded", "values"]


def test_changed_bytes_are_detected_and_located(tmp_path, small_frames):
    path, encoded = tmp_path / "values", tmp_path / "encoded"
    path.write_bytes(normal("bfloat16", 1600).tobytes())
    encode_file(path, encoded, dtype="bfloat16")
    second, whole = list(frames_of(encoded))[1], encoded.read_bytes()
    for at in range(second.offset, second.offset + second.info.wire_bytes, 37):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        encoded.write_bytes(broken)
        with pytest.raises(CorruptError) as caught:
            decode_file(encoded, tmp_path / "out")
        message = str(caught.value)
        assert message.startswith(f"{encoded}: frame ")
        assert "ncast_" not in message
    assert not (tmp_path / "out").exists()


def test_corrupt_frames_are_reported_among_valid_ones(tmp_path, small_frames):
    path, encoded = tmp_path / "values", tmp_path / "encoded"
    path.write_bytes(normal("bfloat16", 1600).tobytes())
    encode_file(path, encoded, dtype="bfloat16")
    right = list(frames_of(encoded))
    broken = bytearray(encoded.read_bytes())
    broken[right[2].offset - 1] ^= 1
    encoded.write_bytes(broken)
    found = list(frames_of(encoded))
    assert [frame.fault is None for frame in found] == [True, False, True, True]
    assert f"{encoded}: frame 1 at byte {right[1].offset}: checksum " in found[1].fault
    assert (found[1].info, found[1].blocks) == (right[1].info, None)
    assert found[2:] == right[2:]


def test_errors_name_the_given_path(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        encode_file(Path(files.__file__), tmp_path / "nowhere" / "out", dtype="uint8")
    assert caught.value.filename == str(tmp_path / "nowhere" / "out")


def test_checking_a_path_creates_no_file(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        check_writable(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"
    with pytest.raises(FileNotFoundError):
        check_writable(tmp_path / "nowhere" / "out")
    with pytest.raises(OSError, match="not a regular file"):
        check_writable(tmp_path)


def test_failures_keep_the_old_output(tmp_path):
    encoded, out = tmp_path / "encoded", tmp_path / "out"
    encoded.write_bytes(b"no frame, but long enough for the header of one: " + bytes(100))
    out.write_bytes(b"old")
    with pytest.raises(CorruptError, match="frame 0 at byte 0: not a frame"):
        decode_file(encoded, out)
    assert out.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


def test_output_through_a_link_replaces_the_target(tmp_path):
    source, real, link = tmp_path / "values", tmp_path / "real", tmp_path / "link"
    source.write_bytes(bytes(100))
    real.write_bytes(b"old")
    link.symlink_to(real)
    encode_file(source, link, dtype="uint8")
    assert link.is_symlink()
    assert real.stat().st_size == 64 + 112
    with pytest.raises(OSError, match="not a regular file"):
        encode_file(source, tmp_path, dtype="uint8")


def test_arguments_that_are_no_files_are_named(tmp_path):
    for use in (files.open, files.load_file, lambda what: encode_file(what, tmp_path / "out")):
        with pytest.raises(TypeError, match="None is neither a path nor an open binary file"):
            use(None)
    with pytest.raises(TypeError, match="5 is neither a path nor an open binary file"):
        files.save_file({}, 5)
    with pytest.raises(TypeError, match="tensors is of type list, not a mapping"):
        files.save_file([], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
