"""What takes traffic before NCCL sees it, in the frameworks that are installed; docs/guide/vllm_sglang.md has more."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .report import Section


@dataclass(frozen=True)
class Rival:
    """A way past NCCL."""

    program: str
    what: str
    calls: str
    variable: str | None = None
    """Off where it is 0."""
    option: str | None = None
    """Off where the program's command line has it."""


_NO_CUSTOM = "--disable-custom-all-reduce"
_NO_FUSION = '--compilation-config {"pass_config": {"fuse_allreduce_rms": false}}'
_RIVALS = (
    Rival("vllm", "FlashInfer, fused with RMSNorm", "all-reduces", option=_NO_FUSION),
    Rival("vllm", "FlashInfer", "all-reduces", variable="VLLM_ALLREDUCE_USE_FLASHINFER"),
    Rival("vllm", "custom all-reduce", "all-reduces up to some MiB", option=_NO_CUSTOM),
    Rival("vllm", "torch's symmetric memory", "larger all-reduces", variable="VLLM_ALLREDUCE_USE_SYMM_MEM"),
    Rival("sglang", "FlashInfer, fused", "all-reduces", option="--enforce-disable-flashinfer-allreduce-fusion"),
    Rival("sglang", "custom all-reduce", "all-reduces up to some MiB", option=_NO_CUSTOM),
)


def examine(environment: Mapping[str, str], command: Sequence[str]) -> Section:
    section = Section("rivals", "What takes traffic before NCCL sees it")
    for rival in _RIVALS:
        try:
            version = importlib.metadata.version(rival.program)
        except importlib.metadata.PackageNotFoundError:
            continue
        section.rows.append(
            {
                "program": f"{rival.program} {version}",
                "what": rival.what,
                "takes": rival.calls,
                "left to NCCL by": f"{rival.variable}=0" if rival.variable else rival.option,
                "now": "off" if _is_off(rival, environment, command) else "as the program has it",
            }
        )
    return section


def _is_off(rival: Rival, environment: Mapping[str, str], command: Sequence[str]) -> bool:
    if rival.variable is not None:
        return environment.get(rival.variable) == "0"
    return rival.option is not None and rival.option in " ".join(command)
