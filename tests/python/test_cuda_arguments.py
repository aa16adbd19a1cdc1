"""`narrowcast.cuda` and `cuda_batch` reject overlapping arrays before they call CUDA, so no GPU is needed."""

from __future__ import annotations

import contextlib

import narrowcast
import numpy as np
import pytest
from narrowcast import cuda, cuda_batch
from narrowcast._native import cuda_driver
from narrowcast._native.library import check, library
from narrowcast.cuda_batch import DecodeBatch, EncodeBatch


class OnGpu:
    """An array with an address in GPU memory."""

    def __init__(self, pointer: int, elems: int, dtype: str = "uint8") -> None:
        typestr = np.dtype(dtype).str
        self.__cuda_array_interface__ = {
            "shape": (elems,),
            "typestr": typestr,
            "data": (pointer, False),
            "version": 3,
        }


VALUES, STATUS = OnGpu(0x10000, 4096, "float32"), OnGpu(0x90000, 4)
# Overlap with the first value, the last value, and the middle.
OVERLAPPING = [OnGpu(0x10000 - 4096, 4097), OnGpu(0x10000 + 4 * 4096 - 1, 1 << 16), OnGpu(0x10010, 64)]


@pytest.mark.parametrize("other", OVERLAPPING)
def test_overlapping_arrays_are_rejected(other):
    far, words = OnGpu(0x40000, 1 << 17), OnGpu(0x80000, 64, "uint32")
    for call in (
        lambda: cuda.encode(VALUES, out=other),
        lambda: cuda.encode(VALUES, out=far, workspace=other),
        lambda: cuda.decode(other, out=VALUES, status=STATUS),
        lambda: cuda.decode_reduce(other, accumulator=VALUES, dtype="bfloat16", status=STATUS),
    ):
        with pytest.raises(ValueError, match="overlap in memory"):
            call()
    slots = OnGpu(0x10000 + 4 * 4096 - 1, 1 << 20)
    for call in (
        lambda: cuda.encode_slots(VALUES, slots=slots, lengths=words),
        lambda: cuda.decode_slots(slots, words, out=VALUES, status=STATUS),
        lambda: cuda.decode_reduce_slots(slots, words, accumulator=VALUES, dtype="bfloat16", status=STATUS),
        lambda: cuda.decode_slots(far, words, out=VALUES, status=OnGpu(0x10000, 4)),
    ):
        with pytest.raises(ValueError, match="overlap in memory"):
            call()


def test_calls_of_batches_reject_unknown_codecs():
    encode = [1, *[8] * 3, 99, 0, *[16] * 5, 1 << 20, None, None]
    decode = [1, 8, 8, 99, *[16] * 5, 1 << 20, None, None]
    for call, arguments in (
        (library().ncast_cuda_encode_batch, encode),
        (library().ncast_cuda_decode_batch, decode),
    ):
        with pytest.raises(narrowcast.InvalidArgumentError, match="codec is 99, which is not a codec"):
            check(call(*arguments))


def test_scattering_pages_rejects_invalid_arrays():
    scatter = library().ncast_cuda_scatter_pages
    with pytest.raises(narrowcast.InvalidArgumentError, match="strides is 0x14, which is not aligned to 8 bytes"):
        check(scatter(1, 3, 8, 1, 8, 20, 8, None, None))
    with pytest.raises(narrowcast.InvalidArgumentError, match="numbers is NULL"):
        check(scatter(1, 3, None, 1, 8, 8, 8, None, None))
    with pytest.raises(narrowcast.InvalidArgumentError, match="the maximum is 1073741824"):
        check(scatter(1, 3, 8, (1 << 30) + 1, 8, 8, 8, None, None))
    check(scatter(0, None, None, 1, None, None, None, None, None))


def test_batches_reject_invalid_arrays():
    far, farther = OnGpu(0x40000, 1 << 17), OnGpu(0x80000, 1 << 17)
    for other in OVERLAPPING:
        with pytest.raises(ValueError, match="overlap in memory"):
            EncodeBatch([VALUES, farther], outs=[far, other])
        with pytest.raises(ValueError, match="overlap in memory"):
            DecodeBatch([far, other], outs=[farther, VALUES])
    with pytest.raises(ValueError, match=r"outs\[0\] and outs\[1\] overlap"):
        EncodeBatch([VALUES, VALUES], outs=[far, far])
    with pytest.raises(ValueError, match=r"outs\[0\] and outs\[1\] overlap"):
        EncodeBatch(iter([VALUES, VALUES]), outs=(out for out in [far, far]))
    with pytest.raises(ValueError, match=r"outs\[0\] and outs\[1\] overlap"):
        DecodeBatch(iter([far, farther]), outs=iter([VALUES, VALUES]))
    with pytest.raises(ValueError, match="outs has 1 arrays for 2 frames"):
        DecodeBatch([far, farther], outs=[VALUES])
    with pytest.raises(narrowcast.TooSmallError, match=r"outs\[1\] has 100 bytes, but the frame may need"):
        EncodeBatch([VALUES, VALUES], outs=[far, OnGpu(0x80000, 100)])
    with pytest.raises(narrowcast.InvalidArgumentError, match=r"outs\[0\] is at address 0x40008"):
        EncodeBatch([VALUES], outs=[OnGpu(0x40008, 1 << 17)])
    with pytest.raises(ValueError, match="in host memory"):
        EncodeBatch([np.zeros(4)], outs=[far])


def test_an_empty_batch_needs_no_gpu():
    encoding, decoding = EncodeBatch([], outs=[]), DecodeBatch([], outs=[])
    encoding.encode()
    decoding.decode()
    assert encoding.wire_bytes() == decoding.raw_bytes() == []


class Memory:
    """Stands for memory on a GPU."""

    pointer = 0x1000000

    def __init__(self, count_bytes):
        self.count_bytes = count_bytes

    def write(self, content):
        return self

    def fill(self, byte):
        return self


class WithoutGpu:
    """The library, except that batches are not encoded."""

    def __getattr__(self, name):
        return (lambda *arguments: 0) if name == "ncast_cuda_encode_batch" else getattr(library(), name)


def test_calls_of_a_batch_take_no_longer_with_more_arrays(monkeypatch):
    asked = []
    monkeypatch.setattr(cuda_driver, "pointer_device", lambda pointer: asked.append(pointer) or 0)
    monkeypatch.setattr(cuda_driver, "on_device", lambda ordinal: contextlib.nullcontext())
    monkeypatch.setattr(cuda_driver, "call", lambda *arguments: None)
    monkeypatch.setattr(cuda_batch, "DeviceBuffer", Memory)
    monkeypatch.setattr(cuda_batch, "library", WithoutGpu)
    count = 100
    arrays = [OnGpu(0x10000 + 0x100 * i, 64, "float32") for i in range(count)]
    batch = EncodeBatch(arrays, outs=[OnGpu(0x80000 + 0x1000 * i, 4096) for i in range(count)])
    assert len(asked) == 2 * count  # all arrays are on one device
    asked.clear()
    batch.encode()
    assert len(asked) == 1
