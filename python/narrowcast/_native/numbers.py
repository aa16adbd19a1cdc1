"""Checks of numbers. ctypes would silently truncate integers that do not fit, and its errors name no argument."""

from __future__ import annotations

import operator
from typing import SupportsFloat, SupportsIndex


def as_index(value: SupportsIndex, name: str) -> int:
    """The value as an `int` of any size. Raises TypeError if it is not an integer, even if it is a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, not an integer") from None


def as_int(value: SupportsIndex, name: str) -> int:
    """As as_index. Raises ValueError if the value does not fit a signed integer of 32 bits."""
    number = as_index(value, name)
    if not -1 << 31 <= number < 1 << 31:
        raise ValueError(f"{name} is {number}: it does not fit 32 bits")
    return number


def as_unsigned(value: SupportsIndex, name: str, bits: int = 64) -> int:
    """As as_int, for unsigned integers of `bits` bits."""
    number = as_index(value, name)
    if number < 0:
        raise ValueError(f"{name} is {number}: it must not be negative")
    if number >> bits:
        raise ValueError(f"{name} is {number}: it does not fit {bits} bits")
    return number


def as_positive(value: SupportsIndex, name: str, bits: int = 31) -> int:
    """As as_unsigned, for numbers that are not 0."""
    number = as_unsigned(value, name, bits)
    if not number:
        raise ValueError(f"{name} is 0: it must be positive")
    return number


def as_seconds(value: SupportsFloat, name: str) -> float:
    """The value as a `float`. Raises TypeError if it is not a number; the library checks its range."""
    if isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a number of seconds")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, not a number of seconds") from None
