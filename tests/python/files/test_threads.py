"""Threads do not change the result, and errors keep their order."""

from __future__ import annotations

import io
import threading
import time

import pytest
from narrowcast import files
from narrowcast._files.pipeline import Pipeline, default_threads
from narrowcast.errors import CorruptError
from narrowcast.files import decode_file, encode_file, frames_of
from sample_values import normal


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_number_of_threads_does_not_change_the_bytes(slices, monkeypatch, threads):
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 64 << 10)
    encoded, expected, decoded = io.BytesIO(), io.BytesIO(), io.BytesIO()
    encode_file(slices, expected)
    assert encode_file(slices, encoded, threads=threads).frames > 30
    assert encoded.getvalue() == expected.getvalue()
    encoded.seek(0)
    decode_file(encoded, decoded, threads=threads)
    assert decoded.getvalue() == slices.read_bytes()


def test_frames_before_an_error_are_still_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FRAME_RAW_BYTES", 4096)
    path = tmp_path / "values"
    path.write_bytes(normal("bfloat16", 50_000).tobytes())
    encode_file(path, tmp_path / "encoded", dtype="bfloat16")
    whole = (tmp_path / "encoded").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-1])
    for threads in (1, 5):
        shown = []
        with pytest.raises(CorruptError, match=r"frame 24 at byte .* truncated"):
            shown.extend(frame.number for frame in frames_of(tmp_path / "cut", threads=threads))
        assert shown == list(range(24))


def test_threads_must_be_at_least_one(slices):
    for threads in (0, -1):
        with pytest.raises(ValueError, match=f"threads is {threads}, not 1 or more"):
            encode_file(slices, io.BytesIO(), threads=threads)


def test_results_are_in_order_and_work_is_bounded():
    running, most, started = 0, 0, []
    lock = threading.Lock()

    def work(piece, _):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002 * (piece % 3))
        with lock:
            running -= 1
        return piece

    def pieces():
        for piece in range(40):
            started.append(piece)
            yield piece

    taken = []
    for result in Pipeline(work, lambda _: 1, 3).results(pieces()):
        taken.append(result)
        assert len(started) <= len(taken) + 6
    assert taken == list(range(40))
    assert 1 < most <= 3


def test_large_pieces_are_not_in_memory_together():
    started = []

    def pieces():
        for piece in range(6):
            started.append(piece)
            yield piece

    for result in Pipeline(lambda piece, _: piece, lambda _: 3 << 30, 4).results(pieces()):
        assert len(started) <= result + 2


def test_an_error_of_the_work_ends_the_pipeline():
    def work(piece, _):
        if piece == 3:
            raise OSError("broken")
        return piece

    taken = []
    with pytest.raises(OSError, match="broken"):
        taken.extend(Pipeline(work, lambda _: 1, 2).results(iter(range(1000))))
    assert taken == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("narrowcast-files")]


def test_the_default_is_the_number_of_usable_cpus():
    assert 1 <= default_threads() <= 16
