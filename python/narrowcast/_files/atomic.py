"""Files that are created or replaced atomically."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SUFFIX = ".partial"
_RANDOM_BYTES = 4
# Leaves room for the random part in the 255 bytes of a file name.
_MAX_NAME_BYTES = 200
_GROUP, _OTHERS = 0o070, 0o007


@contextlib.contextmanager
def new_file(path: Path, like: os.stat_result | None = None, replace: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file in the same folder. It replaces `path` when the body ends, and is removed when it raises.

    replace: False: an existing file is not replaced but raises FileExistsError, also if it appears in the meantime.

    A file that is replaced keeps its permissions and owner. A new one gets those of `like`, the status of the input, or
    the default.

    The temporary file has no name before the body ends, so that a killed process leaves nothing behind. If the file
    system does not support this, it does: such files are removed by the next call for this path, and signals clean up
    only if their handlers raise exceptions.
    """
    # A symbolic link is followed, as when writing in place.
    target = Path(os.path.realpath(path))
    try:
        replaced: os.stat_result | None = target.stat()
    except FileNotFoundError:
        replaced = None
    if replaced is not None and not stat.S_ISREG(replaced.st_mode):
        raise OSError(f"{path} exists and is not a regular file")
    if replaced is not None and not replace:
        raise _exists(path)
    model = replaced or like
    _remove_stale(target)
    temporary = None
    try:
        mode = 0o666 if model is None else 0o600
        unnamed = _create_unnamed(target.parent, mode)
        if unnamed is not None:
            file = unnamed
        else:
            temporary, file = _create_locked(target, mode)
        with file:
            yield file
            if model is not None:
                _copy_permissions(file.fileno(), model)
            # Closing a duplicate reports delayed errors, such as a full disk of a server. The file stays locked until
            # it has its name.
            os.close(os.dup(file.fileno()))
            if temporary is None and not replace:
                _give_name(file, target)
                return
            if temporary is None:
                temporary = _temporary_name(target)
                _give_name(file, temporary)
            if replace:
                temporary.replace(target)
            else:
                _rename_to_new(temporary, target)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, FileExistsError):
            raise _exists(path) from None
        # The caller does not know the temporary file.
        if isinstance(error, OSError) and str(error.filename).endswith(_SUFFIX):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Renames a file. Raises FileExistsError if the target exists."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links, on which another process may create the target meanwhile.
        if target.exists():
            raise _exists(target) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)[:_MAX_NAME_BYTES]
    return f".{os.fsdecode(name)}."


def _temporary_name(target: Path) -> Path:
    return target.with_name(f"{_prefix(target)}{secrets.token_hex(_RANDOM_BYTES)}{_SUFFIX}")


def _create_unnamed(folder: Path, mode: int) -> BinaryIO | None:
    """A new file without a name in a folder; None if that is not possible, for whatever reason."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)
    except OSError:
        return None
    file = os.fdopen(descriptor, "r+b", buffering=0)
    if os.path.exists(_descriptor_path(file)):  # noqa: PTH110
        return file
    file.close()  # without /proc it could not be given a name
    return None


def path_of(file: BinaryIO) -> str:
    """A path by which this process can open the file of `new_file` before it has its name."""
    return file.name if isinstance(file.name, str) else _descriptor_path(file)


def _descriptor_path(file: BinaryIO) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _give_name(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)  # not stale before it is renamed
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder, which the absolute path ignores, os.link() follows the symbolic link in /proc.
        os.link(_descriptor_path(file), path, src_dir_fd=folder)
    finally:
        os.close(folder)


def _create_locked(target: Path, mode: int) -> tuple[Path, BinaryIO]:
    """A new temporary file for the target. The lock shows that its process is alive, and ends with the process."""
    while True:
        temporary = _temporary_name(target)
        file = open(temporary, "xb", buffering=0, opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
        is_lost = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another process is about to remove the file as stale, or another user, who can read it, keeps it locked.
            is_lost = True
        except OSError:
            pass  # a file system without locks
        if not is_lost and os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()
        with contextlib.suppress(OSError):
            temporary.unlink()


def _open_at_once(path: str, flags: int) -> int:
    """Waits for no writer of a FIFO, and follows no link: in a shared folder, other users can create both."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _remove_stale(target: Path) -> None:
    """Removes temporary files for the target whose processes no longer exist."""
    prefix = _prefix(target)
    length = len(prefix) + 2 * _RANDOM_BYTES + len(_SUFFIX)
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = entry.name
            if not (name.startswith(prefix) and name.endswith(_SUFFIX) and len(name) == length):
                continue
            with contextlib.suppress(OSError), open(entry.path, "rb", opener=_open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    continue
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)  # noqa: PTH108


def _copy_permissions(file: int, model: os.stat_result) -> None:
    """Copies permissions, and owner and group if this process may set them."""
    own = os.fstat(file)
    mode = stat.S_IMODE(model.st_mode) & 0o777
    if own.st_gid != model.st_gid:
        try:
            os.fchown(file, -1, model.st_gid)
        except OSError:
            # Another group must not get the rights of the model's group.
            mode &= ~_GROUP | (mode & _OTHERS) << 3
    # A file system without permissions may reject both.
    with contextlib.suppress(OSError):
        os.fchmod(file, mode)
    if own.st_uid != model.st_uid:
        with contextlib.suppress(OSError):
            os.fchown(file, model.st_uid, -1)


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
