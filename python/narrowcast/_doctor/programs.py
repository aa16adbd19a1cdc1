"""Who reaches NCCL how, and whether the drop-in gets between: the installed frameworks and a given command."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import mmap
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._dropin import nccl_search
from .._native import elf_file
from .report import Section

# Modules that are linked with NCCL, and where the object stands that is.
_LINKED = {"torch": "lib/libtorch_cuda.so", "cupy_backends": "cuda/libs/nccl.*.so"}
_DISTRIBUTIONS = {"cupy_backends": "cupy"}
# Modules that open it with ctypes: by the path in the variable, else by its name.
_BY_CTYPES = {"vllm": "VLLM_NCCL_SO_PATH", "sglang": "SGLANG_NCCL_SO_PATH"}
# JAX's own parts know nothing of GPUs: a plugin of one of these names does, in one object.
_JAX_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_JAX_OBJECT = "xla_cuda_plugin.so"
# A variable of every NCCL since 2.4: who has the name in its own bytes has NCCL in itself.
_NCCL_MARK = b"NCCL_TOPO_DUMP_FILE"
_LIST_SECONDS = 60


def examine(
    environment: Mapping[str, str], command: Sequence[str], nccl_version: int | None, drop_in: Path | None
) -> Section:
    """The command, when there is one, and the frameworks of this Python."""
    section = Section("programs", "Who reaches NCCL how, and whether `narrowcast run` gets between")
    if command:
        _examine_command(section, environment, command[0], drop_in)
    for module, pattern in _LINKED.items():
        folder = _folder(module)
        if folder is not None:
            _examine_linked(section, module, sorted(folder.glob(pattern)), drop_in)
    if _folder("jax") is not None:
        _examine_jax(section, drop_in)
    for module, variable in _BY_CTYPES.items():
        if _folder(module) is not None:
            named = environment.get(variable)
            how = f"by ctypes, at {variable}={named}" if named else f"by ctypes, at {variable}, else by name"
            _row(section, module, _version(module), how, "yes: run sets the variable")
    _check_wanted_version(section, nccl_version)
    return section


def _row(section: Section, program: str, version: str | None, how: str, intercepted: str) -> None:
    section.rows.append({"program": program, "version": version, "reaches NCCL": how, "intercepted": intercepted})


def _folder(module: str) -> Path | None:
    # Finds the folder without importing the module.
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    places = (found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None


def _version(module: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    return None


def _examine_linked(section: Section, module: str, libraries: list[Path], drop_in: Path | None) -> None:
    name, version = _DISTRIBUTIONS.get(module, module), _version(module)
    if not libraries:
        _row(section, name, version, "not at all: a build without CUDA", "no")
        return
    elf = elf_file.read(libraries[0])
    if elf is not None and nccl_search.SONAME in elf.needed:
        folders = "DT_RPATH, before LD_LIBRARY_PATH" if elf.rpath else "LD_LIBRARY_PATH, then DT_RUNPATH"
        how = f"linked: {libraries[0].name} needs {nccl_search.SONAME} and looks in {folders}"
        _row(section, name, version, how, "yes: what is preloaded comes before both")
        _check_symbols(section, libraries[0], drop_in)
    elif _holds_nccl(libraries[0]):
        _row(section, name, version, f"{libraries[0].name} has NCCL in itself", "no")
        section.problem(
            f"{name} was built with NCCL in {libraries[0]}: nothing can be put in its place",
            f"Install a build of {name} that links {nccl_search.SONAME}, such as the wheels on PyPI.",
        )
    else:
        _row(section, name, version, f"not at all: {libraries[0].name} does not need it", "no")


def _examine_jax(section: Section, drop_in: Path | None) -> None:
    folder = next((found for found in map(_folder, _JAX_PLUGINS) if found is not None), None)
    library = None if folder is None else folder / _JAX_OBJECT
    if library is None or not library.is_file():
        _row(section, "jax", _version("jax"), "not at all: no plugin for CUDA is installed", "no")
        return
    elf = elf_file.read(library)
    if (elf is not None and nccl_search.SONAME in elf.needed) or _holds_nccl(library):
        _examine_linked(section, "jax", [library], drop_in)
        return
    # The plugin loads the wheel's by its path first, which then answers to the name, but behind what is preloaded.
    how = f"by dlopen: {library.name} asks for {nccl_search.SONAME} by name and gets the pip wheel's, else the system's"
    _row(section, "jax", _version("jax"), how, "yes: what is preloaded comes before both")


def _check_symbols(section: Section, path: Path, drop_in: Path | None) -> None:
    """One missing function, and the loader refuses the program."""
    if drop_in is None:
        return
    missing = sorted(elf_file.symbols(path, "nccl")[1] - elf_file.symbols(drop_in, "nccl")[0])
    if missing:
        section.problem(
            f"{path} needs {', '.join(missing)} of NCCL, which this drop-in does not have: it would not load",
            "Install a newer Narrowcast.",
        )


def _check_wanted_version(section: Section, nccl_version: int | None) -> None:
    """The wheels of torch say which NCCL they were built with."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wanted = re.findall(r"nvidia-nccl-cu\d+==([\d.]+)", " ".join(importlib.metadata.requires("torch") or []))
        if not wanted or nccl_version is None:
            return
        taken = nccl_search.version_text(nccl_version)
        if _numbers(taken) < _numbers(wanted[0]):
            section.problem(
                f"torch was built with NCCL {wanted[0]}, and the NCCL that is taken is {taken}",
                f"Install NCCL {wanted[0]} or newer, or set {nccl_search.SETTING} to its path.",
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _holds_nccl(path: Path) -> bool:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_NCCL_MARK) >= 0
    except (OSError, ValueError):
        return False


def _examine_command(section: Section, environment: Mapping[str, str], name: str, drop_in: Path | None) -> None:
    found = shutil.which(name, path=environment.get("PATH"))
    if found is None:
        section.problem(f"{name} is no program that can be run", "Name one that is on PATH, or by its path.")
        return
    path = Path(found)
    with contextlib.suppress(OSError):
        path = _interpreter_of(path, environment)
    shown = name if str(path) in (name, found) else f"{name} ({path})"
    try:
        elf, mode = elf_file.read(path), path.stat().st_mode
    except OSError as error:
        section.problem(f"{path} cannot be read: {error.strerror}", "Examine it as a user who may read it.")
        return
    if elf is None or (elf.interpreter is None and not elf.needed):
        _row(section, shown, None, "linked statically, or for another machine", "no")
        section.problem(
            f"{path} is linked statically or not for this machine: nothing can be preloaded into it",
            "Build it dynamically. What it starts may be intercepted all the same.",
        )
        return
    if mode & (stat.S_ISUID | stat.S_ISGID) or _has_capabilities(path):
        _row(section, shown, None, "runs with privileges of its file", "no")
        section.problem(
            f"{path} has set-user-id or capabilities: the loader ignores LD_PRELOAD for it",
            "Run a copy without them.",
        )
        return
    linked = _listed(path, elf.interpreter)
    if linked is not None:
        _row(section, shown, None, f"linked; without Narrowcast it would be {linked}", "yes")
        _check_symbols(section, path, drop_in)
    elif _holds_nccl(path):
        _row(section, shown, None, "has NCCL in itself", "no")
        section.problem(
            f"{path} has NCCL linked into it: nothing can be put in its place", f"Link it with {nccl_search.SONAME}."
        )
    else:
        _row(section, shown, None, "not linked; when it opens it, then by name or path", "yes when by name")


def _interpreter_of(path: Path, environment: Mapping[str, str]) -> Path:
    """What runs a script; the path itself when it is none."""
    with path.open("rb") as file:
        first = file.readline(4096)
    if not first.startswith(b"#!"):
        return path
    words = first[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(words[0], path=environment.get("PATH")) if words else None
    return Path(found) if found else path


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _listed(path: Path, loader: str | None) -> str | None:
    """Which NCCL the loader would give the program before it starts; None: none."""
    if loader is None:
        return None
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [loader, "--list", str(path)], capture_output=True, text=True, timeout=_LIST_SECONDS, env=clean, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in done.stdout.splitlines():
        name, arrow, found = line.strip().partition(" => ")
        if arrow and name == nccl_search.SONAME:
            return found.partition(" (0x")[0]
    return None
