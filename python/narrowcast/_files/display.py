"""Text for people: names from files, and sizes."""

from __future__ import annotations


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
