"""Checks that no folder includes or imports one that it may not.

C++: every quoted #include under include/ and src/ is resolved, and the folder that it lands in must stand in ALLOWED.
Public headers include public headers, and those of src/ that are installed with them, which include nothing else.
Python: only the command line imports the command line, and the top level imports only what every user has.
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
ALLOWED: dict[str, set[str]] = {
    "status": set(),
    "format": {"status"},
    "device": set(),
    "codec": {"format", "device", "status"},
    "channel": {"device", "status"},
    "collective": {"channel", "codec", "device", "format", "status"},
    "nccl": set(),
}

# The list of headers of src/ that are installed, and where: in the source tree a link to src/.
DEVICE_HEADERS = "cmake/device_headers.cmake"
DEVICE_FOLDER = "narrowcast/device/"

# Third-party packages that a module of python/narrowcast may import when it is imported itself.
REQUIRED_PACKAGES = {"numpy"}
CLI_PACKAGES = REQUIRED_PACKAGES | {"rich", "typer"}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SOURCES = {".h", ".cuh", ".inc", ".cc", ".cu"}


def resolve(root: Path, including: Path, target: str) -> Path | None:
    """The file that the compiler would take, relative to root."""
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


def check_include(source: Path, target: Path, text: str, installed: set[Path]) -> str | None:
    """What is wrong with `source` including `target` (both relative to the root) by `text`, or None."""
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
            return "it is installed: it includes its like relative to itself"
    if target.parts[0] != "src":
        return None
    here, there = source.parts[1], target.parts[1]
    if here not in ALLOWED:
        return f"src/{here} is missing from the table in tools/check_arrows.py"
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


def imports(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Line, absolute name and whether it runs at import, of every import; relative names start with `narrowcast`."""
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            module = f"narrowcast.{node.module or ''}" if node.level else node.module or ""
            names = [f"{module.rstrip('.')}.{alias.name}" for alias in node.names]
            for name in names if module.rstrip(".") == "narrowcast" else [module]:
                yield node.lineno, name, id(node) in top


def check_python(root: Path) -> Iterator[str]:
    package = root / "python" / "narrowcast"
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        is_cli = inside.parts[0] in {"cli", "cli.py", "__main__.py"}
        packages = CLI_PACKAGES if is_cli else REQUIRED_PACKAGES
        for line, name, at_import in imports(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(root)}:{line}"
            first = name.split(".")[0]
            if not is_cli and (name + ".").startswith("narrowcast.cli."):
                yield f"{where}: only the command line imports narrowcast.cli"
            elif at_import and first not in packages | sys.stdlib_module_names | {"narrowcast"}:
                yield f"{where}: {first} is not there on every machine: import it where it is used"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    problems = [*check_cpp(root), *check_python(root)]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"arrows: {len(problems)} wrong" if problems else "arrows: all point down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
