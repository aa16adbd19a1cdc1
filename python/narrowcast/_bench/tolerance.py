"""Checks reductions of other libraries, which add in any order and may round after each addition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import ValueType
from . import oracle

Array = npt.NDArray[Any]


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
