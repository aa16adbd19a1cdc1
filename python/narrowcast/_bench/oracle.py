"""The exact results of reductions, computed with NumPy.

Independent of the library, because the demo, benchmarks and tests compare its results with these. Arguments and results
are bits. Floats are accumulated in fp32 (fp64 for float64) in rank order and rounded once, to nearest even.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import ValueType

Array = npt.NDArray[Any]


def widen(bits: Array, kind: ValueType) -> Array:
    """The values of bits (an array of `kind.numpy`), in the type of the accumulator."""
    if kind.name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if kind.bytes == 1 and kind.is_float:
        return np.take(_float8_values(kind), bits)
    return bits.astype(np.float32) if kind.name == "float16" else bits


def narrow(values: Array, kind: ValueType) -> Array:
    """The bits of accumulated values, rounded to nearest, ties to even."""
    if kind.name == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    if kind.bytes == 1 and kind.is_float:
        return _to_float8(values, kind)
    with np.errstate(over="ignore"):
        return values.astype(kind.numpy)


def reduce(
    ranks: Sequence[Array], op: str, kind: ValueType, hosts: Sequence[int] = (), *, rounds_partial_sums: bool = False
) -> Array:
    """The reduction of the bits of all ranks (arrays of `kind.numpy`), as bits.

    hosts: that of each rank, numbered in the order of their first ranks. The values of a host are combined first, and
    rounded if there are several and rounds_partial_sums is set.
    """
    parts = [widen(bits, kind) for bits in ranks]
    with np.errstate(all="ignore"):
        if hosts:
            on_hosts = [
                [part for part, host in zip(parts, hosts, strict=True) if host == one] for one in sorted(set(hosts))
            ]
            parts = [_combined(own, op, kind) for own in on_hosts]
            if rounds_partial_sums:
                parts = [widen(narrow(part, kind), kind) for part in parts]
        total = _combined(parts, op, kind)
        if op == "avg":
            count = total.dtype.type(len(ranks))
            total = total / count if kind.is_float else _truncated_quotient(total, count)
    return narrow(total, kind)


def _combined(parts: Sequence[Array], op: str, kind: ValueType) -> Array:
    total: Array = parts[0].copy()
    for values in parts[1:]:
        if op in ("sum", "avg"):
            total = total + values
        elif op == "prod":
            total = total * values
        else:
            better = values > total if op == "max" else values < total
            if kind.is_float:
                # Numbers take precedence over NaN, and -0 is smaller than 0.
                other_zero = (values == total) & (np.signbit(values) == (op == "min"))
                better |= (total != total) | other_zero
            total = np.where(better, values, total)
    return total


def count_wrong(found: Array, expected: Array, kind: ValueType) -> int:
    """The number of values with different bits. All NaNs are equal: arithmetic does not define their payload."""
    wrong = found != expected
    if kind.is_float and wrong.any():
        # Compared as bits: as values, -0 equals 0.
        unsigned = f"uint{8 * kind.bytes}"
        wrong = found.view(unsigned) != expected.view(unsigned)
        wrong &= ~(np.isnan(widen(found, kind)) & np.isnan(widen(expected, kind)))
    return int(np.count_nonzero(wrong))


def _truncated_quotient(total: Array, count: Any) -> Array:
    # NumPy's // rounds down. Rounding toward zero adds 1 to negative quotients that are not exact.
    quotient: Array = total // count + ((total < 0) & (total % count != 0)).astype(total.dtype)
    return quotient


@functools.cache
def _float8_values(kind: ValueType) -> npt.NDArray[np.float32]:
    """The value of every bit pattern."""
    bias = (1 << (kind.exponent_bits - 1)) - 1
    codes = np.arange(128)
    exponents, mantissas = codes >> kind.mantissa_bits, codes & ((1 << kind.mantissa_bits) - 1)
    fractions = mantissas / (1 << kind.mantissa_bits)
    values = np.where(exponents == 0, fractions * 2.0 ** (1 - bias), (1 + fractions) * 2.0 ** (exponents - bias))
    if kind.name == "float8_e4m3":
        values[127] = np.nan
    else:
        values[124] = np.inf
        values[125:] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


def _to_float8(values: Array, kind: ValueType) -> npt.NDArray[np.uint8]:
    table = _float8_values(kind)[:128].astype(np.float64)
    largest = int(np.flatnonzero(np.isfinite(table))[-1])
    # A step above the largest value represents overflow, so that it needs no special case.
    steps = table[: largest + 2].copy()
    steps[-1] = 2 * steps[-2] - steps[-3]
    middles = (steps[:-1] + steps[1:]) / 2
    with np.errstate(invalid="ignore"):
        magnitudes = np.abs(values.astype(np.float64))
    codes = np.searchsorted(middles, magnitudes)
    tie = np.isin(magnitudes, middles)
    codes = codes + (tie & (codes % 2 == 1))
    codes = np.where(np.isnan(values), 127, codes)
    return (codes | (np.signbit(values).astype(np.uint8) << 7)).astype(np.uint8)
