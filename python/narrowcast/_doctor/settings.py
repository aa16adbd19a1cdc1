"""The current settings of Narrowcast, NCCL and the loader, their sources, and those that are unknown or invalid."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from .._bench.cost_model import load
from .._dropin import nccl_search, policy
from .._native import settings
from ..errors import InvalidArgumentError, LibraryNotFoundError, NarrowcastError
from . import setting_values
from .report import Section

_NCCL_PREFIX = "NCCL_"
_OTHER_VARIABLES = (
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SGLANG_NCCL_SO_PATH",
    "VLLM_NCCL_SO_PATH",
)
# Variables of torch from before the prefix TORCH_. NCCL does not read them.
_TORCH_VARIABLES = ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")
# Settings for debugging that should not remain set: harmful values, and their effect.
_HARMFUL = {
    "CUDA_LAUNCH_BLOCKING": (("1",), "the host waits for every kernel"),
    "NCCL_P2P_DISABLE": (("1",), "NCCL does not use peer access between GPUs"),
    "NCCL_SHM_DISABLE": (("1",), "NCCL uses the network instead of shared memory"),
    "NARROWCAST_OFF": (("1", "true", "all"), "all calls are forwarded to NCCL"),
    "NARROWCAST_P2P": (("0",), "Narrowcast uses host memory even between GPUs with NVLink"),
    "NARROWCAST_TAKE": (("never",), "all calls are forwarded to NCCL"),
}


def examine(environment: Mapping[str, str], nccl: Path | None) -> Section:
    """nccl: the library whose variables are known; None if there is none."""
    section = Section("settings", "Settings")
    known_to_nccl = nccl_search.variables(nccl) if nccl else None
    for name in sorted(environment):
        if name.startswith((settings.PREFIX, _NCCL_PREFIX)) or name in _OTHER_VARIABLES:
            _add(section, name, environment[name], "environment", known_to_nccl)
    for path in _nccl_files(environment):
        for name, value in _lines(path):
            if name in environment:
                section.rows.append(_row(name, value, str(path), "overridden by the environment"))
            else:
                _add(section, name, value, str(path), known_to_nccl)
    config = environment.get("NARROWCAST_CONFIG")
    if config:
        _add_config(section, Path(config), environment)
    return section


def _row(name: str, value: str, source: str, note: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "from": source, "note": note}


def _add(section: Section, name: str, value: str, source: str, known_to_nccl: set[str] | None) -> None:
    note = ""
    if name in settings.unknown({name: value}):
        note = "unknown"
        section.problem(settings.unknown_message(name), f"Correct its name or unset it (source: {source}).")
    elif name.startswith(_NCCL_PREFIX) and known_to_nccl is not None and name not in known_to_nccl:
        meant = None if name in _TORCH_VARIABLES else settings.closest(name, known_to_nccl)
        note = "a variable of torch, now TORCH_" + name if name in _TORCH_VARIABLES else "unknown to this NCCL"
        if meant:
            section.problem(f"this NCCL does not know {name} (did you mean {meant}?)", "Correct its name or unset it.")
    key = name.removeprefix(settings.PREFIX)
    expected = setting_values.expected(key, value) if key != name else None
    if expected:
        note = "invalid"
        section.problem(f"{name} is {value}, not {expected}", f"Correct it or unset it (source: {source}).")
    section.rows.append(_row(name, value, source, _add_effect(section, name, name, value, source) or note))


def _add_effect(section: Section, name: str, shown: str, value: str, source: str) -> str:
    """Adds a problem if a valid setting is harmful, and returns its effect.

    name: the variable. shown: the name in the source.
    """
    if name == "NARROWCAST_COST_MODEL" and value:
        return _add_cost_model(section, shown, Path(value), source)
    harmful, effect = _HARMFUL.get(name, ((), ""))
    if value.lower() not in harmful:
        return ""
    section.problem(f"{shown}={value}: {effect}", f"Unset it, unless this is intended (source: {source}).")
    return effect


def _add_cost_model(section: Section, shown: str, path: Path, source: str) -> str:
    try:
        # Costs of other kernels are still used, so this is a remark and not a problem.
        return load(path) or ""
    except InvalidArgumentError as error:
        message = str(error).removeprefix("cost_model: ")
        section.problem(f"{shown}: {message}", f"Correct the file, or unset {shown} (source: {source}).")
        return "cannot be loaded"
    except NarrowcastError:
        # The library is missing, which another section reports.
        return ""


def _nccl_files(environment: Mapping[str, str]) -> list[Path]:
    """The configuration files of NCCL, in the order in which it reads them: earlier settings take precedence."""
    own = environment.get("NCCL_CONF_FILE")
    home = environment.get("HOME")
    first = Path(own) if own else Path(home) / ".nccl.conf" if home else None
    return [path for path in (first, Path("/etc/nccl.conf")) if path is not None and path.is_file()]


def _lines(path: Path) -> list[tuple[str, str]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    pairs = [line.partition("=") for line in text.splitlines() if not line.startswith("#") and "=" in line]
    return [(name, value) for name, _, value in pairs]


def _add_config(section: Section, path: Path, environment: Mapping[str, str]) -> None:
    try:
        content = settings.toml(path)
    except (OSError, ValueError) as error:
        section.problem(f"NARROWCAST_CONFIG is {path}, which cannot be read: {error}", "Correct the file, or unset it.")
        return
    with contextlib.suppress(LibraryNotFoundError):  # which another section reports
        for fault in policy.check(path)["faults"]:
            section.problem(fault, f"Correct it. narrowcast policy check {path} shows what remains.")
    if content is None:
        section.rows.append(
            _row("NARROWCAST_CONFIG", "", str(path), "not examined: this requires Python 3.11 or newer")
        )
        return
    for key, value in content.items():
        if environment.get(_variable(key)):
            note = "overridden by the environment"
        else:
            note = _add_effect(section, _variable(key), key, setting_values.text_of(value) or "", str(path))
        section.rows.append(_row(key, str(value), str(path), note))


def _variable(key: str) -> str:
    return f"{settings.PREFIX}{key.upper()}"
