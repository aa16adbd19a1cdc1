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
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_all(file: BinaryIO, data: memoryview, path: Path) -> None:
    """Writes everything (an unbuffered write may take less); errors name `path`, not the temporary file."""
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
