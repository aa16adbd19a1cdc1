"""Blocks of a KV cache on a GPU that are encoded into slots there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast._torch.kv_blocks import Pages  # noqa: E402
from narrowcast._torch.kv_slots import BlockSlots  # noqa: E402
from narrowcast.errors import CorruptError  # noqa: E402

BLOCKS, LAYERS, PAGE_BYTES = 24, 4, 1 << 16


def slots_of(tensors):
    pages = [Pages(one, PAGE_BYTES) for one in tensors]
    return BlockSlots([pages], dtype="bfloat16", slots=2, slot_bytes=8 << 20)


def cache():
    values = torch.randn(BLOCKS, PAGE_BYTES // 2, device="cuda") * 0.3
    return [values.bfloat16().view(torch.int8).clone() for _ in range(LAYERS)]


def test_blocks_come_back_with_the_same_bits():
    torch.manual_seed(0)
    there, here = cache(), cache()
    sender, receiver = slots_of(there), slots_of(here)
    blocks = torch.randperm(BLOCKS).tolist()
    sizes = sender.encode(0, blocks, 1)
    assert sum(sizes) < 0.75 * BLOCKS * LAYERS * PAGE_BYTES
    receiver.memory[: receiver.slot_bytes] = sender.memory[sender.slot_bytes :]
    receiver.decode(0, list(range(BLOCKS)), 0, sizes)
    assert all(torch.equal(new, old[blocks]) for new, old in zip(here, there, strict=True))


def test_a_corrupt_frame_changes_no_block():
    tensors = cache()
    slots = slots_of(tensors)
    sizes = slots.encode(0, [1, 2], 0)
    expected = [one.clone() for one in tensors]
    slots.memory[slots.stride(0)] ^= 255
    with pytest.raises(CorruptError):
        slots.decode(0, [1, 2], 0, sizes)
    assert all(torch.equal(*both) for both in zip(tensors, expected, strict=True))
