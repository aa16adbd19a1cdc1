"""System limits that affect collectives."""

from __future__ import annotations

import os
import resource
from ctypes import byref, c_int
from pathlib import Path

from .._files.display import bytes_text
from .._native.library import check, library
from .report import Section

SHARED_MEMORY = Path("/dev/shm")
_INFINIBAND = Path("/sys/class/infiniband")
# NCCL recommends 1 GiB for containers, part of which may be in use.
_SHARED_MEMORY_BYTES = 512 << 20


def examine() -> Section:
    section = Section("limits", "Limits")
    try:
        size = os.statvfs(SHARED_MEMORY)
        total, free = size.f_frsize * size.f_blocks, size.f_frsize * size.f_bavail
        value = f"{bytes_text(free)} of {bytes_text(total)} free"
    except OSError as error:
        total, free, value = 0, 0, error.strerror or str(error)
    _add(section, str(SHARED_MEMORY), value, "ranks without peer access, and the host backend")
    if free < _SHARED_MEMORY_BYTES:
        section.problem(
            f"{SHARED_MEMORY} has {value}; NCCL fails when it is full",
            "Start the container with --shm-size=1g or --ipc=host, or enlarge the file system: "
            f"mount -o remount,size=1g {SHARED_MEMORY}.",
        )
    adapters = sorted(path.name for path in _INFINIBAND.iterdir()) if _INFINIBAND.is_dir() else []
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    value = "unlimited" if locked == resource.RLIM_INFINITY else bytes_text(locked)
    _add(section, "locked memory (ulimit -l)", value, f"InfiniBand ({', '.join(adapters) or 'none found'})")
    if adapters and locked != resource.RLIM_INFINITY:
        section.problem(
            f"locked memory for InfiniBand ({', '.join(adapters)}) is limited to {value}",
            "Run ulimit -l unlimited, or start the container with --ulimit memlock=-1.",
        )
    files, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{files}, at most {max_files}"
    _add(section, "open files (ulimit -n)", value, "sockets and memory handles of peers")
    return section


def remove_stale_segments() -> int:
    """Removes shared memory that killed processes of Narrowcast left behind. Returns the number of segments."""
    removed = c_int()
    check(library().ncast_remove_stale_segments(byref(removed)))
    return removed.value


def _add(section: Section, limit: str, value: str, purpose: str) -> None:
    section.rows.append({"limit": limit, "value": value, "for": purpose})
