"""Memory that is released while a GPU still uses it."""

from __future__ import annotations

from typing import Any

import torch


class Releases:
    """Bounds how far the host is ahead of a GPU.

    Memory that was allocated on another stream is not free before the GPU has used it. If the host did not wait, the
    weights of a whole module would be allocated.
    """

    def __init__(self) -> None:
        self._used: list[Any] = []  # events, of the oldest release first

    def add(self, device: torch.device) -> None:
        """To be called when memory is released that the current stream uses."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        self._used.append(event)

    def wait(self) -> None:
        """To be called before memory is allocated. Does not wait for the last use: the GPU always has work."""
        while len(self._used) > 1:
            self._used.pop(0).synchronize()
