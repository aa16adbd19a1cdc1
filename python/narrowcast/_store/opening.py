"""Opens tables."""

from __future__ import annotations

import os

from .handle import Handle
from .reports import VerifyReport
from .store import Store


def open(
    path: str | os.PathLike[str],
    host: str = "pinned",
    *,
    numa: int | None = None,
    capacity: int | None = None,
    spare: int | None = None,
    threads: int = 0,
    allow_damage: bool = False,
) -> Store:
    """Opens a table file.

    host: where the rows are. "pinned": in memory of this process, read from the file and verified; without a GPU this
        is plain memory. "mmap": in the pages of the file, verified when they are first used; read-only. Reads raise
        CorruptError if the file was truncated or overwritten meanwhile. "shared": in shared memory, one copy for all
        processes of this user that open the same file, with their changes.
    numa: the NUMA node for the memory; None: the system chooses. Not with "mmap".
    capacity, spare: as for `build`; None: what the file says, but for no more additional bytes than the file has, or
        64 MiB.
    threads: that load the file; 0: as many as CPUs that this process may use.
    allow_damage: open a damaged file; reading damaged rows raises CorruptError, the others are unaffected.

    Raises CorruptError, which says what is damaged, OSError, and TimeoutError if another process that opens or closes
    the table in shared memory has made no progress for 60 seconds.
    """
    handle = Handle(
        path, host=host, numa=numa, capacity=capacity, spare=spare, threads=threads, allow_damage=allow_damage
    )
    return Store(handle, os.fspath(path))


def verify(path: str | os.PathLike[str], *, threads: int = 0) -> VerifyReport:
    """Checks all checksums of a table file, and decodes all rows.

    Raises CorruptError if the file is so damaged that it cannot be opened, and OSError.
    """
    with open(path, "mmap", threads=threads) as table:
        return table.verify(threads=threads)
