"""Blocks of KV caches that are encoded into slots, on the CPU and as on a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from narrowcast._torch.frame_writer import FrameWriter  # noqa: E402
from narrowcast._torch.kv_blocks import Pages, pages_of  # noqa: E402
from narrowcast._torch.kv_slots import BlockSlots  # noqa: E402
from simulated_streams import simulate  # noqa: E402

BLOCKS, PAGE_BYTES, SLOT_BYTES = 12, 1 << 14, 1 << 17


@pytest.fixture(params=["cpu", "gpu"])
def as_gpu(request, monkeypatch):
    """Whether slots use what runs on GPUs, on simulated streams."""
    if request.param == "gpu":
        simulate(monkeypatch)
    return request.param == "gpu"


def cache(dtype=torch.bfloat16):
    return (torch.randn(BLOCKS, PAGE_BYTES // dtype.itemsize) * 0.3).to(dtype).view(torch.int8)


def slots_of(tensors, as_gpu, dtype="bfloat16", slot_bytes=SLOT_BYTES):
    groups = [[Pages(tensors[0], PAGE_BYTES), Pages(tensors[1], PAGE_BYTES - 256)], [Pages(tensors[2], PAGE_BYTES)]]
    found = BlockSlots(groups, dtype=dtype, slots=3, slot_bytes=slot_bytes)
    if as_gpu:
        found._writer = FrameWriter(torch.device("cpu"))
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3", "auto"])
def test_blocks_come_back_with_the_same_bits(as_gpu, dtype):
    torch.manual_seed(0)
    there, here = ([cache() for _ in range(3)] for _ in range(2))
    before = [one.clone() for one in here]
    sender, receiver = (slots_of(tensors, as_gpu, dtype) for tensors in (there, here))
    sizes = sender.encode(0, [3, 5], 1)
    other = sender.encode(1, [3], 2)
    for begin, many in ((SLOT_BYTES, sizes), (2 * SLOT_BYTES, other)):
        for number, size in enumerate(many):
            place = begin + number * sender.stride(0 if many is sizes else 1)
            receiver.memory[place - SLOT_BYTES : place - SLOT_BYTES + size] = sender.memory[place : place + size]
    receiver.decode(0, [7, 1], 0, sizes)
    receiver.decode(1, [0], 1, other)
    assert torch.equal(here[0][[7, 1]], there[0][[3, 5]])
    assert torch.equal(here[1][[7, 1], :-256], there[1][[3, 5], :-256])
    assert torch.equal(here[1][:, -256:], before[1][:, -256:])
    assert torch.equal(here[2][0], there[2][3])
    assert torch.equal(here[2][1:], before[2][1:])
    if dtype == "bfloat16":
        assert sum(sizes) < 0.8 * 2 * (2 * PAGE_BYTES - 256)


def test_random_bytes_fit_into_a_slot(as_gpu):
    tensors = [torch.randint(-128, 128, (BLOCKS, PAGE_BYTES), dtype=torch.int8) for _ in range(3)]
    slots = slots_of(tensors, as_gpu)
    blocks = list(range(slots.part_blocks(1)))
    assert len(blocks) >= 6
    sizes = slots.encode(1, blocks, 2)
    assert PAGE_BYTES < max(sizes) <= slots.stride(1)
    expected = tensors[2].clone()
    tensors[2].zero_()
    slots.decode(1, blocks, 2, sizes)
    assert torch.equal(tensors[2][: len(blocks)], expected[: len(blocks)])


@pytest.mark.parametrize("damage", ["header", "short", "other size"])
def test_a_corrupt_frame_changes_no_block(as_gpu, damage):
    tensors = [cache() for _ in range(3)]
    slots = slots_of(tensors, as_gpu)
    sizes = slots.encode(0, [1, 2], 0)
    expected = [one.clone() for one in tensors]
    if damage == "header":
        slots.memory[slots.stride(0)] ^= 255
    elif damage == "short":
        sizes[1] = 40
    else:
        sizes = slots.encode(1, [1, 2], 0)
        slots.memory[slots.stride(0) :][: sizes[1]] = slots.memory[slots.stride(1) :][: sizes[1]].clone()
    with pytest.raises((ValueError, RuntimeError)):
        slots.decode(0, [1, 2], 0, sizes)
    assert all(torch.equal(*both) for both in zip(tensors, expected, strict=True))


@pytest.mark.parametrize(
    ("group", "blocks", "text"),
    [
        (2, [0], "no group 2"),
        (0, [12], "no block 12"),
        (0, [-1], "no block -1"),
        (0, [], "0 blocks"),
        (0, [0] * 99, "99 blocks"),
    ],
)
def test_other_blocks_are_errors(group, blocks, text):
    slots = slots_of([cache() for _ in range(3)], False)
    for call in (lambda *given: slots.encode(*given, 0), lambda *given: slots.decode(*given, 0, [])):
        with pytest.raises(ValueError, match=text):
            call(group, blocks)


def test_pages_are_found_in_any_dense_layout():
    storage = torch.randn(5, 3, 7, 4, 8).bfloat16()  # blocks, layers, tokens, heads, values
    for blocks, layer in ((slice(5), 1), (slice(1, 4), 2)):
        cache = storage[blocks, layer]
        for view in (cache, cache.transpose(1, 2), cache.unflatten(1, (7, 1))):
            pages = pages_of(view)
            assert pages.page_bytes == 7 * 4 * 8 * 2
            assert torch.equal(pages.tensor.view(torch.bfloat16), cache.flatten(1))
    pages.tensor[2] = 0
    assert storage[3, 2].count_nonzero() == 0
    assert storage[3, 1].count_nonzero() > 0


def test_pages_with_gaps_are_errors():
    with pytest.raises(ValueError, match="have gaps"):
        pages_of(torch.zeros(5, 7, 8)[:, :, :4])


def test_slots_smaller_than_a_block_are_an_error():
    with pytest.raises(ValueError, match="a slot has 16384 bytes, but a block may need"):
        slots_of([cache() for _ in range(3)], False, slot_bytes=1 << 14)
