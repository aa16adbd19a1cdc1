"""Checks that folders depend on each other only as the tables below allow.

C++: every quoted #include under include/ and src/ is resolved, and ALLOWED must list the folder it resolves to.
Public headers include only public headers and the headers of src/ that are installed with them.
Python: every import inside the package is resolved, and PYTHON_ALLOWED must list the module or
sub-package it names. At their top, modules import only third-party packages that every user has.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

# Folder of src/ -> folders of src/ that it may include, besides itself. The public headers are open to all.
# Where the table names subfolders, each subfolder is a row.
ALLOWED: dict[str, set[str]] = {
    "status": set(),
    "device": set(),
    "digest": set(),
    "environment": set(),
    "files": set(),
    "operation": {"status"},
    "packages": set(),
    "threads": {"status"},
    "codec": {"device", "status", "threads"},
    "codec/user": {"codec", "device", "digest", "files", "status"},
    "bootstrap": {"digest", "environment", "files", "status"},
    "plan": {"codec", "operation", "status"},
    "channel": {"bootstrap", "device", "digest", "packages", "status"},
    "store/rows": {"codec", "status", "threads"},
    "store/cuda": {"codec", "device", "status", "store/file", "store/rows", "store/table", "threads"},
    "store/file": {"status"},
    "store/table": {"bootstrap", "codec", "digest", "files", "status", "store/file", "store/rows", "threads"},
    "store/build": {"codec", "status", "store/file", "store/rows", "threads"},
    "store/cuda/build": {"codec", "device", "status", "store/build", "store/cuda", "store/rows"},
    "store": {"status", "store/build", "store/cuda", "store/cuda/build", "store/file", "store/table"},
    "select": {"channel", "codec", "environment", "files", "operation", "plan", "status"},
    "executor": {
        "bootstrap",
        "channel",
        "codec",
        "codec/user",
        "device",
        "files",
        "operation",
        "packages",
        "plan",
        "select",
        "status",
    },
    "comm": {"bootstrap", "channel", "codec", "environment", "executor", "operation", "plan", "select", "status"},
    "instances": {"codec", "device", "executor"},
    "nccl/abi": set(),
    "nccl/report": {"nccl/abi"},
    "nccl/settings": {"codec", "environment", "files", "nccl/abi", "nccl/report"},
    "nccl/libraries": {"nccl/abi", "nccl/report", "nccl/settings", "packages"},
    "nccl/calibration": {"files", "nccl/abi"},
    "nccl/policy": {"environment", "files", "nccl/abi", "nccl/libraries", "nccl/report", "nccl/settings"},
    "nccl/ranks": {
        "nccl/calibration",
        "digest",
        "environment",
        "files",
        "nccl/abi",
        "nccl/libraries",
        "nccl/policy",
        "nccl/report",
        "nccl/settings",
    },
    "nccl/calls": {"nccl/abi", "nccl/libraries", "nccl/policy", "nccl/ranks", "nccl/report", "nccl/settings"},
    "nccl/entry": {
        "nccl/abi",
        "nccl/calls",
        "nccl/libraries",
        "nccl/policy",
        "nccl/ranks",
        "nccl/report",
        "nccl/settings",
    },
}

# The list of headers of src/ that are installed, and where: in the source tree a link to src/.
DEVICE_HEADERS = "cmake/device_headers.cmake"
DEVICE_FOLDER = "narrowcast/device/"

# Module or sub-package of python/narrowcast -> those that it may import, besides itself.
_LOWEST = {"errors", "types"}
_PUBLIC = {"codec", "comm", "cuda", "cuda_batch", "files", "local", "plan", "ratios", "store", *_LOWEST}
PYTHON_ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "types": set(),
    "_native": {*_LOWEST},
    "_arrays": {*_LOWEST},
    "_files": {"codec", "_arrays", "_native", *_LOWEST},
    "_plan": {"_files", "_native", "plots", *_LOWEST},
    "codec": {"_arrays", "_native", *_LOWEST},
    "cuda": {"codec", "_arrays", "_native", *_LOWEST},
    "cuda_batch": {"cuda", "_arrays", "_native", *_LOWEST},
    "files": {"codec", "_arrays", "_files", "_native", *_LOWEST},
    "ratios": {"codec", "files", "_files", *_LOWEST},
    "_store": {"files", "_arrays", "_files", "_native", *_LOWEST},
    "store": {"_arrays", "_files", "_native", "_store", *_LOWEST},
    "safetensors": {"files", "_files", *_LOWEST},
    "_c10d": {"comm", "_comm", "codec", "cuda", "_native", *_LOWEST},
    "torch_backend": {"_c10d", *_LOWEST},
    "_torch": {"codec", "cuda", "store", "_native", *_LOWEST},
    "_kv": set(),
    "integrations": {"codec", "cuda", "store", "_kv", "_native", "_torch", *_LOWEST},
    "torch": {"_torch", "_c10d", *_LOWEST},
    "plots": {"ratios", "_files", *_LOWEST},
    "plan": {"_native", "_plan", *_LOWEST},
    "_comm": {"_arrays", "_native", *_LOWEST},
    "comm": {"_comm", "_native", *_LOWEST},
    "local": {"comm", "_comm", "_native", *_LOWEST},
    "_dropin": {"_native", *_LOWEST},
    "_try": {"_native", *_LOWEST},
    "_bench": {"_arrays", "_comm", "_dropin", "_files", "_native", "_store", *_PUBLIC},
    "_doctor": {"_bench", "_comm", "_dropin", "_files", "_native", *_LOWEST},
    "cli": {"_bench", "_comm", "_doctor", "_dropin", "_files", "_native", "_plan", "_try", "plots", *_PUBLIC},
    "__init__": {"_comm", "_dropin", "_native", *_PUBLIC},
    "__main__": {"cli"},
}

# Third-party packages that a module of python/narrowcast may import when it is imported itself.
REQUIRED_PACKAGES = {"numpy"}
CLI_PACKAGES = REQUIRED_PACKAGES | {"rich", "typer"}
TORCH_PACKAGES = REQUIRED_PACKAGES | {"torch"}
PACKAGES_OF = {
    "cli": CLI_PACKAGES,
    "__main__": CLI_PACKAGES,
    "_c10d": TORCH_PACKAGES,
    "_torch": TORCH_PACKAGES,
    "integrations": TORCH_PACKAGES | {"dgl", "diffusers", "msgspec", "sglang", "torch_geometric", "vllm", "zmq"},
    "torch": TORCH_PACKAGES,
    "torch_backend": TORCH_PACKAGES,
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SOURCES = {".h", ".cuh", ".inc", ".cc", ".cu"}


def resolve(root: Path, including: Path, target: str) -> Path | None:
    """The file that the compiler would include, relative to root."""
    for folder in (including.parent, root / "include", root / "src", root / "third_party"):
        candidate = (folder / target).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return None


def device_headers(root: Path) -> set[Path]:
    """The headers of src/ that are installed."""
    path = root / DEVICE_HEADERS
    listed = re.search(r"set\(device_headers\s([^)]*)\)", path.read_text(encoding="utf-8")) if path.is_file() else None
    return {Path("src") / name for name in listed[1].split()} if listed else set()


def folder_of(path: Path) -> str:
    """The row of ALLOWED that a file of src/ belongs to; its first folder if there is none."""
    parts = path.parts[1:-1]
    names = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in ALLOWED), parts[0] if parts else "")


def check_include(source: Path, target: Path, text: str, installed: set[Path]) -> str | None:
    """The error if `source` includes `target` (both relative to the root) by `text`; None if that is allowed."""
    if target.parts[0] == "include":
        return None
    if source.parts[0] == "include":
        if target in installed and text.startswith(DEVICE_FOLDER):
            return None
        return f"a public header includes nothing but public headers and what {DEVICE_HEADERS} installs"
    if source in installed:
        if target not in installed:
            return f"it is installed, and {target} is not in {DEVICE_HEADERS}"
        if normpath(source.parent / text) != str(target):
            return "it is installed: it must include other installed headers relative to itself"
    if target.parts[0] != "src":
        return None
    here, there = folder_of(source), folder_of(target)
    if here not in ALLOWED:
        return f"src/{here} is missing from the table in tools/check_dependencies.py"
    if there == here or there in ALLOWED[here]:
        return None
    may = ", ".join(sorted(ALLOWED[here])) or "nothing"
    return f"{here} may not include {there} (it may include: {may})"


def check_cpp(root: Path) -> Iterator[str]:
    installed = device_headers(root)
    reached: set[Path] = set()
    for top in ("include", "src"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            source = path.relative_to(root)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                target = resolve(root, path, match[1])
                if target is None:
                    yield f'{source}:{number}: "{match[1]}" is not found'
                    continue
                if source.parts[0] == "include" or source in installed:
                    reached.add(target)
                problem = check_include(source, target, match[1], installed)
                if problem is not None:
                    yield f"{source}:{number}: {problem}"
    for header in sorted(installed - reached):
        yield f"{DEVICE_HEADERS}: no public header leads to {header}"


def imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...], bool]]:
    """Each import of a module in `package`: line, parts of the absolute name, and whether it runs at import."""
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, tuple(alias.name.split(".")), id(node) in top
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                yield node.lineno, (*module, alias.name), id(node) in top


def check_python(root: Path) -> Iterator[str]:
    package = root / "python" / "narrowcast"
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        unit = inside.parts[0].removesuffix(".py")
        if unit not in PYTHON_ALLOWED:
            yield f"{path.relative_to(root)}: {unit} is missing from PYTHON_ALLOWED in tools/check_dependencies.py"
            continue
        packages = PACKAGES_OF.get(unit, REQUIRED_PACKAGES)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        seen = set()
        for line, name, at_import in imports(tree, ("narrowcast", *inside.parts[:-1])):
            where = f"{path.relative_to(root)}:{line}"
            if name[0] == "narrowcast":
                target = name[1] if len(name) > 1 else "__init__"
                if target != unit and target not in PYTHON_ALLOWED[unit] and (line, target) not in seen:
                    seen.add((line, target))
                    may = ", ".join(sorted(PYTHON_ALLOWED[unit])) or "nothing"
                    yield f"{where}: {unit} may not import {target} (it may import: {may})"
            elif at_import and name[0] not in packages | sys.stdlib_module_names:
                yield f"{where}: {name[0]} is not installed on every machine: import it where it is used"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    problems = [*check_cpp(root), *check_python(root)]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"dependencies: {len(problems)} problems" if problems else "dependencies: as allowed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
