"""The settings in force: variables of Narrowcast, NCCL and the loader, where each comes from, which are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._bench.cost_model import load
from .._dropin import nccl_search
from .._native import settings
from ..errors import InvalidArgumentError, NarrowcastError
from . import values
from .report import Section

_NCCL_PREFIX = "NCCL_"
_ALSO_SHOWN = (
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SGLANG_NCCL_SO_PATH",
    "VLLM_NCCL_SO_PATH",
)
# torch read these before they got the prefix TORCH_; NCCL never did.
_OF_TORCH = ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")
# What is often left over from a search for an error, with the values that hurt.
_HURTS = {
    "CUDA_LAUNCH_BLOCKING": (("1",), "the host waits for every kernel"),
    "NCCL_P2P_DISABLE": (("1",), "NCCL lets no GPU reach another directly"),
    "NCCL_SHM_DISABLE": (("1",), "NCCL sends through the network what it could send through memory"),
    "NARROWCAST_OFF": (("1", "true", "all"), "Narrowcast takes nothing"),
    "NARROWCAST_P2P": (("0",), "Narrowcast goes through host memory even where there is NVLink"),
    "NARROWCAST_TAKE": (("never",), "Narrowcast takes nothing"),
}
_OF_FILES_ONLY = "rule"


def examine(environment: Mapping[str, str], nccl: Path | None) -> Section:
    """nccl: the library that says which variables there are."""
    section = Section("settings", "Settings in force")
    known_to_nccl = nccl_search.variables(nccl) if nccl else None
    for name in sorted(environment):
        if name.startswith((settings.PREFIX, _NCCL_PREFIX)) or name in _ALSO_SHOWN:
            _add(section, name, environment[name], "environment", known_to_nccl)
    for path in _nccl_files(environment):
        for name, value in _lines(path):
            if name in environment:
                section.rows.append(_row(name, value, str(path), "gives way to the environment"))
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
        section.problem(settings.unknown_sentence(name), f"Correct its name or unset it (it is from: {source}).")
    elif name.startswith(_NCCL_PREFIX) and known_to_nccl is not None and name not in known_to_nccl:
        meant = None if name in _OF_TORCH else settings.near(name, known_to_nccl)
        note = "of torch, which calls it TORCH_" + name if name in _OF_TORCH else "unknown to this NCCL"
        if meant:
            section.problem(f"this NCCL does not know {name} (did you mean {meant}?)", "Correct its name or unset it.")
    key = name.removeprefix(settings.PREFIX)
    expected = values.expected(key, value) if key != name else None
    if expected:
        note = "not understood"
        section.problem(f"{name} is {value}, not {expected}", f"Correct it or unset it (it is from: {source}).")
    section.rows.append(_row(name, value, source, _add_effect(section, name, name, value, source) or note))


def _add_effect(section: Section, name: str, shown: str, value: str, source: str) -> str:
    """Of what is understood. name: of the variable; shown: as it stands in the source."""
    if name == "NARROWCAST_COST_MODEL" and value:
        return _add_cost_model(section, shown, Path(value), source)
    hurting, effect = _HURTS.get(name, ((), ""))
    if value.lower() not in hurting:
        return ""
    section.problem(f"{shown}={value}: {effect}", f"Unset it, unless that is what you want (it is from: {source}).")
    return effect


def _add_cost_model(section: Section, shown: str, path: Path, source: str) -> str:
    try:
        load(path)
    except InvalidArgumentError as error:
        sentence = str(error).removeprefix("cost_model: ")
        section.problem(f"{shown}: {sentence}", f"Mend the file, or unset {shown} (it is from: {source}).")
        return "cannot be loaded"
    except NarrowcastError:
        # Without the library, which others tell of.
        pass
    return ""


def _nccl_files(environment: Mapping[str, str]) -> list[Path]:
    """The files of settings that NCCL reads, in its order: what is set stays."""
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
        section.problem(f"NARROWCAST_CONFIG is {path}, which cannot be read: {error}", "Mend the file, or unset it.")
        return
    if content is None:
        section.rows.append(
            _row("NARROWCAST_CONFIG", "", str(path), "not looked into: that takes Python 3.11 or newer")
        )
        return
    for key, value in content.items():
        fault, mend = _fault_of_key(key, value)
        if fault:
            note = "not understood"
            section.problem(f"{path}: {fault}", mend)
        elif environment.get(_variable(key)):
            note = "gives way to the environment"
        else:
            note = _add_effect(section, _variable(key), key, values.text_of(value) or "", str(path))
        section.rows.append(_row(key, str(value), str(path), note))


def _variable(key: str) -> str:
    return f"{settings.PREFIX}{key.upper()}"


def _fault_of_key(key: str, value: Any) -> tuple[str, str]:
    """What is wrong with a key of the file, and how to mend it; empty when nothing is."""
    if key == _OF_FILES_ONLY:
        return "; ".join(
            values.faults_of_rules(value)
        ), "Correct it: a rule that is not understood in full is left out."
    if key in settings.KEYS:
        text = values.text_of(value)
        if text is None:
            return f"{key} has a value of no kind that settings have", "Correct it."
        expected = values.expected(key.upper(), text)
        return (f"{key} is {text}, not {expected}" if expected else ""), "Correct it."
    if _variable(key) in settings.VARIABLES:
        return f"{key} is not read from a file", f"Set the variable {_variable(key)} in its place."
    meant = settings.near(key, settings.KEYS | {_OF_FILES_ONLY})
    return f"{key} is not a setting" + (f" (did you mean {meant}?)" if meant else ""), "Correct its name."
