"""Blocks of KV caches, encoded in host memory."""

from __future__ import annotations

import itertools
import random
import weakref
from concurrent.futures import Executor, Future

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kv_lists import blocks_of  # noqa: E402
from narrowcast._torch.arena import Arena  # noqa: E402
from narrowcast._torch.frame_index import FrameIndex  # noqa: E402
from narrowcast._torch.frame_reader import frame_reader  # noqa: E402
from narrowcast._torch.kv_blocks import EncodedBlocks, Pages, _ends_of_parts  # noqa: E402
from narrowcast._torch.kv_transfers import StreamLane  # noqa: E402
from simulated_streams import simulate  # noqa: E402

BLOCKS, PAGE_BYTES = 24, 2048


def cache(dtype=torch.bfloat16, page_bytes=PAGE_BYTES) -> torch.Tensor:
    values = torch.randn(BLOCKS, page_bytes // dtype.itemsize) * 0.3
    return values.to(dtype).view(torch.int8)


def run(blocks: EncodedBlocks, direction: str, job: int, which: list[tuple[int, int, int]]) -> bool:
    getattr(blocks, direction)(job, blocks_of(which))
    blocks.wait({job})
    (done,) = blocks.finished()
    assert done.job == job
    return done.success


def test_an_arena_never_gives_out_memory_twice():
    arena, held, rng = Arena(1 << 16), [], random.Random(0)
    for number in range(3000):
        if held and rng.random() < 0.5:
            piece, filled = held.pop(rng.randrange(len(held)))
            assert (piece.tensor == filled).all()
            piece.free()
        else:
            piece = arena.allocate(rng.randrange(1, 5000))
            piece.tensor.fill_(number % 251)
            held.append((piece, number % 251))
    for piece, filled in held:
        assert (piece.tensor == filled).all()
        piece.free()
    assert arena.used_bytes == 0
    whole = arena.allocate(1 << 16)
    assert not whole.is_outside
    assert arena.allocate(1).is_outside


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3", "auto"])
def test_blocks_come_back_with_the_same_bits(dtype):
    torch.manual_seed(0)
    tensors = [cache() for _ in range(3)]
    expected = [one.clone() for one in tensors]
    groups = [[Pages(tensors[0], PAGE_BYTES), Pages(tensors[1], PAGE_BYTES - 256)], [Pages(tensors[2], PAGE_BYTES)]]
    blocks = EncodedBlocks(groups, dtype=dtype, capacity_bytes=1 << 20)
    saved = [(0, 3, 6), (0, 5, 0), (1, 3, 90)]
    assert run(blocks, "store", 1, saved)
    for one in tensors:
        one.zero_()
    assert run(blocks, "load", 2, [(0, 7, 6), (0, 1, 0), (1, 0, 90)])
    assert torch.equal(tensors[0][[7, 1]], expected[0][[3, 5]])
    assert torch.equal(tensors[1][[7, 1], :-256], expected[1][[3, 5], :-256])
    assert not tensors[1][:, -256:].any()
    assert torch.equal(tensors[2][0], expected[2][3])
    assert tensors[2][1:].count_nonzero() == 0
    blocks.close()


def test_bfloat16_blocks_take_less_memory():
    torch.manual_seed(0)
    tensor = cache(page_bytes=1 << 16)
    blocks = EncodedBlocks([[Pages(tensor, 1 << 16)]], dtype=torch.bfloat16, capacity_bytes=1 << 22)
    assert run(blocks, "store", 1, [(0, i, i) for i in range(BLOCKS)])
    assert blocks.ratio < 0.75
    assert blocks.used_bytes < 0.75 * (BLOCKS << 16)


def test_replaced_blocks_free_their_memory():
    torch.manual_seed(0)
    tensor = cache()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=1 << 16)
    for job in range(100):
        tensor[0].copy_(tensor[job % BLOCKS].clone())
        assert run(blocks, "store", job, [(0, 0, 5)])
    assert blocks.used_bytes <= 2 * PAGE_BYTES
    expected = tensor[0].clone()
    assert run(blocks, "load", 100, [(0, 1, 5)])
    assert torch.equal(tensor[1], expected)


def test_replaced_blocks_make_room_for_the_new_ones(caplog):
    tensor = cache()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=BLOCKS * (PAGE_BYTES + 256))
    for job in range(3):
        assert run(blocks, "store", job, [(0, i, i) for i in range(BLOCKS)])
    assert not [one for one in caplog.records if "do not fit" in one.message]
    assert run(blocks, "store", 3, [(0, 0, 100), (0, 1, 100)])
    assert run(blocks, "load", 4, [(0, 2, 100)])
    assert torch.equal(tensor[2], tensor[1])
    blocks.close()
    assert blocks.used_bytes == 0


def test_more_than_the_capacity_is_kept_with_one_warning(caplog):
    tensor = torch.randint(-128, 128, (BLOCKS, PAGE_BYTES), dtype=torch.int8)
    expected = tensor.clone()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=4 * PAGE_BYTES)
    assert run(blocks, "store", 1, [(0, i, i) for i in range(BLOCKS)])
    assert len([one for one in caplog.records if "do not fit" in one.message]) == 1
    tensor.zero_()
    assert run(blocks, "load", 2, [(0, i, i) for i in range(BLOCKS)])
    assert torch.equal(tensor, expected)


def test_large_transfers_are_split(monkeypatch):
    monkeypatch.setattr("narrowcast._torch.kv_blocks._STORE_BYTES", 3 * PAGE_BYTES)
    monkeypatch.setattr("narrowcast._torch.kv_blocks._LOAD_BYTES", 4 * PAGE_BYTES)
    tensor = cache()
    expected = tensor.clone()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=1 << 20)
    assert run(blocks, "store", 1, [(0, i, i) for i in range(BLOCKS)])
    tensor.zero_()
    assert run(blocks, "load", 2, [(0, i, i) for i in range(BLOCKS)])
    assert torch.equal(tensor, expected)


def test_a_missing_or_damaged_block_fails_its_transfer_only(caplog):
    tensor = cache()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=1 << 20)
    assert run(blocks, "store", 1, [(0, 0, 3), (0, 1, 4)])
    assert not run(blocks, "load", 2, [(0, 5, 2)])
    blocks._frames[3].piece.tensor[100] ^= 1
    assert not run(blocks, "load", 3, [(0, 5, 3)])
    assert "CorruptError" in caplog.text
    assert run(blocks, "load", 4, [(0, 5, 4)])
    assert torch.equal(tensor[5], tensor[1])


class AtOnce(Executor):
    def submit(self, function):
        done = Future()
        done.set_result(function())
        return done


def on_a_stream(monkeypatch, blocks):
    """Loads of the blocks run on simulated streams from now on, which are returned."""
    streams = simulate(monkeypatch)
    frame_reader.cache_clear()
    blocks._loads = blocks._lanes["load"] = StreamLane("load", torch.device("cpu"))
    monkeypatch.setattr(blocks._loads, "_thread", AtOnce())  # simulated streams belong to one thread
    return streams


@pytest.mark.parametrize("eager", ["copies", "decoding"])
def test_loads_on_a_stream_bring_every_block_back(monkeypatch, caplog, eager):
    monkeypatch.setattr("narrowcast._torch.kv_blocks._LOAD_BYTES", 6 * PAGE_BYTES)
    monkeypatch.setattr("narrowcast._torch.kv_blocks._LAST_LOAD_BYTES", PAGE_BYTES)
    monkeypatch.setattr("narrowcast._torch.frame_reader._PIECE_BYTES", 3 * PAGE_BYTES)
    tensors = [cache() for _ in range(3)]
    expected = [one.clone() for one in tensors]
    groups = [[Pages(tensors[0], PAGE_BYTES), Pages(tensors[1], PAGE_BYTES)], [Pages(tensors[2], PAGE_BYTES)]]
    blocks = EncodedBlocks(groups, dtype="bfloat16", capacity_bytes=1 << 20)
    both = [(number % 2, number // 2, number) for number in range(2 * BLOCKS)]
    assert run(blocks, "store", 1, both)
    for one in tensors:
        one.zero_()
    on_a_stream(monkeypatch, blocks).main_is_late = eager == "decoding"
    blocks.load(2, blocks_of(both[:31]))
    blocks.load(3, blocks_of(both[31:]))
    blocks.load(4, [])
    blocks.wait({2, 3, 4})
    assert [(one.job, one.success) for one in blocks.finished()] == [(2, True), (3, True), (4, True)]
    assert all(torch.equal(one, before) for one, before in zip(tensors, expected, strict=True))
    blocks.load(8, blocks_of([(0, BLOCKS, 0)]))
    blocks.load(9, blocks_of([(0, 0, 0), (0, -1, 2)]))
    blocks.wait({8, 9})
    assert [(one.job, one.success) for one in blocks.finished()] == [(8, False), (9, False)]
    assert f"no block {BLOCKS}" in caplog.text
    assert all(torch.equal(one, before) for one, before in zip(tensors, expected, strict=True))
    blocks.load(5, blocks_of([(0, 0, 1000)]))
    blocks._frames[7].piece.tensor[100] ^= 1
    blocks.load(6, blocks_of(both))
    blocks.load(7, blocks_of(both[8:]))
    blocks.wait({5, 6, 7})
    assert [(one.job, one.success) for one in blocks.finished()] == [(5, False), (6, False), (7, True)]
    assert "1000 to 1000" in caplog.text
    assert "overwritten" in caplog.text
    blocks.close()
    frame_reader.cache_clear()


def test_a_load_waits_for_what_its_caller_enqueued(monkeypatch):
    tensor = cache()
    blocks = EncodedBlocks([[Pages(tensor, PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=1 << 20)
    assert run(blocks, "store", 1, [(0, 0, 0), (0, 1, 1)])
    streams = on_a_stream(monkeypatch, blocks)
    streams.main_is_late = True
    for job, which in enumerate(([(0, 5, 0)], [(0, 6, 1), (0, 7, 0)])):
        streams.main.enqueue(tensor[5:8].zero_)
        blocks.load(job, blocks_of(which))
        blocks.wait({job})
        assert [one.success for one in blocks.finished()] == [True]
        streams.run()
        assert all(torch.equal(tensor[new], tensor[old]) for _, new, old in which)
    frame_reader.cache_clear()


def test_frames_are_found_by_their_keys():
    arena, index, pieces = Arena(1 << 16), FrameIndex(), {}
    for key in (3, 0, 40, 7):
        pieces[key] = arena.allocate(100 + key)
        index.add(key, pieces[key], 1000 + key)
    index.free([0, 1, 1000])
    assert index.raw_bytes == 1003 + 1040 + 1007
    assert arena.used_bytes == 128 + 256 + 128
    pointers, wire_bytes = index.places(np.array([40, 3, 40]))
    assert pointers.tolist() == [pieces[key].tensor.data_ptr() for key in (40, 3, 40)]
    assert wire_bytes.tolist() == [140, 103, 140]
    assert index[7].piece is pieces[7]
    assert [len(one) for one in index.places(np.zeros(0, np.int64))] == [0, 0]
    for absent in ([0], [3, 39], [3, 1000], [-1, 3]):
        with pytest.raises(KeyError):
            index.places(np.array(absent))


@pytest.mark.parametrize("blocks", [1, 2, 3, 63, 64, 65, 1000])
@pytest.mark.parametrize("block_bytes", [1, 1 << 20, 100 << 20, 1 << 30])
def test_the_last_part_of_a_load_is_small(blocks, block_bytes):
    ends = _ends_of_parts(blocks, block_bytes)
    sizes = [block_bytes * (end - begin) for begin, end in itertools.pairwise([0, *ends])]
    assert sum(sizes) == blocks * block_bytes
    assert min(sizes) > 0
    assert max(sizes) <= max(128 << 20, block_bytes)
    assert sizes[-1] <= max(32 << 20, block_bytes)


def test_an_unknown_codec_is_an_error_at_once():
    with pytest.raises(ValueError, match="nonsense"):
        EncodedBlocks([[Pages(cache(), PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=0, codec="nonsense")


def test_closing_frees_the_memory():
    blocks = EncodedBlocks([[Pages(cache(), PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=1 << 20)
    assert run(blocks, "store", 1, [(0, 0, 0)])
    memory = weakref.ref(blocks._arena._memory)
    blocks.close()
    assert memory() is None
    assert (blocks.used_bytes, blocks.ratio) == (0, None)
    blocks.close()


def test_waiting_for_unknown_jobs_returns():
    blocks = EncodedBlocks([[Pages(cache(), PAGE_BYTES)]], dtype="bfloat16", capacity_bytes=0)
    blocks.wait({1, 2})
    assert blocks.finished() == []
    assert run(blocks, "store", 1, [])
