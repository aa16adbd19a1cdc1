"""Arrays in GPU memory."""

from __future__ import annotations

import numpy as np
from narrowcast._native.cuda_driver import DeviceBuffer


def on_gpu(values: np.ndarray, shift: int = 0) -> DeviceBuffer:
    """A copy in GPU memory, `shift` bytes after a 256-byte boundary."""
    whole = DeviceBuffer(values.nbytes + shift + 16).fill(0xA5)
    return whole.part(shift, values.nbytes).write(values)
