"""The installed versions of NCCL, in search order, and the one that is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .._dropin import nccl_search
from .report import Section


def examine(environment: Mapping[str, str]) -> tuple[Section, Path | None]:
    """The section, and the path of the NCCL that is used; None if none works."""
    section = Section("nccl", "NCCL, in search order")
    found = nccl_search.candidates(environment)
    taken = nccl_search.chosen(found)
    working = None
    for one in found:
        version, fault = (None, one.fault) if one.fault else nccl_search.probe(one.path)
        if one is taken:
            outcome = "used" if fault is None else f"used, but does not work: {fault}"
        else:
            outcome = fault or "not used"
        text = None if version is None else nccl_search.version_text(version)
        section.rows.append({"source": one.source, "path": str(one.path), "version": text, "outcome": outcome})
        if one is taken and fault is None:
            working = one.path
        elif one is taken:
            section.problem(f"{one.path} cannot be loaded as NCCL: {fault}", _use_another())
    if taken is None and environment.get(nccl_search.SETTING):
        section.problem(f"{nccl_search.SETTING} names {found[0].path}: {found[0].fault}", _use_another())
    elif taken is None:
        section.problem(
            f"{nccl_search.SONAME} was not found", f"Install NCCL, such as the wheel nvidia-nccl-cu13. {_use_another()}"
        )
    return section, working


def _use_another() -> str:
    return f"Set {nccl_search.SETTING} to the path of a working {nccl_search.SONAME}."
