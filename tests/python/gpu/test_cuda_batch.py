"""Batches on the GPU have the frames of the host, and decode to the same bits."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from codec_names import EXACT
from gpu_memory import bits_of, on_gpu
from narrowcast._native.cuda_driver import DeviceBuffer
from narrowcast.cuda_batch import DecodeBatch, EncodeBatch
from narrowcast.types import value_type

POISON = 0xA5
SIZES = (0, 1, 31, 2047, 2048, 2049, 100_003)


class Batch:
    """Arrays of one type on the GPU, their frames, and room for the decoded values."""

    def __init__(self, kind, sizes, codec: str = "window", data: str = "normal", **options) -> None:
        self.bits = [bits_of(kind, elems, data) for elems in sizes]
        self.hosts = [narrowcast.encode(one, dtype=kind.name, codec=codec, checksum=False) for one in self.bits]
        self.values = [on_gpu(one) for one in self.bits]
        self.frames = [DeviceBuffer(narrowcast.bound(kind.name, elems, codec=codec)).fill(POISON) for elems in sizes]
        self.outs = [DeviceBuffer(one.nbytes).fill(POISON) for one in self.bits]
        self.encoding = EncodeBatch(self.values, outs=self.frames, codec=codec, dtype=kind.name, **options)
        self.decoding = DecodeBatch(self.frames, outs=self.outs, codec=codec, **options)

    def check_frames(self, stream) -> None:
        assert self.encoding.wire_bytes(stream=stream.handle) == [one.size for one in self.hosts]
        for frame, host in zip(self.frames, self.hosts, strict=True):
            assert np.array_equal(frame.read(host.size), host)

    def check_values(self, stream) -> None:
        assert self.decoding.raw_bytes(stream=stream.handle) == [one.nbytes for one in self.bits]
        for out, bits in zip(self.outs, self.bits, strict=True):
            assert out.read().tobytes() == bits.tobytes()


@pytest.mark.parametrize("data", ["normal", "random"])
@pytest.mark.parametrize("codec", EXACT)
@pytest.mark.parametrize("max_ctas", [0, 3])
def test_a_batch_has_the_frames_and_values_of_the_host(kind, codec, data, max_ctas, stream):
    batch = Batch(kind, SIZES, codec, data, max_ctas=max_ctas)
    batch.encoding.encode(stream=stream.handle)
    batch.check_frames(stream)
    batch.decoding.decode(stream=stream.handle)
    batch.check_values(stream)


def test_types_may_differ():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    tensors = [torch.randn(4099, device="cuda").to(kind) for kind in (torch.bfloat16, torch.float32, torch.float64)]
    tensors.append(torch.arange(5000, device="cuda"))
    tensors.append(torch.arange(17, dtype=torch.uint8, device="cuda"))
    frames = [torch.empty(one.nbytes + 4096, dtype=torch.uint8, device="cuda") for one in tensors]
    encoding = EncodeBatch(tensors, outs=frames)
    encoding.encode()
    sizes = encoding.wire_bytes()
    for frame, size, tensor in zip(frames, sizes, tensors, strict=True):
        decoded = narrowcast.decode(frame[:size].cpu().numpy())
        assert decoded.tobytes() == tensor.cpu().view(torch.uint8).numpy().tobytes()
    outs = [torch.empty_like(one) for one in tensors]
    decoding = DecodeBatch(frames, outs=outs)
    decoding.decode()
    assert decoding.raw_bytes() == [one.nbytes for one in tensors]
    assert all(torch.equal(out, tensor) for out, tensor in zip(outs, tensors, strict=True))


def test_a_graph_codes_the_values_of_each_replay(stream):
    kind = value_type("bfloat16")
    batch = Batch(kind, SIZES)
    with stream.capture() as graph:
        batch.encoding.encode(stream=stream.handle)
        batch.decoding.decode(stream=stream.handle)
    graph.launch(stream)
    batch.check_frames(stream)
    batch.check_values(stream)


def test_corrupt_frames_are_named_and_the_others_are_decoded(stream):
    kind = value_type("bfloat16")
    batch = Batch(kind, (5000, 6000, 7000))
    batch.encoding.encode(stream=stream.handle)
    stream.synchronize()
    batch.frames[1].write(np.zeros(4, np.uint8))
    batch.decoding.decode(stream=stream.handle)
    with pytest.raises(narrowcast.CorruptError, match=r"frames\[1\]"):
        batch.decoding.raw_bytes(stream=stream.handle)
    for i in (0, 2):
        assert batch.outs[i].read().tobytes() == batch.bits[i].tobytes()


def test_invalid_arguments_are_rejected(stream):
    values, frame = on_gpu(bits_of(value_type("bfloat16"), 5000)), DeviceBuffer(20_000)
    options = {"dtype": "bfloat16"}
    with pytest.raises(narrowcast.TooSmallError, match=r"outs\[1\]"):
        EncodeBatch([values, values], outs=[frame, DeviceBuffer(100)], **options)
    with pytest.raises(ValueError, match=r"outs\[0\] and outs\[1\] overlap"):
        EncodeBatch([values, values], outs=[frame, frame], **options)
    with pytest.raises(ValueError, match="outs has 1 arrays for 2"):
        EncodeBatch([values, values], outs=[frame], **options)
    with pytest.raises(narrowcast.InvalidArgumentError, match="not aligned"):
        EncodeBatch([values], outs=[frame.part(8, 19_000)], **options)
    empty = EncodeBatch([], outs=[])
    empty.encode(stream=stream.handle)
    assert empty.wire_bytes(stream=stream.handle) == []


def test_arrays_that_are_only_read_may_share_memory(stream):
    values = on_gpu(bits_of(value_type("bfloat16"), 5000))
    frames = [DeviceBuffer(20_000), DeviceBuffer(20_000)]
    batch = EncodeBatch([values, values.part(0, 2000)], outs=frames, dtype="bfloat16")
    batch.encode(stream=stream.handle)
    assert len(batch.wire_bytes(stream=stream.handle)) == 2
