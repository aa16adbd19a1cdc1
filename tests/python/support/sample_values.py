"""Values of every type."""

from __future__ import annotations

import numpy as np
from narrowcast._bench import samples


def normal(dtype: str, elems: int, seed: int = 0) -> np.ndarray:
    """Bits of normally distributed values."""
    return samples.of_rank(samples.sample("normal", dtype), seed, elems)
