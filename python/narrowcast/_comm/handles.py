"""What the owners of handles of the library have in common."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class OfThisProcess:
    """An object that means nothing in another process, and that cannot be copied."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: every process creates its own")
