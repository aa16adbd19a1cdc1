"""Checks results that need not be exact: of codecs that are not, and of other libraries.

Other libraries add in any order and may round after each addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import codecs
from ..codec import error_bound
from ..types import ValueType
from . import oracle

Array = npt.NDArray[Any]
_PART_ELEMS = 1 << 22


def is_near(found: Array, right: Array, kind: ValueType, tolerances: Array | float) -> npt.NDArray[np.bool_]:
    """Whether each value is within its tolerance. What is not finite must remain so; infinities may become NaN.

    found, right: bits. tolerances: infinity accepts any value.
    """
    own, exact = (oracle.widen(bits, kind).astype(np.float64) for bits in (found, right))
    with np.errstate(invalid="ignore"):
        near = np.where(np.isfinite(exact), np.abs(own - exact) <= tolerances, (own == exact) | np.isnan(own))
    return near | np.isinf(tolerances)


def count_far(found: Array, right: Array, kind: ValueType, bound: float, encoded: Sequence[Array] | None = None) -> int:
    """The number of values that are further than `bound` from the right ones. Arguments are bits.

    encoded: the values that were encoded; None: `right`. If some of them are not finite, codecs may make others NaN.
    """
    near = is_near(found, right, kind, bound)
    if not all(np.isfinite(oracle.widen(bits, kind)).all() for bits in encoded or [right]):
        near |= np.isnan(oracle.widen(found, kind))
    return int(np.count_nonzero(~near))


def absmax(bits: Array, kind: ValueType) -> float:
    """The largest finite magnitude; 0 if there is none."""
    magnitudes = np.abs(oracle.widen(bits, kind).astype(np.float64))
    return float(magnitudes.max(where=np.isfinite(magnitudes), initial=0))


def is_exact(codec: str, kind: ValueType) -> bool:
    """Whether the codec of a call restores all bits of values of this type."""
    if codecs.is_exact(codec):
        return True
    return not codec.startswith("within:") and error_bound(codec.removesuffix("!"), kind.name, 1.0) == 0


def is_restored(found: Array, values: Array, kind: ValueType, codec: str) -> bool:
    """Whether decoded values have the bits of those that were encoded or, with a lossy codec, are near."""
    if is_exact(codec, kind):
        return np.array_equal(found, values)
    own, right = (bits.view(kind.numpy) for bits in (found, values))
    # In parts, because fp64 takes much memory.
    parts = [slice(start, start + _PART_ELEMS) for start in range(0, right.size, _PART_ELEMS)]
    bound = error_bound(codec, kind.name, max((absmax(right[part], kind) for part in parts), default=0.0))
    return not any(count_far(own[part], right[part], kind, bound) for part in parts)


def count_outside(found: Array, inputs: Sequence[Array], op: str, kind: ValueType) -> int:
    """The number of values that no order of operations can produce, with rounding after each of them.

    inputs: the bits of every rank, of which `found` may contain repetitions. Values whose exact result, or sum of
    magnitudes, exceeds the range of the type are not checked: whether they overflow depends on the order.
    """
    expected = oracle.reduce(inputs, op, kind)
    period = expected.size
    if not period:
        return 0
    limits = None
    outside = 0
    for start in range(0, found.size, period):
        part = found[start : start + period]
        if oracle.count_wrong(part, expected[: part.size], kind) == 0:
            continue
        if not kind.is_float:
            outside += int(np.count_nonzero(part != expected[: part.size]))
            continue
        if limits is None:
            limits = _limits(inputs, op, kind)
        low, high, checked = (array[: part.size] for array in limits)
        values = oracle.widen(part, kind).astype(np.float64)
        outside += int(np.count_nonzero(checked & ~((values >= low) & (values <= high))))
    return outside


def _limits(inputs: Sequence[Array], op: str, kind: ValueType) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """The smallest and largest valid values, and a mask of the values that can be checked."""
    wide = [oracle.widen(bits, kind).astype(np.float64) for bits in inputs]
    with np.errstate(all="ignore"):
        if op in ("min", "max"):
            # Either of 0 and -0 may be the result of another library.
            exact = oracle.widen(oracle.reduce(inputs, op, kind), kind).astype(np.float64)
            magnitude = np.zeros_like(exact)
        elif op == "prod":
            exact = np.prod(wide, axis=0)
            # The partial products of every order must be in range.
            magnitude = np.prod([np.maximum(np.abs(one), 1) for one in wide], axis=0)
        else:
            exact = np.sum(wide, axis=0)
            magnitude = np.sum(np.abs(wide), axis=0)
            if op == "avg":
                exact = exact / len(wide)
        largest, tiny = _range(kind)
        checked = np.isfinite(exact) & (np.abs(exact) <= largest) & (magnitude <= largest)
        slack = (len(wide) + 1) * 2.0**-kind.mantissa_bits * magnitude + (0 if op in ("min", "max") else tiny)
        return exact - slack, exact + slack, checked


def _range(kind: ValueType) -> tuple[float, float]:
    """The largest finite number and the smallest normal one."""
    bias = (1 << (kind.exponent_bits - 1)) - 1
    if kind.name == "float8_e4m3":
        return 448.0, 2.0**-6
    return (2 - 2.0**-kind.mantissa_bits) * 2.0**bias, 2.0 ** (1 - bias)
