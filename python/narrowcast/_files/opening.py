"""Files given by path or already open, such as standard input and output."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .atomic import new_file

#: A file to read or to write: its path, or a binary file object, which is left open.
FileArgument = str | os.PathLike[str] | BinaryIO


@contextlib.contextmanager
def opened(source: FileArgument) -> Iterator[tuple[BinaryIO, str]]:
    """The source, open for reading, and its name for messages."""
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb", buffering=0) as file:
            yield file, os.fspath(source)
    else:
        yield source, name_of(source)


@contextlib.contextmanager
def opened_seekable(source: FileArgument) -> Iterator[tuple[BinaryIO, str]]:
    """As `opened`, at byte 0 and seekable. A pipe or a partly read file is first copied to a temporary file."""
    with opened(source) as (file, name):
        if file.seekable() and file.tell() == 0:
            yield file, name
            return
        with tempfile.TemporaryFile(buffering=0) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.seek(0)
            yield copy, name


@contextlib.contextmanager
def created(target: FileArgument) -> Iterator[tuple[BinaryIO, str]]:
    """The target, open for writing, and its name for messages. A file given by path is replaced atomically."""
    if isinstance(target, (str, os.PathLike)):
        with new_file(Path(target)) as file:
            yield file, os.fspath(target)
    else:
        yield target, name_of(target)
        target.flush()


def name_of(file: BinaryIO) -> str:
    """The name of an open file, such as "<stdin>"."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def bytes_left(file: BinaryIO) -> int | None:
    """Bytes from the current position to the end; None if unknown, as for a pipe."""
    if not file.seekable():
        return None
    position = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(position)
    return end - position
