"""Values of every type."""

from __future__ import annotations

import numpy as np
from narrowcast import _samples


def normal(dtype: str, elems: int, seed: int = 0) -> np.ndarray:
    """Bits of normally distributed values."""
    return _samples.of_rank(_samples.sample("normal", dtype), seed, elems)
