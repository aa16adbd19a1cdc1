"""Decoded files are byte-identical; cut or changed ones are told of, by frame and byte; nothing half-written stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from narrowcast import files
from narrowcast._files.atomic import check_writable
from narrowcast.errors import CorruptError
from narrowcast.files import decode_file, encode_file, frames_of
from sample_values import normal


@pytest.fixture
def small_frames(monkeypatch):
    """Frames of a KiB, so that small files have many."""
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 1024)


def round_trip(source, tmp_path, **options):
    encoded, decoded = tmp_path / "encoded", tmp_path / "decoded"
    totals = encode_file(source, encoded, **options)
    assert decode_file(encoded, decoded) == totals
    assert decoded.read_bytes() == source.read_bytes()
    assert totals.wire_bytes == encoded.stat().st_size
    return list(frames_of(encoded))


@pytest.mark.parametrize("codec", ["window", "raw"])
@pytest.mark.parametrize("checksum", [True, False])
def test_a_safetensors_file_comes_back_byte_for_byte(slices, tmp_path, codec, checksum):
    frames = round_trip(slices, tmp_path, codec=codec, checksum=checksum)
    assert [frame.info.more for frame in frames] == [True] * 7 + [False]
    assert [frame.info.codec for frame in frames] == ["raw"] + [codec] * 7
    assert all((frame.info.checksum is not None) == checksum for frame in frames)
    if codec == "window":
        assert sum(f.info.wire_bytes for f in frames) < 0.8 * sum(f.info.raw_bytes for f in frames)


def test_long_tensors_take_several_frames(slices, tmp_path, small_frames):
    frames = round_trip(slices, tmp_path)
    assert len(frames) > 2000
    assert max(frame.info.raw_bytes for frame in frames) == 1024
    assert [frame.number for frame in frames] == list(range(len(frames)))


def test_npy_files_come_back_byte_for_byte(tmp_path):
    path = tmp_path / "a.npy"
    for array in (np.zeros((0, 3), np.float32), np.arange(999, dtype=np.float64), np.array(3.5), np.zeros(3, ">f4")):
        np.save(path, array)
        round_trip(path, tmp_path)
    np.save(path, normal("bfloat16", 5000))
    assert {frame.info.dtype for frame in round_trip(path, tmp_path, dtype="bfloat16")} == {"uint8", "bfloat16"}


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1023, 1024, 1025, 5001])
def test_plain_files_of_any_size_come_back(tmp_path, small_frames, size):
    path = tmp_path / "values"
    path.write_bytes(normal("float32", 2000).tobytes()[:size])
    for dtype in ("float32", "float64", "bfloat16", "uint8"):
        frames = round_trip(path, tmp_path, dtype=dtype)
        assert frames[-1].info.more is False


def test_an_empty_file_is_one_frame_and_an_empty_encoding_is_cut(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert [frame.info.elems for frame in round_trip(path, tmp_path)] == [0]
    with pytest.raises(CorruptError, match="frame 0 at byte 0: the file ends where a frame should begin"):
        decode_file(path, tmp_path / "out")


def test_every_cut_is_found_and_leaves_nothing(tmp_path, small_frames):
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
            sentence = f"frame {number} at byte {cut}: the file ends where a frame should begin"
        else:
            sentence = f"frame {number} at byte {starts[number]}: the file"
        with pytest.raises(CorruptError, match=sentence):
            decode_file(encoded, tmp_path / "out")
    encoded.write_bytes(whole + b"more")
    with pytest.raises(CorruptError, match=f"4 bytes follow frame 3, the last, at byte {len(whole)}"):
        decode_file(encoded, tmp_path / "out")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["encoded", "values"]


def test_a_changed_byte_is_found_and_located(tmp_path, small_frames):
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
        sentence = str(caught.value)
        assert sentence.startswith(f"{encoded}: frame ")
        assert "ncast_" not in sentence
    assert not (tmp_path / "out").exists()


def test_a_frame_that_is_wrong_is_told_of_among_the_others(tmp_path, small_frames):
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


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        encode_file(Path(files.__file__), tmp_path / "nowhere" / "out", dtype="uint8")
    assert caught.value.filename == str(tmp_path / "nowhere" / "out")


def test_what_is_checked_before_the_work_leaves_nothing(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        check_writable(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"
    with pytest.raises(FileNotFoundError):
        check_writable(tmp_path / "nowhere" / "out")
    with pytest.raises(OSError, match="not a regular file"):
        check_writable(tmp_path)


def test_a_failure_leaves_the_old_output_as_it_was(tmp_path):
    encoded, out = tmp_path / "encoded", tmp_path / "out"
    encoded.write_bytes(b"no frame, but long enough for the header of one: " + bytes(100))
    out.write_bytes(b"old")
    with pytest.raises(CorruptError, match="frame 0 at byte 0: not a frame"):
        decode_file(encoded, out)
    assert out.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


def test_output_through_a_link_replaces_what_it_points_to(tmp_path):
    source, real, link = tmp_path / "values", tmp_path / "real", tmp_path / "link"
    source.write_bytes(bytes(100))
    real.write_bytes(b"old")
    link.symlink_to(real)
    encode_file(source, link, dtype="uint8")
    assert link.is_symlink()
    assert real.stat().st_size == 64 + 112
    with pytest.raises(OSError, match="not a regular file"):
        encode_file(source, tmp_path, dtype="uint8")
