"""Searches for NCCL as the drop-in does: the setting, the pip wheel, then the system."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .._native import settings

SONAME = "libnccl.so.2"
SETTING = "NARROWCAST_NCCL_LIBRARY"

# The same list as in src/nccl/libraries/nccl_search.cc.
_FOLDERS = (
    f"/usr/lib/{platform.machine()}-linux-gnu",
    f"/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)
# A string that the drop-in contains and NCCL does not.
_DROP_IN_MARK = SETTING.encode()
_PROBE_SECONDS = 60
_PROBE = """
import ctypes, json, sys
version = ctypes.c_int()
try:
    status = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version))
    print(json.dumps({"version": version.value} if not status else {"fault": f"ncclGetVersion returned {status}"}))
except (OSError, AttributeError) as error:
    print(json.dumps({"fault": str(error)}))
"""


@dataclass(frozen=True)
class Candidate:
    """A library that may be NCCL."""

    source: str
    """"setting", "pip wheel" or "system"."""
    path: Path
    fault: str | None = None
    """Why it cannot be used; None if it can."""


def candidates(environment: Mapping[str, str] = os.environ) -> list[Candidate]:
    """All candidates, in search order. The first without a fault is used. A setting excludes all others."""
    named = environment.get(SETTING) or _named_in_file(environment)
    if named:
        return [_candidate("setting", Path(named))]
    found = [_candidate("pip wheel", path) for path in _in_wheel()]
    seen = {os.path.realpath(one.path) for one in found}
    for path in _in_system(environment):
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            found.append(_candidate("system", path))
    return found


def _named_in_file(environment: Mapping[str, str]) -> str | None:
    """The path in the settings file, if there is a readable one."""
    content = None
    if path := environment.get("NARROWCAST_CONFIG"):
        with contextlib.suppress(OSError, ValueError):
            content = settings.toml(Path(path))
    named = (content or {}).get("nccl_library")
    return named if isinstance(named, str) else None


def chosen(found: list[Candidate]) -> Candidate | None:
    """The candidate that is used."""
    return next((one for one in found if one.fault is None), None)


def version_text(version: int) -> str:
    """22809 -> "2.28.9"."""
    # Since 2.9 the minor version has two digits.
    major, rest = divmod(version, 10000 if version >= 20000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def probe(path: Path) -> tuple[int | None, str | None]:
    """The version of a library, or why it is unknown. Loads it in a separate process, because it may be any file."""
    # A preloaded library must not answer instead.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, str(path)],
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"it did not load within {_PROBE_SECONDS} seconds"
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return None, f"loading it ended the process with status {done.returncode}"
    return answer.get("version"), answer.get("fault")


def variables(path: Path) -> set[str]:
    """The environment variables of NCCL that occur as strings in a library."""
    with _bytes_of(path) as content:
        found = re.finditer(rb"(NCCL_[A-Z0-9_]+)\0", content)
        return {one[1].decode() for one in found if content[one.start() - 1] == 0}


def is_drop_in(path: Path) -> bool:
    """Whether a library is the drop-in of Narrowcast, or another file with the name of its setting."""
    with _bytes_of(path) as content:
        return content.find(_DROP_IN_MARK) >= 0


@contextlib.contextmanager
def _bytes_of(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _candidate(source: str, path: Path) -> Candidate:
    fault = None
    try:
        if not path.is_file():
            fault = "it is not a file"
        elif not path.is_absolute():
            fault = "it is not an absolute path"
        elif is_drop_in(path):
            fault = "it is Narrowcast's drop-in, not NCCL"
    except (OSError, ValueError) as error:
        fault = f"it cannot be read: {error}"
    return Candidate(source, path, fault)


def _in_wheel() -> Iterator[Path]:
    # find_spec imports only the empty package `nvidia`.
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except (ImportError, ValueError):
        package = None
    for folder in (package.submodule_search_locations or []) if package else []:
        library = Path(folder).absolute() / "lib" / SONAME
        if library.is_file():
            yield library


def _in_system(environment: Mapping[str, str]) -> Iterator[Path]:
    named = [folder for folder in re.split("[:;]", environment.get("LD_LIBRARY_PATH", "")) if folder.startswith("/")]
    for folder in (*named, *_FOLDERS):
        library = Path(folder) / SONAME
        if library.is_file():
            yield library
