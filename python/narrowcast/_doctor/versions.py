"""Versions of the software involved."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from .._dropin import nccl_search
from .._native import library
from .._native.nvml import load as load_nvml
from ..errors import NarrowcastError
from . import gpus
from .report import Section

# The library is built with CUDA 13, whose runtime requires a driver for CUDA 13.
_CUDA_MAJOR = 13


def examine(nccl_version: int | None, drop_in: Path | NarrowcastError) -> Section:
    """drop_in: its path, or the error that explains why it is missing."""
    section = Section("versions", "Versions")
    _add(section, "Narrowcast", *_narrowcast(section))
    if isinstance(drop_in, NarrowcastError):
        section.problem(str(drop_in), "Install a build of Narrowcast with the drop-in.")
    found = None if isinstance(drop_in, NarrowcastError) else str(drop_in)
    # It is part of the same build.
    _add(section, "drop-in", section.rows[0]["version"] if found else None, found)
    _add(section, "NCCL", None if nccl_version is None else nccl_search.version_text(nccl_version))
    nvml = load_nvml()
    _add(section, "driver", nvml.driver_version() if nvml else None)
    cuda = gpus.driver_cuda_version()
    _add(section, "CUDA version of the driver", cuda)
    _add(section, "Python", platform.python_version(), sys.executable)
    _add(section, platform.system(), platform.release())
    _add(section, platform.libc_ver()[0] or "C library", platform.libc_ver()[1] or None)
    if cuda is not None and int(cuda.partition(".")[0]) < _CUDA_MAJOR:
        section.problem(
            f"the driver supports CUDA {cuda}, but Narrowcast is built with CUDA {_CUDA_MAJOR}",
            "Install driver 580 or newer. On data-centre GPUs with an older driver, install NVIDIA's "
            "forward-compatibility package (cuda-compat-13-0) and put its folder first in LD_LIBRARY_PATH.",
        )
    return section


def _add(section: Section, what: str, version: str | None, path: str | None = None) -> None:
    section.rows.append({"what": what, "version": version, "path": path})


def _narrowcast(section: Section) -> tuple[str | None, str | None]:
    """The version and the path of the library."""
    try:
        version = library.library_version()
        path = library.library_path()
    except NarrowcastError as error:
        section.problem(str(error), "Reinstall the package, or set NARROWCAST_LIBRARY to the path of a built library.")
        return None, None
    return version, os.path.realpath(path)
