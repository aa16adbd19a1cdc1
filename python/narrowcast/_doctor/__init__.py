"""The checks of `narrowcast doctor`: one module for each subject, each returning sections of rows and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .._dropin import nccl_search, preload
from ..errors import NarrowcastError
from . import bypasses, gpus, limits, nccl, network, programs, settings, versions
from .limits import remove_stale_segments
from .report import Problem, Section

__all__ = ["Problem", "Section", "examine", "remove_stale_segments"]


def examine(environment: Mapping[str, str], command: Sequence[str]) -> list[Section]:
    """All sections. command: a command to examine as well; may be empty."""
    of_nccl, library = nccl.examine(environment)
    version = nccl_search.probe(library)[0] if library else None
    drop_in: Path | NarrowcastError
    try:
        drop_in = preload.drop_in()
    except NarrowcastError as error:
        drop_in = error
    return [
        of_nccl,
        versions.examine(version, drop_in),
        *gpus.examine(),
        limits.examine(),
        network.examine(environment),
        programs.examine(environment, command, version, drop_in if isinstance(drop_in, Path) else None),
        bypasses.examine(environment, command),
        settings.examine(environment, library),
    ]
