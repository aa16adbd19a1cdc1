"""Blocks of KV caches on a GPU, encoded in host memory."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from kv_lists import blocks_of  # noqa: E402
from narrowcast._torch.kv_blocks import EncodedBlocks, Pages  # noqa: E402

BLOCKS, LAYERS = 64, 4


@pytest.mark.parametrize(
    ("dtype", "page_bytes"), [("bfloat16", 1 << 16), ("float16", 1 << 14), ("float8_e4m3", 1 << 15)]
)
def test_blocks_come_back_with_the_same_bits(dtype, page_bytes):
    torch.manual_seed(0)
    kind = {"float8_e4m3": torch.float8_e4m3fn}.get(dtype) or getattr(torch, dtype)
    shape = (BLOCKS, page_bytes // kind.itemsize)
    tensors = [(torch.randn(shape, device="cuda") * 0.3).to(kind).view(torch.int8) for _ in range(LAYERS)]
    expected = [one.clone() for one in tensors]
    blocks = EncodedBlocks(
        [[Pages(one, page_bytes) for one in tensors]], dtype=dtype, capacity_bytes=BLOCKS * LAYERS * page_bytes
    )
    order = torch.randperm(BLOCKS).tolist()
    blocks.store(1, blocks_of([(0, block, block) for block in range(BLOCKS)]))
    blocks.wait({1})
    for one in tensors:
        one.zero_()
    blocks.load(2, blocks_of([(0, new, old) for old, new in enumerate(order)]))
    blocks.wait({2})
    assert [one.success for one in blocks.finished()] == [True, True]
    for one, before in zip(tensors, expected, strict=True):
        assert torch.equal(one[order], before)
    if dtype == "bfloat16":
        assert blocks.ratio < 0.75
    blocks.close()


def test_a_store_waits_for_the_model():
    tensor = torch.zeros(2, 1 << 16, dtype=torch.int8, device="cuda")
    blocks = EncodedBlocks([[Pages(tensor, 1 << 16)]], dtype="bfloat16", capacity_bytes=1 << 20)
    torch.cuda._sleep(200_000_000)
    tensor[0] = 7  # written after the wait, on the same stream
    blocks.store(1, blocks_of([(0, 0, 0)]))
    blocks.wait({1})
    blocks.load(2, blocks_of([(0, 1, 0)]))
    blocks.wait({2})
    assert (tensor[1] == 7).all()
    blocks.close()


def stored(tensors, page_bytes, capacity_bytes):
    blocks = EncodedBlocks(
        [[Pages(one, page_bytes) for one in tensors]], dtype="bfloat16", capacity_bytes=capacity_bytes
    )
    blocks.store(1, blocks_of([(0, block, block) for block in range(BLOCKS)]))
    blocks.wait({1})
    assert [one.success for one in blocks.finished()] == [True]
    return blocks


@pytest.mark.parametrize("capacity_bytes", [1 << 30, 3 << 20])
def test_large_transfers_are_split(monkeypatch, capacity_bytes):
    monkeypatch.setattr("narrowcast._torch.kv_blocks._STORE_BYTES", 5 << 18)
    monkeypatch.setattr("narrowcast._torch.kv_blocks._LOAD_BYTES", 7 << 18)
    shape = (BLOCKS, 1 << 15)
    tensors = [(torch.randn(shape, device="cuda") / 4).bfloat16().view(torch.int8) for _ in range(LAYERS)]
    expected = [one.clone() for one in tensors]
    blocks = stored(tensors, 1 << 16, capacity_bytes)
    for one in tensors:
        one.zero_()
    order = torch.randperm(BLOCKS).tolist()
    blocks.load(2, blocks_of([(0, new, old) for new, old in enumerate(order)]))
    blocks.wait({2})
    assert all(torch.equal(one, before[order]) for one, before in zip(tensors, expected, strict=True))
    blocks.close()


def test_a_damaged_block_fails_its_transfer(caplog):
    tensors = [torch.randn(BLOCKS, 1 << 14, device="cuda").bfloat16().view(torch.int8)]
    blocks = stored(tensors, 1 << 15, 1 << 24)
    blocks._frames[7].piece.tensor[:8] = 0
    blocks.load(2, blocks_of([(0, block, block) for block in range(BLOCKS)]))
    blocks.wait({2})
    assert [one.success for one in blocks.finished()] == [False]
    assert "overwritten" in caplog.text
    blocks.load(3, blocks_of([(0, 7, 8)]))
    blocks.wait({3})
    assert [one.success for one in blocks.finished()] == [True]
    assert torch.equal(tensors[0][7], tensors[0][8])
    blocks.close()
