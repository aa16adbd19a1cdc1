"""Marks of a program's steps in the record of its calls."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def mark_step() -> None:
    """Marks the begin of a step, for `narrowcast try`, which measures the time between marks.

    For programs whose calls have no period, such as those that replay CUDA graphs. All ranks may call it. Marks are
    times of the host, so the program should wait for the GPU in every step, or make many steps. Without the drop-in
    this does nothing. C programs find the function `narrowcast_nccl_mark_step` with `dlsym`.
    """
    _mark()()


@functools.cache
def _mark() -> Callable[[], object]:
    # The drop-in is preloaded, so its symbols are global.
    try:
        mark: Callable[[], object] = ctypes.CDLL(None).narrowcast_nccl_mark_step
    except AttributeError:
        return lambda: None
    return mark
