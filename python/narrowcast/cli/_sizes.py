"""Sizes in bytes, as arguments of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ._common import BadUse

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MAX_BYTES = (1 << 63) - 1


def parse_size(text: str) -> int:
    """Sizes as in nccl-tests: 64, 1K, 64M, 1G (powers of 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise BadUse(f"{text!r} is not a size: use one such as 64, 1K, 64M or 1G")
    value = float(match[1]) * _UNITS[match[2].upper()]
    if value > _MAX_BYTES:
        raise BadUse(f"{text} is too large: sizes have at most 63 bits")
    return int(value)


def parse_sizes(text: str) -> list[int]:
    """Sizes that are separated by commas."""
    return [parse_size(one) for one in text.split(",")]


def sizes(begin: int, end: int, factor: float, step: int | None = None) -> Iterator[int]:
    """Sizes from begin to end. Each is the previous one plus `step`, or multiplied by `factor` if `step` is None."""
    size = begin
    while size <= end:
        yield size
        size = size + step if step else max(size + 1, int(min(size * factor, end + 1)))
