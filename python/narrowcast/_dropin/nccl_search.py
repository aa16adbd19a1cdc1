"""Where NCCL is: the setting, the pip wheel, the system, in the order in which the drop-in looks for it, too."""

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

# As src/nccl/libraries/nccl_search.cc has them.
_FOLDERS = (
    f"/usr/lib/{platform.machine()}-linux-gnu",
    f"/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)
# Read by the drop-in and by no NCCL.
_DROP_IN_MARK = SETTING.encode()
_PROBE_SECONDS = 60
_PROBE = """
import ctypes, json, sys
version = ctypes.c_int()
try:
    status = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version))
    print(json.dumps({"version": version.value} if not status else {"fault": f"ncclGetVersion gave {status}"}))
except (OSError, AttributeError) as error:
    print(json.dumps({"fault": str(error)}))
"""


@dataclass(frozen=True)
class Candidate:
    """A place where NCCL was looked for."""

    source: str
    """setting, pip wheel or system."""
    path: Path
    fault: str | None = None
    """Why it cannot be taken."""


def candidates(environment: Mapping[str, str] = os.environ) -> list[Candidate]:
    """Every place, in order; the first without a fault is taken. A setting is the only one when there is one."""
    named = environment.get(SETTING) or _of_file(environment)
    if named:
        return [_judged("setting", Path(named))]
    found = [_judged("pip wheel", path) for path in _in_wheel()]
    seen = {os.path.realpath(one.path) for one in found}
    for path in _in_system(environment):
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            found.append(_judged("system", path))
    return found


def _of_file(environment: Mapping[str, str]) -> str | None:
    """What the file of settings names, if there is one that can be read."""
    content = None
    if path := environment.get("NARROWCAST_CONFIG"):
        with contextlib.suppress(OSError, ValueError):
            content = settings.toml(Path(path))
    named = (content or {}).get("nccl_library")
    return named if isinstance(named, str) else None


def chosen(found: list[Candidate]) -> Candidate | None:
    """The candidate that is taken."""
    return next((one for one in found if one.fault is None), None)


def version_text(version: int) -> str:
    """22809 -> "2.28.9"."""
    # Since 2.9 the minor version has two digits.
    major, rest = divmod(version, 10000 if version >= 20000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def probe(path: Path) -> tuple[int | None, str | None]:
    """The version of a library and why it has none, asked in a process of its own, for it may be anything."""
    # Nothing that is preloaded may answer in its place.
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
    """The environment variables of its own that a library of NCCL knows: names that stand in it as strings."""
    with _bytes_of(path) as content:
        found = re.finditer(rb"(NCCL_[A-Z0-9_]+)\0", content)
        return {one[1].decode() for one in found if content[one.start() - 1] == 0}


def is_drop_in(path: Path) -> bool:
    """Whether a library is Narrowcast's drop-in, or another file that asks for the same setting."""
    with _bytes_of(path) as content:
        return content.find(_DROP_IN_MARK) >= 0


@contextlib.contextmanager
def _bytes_of(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _judged(source: str, path: Path) -> Candidate:
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
    # Finds the folder of the wheel, and imports nothing but the empty package `nvidia`.
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
