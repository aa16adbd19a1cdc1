"""How frameworks and a given command load NCCL, and whether the drop-in can intercept it."""

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

# Modules that are linked with NCCL, and the pattern of the linked object.
_LINKED = {"torch": "lib/libtorch_cuda.so", "cupy_backends": "cuda/libs/nccl.*.so"}
_DISTRIBUTIONS = {"cupy_backends": "cupy"}
# Modules that load NCCL with ctypes: from the path in the variable, or by name.
_BY_CTYPES = {"vllm": "VLLM_NCCL_SO_PATH", "sglang": "SGLANG_NCCL_SO_PATH"}
# JAX supports GPUs through a plugin with one of these names.
_JAX_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_JAX_OBJECT = "xla_cuda_plugin.so"
# A variable of NCCL since 2.4: a file that contains the name contains NCCL.
_NCCL_MARK = b"NCCL_TOPO_DUMP_FILE"
_LIST_SECONDS = 60


def examine(
    environment: Mapping[str, str], command: Sequence[str], nccl_version: int | None, drop_in: Path | None
) -> Section:
    """The command, if there is one, and the frameworks that are installed for this Python."""
    section = Section("programs", "How programs load NCCL, and whether `narrowcast run` intercepts it")
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
            how = f"by ctypes, from {variable}={named}" if named else f"by ctypes, from {variable} or by name"
            _row(section, module, _version(module), how, "yes: run sets the variable")
    _check_wanted_version(section, nccl_version)
    return section


def _row(section: Section, program: str, version: str | None, how: str, intercepted: str) -> None:
    section.rows.append({"program": program, "version": version, "reaches NCCL": how, "intercepted": intercepted})


def _folder(module: str) -> Path | None:
    # find_spec does not import the module.
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
        _row(section, name, version, "not at all: built without CUDA", "no")
        return
    elf = elf_file.read(libraries[0])
    if elf is not None and nccl_search.SONAME in elf.needed:
        folders = "DT_RPATH, before LD_LIBRARY_PATH" if elf.rpath else "LD_LIBRARY_PATH, then DT_RUNPATH"
        how = f"linked: {libraries[0].name} needs {nccl_search.SONAME} and looks in {folders}"
        _row(section, name, version, how, "yes: preloading takes precedence")
        _check_symbols(section, libraries[0], drop_in)
    elif _contains_nccl(libraries[0]):
        _row(section, name, version, f"{libraries[0].name} contains NCCL", "no")
        section.problem(
            f"{name} was built with NCCL in {libraries[0]}, which cannot be replaced",
            f"Install a build of {name} that links {nccl_search.SONAME}, such as the wheels on PyPI.",
        )
    else:
        _row(section, name, version, f"not at all: {libraries[0].name} is not linked with it", "no")


def _examine_jax(section: Section, drop_in: Path | None) -> None:
    folder = next((found for found in map(_folder, _JAX_PLUGINS) if found is not None), None)
    library = None if folder is None else folder / _JAX_OBJECT
    if library is None or not library.is_file():
        _row(section, "jax", _version("jax"), "not at all: no plugin for CUDA is installed", "no")
        return
    elf = elf_file.read(library)
    if (elf is not None and nccl_search.SONAME in elf.needed) or _contains_nccl(library):
        _examine_linked(section, "jax", [library], drop_in)
        return
    # The plugin first loads the NCCL of the wheel by path, which then has the name, but after preloaded libraries.
    how = f"by dlopen: {library.name} asks for {nccl_search.SONAME} by name: from the pip wheel or the system"
    _row(section, "jax", _version("jax"), how, "yes: preloading takes precedence")


def _check_symbols(section: Section, path: Path, drop_in: Path | None) -> None:
    """The loader rejects a program that needs a function that the drop-in lacks."""
    if drop_in is None:
        return
    missing = sorted(elf_file.symbols(path, "nccl")[1] - elf_file.symbols(drop_in, "nccl")[0])
    if missing:
        section.problem(
            f"{path} needs {', '.join(missing)} of NCCL, which this drop-in lacks: it would fail to load",
            "Install a newer Narrowcast.",
        )


def _check_wanted_version(section: Section, nccl_version: int | None) -> None:
    """Wheels of torch require the version of NCCL that they were built with."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wanted = re.findall(r"nvidia-nccl-cu\d+==([\d.]+)", " ".join(importlib.metadata.requires("torch") or []))
        if not wanted or nccl_version is None:
            return
        taken = nccl_search.version_text(nccl_version)
        if _numbers(taken) < _numbers(wanted[0]):
            section.problem(
                f"torch was built with NCCL {wanted[0]}, but NCCL {taken} is used",
                f"Install NCCL {wanted[0]} or newer, or set {nccl_search.SETTING} to its path.",
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _contains_nccl(path: Path) -> bool:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_NCCL_MARK) >= 0
    except (OSError, ValueError):
        return False


def _examine_command(section: Section, environment: Mapping[str, str], name: str, drop_in: Path | None) -> None:
    found = shutil.which(name, path=environment.get("PATH"))
    if found is None:
        section.problem(f"{name} is not an executable program", "Give a program on PATH, or its path.")
        return
    path = Path(found)
    with contextlib.suppress(OSError):
        path = _interpreter_of(path, environment)
    shown = name if str(path) in (name, found) else f"{name} ({path})"
    try:
        elf, mode = elf_file.read(path), path.stat().st_mode
    except OSError as error:
        section.problem(f"{path} cannot be read: {error.strerror}", "Run doctor as a user who can read it.")
        return
    if elf is None or (elf.interpreter is None and not elf.needed):
        _row(section, shown, None, "linked statically, or for another machine", "no")
        section.problem(
            f"{path} is linked statically, or for another machine: nothing can be preloaded into it",
            "Link it dynamically. Programs that it starts may still be intercepted.",
        )
        return
    if mode & (stat.S_ISUID | stat.S_ISGID) or _has_capabilities(path):
        _row(section, shown, None, "has set-user-id or capabilities", "no")
        section.problem(
            f"{path} has set-user-id or capabilities: the loader ignores LD_PRELOAD for it",
            "Run a copy without them.",
        )
        return
    linked = _listed(path, elf.interpreter)
    if linked is not None:
        _row(section, shown, None, f"linked with {linked}", "yes")
        _check_symbols(section, path, drop_in)
    elif _contains_nccl(path):
        _row(section, shown, None, "contains NCCL", "no")
        section.problem(
            f"{path} has NCCL linked into it, which cannot be replaced", f"Link it with {nccl_search.SONAME}."
        )
    else:
        _row(section, shown, None, "not linked; may load it by name or path", "yes, if by name")


def _interpreter_of(path: Path, environment: Mapping[str, str]) -> Path:
    """The interpreter of a script; the path itself if it is not a script."""
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
    """The path of the NCCL that the loader finds for the program; None if it is not linked with NCCL."""
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
