"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path`, which it replaces when the body ends, and which is removed when it raises.

    Signals that are to clean up have to arrive as exceptions.
    """
    # Through a symbolic link, as writing in place would.
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
        # Nobody has heard of the temporary file.
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def check_writable(path: Path) -> None:
    """Raises what `new_file` would, for those who have long work to do first. Leaves nothing behind."""
    with contextlib.suppress(_Enough), new_file(path):
        raise _Enough


class _Enough(Exception):
    """That a file could be opened."""


def write_file(path: Path, content: bytes | memoryview) -> None:
    """A new file of this content."""
    with new_file(path) as file:
        write_all(file, memoryview(content), str(path))


def write_all(file: BinaryIO, data: memoryview, name: str) -> None:
    """Writes everything (an unbuffered write may take less); errors name `name`, not the temporary file."""
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from None
