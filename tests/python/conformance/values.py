"""Test data as bits, and comparisons."""

from __future__ import annotations

import functools

import numpy as np
from narrowcast._bench import oracle, samples
from narrowcast._bench.tolerance import is_near
from narrowcast.types import ValueType, value_type

# weights: of a model, in other types than theirs converted. random: any bits, which no codec shrinks. special: nothing
# but NaNs of many payloads, infinities, denormals, zeros of both signs and what is next to them. "zeros", which cases
# name themselves: 0 and -0.
DATA = ("weights", "normal", "random", "special")
# A prime, so that no block repeats.
_ELEMS = 65_521
POISON = np.random.default_rng(1).integers(0, 256, 8192, np.uint8)


@functools.cache
def pool(data: str, dtype: str) -> np.ndarray:
    """Values of a type. A rank's input repeats them from some position (`samples.of_rank`)."""
    kind = value_type(dtype)
    if data == "special":
        return _special(kind)
    if data == "zeros":
        return _zeros(kind)
    if data == "random":
        return samples.sample(data, dtype)[:_ELEMS]
    source, scale = ("bfloat16", 1000) if data == "weights" else ("float64", 64)
    values = oracle.widen(samples.sample(data, source)[:_ELEMS], value_type(source))
    if not kind.is_float:
        return (scale * values).astype(np.int64).astype(kind.numpy)
    return oracle.narrow(values.astype(np.float64 if kind.name == "float64" else np.float32), kind)


def _zeros(kind: ValueType) -> np.ndarray:
    signs = np.random.default_rng(3).integers(0, 2, _ELEMS, np.uint64) << np.uint64(8 * kind.bytes - 1)
    return signs.astype(f"uint{8 * kind.bytes}").view(kind.numpy)


def _special(kind: ValueType) -> np.ndarray:
    rng = np.random.default_rng(2)
    unsigned = np.dtype(f"uint{8 * kind.bytes}")

    def some(choices: list[int], bits: int) -> np.ndarray:
        """One of the choices; in every fourth place any bits."""
        chosen = np.array(choices, np.uint64)[rng.integers(0, len(choices), _ELEMS)]
        anything = rng.integers(0, 1 << bits, _ELEMS, np.uint64) if bits < 64 else rng.bytes(8 * _ELEMS)
        return np.where(rng.integers(0, 4, _ELEMS) == 0, np.frombuffer(anything, np.uint64), chosen)

    if not kind.is_float:
        bits, half = 8 * kind.bytes, 1 << (8 * kind.bytes - 1)
        return some([0, 1, 2 * half - 1, half - 1, half], bits).astype(unsigned).view(kind.numpy)
    most, quiet = (1 << kind.exponent_bits) - 1, 1 << (kind.mantissa_bits - 1)
    sign = rng.integers(0, 2, _ELEMS, np.uint64)
    exponent = some([0, 1, most // 2, most - 1, most, most], kind.exponent_bits)
    mantissa = some([0, 0, 1, quiet, 2 * quiet - 1], kind.mantissa_bits)
    shift = np.uint64(kind.mantissa_bits)
    value = (sign << np.uint64(8 * kind.bytes - 1)) | (exponent << shift) | mantissa
    return value.astype(unsigned).view(kind.numpy)


def poison(count_bytes: int) -> np.ndarray:
    """Bytes that no call produces by chance."""
    return np.resize(POISON, count_bytes)


def as_bits(values: np.ndarray, kind: ValueType) -> np.ndarray:
    return values.view(f"uint{8 * kind.bytes}")


def difference(
    found: np.ndarray,
    expected: np.ndarray,
    kind: ValueType,
    *,
    nan_is_nan: bool,
    tolerances: np.ndarray | None = None,
) -> str | None:
    """The first value with wrong bits; None if there is none.

    nan_is_nan: NaNs of any payload are equal. Arithmetic leaves the payload open.
    tolerances: how far values may be from the expected ones (conformance.tolerance); None: not at all.
    """
    own, right = as_bits(found, kind), as_bits(expected, kind)
    wrong = own != right if tolerances is None else ~is_near(found, expected, kind, tolerances)
    if not wrong.any():
        return None
    if nan_is_nan and kind.is_float:
        places = np.flatnonzero(wrong)
        are_nan = [np.isnan(oracle.widen(bits[places].view(kind.numpy), kind)) for bits in (own, right)]
        wrong[places[are_nan[0] & are_nan[1]]] = False
        if not wrong.any():
            return None
    places = np.flatnonzero(wrong)
    first = int(places[0])
    return (
        f"value {first} of {own.size} is {_text(own[first], kind)}, not {_text(right[first], kind)}"
        f" ({places.size} are wrong, the last is {int(places[-1])})"
    )


def _text(bits: np.generic, kind: ValueType) -> str:
    value = oracle.widen(np.array([bits]).view(kind.numpy), kind)[0]
    return f"0x{int(bits):0{2 * kind.bytes}x} ({value})"
