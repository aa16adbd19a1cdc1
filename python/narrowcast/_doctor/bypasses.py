"""Communication of the installed frameworks that does not use NCCL. See docs/guide/vllm_sglang.md."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .report import Section


@dataclass(frozen=True)
class Bypass:
    """Collectives of a framework that do not use NCCL."""

    program: str
    what: str
    calls: str
    variable: str | None = None
    """The environment variable that disables it, with value 0."""
    option: str | None = None
    """The command-line option that disables it."""


_NO_CUSTOM = "--disable-custom-all-reduce"
_NO_FUSION = '--compilation-config {"pass_config": {"fuse_allreduce_rms": false}}'
_BYPASSES = (
    Bypass("vllm", "FlashInfer, fused with RMSNorm", "all-reduces", option=_NO_FUSION),
    Bypass("vllm", "FlashInfer", "all-reduces", variable="VLLM_ALLREDUCE_USE_FLASHINFER"),
    Bypass("vllm", "custom all-reduce", "all-reduces up to some MiB", option=_NO_CUSTOM),
    Bypass("vllm", "torch's symmetric memory", "larger all-reduces", variable="VLLM_ALLREDUCE_USE_SYMM_MEM"),
    Bypass("sglang", "FlashInfer, fused", "all-reduces", option="--enforce-disable-flashinfer-allreduce-fusion"),
    Bypass("sglang", "custom all-reduce", "all-reduces up to some MiB", option=_NO_CUSTOM),
)


def examine(environment: Mapping[str, str], command: Sequence[str]) -> Section:
    section = Section("bypasses", "Communication that does not use NCCL")
    for bypass in _BYPASSES:
        try:
            version = importlib.metadata.version(bypass.program)
        except importlib.metadata.PackageNotFoundError:
            continue
        section.rows.append(
            {
                "program": f"{bypass.program} {version}",
                "what": bypass.what,
                "calls": bypass.calls,
                "disabled by": f"{bypass.variable}=0" if bypass.variable else bypass.option,
                "now": "off" if _is_off(bypass, environment, command) else "decided by the program",
            }
        )
    return section


def _is_off(bypass: Bypass, environment: Mapping[str, str], command: Sequence[str]) -> bool:
    if bypass.variable is not None:
        return environment.get(bypass.variable) == "0"
    return bypass.option is not None and bypass.option in " ".join(command)
