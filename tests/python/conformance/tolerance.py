"""Tolerances of results of calls with bounded codecs."""

from __future__ import annotations

from collections.abc import Sequence

import narrowcast
import numpy as np
from narrowcast._bench import oracle
from narrowcast.types import ValueType

# With more values, the largest of all values determines the bound, instead of the largest nearby value.
_MAX_LOCAL_ELEMS = 1 << 22


def bounded_type(codec: str, kind: ValueType) -> narrowcast.CodecType | None:
    """The codec's entry for a value type that it does not restore exactly; None if it restores every bit."""
    for one in narrowcast.codecs():
        if one.name == codec.partition(":")[0] and not one.exact:
            return next((entry for entry in one.types if entry.dtype == kind.name), None)
    return None


def moved(codec: str, kind: ValueType, sent: np.ndarray) -> np.ndarray | None:
    """Tolerances of values that are encoded once; None: every bit is restored."""
    entry = bounded_type(codec, kind)
    return None if entry is None else _bounds(codec, entry, kind, np.abs(_values(sent, kind)))


def reduced(codec: str, kind: ValueType, op: str, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """Tolerances of values that are encoded, reduced in rank order, and encoded again. inf: any value is accepted."""
    entry = bounded_type(codec, kind)
    if entry is None:
        return None
    most = float(np.finfo(np.float64 if kind.name == "float64" else np.float32).max)
    unit, ranks = 2.0**-kind.mantissa_bits, len(inputs)
    combine = {"prod": np.multiply, "max": np.maximum, "min": np.maximum}.get(op, np.add)
    magnitudes = [np.abs(_values(one, kind)) for one in inputs]
    bounds = [_bounds(codec, entry, kind, one) for one in magnitudes]
    is_finite = np.logical_and.reduce([np.isfinite(one) for one in magnitudes])
    # Replaces values that are not finite by the neutral element.
    neutral = 1.0 if op == "prod" else 0.0
    magnitudes = [np.where(np.isfinite(one), one, neutral) for one in magnitudes]
    with np.errstate(over="ignore"):
        exact = combine.reduce(magnitudes)
        decoded = combine.reduce([one + bound for one, bound in zip(magnitudes, bounds, strict=True)])
        # Every step of the accumulation, and the result, is rounded.
        rounding = (ranks + 1) * unit * decoded + unit * 2.0**-126
        errors = (decoded - exact if op == "prod" else combine.reduce(bounds)) + rounding
        decoded = decoded * (1 + (ranks + 1) * unit)
        may_overflow = ~(decoded < most)
        divisor = ranks if op == "avg" else 1
        decoded = np.where(may_overflow, most, decoded) / divisor
        tolerances = _bounds(codec, entry, kind, decoded) + errors / divisor
        # 0 times infinity is NaN, but a value near 0 times infinity is not.
        unknown = may_overflow | ~(decoded + tolerances < most) | (~is_finite if op == "prod" else False)
    return np.where(unknown, np.inf, tolerances)


def is_near(found: np.ndarray, right: np.ndarray, kind: ValueType, tolerances: np.ndarray) -> np.ndarray:
    """Whether each value is within its tolerance. NaN and infinity must be preserved."""
    own, exact = _values(found, kind), _values(right, kind)
    with np.errstate(invalid="ignore"):
        near = np.where(np.isfinite(exact), np.abs(own - exact) <= tolerances, own == exact)
    return near | (np.isnan(own) & np.isnan(exact)) | np.isinf(tolerances)


def _values(bits: np.ndarray, kind: ValueType) -> np.ndarray:
    return oracle.widen(bits, kind).astype(np.float64)


def _bounds(codec: str, entry: narrowcast.CodecType, kind: ValueType, magnitudes: np.ndarray) -> np.ndarray:
    """The error bound of each value. A call may split values anywhere, so a block may begin anywhere."""
    finite = np.where(np.isfinite(magnitudes), magnitudes, 0)
    if finite.size > _MAX_LOCAL_ELEMS:
        bound = narrowcast.error_bound(codec, kind.name, float(finite.max()))
        return np.broadcast_to(np.float64(bound), finite.shape)
    largest, places = np.unique(_sliding_max(finite, entry.block_bytes // kind.bytes - 1), return_inverse=True)
    bounds = np.array([narrowcast.error_bound(codec, kind.name, float(one)) for one in largest])
    return bounds[places] if bounds.size else finite


def _sliding_max(values: np.ndarray, radius: int) -> np.ndarray:
    """For each value, the maximum over all values up to `radius` positions away."""
    width, span = 2 * radius + 1, 1
    largest = np.pad(values, radius)  # over `span` values from each position
    while 2 * span <= width:
        largest = np.maximum(largest[:-span], largest[span:])
        span *= 2
    rest = width - span
    return np.maximum(largest[: largest.size - rest], largest[rest:])
