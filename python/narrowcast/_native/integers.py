"""Range checks for integer arguments. ctypes would silently truncate values that do not fit."""

from __future__ import annotations

import operator
from typing import SupportsIndex


def as_int(value: SupportsIndex, name: str) -> int:
    """The value as an `int`. Raises ValueError if it does not fit a signed integer of 32 bits."""
    number = operator.index(value)
    if not -1 << 31 <= number < 1 << 31:
        raise ValueError(f"{name} is {number}: it does not fit 32 bits")
    return number


def as_unsigned(value: SupportsIndex, name: str, bits: int = 64) -> int:
    """As as_int, for unsigned integers of `bits` bits."""
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{name} is {number}: it must not be negative")
    if number >> bits:
        raise ValueError(f"{name} is {number}: it does not fit {bits} bits")
    return number
