"""Paths as the C functions take them, and files that settings name."""

from __future__ import annotations

import errno
import os
import stat


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


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a regular file.

    Raises OSError, also for anything else, such as a FIFO that nobody writes to or an endless device, and for files of
    more than max_bytes.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes} bytes", os.fspath(path))
    return content
