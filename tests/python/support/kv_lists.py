"""Lists of blocks, for transfers of KV caches."""

from __future__ import annotations

import numpy as np
from narrowcast._torch.kv_blocks import Blocks


def blocks_of(listed):
    """Tuples of a group, a block of the KV cache and a key, as a transfer wants them."""
    found = []
    for group in sorted({one[0] for one in listed}):
        columns = zip(*(one[1:] for one in listed if one[0] == group), strict=True)
        found.append(Blocks(group, *(np.array(column, np.int64) for column in columns)))
    return found
