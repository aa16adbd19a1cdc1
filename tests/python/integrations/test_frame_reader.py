"""Copies of frames to a GPU, on simulated streams, one of which runs as early as events allow."""

from __future__ import annotations

import ctypes
import itertools
import types

import narrowcast
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from narrowcast._torch import encoded as encoded_tensors  # noqa: E402
from narrowcast._torch import frame_reader  # noqa: E402
from narrowcast._torch.encoded import EncodedTensors  # noqa: E402
from narrowcast._torch.frame_reader import Batch, FrameReader, Frames, HostFrame  # noqa: E402
from simulated_streams import simulate  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture
def streams(monkeypatch):
    return simulate(monkeypatch)


def places_of(frames):
    frames = list(frames)
    return np.array([one.pointer for one in frames]), np.array([one.wire_bytes for one in frames])


def addresses(tensors):
    return np.array([one.data_ptr() for one in tensors])


def read(reader, tensors, names=None):
    entries = [tensors._entries[name] for name in names or tensors]
    outs = [torch.empty(one.info.shape, dtype=one.info.dtype) for one in entries]
    tensors._decode_on_gpu(entries, outs, CPU, reader)
    return outs


@pytest.mark.parametrize("piece_bytes", [1, 10_000, 1 << 20])
@pytest.mark.parametrize("eager", ["copies", "decoding"])
@pytest.mark.parametrize("in_graphs", [False, True])
def test_frames_are_decoded_between_their_copy_and_the_next_one(streams, monkeypatch, in_graphs, eager, piece_bytes):
    monkeypatch.setattr(frame_reader, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(encoded_tensors, "_FRAME_BYTES", 1 << 14)
    reader = FrameReader(CPU, in_graphs=in_graphs)
    streams.main_is_late = eager == "copies"
    torch.manual_seed(0)
    values = {str(number): torch.randn(40_000 + 777 * number).bfloat16() for number in range(5)}
    values |= {"empty": torch.zeros(0, 3), "bool": torch.randn(100) > 0, "one": torch.tensor(1.5)}
    tensors = EncodedTensors(values)
    found = [read(reader, tensors) for _ in range(3)]
    streams.run()
    for outs in found:
        assert all(torch.equal(one, expected) for one, expected in zip(outs, values.values(), strict=True))


@pytest.mark.parametrize("piece_frames", [1, 7, 1000])
@pytest.mark.parametrize("piece_bytes", [1, 10_000, 1 << 20])
@pytest.mark.parametrize("eager", ["copies", "decoding"])
def test_batches_are_decoded_between_copies(streams, monkeypatch, eager, piece_bytes, piece_frames):
    monkeypatch.setattr(frame_reader, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(frame_reader, "_PIECE_FRAMES", piece_frames)
    reader = FrameReader(CPU)
    streams.main_is_late = eager == "copies"
    values = [torch.randn(500 + 37 * number).bfloat16() for number in range(40)]
    entries = EncodedTensors(dict(enumerate(values)))._entries.values()
    places = places_of(entry.host_frames[0] for entry in entries)
    found = []
    for _ in range(3):
        outs = [torch.empty_like(one) for one in values]
        sizes = torch.full((len(values),), -1)
        rows, copied = torch.arange(40).flip(0), torch.zeros(40, dtype=torch.int64)

        def finish(numbers, copied=copied):
            streams.main.enqueue(lambda: ctypes.memmove(copied.data_ptr(), numbers, copied.nbytes))

        batch = Batch(addresses(outs), 2 * (500 + 37 * 39), sizes, rows.numpy(), finish, streams.main)
        reader.read_batch(*places, "window", lambda batch=batch: batch)
        found.append((outs, sizes, copied))
    streams.run()
    for outs, sizes, copied in found:
        assert all(torch.equal(out, one) for out, one in zip(outs, values, strict=True))
        assert sizes.tolist() == [one.nbytes for one in values]
        assert copied.tolist() == list(reversed(range(40)))


def test_a_batch_reports_damaged_frames(streams):
    values = {str(number): torch.randn(3000) for number in range(5)}
    entries = list(EncodedTensors(values)._entries.values())
    entries[2].frames[0][100] ^= 1
    outs = [torch.empty(3000) for _ in values]
    sizes = torch.full((5,), -1)
    reader = FrameReader(CPU)
    places = places_of(one.host_frames[0] for one in entries)
    batch = Batch(addresses(outs), 12_000, sizes, np.zeros(5, np.int64), lambda _: None, streams.main)
    reader.read_batch(*places, "window", lambda: batch)
    streams.run()
    assert sizes.tolist() == [12_000, 12_000, 0, 12_000, 12_000]


def test_larger_frames_enlarge_the_staging_memory(streams, monkeypatch):
    monkeypatch.setattr(frame_reader, "_PIECE_BYTES", 1000)
    reader = FrameReader(CPU)
    tensors = EncodedTensors(
        {str(elems): torch.full((elems,), float(elems)) for elems in (100, 10_000, 1_000, 200_000)}
    )
    outs = []
    for name in tensors:
        outs += read(reader, tensors, [name])
        # Memory is not freed before its frames were decoded.
        assert name == "1000" or all((values == len(values)).all() for values in outs[:-1])
    streams.run()
    assert all((values == len(values)).all() for values in outs)


def test_a_failed_decode_is_raised(streams, monkeypatch):
    monkeypatch.setattr(frame_reader, "library", lambda: types.SimpleNamespace(ncast_cuda_decode=lambda *_: 1))
    memory = torch.zeros(256, dtype=torch.uint8)
    with pytest.raises(narrowcast.NarrowcastError):
        FrameReader(CPU).read([HostFrame(memory.data_ptr(), 256, 0, 0, 1, 1)], [0], torch.zeros(1, dtype=torch.int32))


@given(
    st.lists(st.tuples(st.integers(1, 700), st.booleans()), min_size=1, max_size=30),
    st.integers(700, 3000),
)
def test_pieces_hold_every_frame_once_and_copy_neighbours_together(sizes, piece_bytes):
    frames, place = [], 1 << 20
    for size, apart in sizes:
        place += 128 * apart
        frames.append(HostFrame(place, size, 0, 0, 0, 0))
        place += -(-size // 128) * 128
    held = Frames(*places_of(frames))
    pieces = list(held.pieces(piece_bytes))
    assert [number for piece in pieces for number in range(piece.first, piece.stop)] == list(range(len(frames)))
    for piece in pieces:
        copied = {}
        for pointer, offset, count in piece.copies:
            assert offset + count <= piece_bytes
            copied.update({offset + number: pointer + number for number in range(count)})
        here = frames[piece.first : piece.stop]
        for frame, offset in zip(here, held.offsets[piece.first :] - held.offsets[piece.first], strict=False):
            assert offset % 128 == 0
            assert all(copied[offset + number] == frame.pointer + number for number in range(frame.wire_bytes))
        gaps = sum(
            after.pointer != before.pointer + -(-before.wire_bytes // 128) * 128
            for before, after in itertools.pairwise(here)
        )
        assert len(piece.copies) == 1 + gaps
