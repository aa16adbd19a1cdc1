"""Inputs that change while they are read are an error, and those without a size are read to their end."""

from __future__ import annotations

import errno
import gzip
import io
import os
from pathlib import Path

import pytest
from narrowcast import files
from narrowcast.errors import CorruptError, SystemFailure
from narrowcast.files import decode_file, encode_file
from narrowcast.ratios import tensor_ratios
from sample_values import normal


@pytest.fixture
def values(tmp_path, monkeypatch) -> Path:
    """A file of many frames."""
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 4096)
    path = tmp_path / "values"
    path.write_bytes(normal("bfloat16", 200_000).tobytes())
    return path


@pytest.mark.parametrize("size", [0, 5000, 399_998, 400_002, 900_000])
def test_an_input_that_changes_its_size_is_an_error(values, tmp_path, size):
    def resize(_: int) -> None:
        os.truncate(values, size)

    with pytest.raises(SystemFailure, match=r"values (ends at byte \d+|changed from 400000 to \d+ bytes)"):
        encode_file(values, tmp_path / "out", dtype="bfloat16", progress=resize)
    assert [path.name for path in tmp_path.iterdir()] == ["values"]


def test_an_input_that_grows_is_an_error_for_ratio(values):
    rows = tensor_ratios(values, dtype="bfloat16")
    next(rows)
    with values.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SystemFailure, match="changed from 400000 to 400004 bytes"):
        next(rows)


@pytest.mark.parametrize("change", [-1, 1])
def test_an_encoded_file_that_changes_its_size_is_an_error(values, tmp_path, change):
    encoded = tmp_path / "encoded"
    encode_file(values, encoded, dtype="bfloat16")
    size = encoded.stat().st_size

    def resize(_: int) -> None:
        os.truncate(encoded, size + change)

    with pytest.raises(
        (CorruptError, SystemFailure), match="when it was opened" if change < 0 else "1 bytes follow frame"
    ):
        decode_file(encoded, tmp_path / "out", progress=resize)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoded", "values"]


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="no /proc")
def test_files_in_proc_are_read_to_their_end(tmp_path):
    for name in ("/proc/version", "/proc/cpuinfo"):
        encode_file(name, tmp_path / "encoded", dtype="uint8")
        decode_file(tmp_path / "encoded", tmp_path / "decoded")
        assert (tmp_path / "decoded").read_bytes().split()[:3] == Path(name).read_bytes().split()[:3]
        assert (tmp_path / "decoded").stat().st_size > 50


def test_a_file_in_proc_is_not_an_encoded_file(tmp_path):
    with pytest.raises(CorruptError, match="frame 0 at byte 0: not a frame"):
        decode_file("/proc/cpuinfo", tmp_path / "out")


def test_errors_of_the_device_name_the_file(values, tmp_path, monkeypatch):
    def fail(*_) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        encode_file(values, tmp_path / "out", dtype="bfloat16")
    assert caught.value.filename == str(values)


def test_readers_that_decompress_give_what_they_read(tmp_path):
    with gzip.open(tmp_path / "values.gz", "wb") as file:
        file.write(bytes(5000))
    encoded = io.BytesIO()
    with gzip.open(tmp_path / "values.gz") as file:
        encode_file(file, encoded, dtype="uint8")
    decoded = io.BytesIO()
    decode_file(io.BytesIO(encoded.getvalue()), decoded)
    assert decoded.getvalue() == bytes(5000)
