"""Which NCCL was found: every candidate in the order of the search, and which one is taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .._dropin import nccl_search
from .report import Section


def examine(environment: Mapping[str, str]) -> tuple[Section, Path | None]:
    """The section, and the NCCL that works."""
    section = Section("nccl", "NCCL, in the order of the search")
    found = nccl_search.candidates(environment)
    taken = nccl_search.chosen(found)
    working = None
    for one in found:
        version, fault = (None, one.fault) if one.fault else nccl_search.probe(one.path)
        if one is taken:
            outcome = "taken" if fault is None else f"taken, and does not work: {fault}"
        else:
            outcome = fault or "there, but not needed"
        text = None if version is None else nccl_search.version_text(version)
        section.rows.append({"source": one.source, "path": str(one.path), "version": text, "outcome": outcome})
        if one is taken and fault is None:
            working = one.path
        elif one is taken:
            section.problem(f"{one.path} is no NCCL that can be loaded: {fault}", _other())
    if taken is None and environment.get(nccl_search.SETTING):
        section.problem(f"{nccl_search.SETTING} names {found[0].path}: {found[0].fault}", _other())
    elif taken is None:
        mend = f"Install NCCL, such as the wheel nvidia-nccl-cu13, or s{_other()[1:]}"
        section.problem(f"no {nccl_search.SONAME} was found", mend)
    return section, working


def _other() -> str:
    return f"Set {nccl_search.SETTING} to the path of another {nccl_search.SONAME}."
