"""Paths as the C functions take them."""

from __future__ import annotations

import os


def path_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    """The bytes of a path. name: of the argument, for the error. Raises TypeError, and ValueError for a null byte."""
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name} is {path!r}, not a path") from None
    if b"\0" in encoded:
        # C would take the part before it.
        raise ValueError(f"{name} is {path!r}: it has a null byte")
    return encoded
