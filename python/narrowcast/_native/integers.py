"""Python's numbers for C's types: ctypes would cut off what does not fit, and say nothing."""

from __future__ import annotations

import operator
from typing import SupportsIndex


def as_int(value: SupportsIndex, name: str) -> int:
    """The number as an `int`; ValueError, which calls it `name`, when it is none of 32 bits."""
    number = operator.index(value)
    if not -1 << 31 <= number < 1 << 31:
        raise ValueError(f"{name} is {number}: it does not fit 32 bits")
    return number


def as_unsigned(value: SupportsIndex, name: str, bits: int = 64) -> int:
    """As as_int, without a sign and of so many bits."""
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{name} is {number}, less than 0")
    if number >> bits:
        raise ValueError(f"{name} is {number}: it does not fit {bits} bits")
    return number
