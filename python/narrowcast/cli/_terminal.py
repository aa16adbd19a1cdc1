"""What commands print: text without control characters, to standard streams that may be closed."""

from __future__ import annotations

import errno
import io
import os
import sys


def printable(text: str) -> str:
    """The text with control characters, invisible ones and invalid ones escaped, as `\\x1b`.

    Names from files and arguments must not control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def printable_lines(text: str) -> str:
    """As printable, but keeps the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


def bytes_text(count: float) -> str:
    """1536 -> "1.50 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError


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
