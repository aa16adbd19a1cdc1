"""The shared memory of communicators that are being created."""

from __future__ import annotations

import hashlib
from pathlib import Path

from narrowcast._doctor.limits import SHARED_MEMORY


def segment_of(unique_id: bytes) -> Path | None:
    """The shared memory segment of a communicator: its name is a digest of the id. None if there is none."""
    digest = hashlib.sha256(b"narrowcast host segment\0" + unique_id[8:24]).hexdigest()
    path = SHARED_MEMORY / f"narrowcast.{digest[:32]}"
    return path if path.exists() else None
