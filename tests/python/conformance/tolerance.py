"""Tolerances of results of calls with bounded codecs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import narrowcast
import numpy as np
from narrowcast._bench import oracle
from narrowcast._native.operations import describe
from narrowcast.types import ValueType

# With more values, the largest of all values determines the bound, instead of the largest nearby value.
_MAX_LOCAL_ELEMS = 1 << 22


def bounded_type(codec: str, kind: ValueType) -> narrowcast.CodecType | None:
    """The codec's entry for a value type that it does not restore exactly; None if it restores every bit."""
    for one in narrowcast.codecs():
        if one.name == codec.partition(":")[0] and not one.exact:
            return next((entry for entry in one.types if entry.dtype == kind.name), None)
    return None


def of_call(
    operation: str,
    codec: str,
    kind: ValueType,
    op: str,
    inputs: Sequence[np.ndarray],
    *,
    result_codec: str | None = None,
) -> np.ndarray | None:
    """Tolerances of a result; None: every bit is right. inf: any value is accepted.

    inputs: the bits of each rank that contributes, of the length of the result.
    """
    entry = bounded_type(codec, kind) or (result_codec and bounded_type(result_codec, kind))
    if not entry:
        return None
    options = {"dtype": kind.name, "op": op, "result_codec": result_codec}
    reduces = describe(operation).reduces
    magnitudes = [np.abs(_values(one, kind)) for one in inputs]
    is_finite = np.logical_and.reduce([np.isfinite(one) for one in magnitudes])
    # A value is encoded together with those of its block, and sums with those of their blocks. Blocks begin anywhere.
    radius = (entry.block_bytes // kind.bytes - 1) * (2 if reduces else 1)
    largest = np.stack([_largest_nearby(np.where(np.isfinite(one), one, 0), radius) for one in magnitudes])
    bounds = _for_each_run(largest, lambda each: narrowcast.error_bound(operation, codec, len(each), each, **options))
    # Codecs may make values of a block NaN if one of them is not finite.
    may_be_nan = _largest_nearby(~is_finite, radius) & is_finite
    return np.where(may_be_nan, np.inf, bounds)


def _values(bits: np.ndarray, kind: ValueType) -> np.ndarray:
    return oracle.widen(bits, kind).astype(np.float64)


def _largest_nearby(values: np.ndarray, radius: int) -> np.ndarray:
    if not values.any():
        return values
    if values.size > _MAX_LOCAL_ELEMS:
        return np.broadcast_to(values.max(), values.shape)
    return _sliding_max(values, radius)


def _for_each_run(columns: np.ndarray, compute: Callable[[Sequence[float]], float]) -> np.ndarray:
    """compute(column) for each column, of which neighbours are often equal."""
    is_new = np.any(columns[:, 1:] != columns[:, :-1], axis=0)
    starts = np.flatnonzero(np.concatenate([[True], is_new]))[: columns.shape[1]]
    results = np.array([compute(columns[:, start].tolist()) for start in starts])
    return np.repeat(results, np.diff(starts, append=columns.shape[1])) if starts.size else columns[0]


def _sliding_max(values: np.ndarray, radius: int) -> np.ndarray:
    """For each value, the maximum over all values up to `radius` positions away."""
    width, span = 2 * radius + 1, 1
    largest = np.pad(values, radius)  # over `span` values from each position
    while 2 * span <= width:
        largest = np.maximum(largest[:-span], largest[span:])
        span *= 2
    rest = width - span
    return np.maximum(largest[: largest.size - rest], largest[rest:])
