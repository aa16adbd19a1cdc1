"""Arrays for GPU memory."""

from __future__ import annotations

import numpy as np
from narrowcast._bench import samples
from narrowcast._native.cuda_driver import DeviceBuffer
from narrowcast.types import ValueType


def bits_of(kind: ValueType, elems: int, data: str = "normal") -> np.ndarray:
    """Values of a sample, as bits."""
    return samples.of_rank(samples.sample(data, kind.name), 1, elems)


def on_gpu(values: np.ndarray, shift: int = 0) -> DeviceBuffer:
    """A copy in GPU memory, `shift` bytes after a 256-byte boundary."""
    whole = DeviceBuffer(values.nbytes + shift + 16).fill(0xA5)
    return whole.part(shift, values.nbytes).write(values)
