"""What the drop-in makes of a settings file: its errors, and the calls that its rules take."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from .preload import built_drop_in


def check(path: Path) -> dict[str, Any]:
    """The errors and rules of a file, as `check_policy` of src/nccl/policy/check.h describes them.

    Raises LibraryNotFoundError if the drop-in was not built.
    """
    write = ctypes.CDLL(str(built_drop_in())).narrowcast_nccl_check_policy
    write.argtypes, write.restype = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    # Twice, if the first buffer is too small.
    needed, text = 1 << 16, ctypes.create_string_buffer(0)
    while needed > len(text):
        text = ctypes.create_string_buffer(needed)
        needed = write(os.fsencode(path), text, len(text))
    found: dict[str, Any] = json.loads(text.value.decode(errors="replace"))
    return found
