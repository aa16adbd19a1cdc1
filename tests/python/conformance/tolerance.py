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
    if entry is None:
        return None
    values = _values(sent, kind)
    bounds = _bounds(codec, entry, kind, np.abs(values))
    return np.where(_near(~np.isfinite(values), entry, kind) & np.isfinite(values), np.inf, bounds)


def reduced(codec: str, kind: ValueType, op: str, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """Tolerances of values that are encoded, reduced in rank order, and encoded again. inf: any value is accepted."""
    entry = bounded_type(codec, kind)
    if entry is None:
        return None
    largest = {"float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127")}
    most = largest.get(kind.name) or float(np.finfo("float64" if kind.name == "float64" else "float32").max)
    unit, ranks = 2.0**-kind.mantissa_bits, len(inputs)
    combine = {"prod": np.multiply, "max": np.maximum, "min": np.maximum}.get(op, np.add)
    magnitudes = [np.abs(_values(one, kind)) for one in inputs]
    bounds = [_bounds(codec, entry, kind, one) for one in magnitudes]
    is_finite = np.logical_and.reduce([np.isfinite(one) for one in magnitudes])
    # Codecs may make all values of a group NaN. The results near such values may be NaN, too.
    may_be_nan = _near(_near(~is_finite, entry, kind), entry, kind)
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
    return np.where(unknown | (may_be_nan & is_finite), np.inf, tolerances)


def is_near(found: np.ndarray, right: np.ndarray, kind: ValueType, tolerances: np.ndarray) -> np.ndarray:
    """Whether each value is within its tolerance. NaN and infinity must be preserved; infinities may become NaN."""
    own, exact = _values(found, kind), _values(right, kind)
    with np.errstate(invalid="ignore"):
        near = np.where(np.isfinite(exact), np.abs(own - exact) <= tolerances, (own == exact) | np.isnan(own))
    return near | np.isinf(tolerances)


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


def _near(marked: np.ndarray, entry: narrowcast.CodecType, kind: ValueType) -> np.ndarray:
    """Whether a value may be in one block with a marked one."""
    return _sliding_max(marked, entry.block_bytes // kind.bytes - 1) if marked.any() else marked


def _sliding_max(values: np.ndarray, radius: int) -> np.ndarray:
    """For each value, the maximum over all values up to `radius` positions away."""
    width, span = 2 * radius + 1, 1
    largest = np.pad(values, radius)  # over `span` values from each position
    while 2 * span <= width:
        largest = np.maximum(largest[:-span], largest[span:])
        span *= 2
    rest = width - span
    return np.maximum(largest[: largest.size - rest], largest[rest:])
