"""What a format cannot express."""

from __future__ import annotations

from ...errors import UnsupportedError

__all__ = ["Refusal"]


class Refusal(UnsupportedError):
    """A step that a format cannot express."""

    def __init__(self, where: str, message: str, origin: int) -> None:
        """where: rank, group and step. origin: that of the step."""
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message
        self.origin = origin
