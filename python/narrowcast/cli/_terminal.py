"""Standard streams that may be closed."""

from __future__ import annotations

import errno
import io
import os
import sys


class ClosedOutput(io.TextIOBase):
    """Replaces standard output that was closed when the process started. Writing to it is an error."""

    name = "standard output"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed", "standard output")

    @property
    def buffer(self) -> ClosedOutput:
        return self


def replace_closed_streams() -> None:
    """Makes standard streams usable that were closed when the process started, for which Python has None."""
    # Otherwise files that are opened later would get the descriptors of standard output and standard error.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
