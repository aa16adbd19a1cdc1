"""Files that are created or replaced atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file in the same folder. It replaces `path` when the body ends, and is removed when it raises.

    Signals clean up only if their handlers raise exceptions.
    """
    # A symbolic link is followed, as when writing in place.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"{path} exists and is not a regular file")
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.partial")
    try:
        with temporary.open("xb", buffering=0) as file:
            yield file
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        # The caller does not know the temporary file.
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def check_writable(path: Path) -> None:
    """Raises the errors that `new_file` would raise, before long work. Creates no file."""
    with contextlib.suppress(_Writable), new_file(path):
        raise _Writable


class _Writable(Exception):
    """Ends the body of `new_file` without creating the file."""


def write_file(path: Path, content: bytes | memoryview) -> None:
    """Creates or replaces a file."""
    with new_file(path) as file:
        write_all(file, memoryview(content), str(path))


def write_all(file: BinaryIO, data: memoryview, name: str) -> None:
    """Writes all data: an unbuffered write may be partial. Errors have `name`, not the name of the temporary file."""
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
