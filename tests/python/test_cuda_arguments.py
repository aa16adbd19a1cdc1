"""`narrowcast.cuda` rejects overlapping arrays before it calls CUDA, so no GPU is needed."""

from __future__ import annotations

import numpy as np
import pytest
from narrowcast import cuda


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
