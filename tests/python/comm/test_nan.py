"""MIN and MAX ignore NaN, as in NCCL, whatever rank has it."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from narrowcast._bench.oracle import narrow, widen
from narrowcast.types import VALUE_TYPES, value_type

RANKS = 3


def reduced(everyones, op, **options):
    with narrowcast.LocalRanks(RANKS) as comms, narrowcast.group():
        for comm, values in zip(comms, everyones, strict=True):
            comm.all_reduce(values, op=op, **options)
    return everyones


@pytest.mark.parametrize("codec", ["raw", "window!"])
@pytest.mark.parametrize("name", [kind.name for kind in VALUE_TYPES if kind.is_float])
def test_min_and_max_ignore_nan_unless_all_values_are_nan(name, codec):
    kind = value_type(name)
    # Value i is NaN on the ranks whose bits i has, and 1, 2 and 4 on the others. Repeated, so that blocks are encoded.
    has_nan = np.arange(1 << RANKS)[None, :] >> np.arange(RANKS)[:, None] & 1 == 1
    values = np.where(has_nan, np.nan, 2.0 ** np.arange(RANKS)[:, None])
    for op, pick in (("min", np.nanmin), ("max", np.nanmax)):
        expected = np.append(pick(values[:, :-1], axis=0), np.nan)
        wide = np.tile(values, 4096).astype(np.float64 if name == "float64" else np.float32)
        for found in reduced([narrow(own, kind) for own in wide], op, dtype=name, codec=codec):
            assert np.array_equal(widen(found, kind), np.tile(expected, 4096), equal_nan=True)


def test_sums_and_products_keep_nan():
    for op in ("sum", "prod", "avg"):
        everyones = [np.array([np.nan if rank == 1 else 1.0], np.float32) for rank in range(RANKS)]
        assert all(np.isnan(values).all() for values in reduced(everyones, op))
