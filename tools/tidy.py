"""Checks the tree: file types and sizes, headers and constants that nothing uses, code for some GPUs, long comments.

Also reports measurements that are older than the kernels they describe. These are not errors, because measuring again
needs a GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from check_dependencies import INCLUDE, resolve

# Binary files that the tree may contain: test data, fuzz corpora and charts.
BINARIES = ["tests/golden/*", "tests/fuzz/corpus/*", "*.safetensors", "bench/results/*.png", "docs/*.png"]

MAX_BYTES = 1 << 20
LARGE_FILES = ["python/narrowcast/data/llama_slices.safetensors"]

MAX_COLUMNS = 120
C_SUFFIXES = {".h", ".cuh", ".inc", ".def", ".cc", ".cu", ".c", ".asm", ".S"}
SCRIPT_SUFFIXES = {".py", ".sh", ".cmake", ".toml", ".yaml", ".yml"}
SCRIPT_NAMES = {"Makefile", "CMakeLists.txt", ".clang-tidy", ".clang-format"}
C_COMMENT = re.compile(r"(^|\s)(//|/\*)|^\s*\* ")
SCRIPT_COMMENT = re.compile(r"(^|\s)#")

# clang-tidy finds these only in the file that it is called for, and it is called for several sources at once.
CONSTANT = re.compile(r"(?:static )?constexpr [^=({;]*?\b(\w+)(?:\[\w*\])? ?[={]|namespace (\w+) =")
TABLE = re.compile(r'^#include ".*\.(def|inc)"', re.MULTILINE)

# Code that only some GPUs run is in this folder, next to what replaces it on the others.
PTX_FOLDER = "src/device/ptx/"
ARCHITECTURE = re.compile(r"__CUDA_ARCH(_\w+)?__ *[<>=]")

HEADER_SUFFIXES = {".h", ".cuh", ".inc", ".def"}
HEADER_FOLDERS = ("include/", "src/")


class Measurement(NamedTuple):
    """The sources that determine the figures in the files that match `pattern`, as pathspecs of git."""

    pattern: str
    sources: tuple[str, ...]


CODEC_KERNELS = ("src/codec/**/*.cu", "src/codec/**/*.cuh", "src/codec/**/*.h", "src/device/**/*.cuh")
CALL_KERNELS = (  # as in cmake/kernels_hash.cmake
    "src/**/*.cuh",
    "src/executor/cuda/blocks/*.cu",
    "src/executor/cuda/packets/*.cu",
    "src/instances/*.cu",
)
# The first row that matches a file counts.
MEASUREMENTS = [
    Measurement("bench/results/xeon/*_codec.json", ("src/codec/**/*.cc", "src/codec/**/*.h")),
    Measurement("bench/results/*_codec.json", CODEC_KERNELS),
    Measurement("bench/results/*_beside_gloo.json", ("src/**/host/*.cc", "python/narrowcast/_c10d/*.py")),
    Measurement("bench/results/*.json", ("src/**/*.cu", "src/**/*.cuh")),
    Measurement("*.costs", CALL_KERNELS),
]
COMMIT = re.compile(r'commit"?:?\s+"?([0-9a-f]{40})\b')


def git(root: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"git {arguments[0]}: {result.stderr.strip()}")
    return result.stdout


def tree_files(root: Path) -> list[str]:
    """Every file that is tracked or not ignored, except symbolic links and third-party code."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sorted(
        {
            name
            for name in listed
            if name
            and not name.startswith("third_party/")
            and (root / name).is_file()
            and not (root / name).is_symlink()
        }
    )


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def check_binaries(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        with (root / name).open("rb") as file:
            is_binary = b"\0" in file.read(8192)
        if is_binary and not matches(name, BINARIES):
            yield f"{name}: a binary file; if it belongs in the tree, add it to BINARIES in tools/tidy.py"


def check_sizes(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        size = (root / name).stat().st_size
        if size > MAX_BYTES and name not in LARGE_FILES:
            yield f"{name}: {size} bytes, and the limit is {MAX_BYTES}; exceptions are in LARGE_FILES in tools/tidy.py"


def check_headers(root: Path, files: list[str]) -> Iterator[str]:
    included = set()
    for name in files:
        path = root / name
        if path.suffix not in C_SUFFIXES | {".in"}:
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := INCLUDE.match(line):
                included.add(str(resolve(root, path, match[1])))
    for name in files:
        if name.startswith(HEADER_FOLDERS) and Path(name).suffix in HEADER_SUFFIXES and name not in included:
            yield f"{name}: nothing includes it"


def check_constants(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        if not name.startswith("src/") or not name.endswith(".cc"):
            continue
        text = (root / name).read_text(encoding="utf-8")
        if TABLE.search(text):
            continue  # its rows can use them
        is_local = False
        for number, line in enumerate(text.splitlines(), 1):
            if line in ("namespace {", "}  // namespace"):
                is_local = line.endswith("{")
            match = CONSTANT.match(line) if is_local else None
            constant = match and (match[1] or match[2])
            if constant and len(re.findall(rf"\b{constant}\b", text)) == 1:
                yield f"{name}:{number}: nothing uses {constant}"


def check_architectures(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        if Path(name).suffix not in C_SUFFIXES or not name.startswith("src/") or name.startswith(PTX_FOLDER):
            continue
        for number, line in enumerate((root / name).read_text().splitlines(), 1):
            if ARCHITECTURE.search(line):
                yield f"{name}:{number}: code for some GPUs belongs in {PTX_FOLDER}"


def comment_pattern(name: str) -> re.Pattern[str] | None:
    path = Path(name)
    if path.suffix in C_SUFFIXES or name.endswith(".cc.in"):
        return C_COMMENT
    return SCRIPT_COMMENT if path.suffix in SCRIPT_SUFFIXES or path.name in SCRIPT_NAMES else None


def check_comments(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        pattern = comment_pattern(name)
        if pattern is None:
            continue
        in_table = False
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.strip() in ("// clang-format off", "// clang-format on"):
                in_table = line.endswith("off")
            if len(line) > MAX_COLUMNS and not in_table and pattern.search(line):
                yield f"{name}:{number}: a comment of {len(line)} columns; the limit is {MAX_COLUMNS}"


def old_measurements(root: Path, files: list[str]) -> Iterator[str]:
    for name in files:
        measured = next((row for row in MEASUREMENTS if fnmatch(name, row.pattern)), None)
        if measured is None:
            continue
        commits = sorted(set(COMMIT.findall((root / name).read_text(encoding="utf-8"))))
        if not commits:
            yield f"{name}: states no commit"
        for commit in commits:
            try:
                sources = [f":(glob){source}" for source in measured.sources]
                later = git(root, "rev-list", f"{commit}..HEAD", "--", *sources).split()
            except RuntimeError:
                yield f"{name}: measured at {commit[:12]}, which is not in this clone"
                continue
            if later:
                yield f"{name}: measured at {commit[:12]}; its kernels changed in {len(later)} later commits"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--report", action="store_true", help="also list the old measurements one by one")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    files = tree_files(root)
    problems = [
        *check_binaries(root, files),
        *check_sizes(root, files),
        *check_headers(root, files),
        *check_constants(root, files),
        *check_architectures(root, files),
        *check_comments(root, files),
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    old = list(old_measurements(root, files))
    if arguments.report:
        print("\n".join(old))
    elif old:
        print(f"tree: {len(old)} measurements are older than their kernels (tools/tidy.py --report lists them)")
    print(f"tree: {len(problems)} problems" if problems else "tree: clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
