"""Files given by path or already open, such as standard input and output."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import SystemFailure
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
        yield _with(source, "read"), name_of(source)


def _with(file: BinaryIO, method: str) -> BinaryIO:
    if not hasattr(file, method):
        raise TypeError(f"{file!r} is neither a path nor an open binary file")
    return file


class Source:
    """A file that is read at any offset. Its size must not change until `check_unchanged`.

    Threads may read at the same time.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        """file: seekable. Offsets count from its position."""
        self.file, self.name = file, name
        self._start = file.tell()
        self.size_bytes = bytes_left(file) or 0
        self._descriptor = _descriptor(file)
        self._position = threading.Lock()

    def read(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer. Raises SystemFailure if the file ends before."""
        filled = 0
        while filled < len(buffer):
            try:
                count = self._read_some(offset + filled, buffer[filled:])
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.name) from None
            if not count:
                raise SystemFailure(
                    f"{self.name} ends at byte {offset + filled}, but had {self.size_bytes} bytes when it was opened"
                )
            filled += count

    def _read_some(self, offset: int, buffer: memoryview) -> int:
        if self._descriptor is not None:
            return os.preadv(self._descriptor, [buffer], self._start + offset)
        with self._position:
            self.file.seek(self._start + offset)
            return int(self.file.readinto(buffer) or 0)  # type: ignore[attr-defined]

    def seek(self, offset: int) -> int:
        """Sets the position of the file object. Returns the number of bytes after it, as of now."""
        with self._position:
            self.file.seek(self._start + offset)
            return bytes_left(self.file) or 0

    def check_unchanged(self) -> None:
        """Raises SystemFailure if the size has changed: what was read is not the whole file."""
        size_bytes = self.seek(0)
        if size_bytes != self.size_bytes:
            raise SystemFailure(f"{self.name} changed from {self.size_bytes} to {size_bytes} bytes while it was read")


def _descriptor(file: BinaryIO) -> int | None:
    """The descriptor of a file, if its bytes are those of the file object: not those of a decompressing reader."""
    raw = file.raw if type(file) in (io.BufferedReader, io.BufferedRandom) else file  # type: ignore[attr-defined]
    return raw.fileno() if type(raw) is io.FileIO else None


@contextlib.contextmanager
def opened_source(source: FileArgument) -> Iterator[Source]:
    """As `opened`, for reading at any offset. A pipe or a partly read file is first copied to a temporary file."""
    with opened(source) as (file, name):
        if _has_size(file):
            yield Source(file, name)
            return
        with tempfile.TemporaryFile(buffering=0) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.seek(0)
            yield Source(copy, name)


def _has_size(file: BinaryIO) -> bool:
    """Whether a file is seekable, at byte 0, and has its size. Files in /proc claim to be empty."""
    if bytes_left(file) is None or file.tell() != 0:
        return False
    if bytes_left(file):
        return True
    is_empty = not file.read(1)
    file.seek(0)
    return is_empty


@contextlib.contextmanager
def created(target: FileArgument, source: BinaryIO | None, replace: bool = True) -> Iterator[tuple[BinaryIO, str]]:
    """The target, open for writing, and its name for messages.

    A file given by path is replaced atomically, or an error if `replace` is false. A new one has the permissions of the
    source, if there is one.
    """
    if isinstance(target, (str, os.PathLike)):
        with new_file(Path(target), like=None if source is None else _status(source), replace=replace) as file:
            yield file, os.fspath(target)
    else:
        yield _with(target, "write"), name_of(target)
        target.flush()


def _status(file: BinaryIO) -> os.stat_result | None:
    """The status of a regular file; None for pipes, and for files that exist only in memory."""
    try:
        found = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def name_of(file: BinaryIO) -> str:
    """The name of an open file, such as "<stdin>"."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def bytes_left(file: BinaryIO) -> int | None:
    """Bytes from the current position to the end; None if unknown, as for a pipe or a file in /proc."""
    if not file.seekable():
        return None
    position = file.tell()
    try:
        end = file.seek(0, os.SEEK_END)
    except OSError:
        return None
    file.seek(position)
    return end - position
